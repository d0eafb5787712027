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

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, canonical_floats, to_numpy
from headrace.expr import col, evaluate
from headrace.operators.groups import HOLD, OUT, PREFIX, UNTIL, Groups, Hashes
from headrace.operators.kernel import Data, Kernel, cancelled_rows, expression_texts
from headrace.operators.ordered.divide import Reach, Spans, closing, divide, next_slide, without_prefix
from headrace.operators.ordered.keep import Kept, kept, least_bound, next_settled, next_shown
from headrace.operators.ordered.line import OrderedTuples, Past, lined_up, ranges
from headrace.operators.ordered.sums import RunSums
from headrace.operators.per_window.content import Earlier, Outputs, content_of
from headrace.operators.per_window.divide import Windows
from headrace.operators.per_window.items import Members
from headrace.operators.per_window.rows import of_kept, output_rows, where
from headrace.plan.nodes import Aggregate, PerWindow
from headrace.plan.ordered import Delta, Fixed, Frame, Landmark, Ordered, Slides, Time, Tuples, order_columns
from headrace.plan.source import DIVERTED
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY, format_ticks
from headrace.trace import Trace

__all__ = ["OrderedKernel"]

_COUNT, _UPTO, _FIRST, _SKIP = "__count", "__upto", "__first", "__skip"
_PAST = (_COUNT, _UPTO, _FIRST, _SKIP)


