"""Python functions that SQL calls: aggregates that neither engine computes exactly, users' functions and modules.

An aggregate gets its values with the starts of their events, in no order, and computes the definition with Python's
exact arithmetic. A module gets the events of a window and runs the author's code from scratch. The only code shared
with the kernels of the engine is the guard around a module's call, and the hash of the approximate count.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.columnar import hash_rows
from headrace.expr.python import Udf, run
from headrace.history.script import HistoryFunction
from headrace.modules.base import Module, Window
from headrace.modules.items import items_of
from headrace.operators.per_window.calling import Caller, Failure, module_error
from headrace.plan.nodes import Operate, PerWindow
from headrace.schema import Type

__all__ = ["BY_LIST", "list_function", "module_function", "operator_function", "udf_function"]

#: The number of hashes in a sketch.
_SKETCH = 1024
#: A value and the start of its event.
Item = tuple[int, Any]


def _order(value: Any) -> tuple[bool, bool, Any]:
    """A sort key: nulls last, NaN after all numbers."""
    odd = isinstance(value, float) and math.isnan(value)
    return value is None, odd, 0 if value is None or odd else value


def _in_time(items: Sequence[Item]) -> list[Any]:
    return [value for _, value in sorted(items, key=lambda item: (item[0], _order(item[1])))]


def _in_size(items: Sequence[Item]) -> list[Any]:
    return sorted((value for _, value in items), key=_order)


def _total(values: Sequence[float]) -> float:
    odd = {str(v) for v in values if not math.isfinite(v)}
    if odd:
        return float(odd.pop()) if len(odd) == 1 else math.nan
    try:
        return math.fsum(values)
    except OverflowError:  # in between or in the result: integers do not overflow
        shift = 2**1074
        total = sum(int(n) * (shift // d) for n, d in map(float.as_integer_ratio, values))
        try:
            return total / shift
        except OverflowError:
            return math.inf if total > 0 else -math.inf


def _sum(items: Sequence[Item]) -> float | None:
    return _total([value for _, value in items]) if items else None


def _avg(items: Sequence[Item]) -> float | None:
    return _total([value for _, value in items]) / len(items) if items else None


def _var(items: Sequence[Item]) -> float | None:
    values = [value for _, value in items]
    if len(values) < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    try:
        return float(statistics.variance(values))
    except OverflowError:
        return math.inf


def _stddev(items: Sequence[Item]) -> float | None:
    found = _var(items)
    return None if found is None else math.sqrt(found)


def _quantile(items: Sequence[Item], q: float) -> float | None:
    values = [float(value) for value in _in_size(items)]
    if not values:
        return None
    rank = q * (len(values) - 1)
    low, high = values[math.floor(rank)], values[math.ceil(rank)]
    part = rank - math.floor(rank)
    if part == 0 or low == high:
        return low
    between = low * (1 - part) + high * part
    return between if math.isnan(between) else min(max(between, low), high)


def _percentile_disc(items: Sequence[Item], q: float) -> Any:
    values = _in_size(items)
    return values[max(math.ceil(q * len(values)), 1) - 1] if values else None


def _geometric_mean(items: Sequence[Item]) -> float | None:
    values = [float(value) for _, value in items]
    if not values or any(value <= 0 for value in values):
        return None
    logs = [math.log(value) for value in values]
    return float(np.exp(np.array([_total(logs) / len(logs)]))[0])


def _top_frequent(items: Sequence[Item], k: int) -> list[Any]:
    often = Counter(map(_order, (value for _, value in items)))
    first = {_order(value): value for _, value in reversed(items)}
    return [first[key] for key in sorted(often, key=lambda key: (-often[key], key))[:k]]


def _approx_distinct(items: Sequence[Item], kind: pa.DataType) -> int:
    """The estimate of the sketch: the least 1024 hashes of all values, and the position of the last of them."""
    hashes = np.unique(hash_rows(pa.table({"v": pa.array([value for _, value in items], kind)})))
    if len(hashes) < _SKETCH:
        return len(hashes)
    return round((_SKETCH - 1) / ((float(hashes[_SKETCH - 1]) + 1.0) / 2.0**64))


#: Aggregates of the values that are not null, and of their starts.
BY_LIST: dict[str, Callable[..., Any]] = {
    "sum": _sum,
    "avg": _avg,
    "var": _var,
    "stddev": _stddev,
    "median": lambda items: _quantile(items, 0.5),
    "quantile": _quantile,
    "percentile_disc": _percentile_disc,
    "geometric_mean": _geometric_mean,
    "first": lambda items: next(iter(_in_time(items)), None),
    "last": lambda items: next(reversed(_in_time(items)), None),
    "collect": _in_time,
    "concat": lambda items, separator: separator.join(_in_time(items)) if items else None,
    "top_frequent": _top_frequent,
    "approx_distinct": _approx_distinct,
}


def item_type(value: Type) -> pa.DataType:
    """A value and the start of its event, as SQL collects them."""
    return pa.struct([("le", pa.int64()), ("value", value.arrow)])


def list_function(name: str, function: str, parameters: tuple[Any, ...], takes: Type, gives: Type) -> HistoryFunction:
    """An aggregate of lists of `le` and `value`; nulls do not count."""
    compute = BY_LIST[function]

    def call(lists: Any) -> pa.Array:
        found = [
            compute([(item["le"], item["value"]) for item in items or () if item["value"] is not None], *parameters)
            for items in _listed(lists)
        ]
        return pa.array(found, gives.arrow)

    return HistoryFunction(name, (pa.list_(item_type(takes)),), gives.arrow, call)


def udf_function(name: str, udf: Udf, arguments: int) -> HistoryFunction:
    """A user's function of several columns."""
    kinds = udf.takes[:arguments]

    def call(*columns: Any) -> pa.Array:
        given = [_array(column).cast(kind.arrow) for column, kind in zip(columns, kinds, strict=True)]
        found = run(udf, given, len(given[0]))
        return (
            pa.repeat(found, len(given[0])) if isinstance(found, pa.Scalar) else _array(found).cast(udf.returns.arrow)
        )

    return HistoryFunction(name, tuple(kind.arrow for kind in kinds), udf.returns.arrow, call)


