"""Aggregates, operators and rankings over windows of tuples in their order (rules 8.2 and 8.3).

For the groups that a batch changes, and for those of which a window becomes visible, the tuples that are kept are put
in their order and divided anew; what the windows say that the CTI has not closed takes the place of what was given.
All groups of a batch are in the same calls.

Traces carry the state:

- `events`: the tuples that windows still to come may need, with all their columns, which decide their order;
- `groups`: one row a group with what is known of its past (`Past`): how many tuples it had, when the first was;
- `given`: the outputs of the windows that are not closed;
- `forget` and `show`: when to look at a group again, as for other windows; `forget` also has the lower bound that
  holds the output CTI.

Where only final answers are asked for, a window is looked at once, when it is closed, as it is with other windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, canonical_floats, factorize, to_numpy
from headrace.expr import col, evaluate
from headrace.operators.evaluated import evaluated
from headrace.operators.kernel import Data
from headrace.operators.ordered.divide import PREFIX, Reach, Spans, closing, divide, next_slide, without_prefix
from headrace.operators.ordered.keep import Kept, kept, least_bound, next_settled, next_shown
from headrace.operators.ordered.line import Line, Past, lined_up, ranges
from headrace.operators.ordered.sums import RunSums
from headrace.operators.windows.content import Earlier, Outputs
from headrace.operators.windows.divide import Windows
from headrace.operators.windows.items import Members
from headrace.operators.windows.kernel import WindowKernel
from headrace.operators.windows.rows import cancelled_rows
from headrace.plan.nodes import Aggregate, PerWindow
from headrace.plan.ordered import Delta, Fixed, Frame, Landmark, Ordered, Slides, Time, Tuples, order_columns
from headrace.plan.source import DIVERTED
from headrace.progress import Progress
from headrace.schema import Field, Schema
from headrace.time import INFINITY, NEG_INFINITY, format_ticks
from headrace.trace import Trace

__all__ = ["OrderedKernel"]

Hashes = NDArray[np.uint64]
_COUNT, _UPTO, _FIRST, _SKIP = "__count", "__upto", "__first", "__skip"
_PAST = (_COUNT, _UPTO, _FIRST, _SKIP)


class OrderedKernel(WindowKernel):
    """Outputs per group and window of tuples, given early and corrected."""

    def __init__(self, node: PerWindow) -> None:
        super().__init__(node)
        assert isinstance(self.window, Ordered)
        self.ordered: Ordered = self.window
        below = node.input.schema
        keys = [(name, expr) for name, expr in self.projection if name in self.keys]
        self.projection = [*keys, *((PREFIX + name, col(name)) for name in below.names)]
        self.schema = Schema(
            (*(f for f in self.schema if f.name in self.keys), *(Field(PREFIX + f.name, f.type) for f in below))
        )
        self.order = [PREFIX + name for name in order_columns(below)]
        self.traces = {name: Trace(cancelled_rows) for name in ("events", "groups", "given", "forget", "show")}
        self.sums = RunSums.of(node) if isinstance(node, Aggregate) else None

    # --- one batch ---------------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        delta = self._projected(changes)
        now = Progress(max(now.cti, self.scalars["cti"]), now.high)
        seen = max(now.seen, self.scalars["seen"])
        result = Changes.empty(self.node.schema)
        self.side = Changes.empty(DIVERTED)
        limit = now.cti if self.per_window.final else seen
        moving = self._touched_by(delta, "show", limit)
        touched = np.union1d(moving, self._touched_by(delta, "forget", now.cti))
        if len(touched):
            result = self._look(touched, touched if self.per_window.final else moving, delta, now, limit)
        self._drop(now.cti, limit)
        self.scalars = {"cti": now.cti, "seen": seen}
        return result, Progress(self._promise(now.cti), now.high)

    def _drop(self, cti: int, seen: int) -> None:
        self.traces["given"].drop(cti)
        self.traces["forget"].drop(cti)
        self.traces["show"].drop(seen)
        if cti == INFINITY:
            self.traces["events"].drop(cti)
            self.traces["groups"].drop(cti)

    def _projected(self, changes: Changes) -> Changes:
        """The changes of the tuples that windows may be made of; ends go only where a module sees them."""
        columns = [evaluated(expr, changes.payload, changes.weight) for _, expr in self.projection]
        payload = canonical_floats(pa.Table.from_arrays(columns, schema=self.schema.arrow))
        re = changes.re if self._sees_ends else changes.le + 1
        delta = Changes(changes.le, re, changes.weight, payload)
        if isinstance(self.ordered, (Fixed, Landmark)):
            delta = delta.filter(delta.le >= self.ordered.start)
        if isinstance(self.ordered, Fixed):
            delta = delta.filter(delta.le < self.ordered.end)
        return delta.cancelled()

    @property
    def _sees_ends(self) -> bool:
        return self.per_window.sensitive

    def _touched_by(self, delta: Changes, trace: str, time: int) -> Hashes:
        """The hashes of the groups that change, or whose time has come."""
        due = self.traces[trace].until(time)
        tables = [delta.payload] if due is None else [delta.payload, due]
        return np.unique(np.concatenate([self._hashes(table) for table in tables]))

    # --- the groups to look at ----------------------------------------------------------------------------------------

    def _look(self, touched: Hashes, moving: Hashes, delta: Changes, now: Progress, limit: int) -> Changes:
        line, groups, gone = self._lines(touched, delta)
        moves = np.isin(self._hashes(groups), moving)
        reached = max(now.high, self.scalars["seen"]) if now.cti == INFINITY else None
        spans, inside = divide(self.ordered, line, Reach(self.scalars["cti"], self._until(line, limit, reached)))
        closes, wanted = closing(self.ordered, line, spans), moves[spans.group]
        if self.per_window.final:
            wanted &= closes <= now.cti
        if inside is not None:
            inside = inside[wanted[ranges(spans.first, spans.last)[0]]]
        result = self._exchange_spans(spans.filter(wanted), inside, closes[wanted], line, groups, moving)
        all_runs = spans if isinstance(self.ordered, Delta) else None
        left = kept(self.ordered, line, now.cti, all_runs)
        if self.per_window.final and isinstance(self.ordered, Landmark):
            # Nothing is forgotten, but each tuple that is settled may close a window.
            left = replace(left, alarm=next_settled(line, line.until(now.cti)))
        self._keep(touched, line, groups, left, gone)
        shows = next_shown(self.ordered, line, INFINITY if now.cti == INFINITY else limit)
        self._set("show", touched, groups, shows, np.full(len(shows), INFINITY, np.int64))
        return result

    def _lines(self, touched: Hashes, delta: Changes) -> tuple[Line, pa.Table, Changes]:
        """The tuples of the groups in their order, the groups' keys, and the changes of what is kept of them."""
        known = self._known("events", touched)
        delta = self._of_kept(delta, known)
        after = Changes.concat([known, delta]).cancelled()
        pasts = self.traces["groups"].lookup(touched)
        tables = [after.payload.select(self.keys), known.payload.select(self.keys)]
        rows = None if pasts is None else Changes.from_table(pasts).cancelled().payload
        if rows is not None:
            tables.append(rows.select(self.keys))
        codes, groups = self._grouped(tables)
        line, _ = lined_up(after, codes[0], groups.num_rows, self.order)
        past = Past.none(groups.num_rows)
        if rows is not None:
            for name, column in zip(_PAST, (past.count, past.upto, past.first, past.skip), strict=True):
                column[codes[2]] = to_numpy(rows.column(name))
        return Line(line.group, line.le, line.start, line.events, past), groups, known

    def _of_kept(self, delta: Changes, known: Changes) -> Changes:
        """Without changes to the ends of tuples that are forgotten."""
        if not self._sees_ends or len(delta) == 0:
            return delta
        starts = [x.payload.append_column("__start", pa.array(x.le)) for x in (known, delta)]
        codes, _ = factorize(pa.concat_tables(starts))
        forgotten = (delta.le < self.scalars["cti"]) & ~np.isin(codes[len(known) :], codes[: len(known)])
        return delta.filter(~forgotten)

    def _until(self, line: Line, seen: int, reached: int | None) -> Int64s:
        """Up to when each group's windows are given (rule 5.3); `reached` is how far an ended input came."""
        until = np.full(line.groups, seen if reached is None else reached, np.int64)
        if reached is None:
            return until
        some, window = line.some, self.ordered
        last = line.le[line.start[some + 1] - 1]
        if isinstance(window, Fixed):
            until[some] = np.maximum(until[some], window.end)
        elif isinstance(window, (Slides, Landmark)) and isinstance(window.every, Time):
            origin: Int64s | int = line.origin[some]
            if isinstance(window, Landmark):
                origin = window.start
            elif window.origin is not None:
                origin = window.origin
            until[some] = np.maximum(until[some], next_slide(last, origin, window.every.ticks))
        return until

    # --- what is taken back and what is given ------------------------------------------------------------------------

    def _exchange_spans(
        self, spans: Spans, inside: Bools | None, closes: Int64s, line: Line, groups: pa.Table, moving: Hashes
    ) -> Changes:
        """What the windows say, which are closed at these CTIs, for what was given of these groups."""
        windows = Windows(spans.group, spans.le, spans.re, np.empty(0, np.int64))
        outputs = self._outputs_of(spans, inside, line, groups)
        found = self.traces["given"].lookup(moving)
        stale = None if found is None else Changes.from_table(found).cancelled()
        fresh = self._rows(outputs, windows, closes, groups)
        return self._leaving(self._replace("given", stale, fresh))

    def _outputs_of(self, spans: Spans, inside: Bools | None, line: Line, groups: pa.Table) -> Outputs:
        """What is said of windows; `inside` tells which tuples of their runs are in them, if not all are."""
        windows = Windows(spans.group, spans.le, spans.re, np.empty(0, np.int64))
        tuples = self._evaluated(line)
        if self.sums is not None and inside is None:
            return self.sums.outputs(windows, spans.first, spans.last, tuples)
        number, row = ranges(spans.first, spans.last)
        if inside is not None:
            number, row = number[inside], row[inside]
        if not self.per_window.sensitive:
            # Nobody sees when they are: what is first, and what is last, is so by its place, not by time and value.
            places = np.arange(len(line), dtype=np.int64)
            tuples = Changes(places, places + 1, tuples.weight, tuples.payload)
        names = [name for name, _ in self.per_window.keys]
        keys = groups.take(pa.array(windows.group)).select(self.keys[: len(names)]).rename_columns(names)
        states: dict[str, list[bytes | None]] = {name: [None] * len(spans) for name in self.content.stateful}
        nothing = np.empty(0, np.int64)
        earlier = Earlier(states, Members(nothing, nothing, tuples))
        return self.content.outputs(windows, Members(number, row, tuples), keys, np.ones(len(spans), bool), earlier)

    def _evaluated(self, line: Line) -> Changes:
        """The tuples with what is asked of them."""
        columns = without_prefix(line.events.payload)
        found = {name: evaluate(expr, columns) for name, expr in self.content.columns}
        payload = pa.table(found) if found else columns
        return line.events.with_payload(canonical_floats(payload))

    # --- what is remembered -------------------------------------------------------------------------------------------

    def _keep(self, touched: Hashes, line: Line, groups: pa.Table, left: Kept, known: Changes) -> None:
        """What is kept takes the place of what was known."""
        stay = line.events.filter(left.keep)
        moved = Changes.concat([stay, Changes(known.le, known.re, -known.weight, known.payload)]).cancelled()
        self.traces["events"].append(
            moved.to_table(), self._hashes(moved.payload), np.full(len(moved), INFINITY, np.int64)
        )
        self._set("forget", touched, groups, left.alarm, left.hold)
        self._set_past(touched, groups, left.past)

    def _set_past(self, touched: Hashes, groups: pa.Table, past: Past) -> None:
        some = self._goes_on(past)
        table = groups
        for name, column in zip(_PAST, (past.count, past.upto, past.first, past.skip), strict=True):
            table = table.append_column(name, pa.array(column))
        table = table.filter(pa.array(some))
        zero = np.zeros(table.num_rows, np.int64)
        rows = [Changes.inserts(zero, zero + 1, table)]
        found = self.traces["groups"].lookup(touched)
        if found is not None:
            old = Changes.from_table(found).cancelled()
            rows.append(Changes(old.le, old.re, -old.weight, old.payload))
        moved = Changes.concat(rows).cancelled()
        never = np.full(len(moved), INFINITY, np.int64)
        self.traces["groups"].append(moved.to_table(), self._hashes(moved.payload), never)

    def _goes_on(self, past: Past) -> Bools:
        """The groups of which something beside their tuples is needed to go on."""
        window = self.ordered
        if isinstance(window, Delta):
            return past.skip > 0
        if isinstance(window, Frame) and isinstance(window.slide, Tuples):
            return past.count > 0
        if not isinstance(window, Slides):
            return np.zeros(len(past.count), bool)
        if isinstance(window.every, Time):
            return np.asarray((past.first != INFINITY) & (window.origin is None))
        return past.count > 0

    # --- progress -----------------------------------------------------------------------------------------------------

    def _promise(self, cti: int) -> int:
        """The least lower bound of the windows that may still come or change."""
        if cti in (INFINITY, NEG_INFINITY):
            return cti
        held = self.traces["forget"].scan()
        promise = least_bound(self.ordered, cti)
        if held is None:
            return promise
        left = Changes.from_table(held).cancelled()
        return min(promise, int(np.min(to_numpy(left.payload.column("__hold")), initial=INFINITY)))

    def held_by(self) -> str:
        held = "tuples that windows to come may hold, and a row a group"
        if isinstance(self.ordered, Landmark):
            held = "all tuples since the landmark"
        return f"{held}; CTI {format_ticks(self.scalars['cti'])}"
