"""From partial results to the values of aggregate functions, for all groups and windows at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.columnar import Int64s, to_numpy
from headrace.expr import AggregateCall
from headrace.expr.arrow.decimals import to_floats
from headrace.operators.aggregate.accumulators import COUNT, PART, Argument, Layout
from headrace.operators.aggregate.bags import Bag
from headrace.operators.aggregate.exact import as_integers, lowest_limb, total_decimal, total_float, total_integer
from headrace.operators.evaluate import evaluate_changes
from headrace.types import DIGITS

__all__ = ["answers", "outputs"]


def answers(state: pa.Table, layout: Layout, window: str) -> pa.Table:
    """One row per group and window with events: keys, window, and a column for every aggregate call."""
    part = to_numpy(state.column(PART))
    present = (part == 0) & (to_numpy(state.column(COUNT)) > 0)
    sums = state if present.all() else state.filter(pa.array(present))
    table = sums.select([*layout.keys, window])
    bags = _Bags(
        state.filter(pa.array(part > 0)) if layout.bag_columns else state.slice(0, 0), sums, table.column_names
    )
    for name, call in layout.node.split[0].items():
        table = table.append_column(name, _value(call, sums, bags, layout))
    return table


def outputs(state: pa.Table, layout: Layout, window: str, weight: int) -> tuple[Int64s, Int64s, pa.Table]:
    """For every answer: the number of its window, the weight, and the output payload."""
    table = answers(state, layout, window)
    weights = np.full(table.num_rows, weight, np.int64)
    columns = [table.column(name) for name in layout.keys]
    columns += [evaluate_changes(expr, table, weights) for expr in layout.node.split[1].values()]
    payload = pa.Table.from_arrays(columns, schema=layout.node.schema.arrow)
    return to_numpy(table.column(window)), weights, payload


class _Bags:
    """The bags of all arguments; each is built once for all its functions."""

    def __init__(self, rows: pa.Table, sums: pa.Table, by: list[str]) -> None:
        self._rows, self._sums, self._by = rows, sums, by
        self._bags: dict[int, Bag] = {}

    def of(self, argument: Argument) -> Bag:
        if argument.number not in self._bags:
            self._bags[argument.number] = Bag.of(argument, self._rows, self._sums, self._by)
        return self._bags[argument.number]


def _value(call: AggregateCall, sums: pa.Table, bags: _Bags, layout: Layout) -> pa.Array:
    if call.argument is None:
        return sums.column(COUNT)
    argument = layout.argument_of(call)
    if call.function in ("min", "max") and argument.mergeable_extremes:
        return _extreme(call.function, argument, sums)
    count = _column(sums, f"{argument.prefix}n")
    if call.function == "count":
        return pa.array(count)
    if call.function in _SUMMED:
        return _SUMMED[call.function](argument, sums, count)
    return bags.of(argument).answer(call)


def _column(table: pa.Table, name: str) -> Int64s:
    return (
        to_numpy(pc.fill_null(table.column(name), 0))
        if name in table.column_names
        else np.zeros(table.num_rows, np.int64)
    )


def _columns(table: pa.Table, prefix: str) -> dict[str, Int64s]:
    return {name[len(prefix) :]: _column(table, name) for name in table.column_names if name.startswith(prefix)}


def _sum(argument: Argument, sums: pa.Table, count: Int64s) -> pa.Array:
    limbs = _columns(sums, f"{argument.prefix}s")
    if argument.type.is_floating:
        return pa.array(total_float(limbs, len(count)), pa.float64(), mask=count == 0)
    if argument.type.is_decimal:
        return _decimals(limbs, argument.type.scale, count)
    value, fits = total_integer(limbs, len(count))
    return pa.array(value, mask=(count == 0) | ~fits)  # values that cannot be computed are null


def _decimals(limbs: dict[str, Int64s], scale: int, count: Int64s) -> pa.Array:
    """Exact sums, null where they have too many digits."""
    words, fits = total_decimal(limbs, len(count))
    valid = np.packbits(fits & (count > 0), bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(np.ascontiguousarray(words))]
    return pa.Array.from_buffers(pa.decimal128(DIGITS, scale), len(count), buffers)


def _avg(argument: Argument, sums: pa.Table, count: Int64s) -> pa.Array:
    if argument.type.is_decimal:
        return pc.divide(to_floats(_sum(argument, sums, count)), pa.array(np.maximum(count, 1).astype(np.float64)))
    total = total_float(_columns(sums, f"{argument.prefix}s"), len(count))
    return pa.array(total / np.maximum(count, 1), pa.float64(), mask=count == 0)


def _var(argument: Argument, sums: pa.Table, count: Int64s) -> pa.Array:
    """The sample variance, `(n·Σx² - (Σx)²) / (n·(n - 1))`, in integers: no digits are lost to cancellation."""
    limbs, squares = _columns(sums, f"{argument.prefix}s"), _columns(sums, f"{argument.prefix}q")
    size, unit = len(count), min(lowest_limb(limbs), lowest_limb(squares) // 2 - 1, 0)
    linear, square = as_integers(limbs, size, unit), as_integers(squares, size, 2 * unit)
    n = count.astype(object)
    numerator = n * square - linear * linear
    scale = 1 << (-2 * unit * 32)
    enough = count > 1
    safe = np.where(enough, n * (n - 1), 1)
    value = np.array([_ratio(a, b * scale) for a, b in zip(numerator, safe, strict=True)], np.float64)
    odd = total_float({k: v for k, v in squares.items() if k in ("nan", "pinf", "ninf")}, size) != 0
    return pa.array(np.where(odd, np.nan, np.maximum(value, 0.0)), pa.float64(), mask=~enough)


def _ratio(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator
    except OverflowError:
        return float("inf")


def _stddev(argument: Argument, sums: pa.Table, count: Int64s) -> pa.Array:
    return pc.sqrt(_var(argument, sums, count))


def _geometric_mean(argument: Argument, sums: pa.Table, count: Int64s) -> pa.Array:
    total = total_float(_columns(sums, f"{argument.prefix}l"), len(count))
    without = _column(sums, f"{argument.prefix}z") > 0
    value = np.exp(np.where(without, 0.0, total / np.maximum(count, 1)))
    return pa.array(value, pa.float64(), mask=(count == 0) | without)  # values that cannot be computed are null


_SUMMED = {"sum": _sum, "avg": _avg, "var": _var, "stddev": _stddev, "geometric_mean": _geometric_mean}


def _extreme(function: str, argument: Argument, sums: pa.Table) -> pa.Array:
    values = sums.column(f"{argument.prefix}{function}")
    if not argument.type.is_floating:
        return values
    nan = _column(sums, f"{argument.prefix}snan") > 0  # NaN is greater than any number
    missing = nan if function == "max" else nan & np.asarray(pc.is_null(values))
    return pc.if_else(pa.array(missing), pa.scalar(float("nan"), values.type), values)
