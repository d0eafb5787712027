"""Aggregates over what precedes each tuple (rule 7.5).

A result lasts as long as its tuple, so it starts where the tuple does, and the output CTI is the input's; only under a
slide of time it waits where a slot is open, whose last tuple is not known yet. What a frame
says is settled when the CTI has passed the LE of its tuple; until then it is computed anew when the group changes.
After that only the end of the tuple may move, and the end of its result with it. Of equal tuples with different ends,
the one that ends first has the first result; so `given` knows the place of each among its equals.

Where all that precedes is asked for, and the aggregates add up, settled tuples are kept as a total for each group
(`carried`); otherwise all of them are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, factorize, group_sum, to_numpy
from headrace.operators.kernel import Data
from headrace.operators.ordered.divide import PREFIX, Spans
from headrace.operators.ordered.keep import kept, next_shown
from headrace.operators.ordered.kernel import Hashes, OrderedKernel
from headrace.operators.ordered.line import Line
from headrace.operators.ordered.yields import equals, open_since, slot_end, ties, yields
from headrace.operators.windows.content import Outputs
from headrace.operators.windows.divide import Windows
from headrace.operators.windows.rows import beside
from headrace.plan.ordered import Frame, Time
from headrace.plan.over import Over
from headrace.plan.source import DIVERTED
from headrace.progress import Progress
from headrace.time import INFINITY, add, format_ticks
from headrace.trace import Trace

__all__ = ["OverKernel"]

_TIE, _UNTIL, _REASON, _SILENT = "__tie", "__until", "__reason", "__silent"


class OverKernel(OrderedKernel):
    """Each tuple with the aggregates of its frame."""

    def __init__(self, node: Over) -> None:
        super().__init__(node.aggregate)
        self.node = self.per_window = self.over = node
        assert isinstance(node.window, Frame)
        self.frame: Frame = node.window
        self.endless = self.frame.endless
        #: Where all that precedes is asked for and adds up, settled tuples become a total.
        self.carries = self.endless and self.sums is not None
        if self.carries:
            self.traces["carried"] = Trace(self._summed)

    @property
    def _sees_ends(self) -> bool:
        return True

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        delta = self._projected(changes)
        now = Progress(max(now.cti, self.scalars["cti"]), now.high)
        result = Changes.empty(self.node.schema)
        self.side = Changes.empty(DIVERTED)
        seen = max(now.seen, self.scalars["seen"])
        shown = self._touched_by(delta.filter(delta.le >= self._open), "show", seen)
        touched = np.union1d(shown, self._touched_by(delta, "forget", now.cti))
        if len(touched):
            result = self._look_back(touched, shown, delta, now.cti, seen)
        self._drop(now.cti, seen)
        self.scalars = {"cti": now.cti, "seen": seen}
        return result, now if self.over.prompt else Progress(self._promise(now.cti), now.high)

    @property
    def _open(self) -> int:
        """From when on results are not settled."""
        return open_since(self.frame, self.scalars["cti"])

    def _look_back(self, touched: Hashes, moving: Hashes, delta: Changes, cti: int, seen: int) -> Changes:
        known_until = self._open
        line, groups, known = self._lines(touched, delta)
        unsettled = (line.le >= known_until) & np.isin(self._hashes(groups), moving)[line.group]
        given = unsettled & yields(self.frame, line, seen)
        standing = self._standing(np.union1d(moving, self._hashes(delta.payload)))
        stale = standing.filter((standing.le >= known_until) & np.isin(self._hashes(standing.payload), moving))
        ends = delta.filter(delta.le < known_until)
        old, new = _moved(standing.filter(standing.le < known_until), ends, self.schema.names)
        fresh = self._results(line, groups, given, self._carried(touched, groups))
        result = self._leaving(self._replace("given", Changes.concat([stale, old]), Changes.concat([fresh, new])))
        left = kept(self.frame, line, cti)
        if self.carries:
            left = replace(left, keep=self._carry(line, groups, np.minimum(left.hold, cti)))
        elif self.endless and self.over.prompt:
            left = replace(left, alarm=np.full(line.groups, INFINITY, np.int64))  # nothing is ever forgotten
        self._keep(touched, line, groups, left, known)
        if not self.over.prompt:
            shows = next_shown(self.frame, line, seen)
            self._set("show", touched, groups, shows, np.full(line.groups, INFINITY, np.int64))
        return result

    def _standing(self, hashes: Hashes) -> Changes:
        """What was given of some groups and may still change."""
        found = self.traces["given"].lookup(hashes)
        if found is not None:
            return Changes.from_table(found).cancelled()
        nothing = Line(*(np.empty(0, np.int64),) * 2, np.zeros(1, np.int64), Changes.empty(self.schema))
        return self._results(nothing, self.schema.arrow.empty_table().select(self.keys), np.empty(0, bool))

    # --- results ------------------------------------------------------------------------------------------------------

    def _results(self, line: Line, groups: pa.Table, given: Bools, carried: dict[str, Int64s] | None = None) -> Changes:
        """The results of these tuples, and which of them have none because a module failed.

        Also the tuples that are equal to them, which say nothing.
        """
        rows = np.flatnonzero(equals(line, given))
        loud = np.flatnonzero(given[rows])
        every = self._frames(line, rows)
        spans = every.filter(given[rows])
        windows = Windows(spans.group, spans.le, spans.re, np.empty(0, np.int64))
        if self.sums is not None:
            outputs = self.sums.outputs(windows, spans.first, spans.last, self._evaluated(line), carried)
        else:
            outputs = self._outputs_of(spans, None, line, groups)
        reasons = np.full(len(rows), None, object)
        for number, reason in outputs.failures:
            reasons[loud[number]] = reason
        events = line.events.take(rows)
        until = np.where(events.re == INFINITY, INFINITY, add(events.re, 1))
        if isinstance(self.frame.slide, Time):  # as long as the slot is open, another tuple may take its place
            until = np.maximum(until, slot_end(self.frame.slide, events.le))
        table = beside(events.payload, self._of_tuples(outputs, loud, len(rows)))
        table = self._stamped(table, Windows(every.group, every.le, every.re, np.empty(0, np.int64)), until)
        table = table.append_column(_TIE, pa.array(ties(line)[rows]))
        table = table.append_column(_REASON, pa.array(reasons, pa.string()))
        table = table.append_column(_SILENT, pa.array(~given[rows]))
        return Changes.inserts(events.le, events.re, table)

    def _leaving(self, moved: Changes) -> Changes:
        return super()._leaving(moved.filter(~np.asarray(moved.payload.column(_SILENT), bool)))

    def _frames(self, line: Line, rows: Int64s) -> Spans:
        group, le = line.group[rows], line.le[rows]
        first, frame = line.start[group], self.frame
        start = None
        if frame.rows is not None:
            first = np.maximum(first, rows - frame.rows)
        elif frame.range is not None:
            start = add(le, -frame.range)
            first = line.place(group, start)
        return Spans(group, first, rows, line.le[first] if start is None else start, le + 1)

    # --- totals -------------------------------------------------------------------------------------------------------

    def _carried(self, touched: Hashes, groups: pa.Table) -> dict[str, Int64s]:
        """What the settled tuples of each group add up to."""
        found = self.traces["carried"].lookup(touched) if self.carries else None
        if found is None:
            return {}
        codes, _ = factorize(pa.concat_tables([groups, found.select(self.keys)]))
        number = np.full(int(codes.max()) + 1, -1, np.int64)
        number[codes[: groups.num_rows]] = np.arange(groups.num_rows)
        of = number[codes[groups.num_rows :]]
        found, of = found.filter(pa.array(of >= 0)), of[of >= 0]
        names = [name for name in found.column_names if name not in self.keys]
        return {name: group_sum(of, _filled(found.column(name)), groups.num_rows) for name in names}

    def _carry(self, line: Line, groups: pa.Table, until: Int64s) -> Bools:
        """Add what is settled, which each group is up to a time, to the totals; the tuples that are left."""
        assert self.sums is not None
        settled = line.le < until[line.group]
        some = np.unique(line.group[settled])
        if len(some) and until[0] != INFINITY:
            table = groups.take(pa.array(some))
            for name, column in self.sums.of_tuples(self._evaluated(line)).items():
                total = group_sum(line.group[settled], column[settled], line.groups)[some]
                table = table.append_column(name, pa.array(total))
            self.traces["carried"].append(table, self._hashes(table), np.full(len(some), INFINITY, np.int64))
        return ~settled

    def _summed(self, table: pa.Table) -> pa.Table:
        """How totals compact: those of one group are added up."""
        own = [*self.keys, "__hash", "__time"]
        codes, first = factorize(table.select(self.keys))
        result = table.select(own).take(pa.array(first))
        for name in table.column_names:
            if name not in own:
                total = group_sum(codes, _filled(table.column(name)), len(first))
                result = result.append_column(name, pa.array(total))
        return result

    def _drop(self, cti: int, seen: int) -> None:
        super()._drop(cti, seen)
        if self.carries and cti == INFINITY:
            self.traces["carried"].drop(cti)

    @staticmethod
    def _of_tuples(outputs: Outputs, place: Int64s, count: int) -> pa.Table:
        """The outputs of all tuples, which are at these places; null for those that have none."""
        row = np.full(count, -1, np.int64)
        row[place[outputs.window]] = np.arange(len(outputs.window))
        taken = outputs.payload.take(pa.array(row, mask=row < 0))
        return taken.rename_columns([f"out.{name}" for name in taken.column_names])

    def _columns_of(self, name: str, there: Sequence[str]) -> str:
        if f"out.{name}" in there:
            return f"out.{name}"
        return PREFIX + name if PREFIX + name in there else super()._columns_of(name, there)

    def held_by(self) -> str:
        frame = "a total a group" if self.carries else "all tuples" if self.endless else "tuples of frames to come"
        return f"{frame}, and results whose tuple may still end elsewhere; CTI {format_ticks(self.scalars['cti'])}"


def _filled(column: pa.ChunkedArray) -> Int64s:
    return to_numpy(pc.fill_null(column, 0))  # a limb that was not needed before


def _moved(standing: Changes, delta: Changes, columns: Sequence[str]) -> tuple[Changes, Changes]:
    """Results of settled tuples whose ends move: as they were, and as they are."""
    tables = [x.payload.select(columns).append_column("__start", pa.array(x.le)) for x in (standing, delta)]
    codes, _ = factorize(pa.concat_tables(tables))
    mine, theirs = codes[: len(standing)], codes[len(standing) :]
    involved: Bools = np.isin(mine, theirs)
    old = standing.filter(involved)
    mine = mine[involved]
    known = np.isin(theirs, mine)
    ends = np.r_[old.re, delta.re[known]]
    of = np.r_[mine, theirs[known]]
    place, first = factorize(pa.table({"of": of, "end": ends}))
    weight = group_sum(place, np.r_[old.weight, delta.weight[known]], len(first))
    again = np.repeat(first, np.maximum(weight, 0))
    again = again[np.lexsort((ends[again], of[again]))]
    order = np.lexsort((to_numpy(old.payload.column(_TIE)), mine))
    taken = old.take(order)
    assert len(again) == len(taken), "an end moves of a tuple that has no result"
    re = ends[again]
    until = pa.array(np.where(re == INFINITY, INFINITY, add(re, 1)))
    payload = taken.payload.set_column(taken.payload.schema.get_field_index(_UNTIL), _UNTIL, until)
    return old, Changes(taken.le, re, taken.weight, payload)
