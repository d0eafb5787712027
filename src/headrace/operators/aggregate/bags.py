"""Aggregate functions of bags: the values themselves, with weights, of all groups and windows at once.

A bag is sorted once, by group and value (or start and value); then every function is index arithmetic on the sorted
rows. A group is the number of a row of answers, from 0 on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.columnar import Int64s, Lists, factorize, to_numpy
from headrace.expr import AggregateCall
from headrace.operators.aggregate.accumulators import BAG_LE, COUNT, PART, Argument

__all__ = ["Bag"]


@dataclass(frozen=True, eq=False)
class _Sorted:
    """Rows of a bag in order of their groups, and the start of each group; the last start is the end of all rows."""

    groups: Int64s
    values: pa.Array
    counts: Int64s
    starts: Int64s

    @classmethod
    def of(cls, groups: Int64s, values: pa.Array, counts: Int64s, size: int) -> _Sorted:
        return cls(groups, values, counts, np.searchsorted(groups, np.arange(size + 1)))

    @property
    def empty(self) -> NDArray[np.bool_]:
        """A mask of the groups without rows."""
        return np.equal(self.starts[1:], self.starts[:-1])

    def take(self, rows: Int64s) -> pa.Array:
        """The value at one row per group; null for empty groups."""
        return self.values.take(pa.array(np.where(self.empty, 0, rows), mask=self.empty))

    def lists(self, rows: Int64s) -> pa.Array:
        """The values at these rows, which are in order, as one list per group."""
        offsets = np.searchsorted(self.groups[rows], np.arange(len(self.starts)))
        elements = self.values.take(pa.array(rows))
        return Lists(offsets, elements, np.zeros(len(offsets) - 1, bool)).array()


@dataclass(frozen=True, eq=False)
class Bag:
    """The bag of one argument, for `size` groups."""

    argument: Argument
    rows: pa.Table
    groups: Int64s
    size: int

    @classmethod
    def of(cls, argument: Argument, bags: pa.Table, sums: pa.Table, by: list[str]) -> Bag:
        """The rows of `bags` of an argument; the groups are the rows of `sums`, with the keys `by`."""
        rows = bags.filter((pc.field(PART) == argument.part) & (pc.field(COUNT) > 0)) if bags.num_rows else bags
        if rows.num_rows == 0:
            schema = pa.schema([(argument.value, argument.kept), (BAG_LE, pa.int64()), (COUNT, pa.int64())])
            return cls(argument, schema.empty_table(), np.empty(0, np.int64), sums.num_rows)
        codes, first = factorize(pa.concat_tables([sums.select(by), rows.select(by)]))
        group_of = np.full(len(first), -1, np.int64)
        group_of[codes[: sums.num_rows]] = np.arange(sums.num_rows)
        groups = group_of[codes[sums.num_rows :]]
        known = groups >= 0
        return cls(argument, rows.filter(pa.array(known)), groups[known], sums.num_rows)

    def answer(self, call: AggregateCall) -> pa.Array:
        """The value of an aggregate call in every group."""
        return _ANSWERS[call.function](self, *call.parameters)

    def _sorted(self, *columns: str) -> _Sorted:
        table = self.rows.select([*columns, COUNT]).append_column("__group", pa.array(self.groups))
        order = pc.sort_indices(table, [(name, "ascending") for name in ("__group", *columns)])
        table = table.take(order)
        values = table.column(self.argument.value).combine_chunks()
        return _Sorted.of(to_numpy(table.column("__group")), values, to_numpy(table.column(COUNT)), self.size)

    @cached_property
    def by_start(self) -> _Sorted:
        """By start and then value. Ends do not count: they may still move after a window is closed (rule 6.4)."""
        return self._sorted(BAG_LE, self.argument.value)

    @cached_property
    def by_value(self) -> _Sorted:
        """By value; NaN is greater than any number."""
        return self._sorted(self.argument.value)

    @cached_property
    def distinct(self) -> _Sorted:
        """By value, each value once: a bag with starts may have it in several rows."""
        rows = self.by_value
        if self.argument.bag == "values":
            return rows
        codes, _ = factorize(pa.table({"group": rows.groups, "value": rows.values}))
        heads = np.flatnonzero(np.diff(codes, prepend=-1))
        counts = np.add.reduceat(rows.counts, heads) if len(heads) else rows.counts
        return _Sorted.of(rows.groups[heads], rows.values.take(pa.array(heads)), counts, self.size)

    def first(self) -> pa.Array:
        return self.by_start.take(self.by_start.starts[:-1])

    def last(self) -> pa.Array:
        return self.by_start.take(self.by_start.starts[1:] - 1)

    def least(self) -> pa.Array:
        return self.by_value.take(self.by_value.starts[:-1])

    def greatest(self) -> pa.Array:
        return self.by_value.take(self.by_value.starts[1:] - 1)

    def collect(self) -> pa.Array:
        rows = self.by_start
        return rows.lists(np.repeat(np.arange(len(rows.groups)), rows.counts))

    def concat(self, separator: str) -> pa.Array:
        joined = pc.binary_join(self.collect(), separator)
        return pc.if_else(pa.array(self.by_start.empty), pa.scalar(None, pa.string()), joined)

    def distinct_count(self) -> pa.Array:
        return pa.array(np.diff(self.distinct.starts))

    def approx_distinct(self) -> pa.Array:
        """From a sketch of the k least hashes: (k - 1) / f, f is the k-th as a fraction of the hash range."""
        if not self.argument.sketch:
            return self.distinct_count()
        size, rows = self.argument.sketch_size, self.by_value
        sizes = np.diff(rows.starts)
        full = sizes >= size
        if not full.any():
            return pa.array(sizes)
        last = to_numpy(rows.values)[np.where(full, rows.starts[:-1] + size - 1, 0)].astype(np.float64)
        estimate = np.rint((size - 1) / ((last + 1.0) / 2.0**64))
        return pa.array(np.where(full, estimate, sizes).astype(np.int64))

    def top_frequent(self, k: int) -> pa.Array:
        rows = self.distinct
        order = np.lexsort((-rows.counts, rows.groups))  # stable: the lesser value stays before equally frequent ones
        place = np.arange(len(order)) - rows.starts[rows.groups]
        return rows.lists(order[place < k])

    def median(self) -> pa.Array:
        return self.quantile(0.5)

    def quantile(self, q: float) -> pa.Array:
        """Interpolated between the values at the ranks around `q * (n - 1)`."""
        rows = self.by_value
        through, before, n = self._ranked
        place = q * np.maximum(n - 1, 0)
        rank = np.floor(place).astype(np.int64)
        values = np.asarray(pc.cast(rows.values, pa.float64(), safe=False))
        low, high = (self._at(values, through, before + np.minimum(r, n - 1), rows.empty) for r in (rank, rank + 1))
        return pa.array(_between(low, high, place - rank), pa.float64(), mask=rows.empty)

    def percentile_disc(self, q: float) -> pa.Array:
        """The value at the rank `ceil(q * n)`, counted from 1."""
        through, before, n = self._ranked
        rank = before + np.maximum(np.ceil(q * n).astype(np.int64) - 1, 0)
        return self.by_value.take(np.searchsorted(through, rank, side="right") - 1)

    @cached_property
    def _ranked(self) -> tuple[Int64s, Int64s, Int64s]:
        """The number of values before each row, before each group, and in each group."""
        rows = self.by_value
        through = np.r_[np.int64(0), np.cumsum(rows.counts)]
        before = through[rows.starts[:-1]]
        return through, before, through[rows.starts[1:]] - before

    @staticmethod
    def _at(
        values: NDArray[np.float64], through: Int64s, rank: Int64s, empty: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """The values at ranks counted over all groups."""
        picked = np.zeros(len(rank), np.float64)
        picked[~empty] = values[np.searchsorted(through, rank[~empty], side="right") - 1]
        return picked


def _between(low: NDArray[np.float64], high: NDArray[np.float64], part: NDArray[np.float64]) -> NDArray[np.float64]:
    """`part` of the way from `low` to `high`, never beyond them; NaN between opposite infinities."""
    with np.errstate(invalid="ignore"):
        value = np.clip(low * (1.0 - part) + high * part, low, high)
    return np.where((part == 0.0) | (low == high), low, value)


_ANSWERS: dict[str, Callable[..., pa.Array]] = {
    "first": Bag.first,
    "last": Bag.last,
    "min": Bag.least,
    "max": Bag.greatest,
    "collect": Bag.collect,
    "concat": Bag.concat,
    "distinct_count": Bag.distinct_count,
    "approx_distinct": Bag.approx_distinct,
    "top_frequent": Bag.top_frequent,
    "median": Bag.median,
    "quantile": Bag.quantile,
    "percentile_disc": Bag.percentile_disc,
}
