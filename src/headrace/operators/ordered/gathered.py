"""The groups that a fold goes through in one batch, and what there is to say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import Lists, concat, to_numpy
from headrace.operators.ordered.folding import Work
from headrace.operators.ordered.line import Bools, Int64s, Line, in_order

__all__ = ["ARGUMENT", "COUNT", "START", "STATE", "Came", "Given", "Groups"]

Hashes = NDArray[np.uint64]
#: Columns of a group's state: what is kept of tuples, when they are, how many there were, and the state itself.
ARGUMENT, START, COUNT, STATE = "arg.", "__start", "__count", "__state"


class Given:
    """What there is to say: the number of an output, -1 for nothing, or less for a failure; which tuple it is about,
    its group, its time, and the CTI from which on it cannot change.
    """

    def __init__(self, number: Int64s, row: Int64s, group: Int64s, time: Int64s, until: Int64s | None = None) -> None:
        self.number, self.row, self.group, self.time = number, row, group, time
        self.until = time if until is None else until

    @property
    def failed(self) -> Bools:
        return self.number < -1

    def filter(self, some: Bools) -> Given:
        if some.all():
            return self
        return Given(*(column[some] for column in (self.number, self.row, self.group, self.time, self.until)))

    def with_more(self, more: Given) -> Given:
        mine, theirs = ((x.number, x.row, x.group, x.time) for x in (self, more))
        return Given(*(np.r_[a, b] for a, b in zip(mine, theirs, strict=True)))


@dataclass(frozen=True)
class Came:
    """The tuples that may change: events as they came, and the order that they stand in, by group."""

    events: Changes
    #: Which event each tuple is, of which group, and when; where the tuples of each group begin.
    order: Int64s
    group: Int64s
    le: Int64s
    start: Int64s
    #: What is asked of each tuple.
    columns: pa.Table

    @classmethod
    def of(cls, events: Changes, group: Int64s, groups: int, by: Sequence[str], columns: pa.Table) -> Came:
        """Events of some groups, with what is asked of them."""
        order = in_order(events, group, groups, by)
        mine = group[order]
        start = np.searchsorted(mine, np.arange(groups + 1))
        return cls(events, order, mine, events.le[order], start, columns.take(pa.array(order)))


class Groups:
    """Groups that are looked at: their states, the tuples their windows hold, and those that may change."""

    def __init__(self, keys: pa.Table, hashes: Hashes, came: Came, states: pa.Table | None, codes: Int64s) -> None:
        """The states are of the groups that `codes` say."""
        self.keys, self.hashes, self.came, self.count = keys, hashes, came, keys.num_rows
        columns = came.columns
        self.states = pa.nulls(self.count, pa.binary())
        self.kept_counts = np.zeros(self.count, np.int64)
        #: How many tuples of each group are in its state.
        self.counts = np.zeros(self.count, np.int64)
        kept, kept_le, kept_group = columns.slice(0, 0), np.empty(0, np.int64), np.empty(0, np.int64)
        if states is not None:
            row = np.full(self.count, -1, np.int64)
            row[codes] = np.arange(len(codes))
            self.states = states.column(STATE).combine_chunks().take(pa.array(row, mask=row < 0))
            order = pa.array(row[row >= 0])  # by group
            lists = {
                name: Lists.of(states.column(ARGUMENT + name).take(order)) for name in [*columns.column_names, START]
            }
            counts = np.diff(lists[START].offsets)
            self.kept_counts[row >= 0] = counts
            self.counts[row >= 0] = to_numpy(states.column(COUNT).take(order))
            kept = pa.table({name: lists[name].elements for name in columns.column_names}, schema=columns.schema)
            kept_le = to_numpy(lists[START].elements)
            kept_group = np.repeat(np.flatnonzero(row >= 0), counts)
        self.merged, self.le = columns, came.le
        if len(kept_le):
            order = np.argsort(np.r_[kept_group, came.group], kind="stable")
            self.le = np.r_[kept_le, came.le][order]
            self.merged = concat([kept, columns]).take(pa.array(order))
        self.start = came.start + np.r_[0, np.cumsum(self.kept_counts)]
        self.begin = self.start[:-1] + self.kept_counts

    @cached_property
    def line(self) -> Line:
        """The tuples that may change, with all their columns in this order: only where these are needed so."""
        came, order = self.came, self.came.order
        payload = came.events.payload.take(pa.array(order))
        events = Changes(came.le, came.events.re[order], np.ones(len(order), np.int64), payload)
        return Line(came.group, came.le, came.start, events)

    def settle(self, cti: int) -> Int64s:
        """For each group, its first tuple that is not before a CTI."""
        before = self.came.le < cti
        total = np.diff(self.came.start)
        if not before.all():
            later: Int64s = np.bincount(self.came.group[~before], minlength=self.count)
            total = total - later
        settled: Int64s = self.begin + total
        return settled

    def work(self, since: int, cti: int, seen: int) -> Work:
        return Work(self.start, self.begin, self.settle(cti), self.le, self.merged, self.states, since, cti, seen)

    def of(self, row: Int64s) -> Int64s:
        """The groups of tuples."""
        found: Int64s = np.searchsorted(self.start, row, "right")
        return found - 1

    def place(self, row: Int64s, group: Int64s) -> Int64s:
        """Where tuples are among those that may change."""
        found: Int64s = row - self.begin[group] + self.came.start[group]
        return found