class OrderedKernel(Kernel):
    """Outputs per group and window of tuples, given early and corrected."""

    divisible = True

    def __init__(self, node: PerWindow, asked: PerWindow | None = None) -> None:
        """`asked` is what is computed of a window, if it is not the node itself."""
        super().__init__(node)
        self.per_window, asked = node, asked or node
        assert isinstance(node.window, Ordered)
        self.ordered: Ordered = node.window
        below = node.input.schema
        self.order = [PREFIX + name for name in order_columns(below)]
        self.traces = {name: Trace(cancelled_rows) for name in ("events", "groups", "given", "forget", "show")}
        self.groups = Groups(node, [(PREFIX + name, col(name)) for name in below.names], self.traces)
        self.keys = self.groups.keys
        self.scalars = {"cti": NEG_INFINITY, "seen": NEG_INFINITY}
        self.content = content_of(asked)
        self.sums = RunSums.of(asked) if isinstance(asked, Aggregate) else None

    def column_names(self) -> dict[str, str]:
        return expression_texts(self.groups.projection) | {OUT + name: name for name in self.node.schema.names}

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
        moving = self.groups.touched(delta.filter(delta.le >= self._open), show=limit)
        touched = np.union1d(moving, self.groups.touched(delta, forget=now.cti))
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
        delta = self.groups.project(changes, changes.re if self._sees_ends else changes.le + 1)
        if isinstance(self.ordered, (Fixed, Landmark)):
            delta = delta.filter(delta.le >= self.ordered.start)
        if isinstance(self.ordered, Fixed):
            delta = delta.filter(delta.le < self.ordered.end)
        return delta.cancelled()

    @property
    def _open(self) -> int:
        """From when on a change of tuples changes what was given."""
        return NEG_INFINITY

    @property
    def _sees_ends(self) -> bool:
        return self.per_window.sensitive

    # --- the groups to look at ----------------------------------------------------------------------------------------

    def _look(self, touched: Hashes, moving: Hashes, delta: Changes, now: Progress, limit: int) -> Changes:
        line, keys, gone = self._lines(touched, delta)
        moves = np.isin(self.groups.hashes(keys), moving)
        reached = max(now.high, self.scalars["seen"]) if now.cti == INFINITY else None
        spans, inside = divide(self.ordered, line, Reach(self.scalars["cti"], self._until(line, limit, reached)))
        closes, wanted = closing(self.ordered, line, spans), moves[spans.group]
        if self.per_window.final:
            wanted &= closes <= now.cti
        if inside is not None:
            inside = inside[wanted[ranges(spans.first, spans.last)[0]]]
        result = self._exchange_spans(spans.filter(wanted), inside, closes[wanted], line, keys, moving)
        all_runs = spans if isinstance(self.ordered, Delta) else None
        left = kept(self.ordered, line, now.cti, all_runs)
        if self.per_window.final and isinstance(self.ordered, Landmark):
            # Nothing is forgotten, but each tuple that is settled may close a window.
            left = replace(left, alarm=next_settled(line, line.until(now.cti)))
        self._keep(touched, line, keys, left, gone)
        shows = next_shown(self.ordered, line, INFINITY if now.cti == INFINITY else limit)
        self.groups.set_alarms("show", touched, keys, shows)
        return result

    def _lines(self, touched: Hashes, delta: Changes) -> tuple[OrderedTuples, pa.Table, Changes]:
        """The tuples of the groups in their order, the groups' keys, and the changes of what is kept of them."""
        known, pasts = self.groups.events(touched), self.groups.known("groups", touched)
        if self._sees_ends and len(delta):
            delta = of_kept(delta, known, self.scalars["cti"])
        after = Changes.concat([known, delta]).cancelled()
        codes, keys = self.groups.number(*(x.payload for x in (after, known, pasts) if x is not None))
        line, _ = lined_up(after, codes[0], keys.num_rows, self.order)
        past = Past.none(keys.num_rows)
        if pasts is not None:
            for name, column in zip(_PAST, (past.count, past.upto, past.first, past.skip), strict=True):
                column[codes[2]] = to_numpy(pasts.payload.column(name))
        return OrderedTuples(line.group, line.le, line.start, line.events, past), keys, known

    def _until(self, line: OrderedTuples, seen: int, reached: int | None) -> Int64s:
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
        self, spans: Spans, inside: Bools | None, closes: Int64s, line: OrderedTuples, keys: pa.Table, moving: Hashes
    ) -> Changes:
        """What the windows say, which are closed at these CTIs, for what was given of these groups."""
        windows = Windows(spans.group, spans.le, spans.re, np.empty(0, np.int64))
        outputs = self._outputs_of(spans, inside, line, keys)
        fresh = output_rows(outputs, windows, closes, keys)
        return self._exchange(self.groups.known("given", moving), fresh)

    def _exchange(self, stale: Changes | None, fresh: Changes) -> Changes:
        """Outputs that hold now for those that were given."""
        moved = self.groups.exchange("given", stale, fresh, UNTIL)
        self.side = self.groups.diverted(moved, where)
        return self.groups.leaving(moved)

    def _outputs_of(self, spans: Spans, inside: Bools | None, line: OrderedTuples, keys: pa.Table) -> Outputs:
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
        named = self.groups.key_columns(keys, windows.group)
        states: dict[str, list[bytes | None]] = {name: [None] * len(spans) for name in self.content.stateful}
        nothing = np.empty(0, np.int64)
        earlier = Earlier(states, Members(nothing, nothing, tuples))
        return self.content.outputs(windows, Members(number, row, tuples), named, np.ones(len(spans), bool), earlier)

    def _evaluated(self, line: OrderedTuples) -> Changes:
        """The tuples with what is asked of them."""
        columns = without_prefix(line.events.payload)
        found = {name: evaluate(expr, columns) for name, expr in self.content.columns}
        payload = pa.table(found) if found else columns
        return line.events.with_payload(canonical_floats(payload))

    # --- what is remembered -------------------------------------------------------------------------------------------

    def _keep(self, touched: Hashes, line: OrderedTuples, keys: pa.Table, left: Kept, known: Changes) -> None:
        """What is kept takes the place of what was known."""
        self.groups.exchange("events", known, line.events.filter(left.keep))
        self.groups.set_alarms("forget", touched, keys, left.alarm, left.hold)
        past, table = left.past, keys
        for name, column in zip(_PAST, (past.count, past.upto, past.first, past.skip), strict=True):
            table = table.append_column(name, pa.array(column))
        self.groups.set_rows("groups", touched, table.filter(pa.array(self._goes_on(past))))

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
        return min(least_bound(self.ordered, cti), self.groups.least("forget", HOLD))

    def held_by(self) -> str:
        held = "tuples that windows to come may hold, and a row a group"
        if isinstance(self.ordered, Landmark):
            held = "all tuples since the landmark"
        return f"{held}; CTI {format_ticks(self.scalars['cti'])}"