# --- modules ----------------------------------------------------------------------------------------------------------


def event_type(module: Module) -> pa.DataType:
    """An event of a window as SQL collects it: its lifetime and the module's fields, numbered."""
    fields = [(f"f{i}", field.type.arrow) for i, field in enumerate(module.fields)]
    return pa.struct([("le", pa.int64()), ("re", pa.int64()), *fields])


def module_function(name: str, module: Module, node: PerWindow) -> HistoryFunction:
    """A user's aggregate over a window: whether it has an answer, and the answer."""
    gives = pa.struct([("given", pa.bool_()), ("value", module.gives.arrow)])  # type: ignore[attr-defined]
    caller = Caller(module, node.policy)

    def call(lists: Any, starts: Any, ends: Any) -> pa.Array:
        found = []
        for items, le, re in zip(_listed(lists), _listed(starts), _listed(ends), strict=True):
            answer = _answer(caller, node, items, Window(le, re))
            found.append({"given": False} if isinstance(answer, Failure) else {"given": True, "value": answer})
        return pa.array(found, gives)

    return HistoryFunction(name, (pa.list_(event_type(module)), pa.int64(), pa.int64()), gives, call)


def operator_function(name: str, node: Operate) -> HistoryFunction:
    """A user's operator over a window: its outputs, with their lifetimes."""
    columns = [(f"f{i}", field.type.arrow) for i, field in enumerate(node.module.gives)]
    gives = pa.list_(pa.struct([("le", pa.int64()), ("re", pa.int64()), *columns]))
    caller = Caller(node.module, node.policy)

    def call(lists: Any, starts: Any, ends: Any) -> pa.Array:
        found = []
        for items, le, re in zip(_listed(lists), _listed(starts), _listed(ends), strict=True):
            outputs = _answer(caller, node, items, Window(le, re))
            found.append([] if isinstance(outputs, Failure) else _stamped(node, outputs, Window(le, re)))
        return pa.array(found, gives)

    return HistoryFunction(name, (pa.list_(event_type(node.module)), pa.int64(), pa.int64()), gives, call)


def _answer(caller: Caller, node: PerWindow, items: list[dict[str, Any]], window: Window) -> Any:
    module = caller.module
    given = _items(module, node, items, window)
    found = caller.compute_all(given, window) if module.incremental else caller.compute(given, window)
    if isinstance(found, Failure) and node.policy.on_error == "fail":
        raise module_error(module, {}, window, found, dates=node.dates)
    return found


def _items(module: Module, node: PerWindow, events: list[dict[str, Any]], window: Window) -> list[Any]:
    """The items by rule 6: lifetimes clipped, in order, without times for modules that do not see them."""
    rows = []
    for event in events:
        values = [event[f"f{i}"] for i in range(len(module.fields))]
        values = [v + 0.0 if isinstance(v, float) else v for v in values]  # one zero
        le, re = event["le"], event["re"]
        if not module.time_sensitive:
            rows.append(((le, *map(_order, values)), tuple(values)))
            continue
        re = min(re, window.re) if node.clips_right else re
        le = max(le, window.le) if node.policy.clipping in ("left", "full") else le
        re = max(re, le + 1)  # what ends where its window starts shows as an instant
        rows.append(((le, re, *map(_order, values)), (le, re, *values)))
    rows.sort(key=lambda row: row[0])
    return items_of(module.fields.names, [values for _, values in rows], timed=module.time_sensitive)


def _stamped(node: Operate, outputs: list[tuple[Any, ...]], window: Window) -> list[dict[str, Any]]:
    """The outputs with the lifetimes that rule 6.3 gives them."""
    given = []
    for le, re, *values in outputs:
        if node.timestamping == "align" or le is None:
            le, re = window
        elif node.timestamping == "clip":
            le, re = max(le, window.le), min(re, window.re)
        if le < re:
            given.append({"le": le, "re": re, **{f"f{i}": value for i, value in enumerate(values)}})
    return given


def _array(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _listed(column: Any) -> list[Any]:
    return column.to_pylist()  # type: ignore[no-any-return]
