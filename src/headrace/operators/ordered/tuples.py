"""Tuples of groups in their order, as arrays, so that operations on them are index arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Int64s, sortable
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["OrderedTuples", "Past", "bounded_runs", "distinct", "order_tuples", "ranges", "run_starts", "tuple_order"]


@dataclass(frozen=True)
class Past:
    """The past of each group, beside the tuples that are kept.

    `count` tuples had an LE before `upto`; the first tuple was at `first` (infinite if there was none). The first
    `skip` of the kept tuples belong to closed windows.
    """

    count: Int64s
    upto: Int64s
    first: Int64s
    skip: Int64s

    @classmethod
    def empty(cls, groups: int) -> Past:
        zero = np.zeros(groups, np.int64)
        return cls(zero, np.full(groups, NEG_INFINITY, np.int64), np.full(groups, INFINITY, np.int64), zero.copy())


@dataclass(frozen=True)
class OrderedTuples:
    """Tuples by group and order; `start[g] .. start[g + 1]` are those of group g."""

    group: Int64s
    le: Int64s
    start: Int64s
    #: The tuples themselves, each with weight 1.
    events: Changes
    past: Past = field(default_factory=lambda: Past.empty(0))

    def __len__(self) -> int:
        return len(self.le)

    @property
    def groups(self) -> int:
        return len(self.start) - 1

    @cached_property
    def nonempty(self) -> Int64s:
        """The groups that have tuples."""
        return np.flatnonzero(np.diff(self.start))

    def place(self, group: Int64s, time: Int64s) -> Int64s:
        """The index of the first tuple of a group whose LE is not before a time; the group's end if there is none."""
        order = np.lexsort((np.r_[np.zeros(len(group), np.int8), np.ones(len(self), np.int8)],
                            np.r_[time, self.le], np.r_[group, self.group]))  # fmt: skip
        is_query = order < len(group)
        before = np.cumsum(~is_query)  # the number of tuples before each place, over all groups
        places = np.empty(len(group), np.int64)
        places[order[is_query]] = before[is_query]
        return places

    def until(self, time: int) -> Int64s:
        """For each group, the index of its first tuple with an LE from `time` on."""
        groups = np.arange(self.groups)
        return self.place(groups, np.full(self.groups, time, np.int64))

    @cached_property
    def new(self) -> Int64s:
        """For each group, the index of the first tuple that its past does not count."""
        return self.place(np.arange(self.groups), self.past.upto)

    @cached_property
    def position(self) -> Int64s:
        """The number of each tuple in its group, from 1 on; valid for tuples that the past does not count."""
        return np.arange(len(self)) - self.new[self.group] + self.past.count[self.group] + 1

    @cached_property
    def origin(self) -> Int64s:
        """The LE of the first tuple that each group ever had."""
        first = self.past.first.copy()
        first[self.nonempty] = np.minimum(first[self.nonempty], self.le[self.start[self.nonempty]])
        return first


def order_tuples(events: Changes, group: Int64s, groups: int, by: Sequence[str]) -> tuple[OrderedTuples, Int64s]:
    """Events in their order (LE, then these columns, nulls first, then ends), in all their copies.

    Also the event of each tuple.
    """
    order = tuple_order(events, group, groups, by)
    of = group[order]
    start = np.searchsorted(of, np.arange(groups + 1))
    payload = events.payload.take(pa.array(order))
    single = Changes(events.le[order], events.re[order], np.ones(len(order), np.int64), payload)
    return OrderedTuples(of, single.le, start, single), order


def tuple_order(events: Changes, group: Int64s, groups: int, by: Sequence[str]) -> Int64s:
    """The event of each tuple; see `order_tuples`."""
    order = _by_group(events.le, group, groups)
    le, of = events.le[order], group[order]
    same = (np.diff(le) == 0) & (np.diff(of) == 0)
    tied = np.r_[same, False] | np.r_[False, same] if len(order) else np.empty(0, bool)
    if tied.any():  # columns decide only between tuples of one instant, and these are few
        rows = order[tied]
        rank = _rank(events.payload.take(pa.array(rows)), by)
        order[tied] = rows[np.lexsort((events.re[rows], rank, events.le[rows], group[rows]))]
    return np.repeat(order, events.weight[order]) if (events.weight != 1).any() else order


def _by_group(le: Int64s, group: Int64s, groups: int) -> Int64s:
    """Rows by group, then by LE; mostly the rows of a group arrive in that order."""
    # Numbers of 16 bits are sorted without comparing them.
    order = np.argsort(group.astype(np.uint16) if groups < 2**16 else group, kind="stable")
    if (np.diff(le) < 0).any():
        times, of = le[order], group[order]
        if ((np.diff(times) < 0) & (np.diff(of) == 0)).any():
            return np.lexsort((le, group))
    return order


def _rank(table: pa.Table, by: Sequence[str]) -> Int64s:
    """The same number for equal rows, a greater one for later rows: nulls first, NaN last."""
    table = sortable(table.select(list(dict.fromkeys(by))))
    rank = np.zeros(table.num_rows, np.int64)
    for name in by:
        column = table.column(name).combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        rank = rank * (table.num_rows + 2) + _dense(column)
        rank = np.unique(rank, return_inverse=True)[1].astype(np.int64)
    return rank


def _dense(column: pa.Array) -> Int64s:
    """Numbers in the order of the values, the same for equal ones; null is 0, NaN the greatest."""
    encoded = pc.dictionary_encode(column)
    values = encoded.dictionary
    keys = pa.table({"nan": pc.is_nan(values), "v": values}) if pa.types.is_floating(values.type) else None
    if keys is None:
        order = pc.sort_indices(values).to_numpy()
    else:
        order = pc.sort_indices(keys, [("nan", "ascending"), ("v", "ascending")]).to_numpy()
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(1, len(order) + 1)
    index = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where(index < 0, 0, number[index] if len(number) else 0)


def distinct(group: Int64s, number: Int64s) -> tuple[Int64s, Int64s]:
    """Each number of each group once, in order."""
    order = np.lexsort((number, group))
    group, number = group[order], number[order]
    new = np.r_[True, (np.diff(group) != 0) | (np.diff(number) != 0)] if len(order) else np.empty(0, bool)
    return group[new], number[new]


def ranges(first: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
    """The number of the range of each integer from a first to its last, and the integers; ranges may be empty."""
    count = np.maximum(last - first + 1, 0)
    owner = np.repeat(np.arange(len(first)), count)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count) + first[owner]


def bounded_runs(before: Int64s, most: int) -> list[int]:
    """Bounds that divide items into runs of up to `most` in total, or of one item; `before` are sums up to each item.

    >>> bounded_runs(np.array([0, 3, 6, 9, 30, 31]), 7)
    [0, 2, 3, 4, 5]
    """
    bounds, last = [0], len(before) - 1
    while bounds[-1] < last:
        start = bounds[-1]
        bounds.append(max(start + 1, int(np.searchsorted(before, before[start] + most, "right")) - 1))
    return bounds if last else [0, 0]


def run_starts(*columns: Int64s) -> Int64s:
    """The positions of values that differ from those before them."""
    if len(columns[0]) == 0:
        return np.empty(0, np.int64)
    new = np.zeros(len(columns[0]) - 1, bool)
    for column in columns:
        new |= np.diff(column) != 0
    return np.flatnonzero(np.r_[True, new])
