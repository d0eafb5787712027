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

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import canonical_floats, hash_rows
from headrace.expr import AggregateCall, Expr
from headrace.operators.aggregate.exact import float_limbs, float_squares, integer_limbs, integer_squares
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
_VALUES = {"median", "quantile", "distinct_count", "top_frequent", _SKETCHED}


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

    def sums(self, values: pa.Array) -> dict[str, pa.Array]:
        """The columns of the sums part, one row per value, without the weight."""
        valid = np.asarray(pc.is_valid(values))
        columns = {f"{self.prefix}n": valid.astype(np.int64)}
        if self.type.is_floating and (self.summed or self.mergeable_extremes):
            columns |= self._floats(np.asarray(pc.fill_null(pc.cast(values, pa.float64()), 0.0)))
        elif self.summed:
            columns |= self._integers(np.asarray(pc.fill_null(pc.cast(values, pa.int64()), 0)))
        if self.logarithmic:
            columns |= self._logarithms(pc.fill_null(pc.cast(values, pa.float64(), safe=False), 1.0))
        return columns

    def _floats(self, values: np.ndarray) -> dict[str, np.ndarray]:
        columns = {f"{self.prefix}s{suffix}": limb for suffix, limb in float_limbs(values).items()}
        return columns | self._squares(float_squares(values)) if self.squared else columns

    def _integers(self, values: np.ndarray) -> dict[str, np.ndarray]:
        columns = {f"{self.prefix}s{suffix}": limb for suffix, limb in integer_limbs(values).items()}
        return columns | self._squares(integer_squares(values)) if self.squared else columns

    def _logarithms(self, values: pa.Array) -> dict[str, np.ndarray]:
        """Limbs of logarithms, and the number of values without one."""
        none = pc.less_equal(values, 0.0)
        logarithms = pc.ln(
            pc.if_else(none, pa.scalar(1.0), values)
        )  # one call for each value, so the result does not depend on its place
        columns = {f"{self.prefix}l{suffix}": limb for suffix, limb in float_limbs(np.asarray(logarithms)).items()}
        return columns | {f"{self.prefix}z": np.asarray(none).astype(np.int64)}

    def _squares(self, limbs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {f"{self.prefix}q{suffix}": limb for suffix, limb in limbs.items()}

    def extremes(self, values: pa.Array) -> dict[str, pa.Array]:
        """The columns merged by min and max; NaN is counted among the sums instead, because it orders last."""
        if not self.mergeable_extremes:
            return {}
        if self.type.is_floating:
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        return {f"{self.prefix}min": values, f"{self.prefix}max": values}


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

    def sums_table(self, changes: Changes, keys: pa.Table) -> pa.Table:
        """One row per change: keys, weighted sums."""
        columns: dict[str, object] = {COUNT: changes.weight}
        plain = bool((changes.weight == 1).all())
        for argument in self.arguments.values():
            values = _one_chunk(evaluate_changes(argument.expr, changes.payload, changes.weight))
            for name, column in argument.sums(values).items():
                columns[name] = column if plain else column * changes.weight
            columns |= argument.extremes(values)
        return _with_columns(keys, columns)

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


def _with_columns(keys: pa.Table, columns: dict[str, object]) -> pa.Table:
    for name, column in columns.items():
        keys = keys.append_column(name, column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column))
    return keys
