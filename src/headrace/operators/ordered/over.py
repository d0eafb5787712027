"""Aggregates over the tuples before each tuple (rule 7.5).

A result has the lifetime of its tuple, so the output CTI is the input's; only under a slide of time it waits for an
open slot, whose last tuple is not known yet. A result is settled when the CTI has passed the LE of its tuple; until
then it is computed anew when the group changes. After that only the end of the tuple may move, and the end of its
result with it. Of equal tuples with different ends, the one that ends first has the first result; so `given` has the
place of each among its equals.

If frames reach back to the first tuple, and the aggregates add up, settled tuples are kept as a total for each group
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
from headrace.operators.ordered.keep import next_shown, retention
from headrace.operators.ordered.kernel import OrderedKernel
from headrace.operators.ordered.tuples import OrderedTuples
from headrace.operators.ordered.yields import TIE, moved_ends, open_since, slot_end, ties, with_equals, yields
from headrace.operators.per_window.content import Outputs
from headrace.operators.per_window.divide import Windows
from headrace.operators.per_window.rows import with_columns, with_window_columns
from headrace.plan.ordered import NUMBER, Time
from headrace.plan.over import Over
from headrace.progress import Progress
from headrace.time import INFINITY, add
from headrace.trace import Trace

__all__ = ["OverKernel"]


class OverKernel(OrderedKernel):
    """Each tuple with the aggregates of its frame."""

    def __init__(self, node: Over) -> None:
        super().__init__(node, node.aggregate)
        self.over, self.frame = node, node.frame
        self.endless = self.frame.endless
        #: Whether settled tuples become a total: frames reach back to the first tuple, and aggregates add up.
        self.carries = self.endless and self.sums is not None
        if self.carries:
            self.traces["carried"] = Trace(self._summed)

    @property
    def _sees_ends(self) -> bool:
        return True

    @property
    def _open(self) -> int:
        """The time from which results are not settled; earlier ones change only their ends, with their tuples."""
        return open_since(self.frame, self.scalars["cti"])

    def _recompute(self, touched: Hashes, moving: Hashes, delta: Changes, now: Progress, limit: int) -> Changes:
        known_until, cti = self._open, now.cti
        tuples, keys, known = self._order(touched, delta)
        unsettled = (tuples.le >= known_until) & np.isin(self.groups.hashes(keys), moving)[tuples.group]
        yielding = unsettled & yields(self.frame, tuples, limit)
        standing = self._standing(np.union1d(moving, self.groups.hashes(delta.payload)))
        stale = standing.filter((standing.le >= known_until) & np.isin(self.groups.hashes(standing.payload), moving))
        ends = delta.filter(delta.le < known_until)
        old, new = moved_ends(standing.filter(standing.le < known_until), ends, self.groups.schema.names)
        fresh = self._results(tuples, keys, yielding, self._carried(touched, keys))
        result = self._exchange(Changes.concat([stale, old]), Changes.concat([fresh, new]))
        needed = retention(self.frame, tuples, cti)
        if self.carries:
            needed = replace(needed, keep=self._carry(tuples, keys, np.minimum(needed.hold, cti)))
        elif self.endless and self.over.prompt:
            needed = replace(needed, alarm=np.full(tuples.groups, INFINITY, np.int64))  # tuples are never forgotten
        self._keep(touched, tuples, keys, needed, known)
        if not self.over.prompt:
            shows = next_shown(self.frame, tuples, limit)
            self.groups.set_alarms("show", touched, keys, shows)
        return result

    def _standing(self, hashes: Hashes) -> Changes:
        """The outputs of some groups that may still change."""
        outputs = self.groups.known("given", hashes)
        if outputs is not None:
            return outputs
        no_events = Changes.empty(self.groups.schema)
        no_tuples = OrderedTuples(*(np.empty(0, np.int64),) * 2, np.zeros(1, np.int64), no_events)
        return self._results(no_tuples, no_events.payload.select(self.keys), np.empty(0, bool))

    # --- results ------------------------------------------------------------------------------------------------------

    def _results(
        self, tuples: OrderedTuples, keys: pa.Table, yielding: Bools, carried: dict[str, Int64s] | None = None
    ) -> Changes:
        """The results of these tuples, with failures of modules; also the tuples equal to them, as silent rows."""
        rows = np.flatnonzero(with_equals(tuples, yielding))
        answered = np.flatnonzero(yielding[rows])
        frames = self._frames(tuples, rows)
        spans = frames.filter(yielding[rows])
        windows = Windows(spans.group, spans.le, spans.re, np.empty(0, np.int64))
        if self.sums is not None:
            outputs = self.sums.outputs(windows, spans.first, spans.last, self._with_arguments(tuples), carried)
        else:
            outputs = self._outputs_of(spans, None, tuples, keys)
        reasons = np.full(len(rows), None, object)
        for number, reason in outputs.failures:
            reasons[answered[number]] = reason
        events = tuples.events.take(rows)
        until = np.where(events.re == INFINITY, INFINITY, add(events.re, 1))
        if isinstance(self.frame.slide, Time):  # while the slot is open, another tuple may replace this one
            until = np.maximum(until, slot_end(self.frame.slide, events.le))
        table = with_columns(events.payload, self._of_tuples(outputs, answered, len(rows)))
        table = with_window_columns(table, Windows(frames.group, frames.le, frames.re, np.empty(0, np.int64)), until)
        if self.over.numbers:
            table = table.append_column(OUT + NUMBER, pa.array(tuples.position[rows]))
        table = table.append_column(TIE, pa.array(ties(tuples)[rows]))
        table = table.append_column(REASON, pa.array(reasons, pa.string()))
        table = table.append_column(SILENT, pa.array(~yielding[rows]))
        return Changes.inserts(events.le, events.re, table)

    def _frames(self, tuples: OrderedTuples, rows: Int64s) -> Spans:
        group, le = tuples.group[rows], tuples.le[rows]
        first, frame = tuples.start[group], self.frame
        start = None
        if frame.rows is not None:
            first = np.maximum(first, rows - frame.rows)
        elif frame.range is not None:
            start = add(le, -frame.range)
            first = tuples.place(group, start)
        last = tuples.place(group, le + 1) - 1 if frame.peers else rows
        return Spans(group, first, last, tuples.le[first] if start is None else start, le + 1)

    # --- totals -------------------------------------------------------------------------------------------------------

    def _carried(self, touched: Hashes, keys: pa.Table) -> dict[str, Int64s]:
        """The totals of the settled tuples of each group."""
        totals = self.traces["carried"].lookup(touched) if self.carries else None
        if totals is None:
            return {}
        of = positions_among(keys, totals.select(self.keys))
        totals, of = totals.filter(pa.array(of >= 0)), of[of >= 0]
        names = [name for name in totals.column_names if name not in self.keys]
        return {name: group_sum(of, _without_nulls(totals.column(name)), keys.num_rows) for name in names}

    def _carry(self, tuples: OrderedTuples, keys: pa.Table, until: Int64s) -> Bools:
        """Add the tuples of each group up to its time to the totals; a mask of the other tuples."""
        assert self.sums is not None
        settled = tuples.le < until[tuples.group]
        some = np.unique(tuples.group[settled])
        if len(some) and until[0] != INFINITY:
            table = keys.take(pa.array(some))
            for name, column in self.sums.of_tuples(self._with_arguments(tuples)).items():
                total = group_sum(tuples.group[settled], column[settled], tuples.groups)[some]
                table = table.append_column(name, pa.array(total))
            self.traces["carried"].append(table, self.groups.hashes(table), np.full(len(some), INFINITY, np.int64))
        return ~settled

    def _summed(self, table: pa.Table) -> pa.Table:
        """Compact totals: sum those of each group."""
        own = [*self.keys, "__hash", "__time"]
        codes, first = factorize(table.select(self.keys))
        result = table.select(own).take(pa.array(first))
        for name in table.column_names:
            if name not in own:
                total = group_sum(codes, _without_nulls(table.column(name)), len(first))
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
        """The outputs as a row for each tuple, null for tuples without output; `place` has the outputs' tuples."""
        row = np.full(count, -1, np.int64)
        row[place[outputs.window]] = np.arange(len(outputs.window))
        taken = outputs.payload.take(pa.array(row, mask=row < 0))
        return taken.rename_columns([OUT + name for name in taken.column_names])

    def held_by(self) -> str:
        frame = "a total a group" if self.carries else "all tuples" if self.endless else "tuples of frames to come"
        return f"{frame}, and results whose tuple may still end elsewhere; CTI {self.time_text(self.scalars['cti'])}"


def _without_nulls(column: pa.ChunkedArray) -> Int64s:
    return to_numpy(pc.fill_null(column, 0))  # null is a limb that was not needed before
