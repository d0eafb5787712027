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

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, factorize, group_sum, to_numpy
from headrace.operators.groups import OUT, REASON, SILENT, Hashes, positions_among
from headrace.operators.ordered.divide import Spans
from headrace.operators.ordered.keep import kept, next_shown
from headrace.operators.ordered.kernel import OrderedKernel
from headrace.operators.ordered.line import OrderedTuples
from headrace.operators.ordered.yields import TIE, equals, moved_ends, open_since, slot_end, ties, yields
from headrace.operators.per_window.content import Outputs
from headrace.operators.per_window.divide import Windows
from headrace.operators.per_window.rows import beside, stamped
from headrace.plan.ordered import Time
from headrace.plan.over import Over
from headrace.progress import Progress
from headrace.time import INFINITY, add, format_ticks
from headrace.trace import Trace

__all__ = ["OverKernel"]


class OverKernel(OrderedKernel):
    """Each tuple with the aggregates of its frame."""

    def __init__(self, node: Over) -> None:
        super().__init__(node, node.aggregate)
        self.over, self.frame = node, node.frame
        self.endless = self.frame.endless
        #: Where all that precedes is asked for and adds up, settled tuples become a total.
        self.carries = self.endless and self.sums is not None
        if self.carries:
            self.traces["carried"] = Trace(self._summed)

    @property
    def _sees_ends(self) -> bool:
        return True

    @property
    def _open(self) -> int:
        """From when on results are not settled: of earlier ones only the ends change, with those of their tuples."""
        return open_since(self.frame, self.scalars["cti"])

    def _look(self, touched: Hashes, moving: Hashes, delta: Changes, now: Progress, limit: int) -> Changes:
        known_until, cti = self._open, now.cti
        line, keys, known = self._lines(touched, delta)
        unsettled = (line.le >= known_until) & np.isin(self.groups.hashes(keys), moving)[line.group]
        given = unsettled & yields(self.frame, line, limit)
        standing = self._standing(np.union1d(moving, self.groups.hashes(delta.payload)))
        stale = standing.filter((standing.le >= known_until) & np.isin(self.groups.hashes(standing.payload), moving))
        ends = delta.filter(delta.le < known_until)
        old, new = moved_ends(standing.filter(standing.le < known_until), ends, self.groups.schema.names)
        fresh = self._results(line, keys, given, self._carried(touched, keys))
        result = self._exchange(Changes.concat([stale, old]), Changes.concat([fresh, new]))
        left = kept(self.frame, line, cti)
        if self.carries:
            left = replace(left, keep=self._carry(line, keys, np.minimum(left.hold, cti)))
        elif self.endless and self.over.prompt:
            left = replace(left, alarm=np.full(line.groups, INFINITY, np.int64))  # nothing is ever forgotten
        self._keep(touched, line, keys, left, known)
        if not self.over.prompt:
            shows = next_shown(self.frame, line, limit)
            self.groups.set_alarms("show", touched, keys, shows)
        return result

    def _standing(self, hashes: Hashes) -> Changes:
        """What was given of some groups and may still change."""
        found = self.groups.known("given", hashes)
        if found is not None:
            return found
        none = Changes.empty(self.groups.schema)
        nothing = OrderedTuples(*(np.empty(0, np.int64),) * 2, np.zeros(1, np.int64), none)
        return self._results(nothing, none.payload.select(self.keys), np.empty(0, bool))

    # --- results ------------------------------------------------------------------------------------------------------

    def _results(
        self, line: OrderedTuples, keys: pa.Table, given: Bools, carried: dict[str, Int64s] | None = None
    ) -> Changes:
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
            outputs = self._outputs_of(spans, None, line, keys)
        reasons = np.full(len(rows), None, object)
        for number, reason in outputs.failures:
            reasons[loud[number]] = reason
        events = line.events.take(rows)
        until = np.where(events.re == INFINITY, INFINITY, add(events.re, 1))
        if isinstance(self.frame.slide, Time):  # as long as the slot is open, another tuple may take its place
            until = np.maximum(until, slot_end(self.frame.slide, events.le))
        table = beside(events.payload, self._of_tuples(outputs, loud, len(rows)))
        table = stamped(table, Windows(every.group, every.le, every.re, np.empty(0, np.int64)), until)
        table = table.append_column(TIE, pa.array(ties(line)[rows]))
        table = table.append_column(REASON, pa.array(reasons, pa.string()))
        table = table.append_column(SILENT, pa.array(~given[rows]))
        return Changes.inserts(events.le, events.re, table)

    def _frames(self, line: OrderedTuples, rows: Int64s) -> Spans:
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

    def _carried(self, touched: Hashes, keys: pa.Table) -> dict[str, Int64s]:
        """What the settled tuples of each group add up to."""
        found = self.traces["carried"].lookup(touched) if self.carries else None
        if found is None:
            return {}
        of = positions_among(keys, found.select(self.keys))
        found, of = found.filter(pa.array(of >= 0)), of[of >= 0]
        names = [name for name in found.column_names if name not in self.keys]
        return {name: group_sum(of, _filled(found.column(name)), keys.num_rows) for name in names}

    def _carry(self, line: OrderedTuples, keys: pa.Table, until: Int64s) -> Bools:
        """Add what is settled, which each group is up to a time, to the totals; the tuples that are left."""
        assert self.sums is not None
        settled = line.le < until[line.group]
        some = np.unique(line.group[settled])
        if len(some) and until[0] != INFINITY:
            table = keys.take(pa.array(some))
            for name, column in self.sums.of_tuples(self._evaluated(line)).items():
                total = group_sum(line.group[settled], column[settled], line.groups)[some]
                table = table.append_column(name, pa.array(total))
            self.traces["carried"].append(table, self.groups.hashes(table), np.full(len(some), INFINITY, np.int64))
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

    def _promise(self, cti: int) -> int:
        return cti if self.over.prompt else super()._promise(cti)

    @staticmethod
    def _of_tuples(outputs: Outputs, place: Int64s, count: int) -> pa.Table:
        """The outputs of all tuples, which are at these places; null for those that have none."""
        row = np.full(count, -1, np.int64)
        row[place[outputs.window]] = np.arange(len(outputs.window))
        taken = outputs.payload.take(pa.array(row, mask=row < 0))
        return taken.rename_columns([OUT + name for name in taken.column_names])

    def held_by(self) -> str:
        frame = "a total a group" if self.carries else "all tuples" if self.endless else "tuples of frames to come"
        return f"{frame}, and results whose tuple may still end elsewhere; CTI {format_ticks(self.scalars['cti'])}"


def _filled(column: pa.ChunkedArray) -> Int64s:
    return to_numpy(pc.fill_null(column, 0))  # a limb that was not needed before
