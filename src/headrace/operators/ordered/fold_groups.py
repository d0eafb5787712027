"""The groups that a fold goes through in one batch, and its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, Lists, concat, factorize, to_numpy
from headrace.modules.folding import FoldWork
from headrace.operators.ordered.tuples import OrderedTuples, run_starts, tuple_order
from headrace.segments import Hashes

__all__ = ["ARGUMENT", "COUNT", "START", "STATE", "Arrivals", "FoldAnswers", "FoldGroups"]

#: Columns of a group's state: arguments of kept tuples, their LEs, the count of all tuples, and the state itself.
ARGUMENT, START, COUNT, STATE = "arg.", "__start", "__count", "__state"


@dataclass(frozen=True, eq=False)
class FoldAnswers:
    """Answers for tuples: an output of the fold, a failure, or a silence, where the fold returned nothing."""

    #: The number of the output and of the failure; -1 if it is none.
    output: Int64s
    failure: Int64s
    #: The tuple, its group, the time, and the CTI from which the answer cannot change.
    row: Int64s
    group: Int64s
    time: Int64s
    until: Int64s

    @classmethod
    def outputs(cls, row: Int64s, group: Int64s, time: Int64s) -> FoldAnswers:
        return cls(np.arange(len(row)), np.full(len(row), -1, np.int64), row, group, time, time)

    @classmethod
    def failures(cls, row: Int64s, group: Int64s, time: Int64s) -> FoldAnswers:
        return cls(np.full(len(row), -1, np.int64), np.arange(len(row)), row, group, time, time)

    @classmethod
    def silences(cls, row: Int64s, group: Int64s, time: Int64s) -> FoldAnswers:
        none = np.full(len(row), -1, np.int64)
        return cls(none, none, row, group, time, time)

    @property
    def silent(self) -> Bools:
        return (self.output < 0) & (self.failure < 0)

    def filter(self, some: Bools) -> FoldAnswers:
        return self if some.all() else self.take(some)

    def take(self, some: Bools | Int64s) -> FoldAnswers:
        return FoldAnswers(*(column[some] for column in self._columns))

    def concat(self, others: FoldAnswers) -> FoldAnswers:
        return FoldAnswers(*(np.r_[a, b] for a, b in zip(self._columns, others._columns, strict=True)))

    @property
    def _columns(self) -> tuple[Int64s, ...]:
        return self.output, self.failure, self.row, self.group, self.time, self.until


@dataclass(frozen=True)
class Arrivals:
    """The tuples that may change: events in the order of arrival, and their order by group."""

    events: Changes
    #: The event, group and LE of each tuple; the first tuple of each group.
    order: Int64s
    group: Int64s
    le: Int64s
    start: Int64s
    #: The arguments of each tuple.
    columns: pa.Table

    @classmethod
    def of(cls, events: Changes, group: Int64s, groups: int, by: Sequence[str], columns: pa.Table) -> Arrivals:
        """Events of some groups, with their arguments."""
        order = tuple_order(events, group, groups, by)
        of = group[order]
        start = np.searchsorted(of, np.arange(groups + 1))
        return cls(events, order, of, events.le[order], start, columns.take(pa.array(order)))


class FoldGroups:
    """The groups to recompute: their states, the tuples in their windows, and those that may change."""

    def __init__(
        self, keys: pa.Table, hashes: Hashes, arrivals: Arrivals, states: pa.Table | None, codes: Int64s
    ) -> None:
        """`codes` are the groups of the states."""
        self.keys, self.hashes, self.arrivals, self.count = keys, hashes, arrivals, keys.num_rows
        columns = arrivals.columns
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
        self.merged, self.le = columns, arrivals.le
        if len(kept_le):
            order = np.argsort(np.r_[kept_group, arrivals.group], kind="stable")
            self.le = np.r_[kept_le, arrivals.le][order]
            self.merged = concat([kept, columns]).take(pa.array(order))
        self.start = arrivals.start + np.r_[0, np.cumsum(self.kept_counts)]
        self.begin = self.start[:-1] + self.kept_counts

    @cached_property
    def ordered(self) -> OrderedTuples:
        """The tuples that may change, in order, with all columns; computed only where needed."""
        arrivals, order = self.arrivals, self.arrivals.order
        payload = arrivals.events.payload.take(pa.array(order))
        events = Changes(arrivals.le, arrivals.events.re[order], np.ones(len(order), np.int64), payload)
        return OrderedTuples(arrivals.group, arrivals.le, arrivals.start, events)

    def settle(self, cti: int) -> Int64s:
        """For each group, the first tuple that is not before a CTI."""
        before = self.arrivals.le < cti
        total = np.diff(self.arrivals.start)
        if not before.all():
            later: Int64s = np.bincount(self.arrivals.group[~before], minlength=self.count)
            total = total - later
        settled: Int64s = self.begin + total
        return settled

    def work(self, since: int, cti: int, seen: int) -> FoldWork:
        begin, settle, counts = self.begin, self.settle(cti), self.counts
        return FoldWork(self.start, begin, settle, self.le, self.merged, self.states, since, cti, seen, counts)

    def of(self, row: Int64s) -> Int64s:
        """The groups of tuples."""
        after: Int64s = np.searchsorted(self.start, row, "right")
        return after - 1

    def equal_to(self, answered: Int64s) -> Int64s:
        """The other tuples that are equal to these except for their ends: if ends move, their results change places."""
        arrivals = self.arrivals
        answered = answered[answered >= 0]
        done = np.zeros(len(arrivals.le), bool)
        done[self.place(answered, self.of(answered))] = True
        begins = run_starts(arrivals.group, arrivals.le)
        sizes = np.diff(np.r_[begins, len(done)])
        some = np.add.reduceat(done, begins, dtype=np.int64) if len(begins) else begins
        together = np.flatnonzero(np.repeat((some > 0) & (some < sizes), sizes))  # only these may be equal: mostly none
        if not len(together):
            return together
        codes, _ = factorize(arrivals.events.payload.take(pa.array(arrivals.order[together])))
        instant = np.repeat(np.arange(len(begins)), sizes)[together]
        of, _ = factorize(pa.table({"instant": instant, "code": codes}))
        equal = ~done[together] & np.isin(of, of[done[together]])
        position = together[equal]
        group = arrivals.group[position]
        rows: Int64s = position - arrivals.start[group] + self.begin[group]
        return rows

    def place(self, row: Int64s, group: Int64s) -> Int64s:
        """The positions of tuples among those that may change."""
        positions: Int64s = row - self.begin[group] + self.arrivals.start[group]
        return positions
