"""The state of an aggregate over a bag of values, as columns.

A bag that changes by weights is stored in two ways:

- *sums*: int64 columns that add up, so that partial results merge and retractions subtract. Counts, exact sums (see
  `exact`), sums of squares and of logarithms. If the input has no retractions, the least and greatest value are columns
  of this part too, merged by min and max.
- *bags*: the values themselves with their weights, for functions that cannot be subtracted: min and max over streams
  with retractions, quantiles, lists, distinct or frequent values. Some also need the starts of the events. If the input
  has no retractions, `first` and `last` need only the ends of a bag, and `approx_distinct` a *sketch*: the least hashes
  of its values. The more distinct values there are, the smaller are these.

All parts are in one table. The column `PART` is 0 for sums, and 1, 2, … for the bags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Int64s, canonical_floats, factorize, hash_rows
from headrace.expr import AggregateCall, Expr
from headrace.expr.arrow.decimals import unscaled
from headrace.operators.aggregate.exact import (
    CodedRows,
    decimal_sums,
    float_squares,
    float_sums,
    integer_squares,
    integer_sums,
)
from headrace.operators.aggregate.extremes import extremes
from headrace.operators.evaluate import evaluate_changes
from headrace.plan.nodes import Aggregate
from headrace.schema import Type

__all__ = ["BAG_LE", "COUNT", "PART", "Argument", "Layout"]

PART, COUNT, BAG_LE = "__part", "__n", "__ble"
_SUMMED = {"sum", "avg", "var", "stddev"}
_SQUARED = {"var", "stddev"}
_EXTREMES = {"min", "max"}
_ENDS = {"first", "last"}
_ORDERED = _ENDS | {"collect", "concat"}
_SKETCHED = "approx_distinct"
_VALUES = {"median", "quantile", "percentile_disc", "distinct_count", "top_frequent", _SKETCHED}


@dataclass(frozen=True, eq=False)
class Argument:
    """An argument of aggregates, and the columns that they need."""

    number: int
    expr: Expr
    type: Type
    functions: frozenset[str]
    insert_only: bool
    #: The number of hashes in a sketch. The error of the estimate is about one over its square root.
    sketch_size: ClassVar[int] = 1024

    @property
    def prefix(self) -> str:
        return f"__a{self.number}."

    @property
    def summed(self) -> bool:
        return bool(self.functions & _SUMMED)

    @property
    def squared(self) -> bool:
        return bool(self.functions & _SQUARED)

    @property
    def logarithmic(self) -> bool:
        return "geometric_mean" in self.functions

    @property
    def mergeable_extremes(self) -> bool:
        """Whether the least and greatest value can be plain columns."""
        return bool(self.functions & _EXTREMES) and self.insert_only

    @property
    def bag(self) -> str | None:
        """`values`, or `starts` for values with starts, if the values themselves must be kept."""
        if self.functions & _ORDERED:
            return "starts"
        kept = self.functions & _VALUES or (self.functions & _EXTREMES and not self.insert_only)
        return "values" if kept else None

    @property
    def sketch(self) -> bool:
        """Whether hashes of the values are kept instead of the values."""
        return self.insert_only and _SKETCHED in self.functions

    @property
    def only_ends(self) -> bool:
        """Whether the first and the last row of its bag are enough, as nothing is taken back."""
        return self.insert_only and not self.functions & ((_ORDERED - _ENDS) | _VALUES)

    @property
    def kept(self) -> pa.DataType:
        """The type of the values in its bag."""
        return pa.uint64() if self.sketch else self.type.arrow

    @property
    def part(self) -> int:
        return self.number + 1

    @property
    def value(self) -> str:
        return f"__b{self.number}"

    def sums(self, values: pa.Array, rows: CodedRows) -> dict[str, pa.Array | Int64s]:
        """The columns of the sums part, one row per code."""
        valid = None if values.null_count == 0 else np.asarray(pc.is_valid(values)).astype(np.int64)
        columns: dict[str, pa.Array | Int64s] = {f"{self.prefix}n": rows.count if valid is None else rows.total(valid)}
        if self.type.is_floating and self.summed:
            columns |= self._floats(np.asarray(_filled(values, pa.float64(), 0.0)), rows)
        elif self.type.is_decimal and self.summed:
            columns |= self._named("s", decimal_sums(_words(values), rows))
        elif self.summed:
            columns |= self._integers(np.asarray(_filled(values, pa.int64(), 0)), rows)
        if self.logarithmic:
            columns |= self._logarithms(_filled(values, pa.float64(), 1.0), rows)
        return columns | self._extremes(values, rows) if self.mergeable_extremes else columns

    def _floats(self, values: np.ndarray, rows: CodedRows) -> dict[str, Int64s]:
        columns = self._named("s", float_sums(values, rows))
        return columns | self._named("q", float_squares(values, rows)) if self.squared else columns

    def _integers(self, values: np.ndarray, rows: CodedRows) -> dict[str, Int64s]:
        columns = self._named("s", integer_sums(values, rows))
        return columns | self._named("q", integer_squares(values, rows)) if self.squared else columns

    def _logarithms(self, values: pa.Array, rows: CodedRows) -> dict[str, Int64s]:
        """Limbs of logarithms, and the number of values without one."""
        none = pc.less_equal(values, 0.0)
        logarithms = pc.ln(
            pc.if_else(none, pa.scalar(1.0), values)
        )  # one call for each value, so the result does not depend on its place
        without = rows.total(np.asarray(none).astype(np.int64))
        return self._named("l", float_sums(np.asarray(logarithms), rows)) | {f"{self.prefix}z": without}

    def _named(self, kind: str, limbs: dict[str, Int64s]) -> dict[str, Int64s]:
        return {f"{self.prefix}{kind}{suffix}": limb for suffix, limb in limbs.items()}

    def _extremes(self, values: pa.Array, rows: CodedRows) -> dict[str, pa.Array | Int64s]:
        """The columns merged by min and max; NaN is counted among the sums instead, because it orders last."""
        low, high, nans = extremes(values, rows.codes, rows.size)
        columns = {f"{self.prefix}{how}": ends for how, ends in (("min", low), ("max", high)) if how in self.functions}
        if nans is None or self.summed or not nans.any():
            return columns
        weighted = rows.total(np.asarray(pc.fill_null(pc.is_nan(values), False)).astype(np.int64))
        return columns | {f"{self.prefix}snan": weighted}


@dataclass(frozen=True, eq=False)
class Layout:
    """The columns that one aggregate node needs."""

    node: Aggregate

    @cached_property
    def insert_only(self) -> bool:
        return self.node.input.properties.insert_only

    @property
    def keys(self) -> list[str]:
        return [name for name, _ in self.node.keys]

    @cached_property
    def arguments(self) -> dict[str, Argument]:
        """Each distinct argument expression, by its text; sketched arguments are separate."""
        functions: dict[str, tuple[Expr, set[str]]] = {}
        for call in self.node.split[0].values():
            if call.argument is not None:
                functions.setdefault(self._place(call), (call.argument, set()))[1].add(call.function)
        schema = self.node.input.schema
        return {
            place: Argument(i, expr, expr.type(schema), frozenset(used), self.insert_only)
            for i, (place, (expr, used)) in enumerate(functions.items())
        }

    def _place(self, call: AggregateCall) -> str:
        sketched = call.function == _SKETCHED and self.insert_only
        return f"sketch of {call.argument}" if sketched else str(call.argument)

    def argument_of(self, call: AggregateCall) -> Argument:
        return self.arguments[self._place(call)]

    def column_names(self) -> dict[str, str]:
        """Texts for users for the columns of sums and bags: the argument, and what is kept of it."""
        sums = {argument.prefix: f"{place}: " for place, argument in self.arguments.items()}
        return sums | {argument.value: f"{place}: value" for place, argument in self.arguments.items()}

    @property
    def bag_columns(self) -> list[str]:
        """The columns that identify the rows of a bag."""
        bags = [a for a in self.arguments.values() if a.bag]
        ordered = [BAG_LE] if any(a.bag == "starts" for a in bags) else []
        return [a.value for a in bags] + ordered

    @property
    def extreme_columns(self) -> dict[str, pa.DataType]:
        """The columns that are merged by min and max, and their types."""
        arguments = [argument for argument in self.arguments.values() if argument.mergeable_extremes]
        return {f"{a.prefix}{how}": a.type.arrow for a in arguments for how in ("min", "max") if how in a.functions}

    def sums_table(self, changes: Changes, keys: pa.Table) -> pa.Table:
        """One row per change: keys, weighted sums."""
        return _with_columns(keys, self.coded_sums(changes, np.arange(len(changes)), len(changes)))

    def combined_sums(self, changes: Changes, by: pa.Table) -> pa.Table:
        """One row per distinct row of `by`: it, and the weighted sums of its changes."""
        codes, first = factorize(by)
        return _with_columns(by.take(pa.array(first)), self.coded_sums(changes, codes, len(first)))

    def coded_sums(self, changes: Changes, codes: Int64s, size: int) -> dict[str, pa.Array | Int64s]:
        """The weighted sums of changes, one row per code."""
        rows = CodedRows(codes, np.ascontiguousarray(changes.weight), size)
        columns: dict[str, pa.Array | Int64s] = {COUNT: rows.count}
        for argument in self.arguments.values():
            values = _one_chunk(evaluate_changes(argument.expr, changes.payload, changes.weight))
            columns |= argument.sums(values, rows)
        return columns

    def bag_tables(self, changes: Changes, keys: pa.Table) -> list[pa.Table]:
        """One table per bag, one row per change with a value."""
        return [self._bag(a, changes, keys) for a in self.arguments.values() if a.bag]

    def _bag(self, argument: Argument, changes: Changes, keys: pa.Table) -> pa.Table:
        values = _one_chunk(evaluate_changes(argument.expr, changes.payload, changes.weight))
        valid = pc.is_valid(values)
        if argument.sketch:
            values = pa.array(hash_rows(pa.table({"v": values})))
        else:
            values = canonical_floats(pa.table({"v": values})).column("v")  # equal values must cancel
        columns: dict[str, object] = {
            PART: np.full(len(changes), argument.part, np.int8), COUNT: changes.weight, argument.value: values
        }  # fmt: skip
        if argument.bag == "starts":
            columns[BAG_LE] = changes.le
        return _with_columns(keys, columns).filter(valid)


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _words(values: pa.Array) -> Int64s:
    """The digits of decimals as whole numbers in words of 64 bits, zero for nulls."""
    return unscaled(pc.fill_null(values, pa.scalar(Decimal(0), values.type)) if values.null_count else values)


def _filled(values: pa.Array, kind: pa.DataType, instead: float) -> pa.Array:
    """The values as another type, something in place of nulls."""
    values = values if values.type == kind else pc.cast(values, kind, safe=False)
    return pc.fill_null(values, instead) if values.null_count else values


def _with_columns(keys: pa.Table, columns: Mapping[str, object]) -> pa.Table:
    for name, column in columns.items():
        keys = keys.append_column(name, column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column))
    return keys
