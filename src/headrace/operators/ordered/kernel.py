"""Aggregates, operators and rankings over windows of tuples in their order (rules 8.2 and 8.3).

For the groups that a batch changes, and for those of which a window becomes visible, the kernel orders the kept tuples
and divides them anew; the outputs of windows that the CTI has not closed replace the earlier ones. All groups of a
batch are in the same calls.

Traces carry the state:

- `events`: the tuples that later windows may need, with all their columns, which decide their order;
- `groups`: one row per group with its past (`Past`): how many tuples it had, when the first was;
- `given`: the outputs of the windows that are not closed;
- `forget` and `show`: when a group is due, as for other windows; `forget` also has the lower bound that holds the
  output CTI.

If a query gives only final answers, a window is computed once, when it is closed, as with other windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, canonical_floats, to_numpy
from headrace.expr import col, evaluate
from headrace.operators.groups import HOLD, OUT, PREFIX, UNTIL, Groups, Hashes
from headrace.operators.kernel import Data, Kernel, cancelled_rows, expression_texts
from headrace.operators.ordered.divide import Reach, Spans, closing, divide, next_slide, without_prefix
from headrace.operators.ordered.keep import Retention, least_bound, next_settled, next_shown, retention
from headrace.operators.ordered.sums import RunSums
from headrace.operators.ordered.tuples import OrderedTuples, Past, bounded_runs, order_tuples, ranges
from headrace.operators.per_window.content import EarlierState, Outputs, content_of
from headrace.operators.per_window.divide import Windows
from headrace.operators.per_window.items import Members
from headrace.operators.per_window.rows import output_rows, window_texts, without_forgotten
from headrace.plan.nodes import Aggregate, PerWindow
from headrace.plan.ordered import Delta, Fixed, Frame, Landmark, Ordered, Slides, Time, Tuples, order_columns
from headrace.plan.source import DIVERTED
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import Trace

__all__ = ["OrderedKernel"]

_COUNT, _UPTO, _FIRST, _SKIP = "__count", "__upto", "__first", "__skip"
_PAST = (_COUNT, _UPTO, _FIRST, _SKIP)
#: How many pairs of a window and a tuple are computed together: frames of many tuples have more than fit into memory.
_MOST_PAIRS = 1 << 21


class OrderedKernel(Kernel):
    """Outputs per group and window of tuples, given early and corrected."""

    divisible = True

    def __init__(self, node: PerWindow, computed: PerWindow | None = None) -> None:
        """`computed` is the node that computes the outputs of a window, if it is not the node itself."""
        super().__init__(node)
        self.per_window, computed = node, computed or node
        assert isinstance(node.window, Ordered)
        self.ordered: Ordered = node.window
        below = node.input.schema
        self.order = [PREFIX + name for name in order_columns(below)]
        self.traces = {name: Trace(cancelled_rows) for name in ("events", "groups", "given", "forget", "show")}
        self.groups = Groups(node, [(PREFIX + name, col(name)) for name in below.names], self.traces)
        self.keys = self.groups.keys
        self.scalars = {"cti": NEG_INFINITY, "seen": NEG_INFINITY}
        self.content = content_of(computed)
        self.sums = RunSums.of(computed) if isinstance(computed, Aggregate) else None

    def column_names(self) -> dict[str, str]:
        return expression_texts(self.groups.projection) | {OUT + name: name for name in self.node.schema.names}

    # --- one batch ---------------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        delta = self._project(changes)
        now = Progress(max(now.cti, self.scalars["cti"]), now.high)
        seen = max(now.seen, self.scalars["seen"])
        result = Changes.empty(self.node.schema)
        self.side = Changes.empty(DIVERTED)
        limit = now.cti if self.per_window.final else seen
        moving = self.groups.touched(delta.filter(delta.le >= self._open), show=limit)
        touched = np.union1d(moving, self.groups.touched(delta, forget=now.cti))
        if len(touched):
            result = self._recompute(touched, touched if self.per_window.final else moving, delta, now, limit)
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

    def _project(self, changes: Changes) -> Changes:
        """The changes of tuples that windows may contain, with ends only if a module sees them."""
        delta = self.groups.project(changes, changes.re if self._sees_ends else changes.le + 1)
        if isinstance(self.ordered, (Fixed, Landmark)):
            delta = delta.filter(delta.le >= self.ordered.start)
        if isinstance(self.ordered, Fixed):
            delta = delta.filter(delta.le < self.ordered.end)
        return delta.cancelled()

    @property
    def _open(self) -> int:
        """The time from which a change of tuples changes outputs."""
        return NEG_INFINITY

    @property
    def _sees_ends(self) -> bool:
        return self.per_window.sensitive

    # --- the groups to look at ----------------------------------------------------------------------------------------

    def _recompute(self, touched: Hashes, moving: Hashes, delta: Changes, now: Progress, limit: int) -> Changes:
        tuples, keys, known = self._order(touched, delta)
        moves = np.isin(self.groups.hashes(keys), moving)
        reached = max(now.high, self.scalars["seen"]) if now.cti == INFINITY else None
        spans, inside = divide(self.ordered, tuples, Reach(self.scalars["cti"], self._until(tuples, limit, reached)))
        closes, wanted = closing(self.ordered, tuples, spans), moves[spans.group]
        if self.per_window.final:
            wanted &= closes <= now.cti
        if inside is not None:
            inside = inside[wanted[ranges(spans.first, spans.last)[0]]]
        result = self._exchange_spans(spans.filter(wanted), inside, closes[wanted], tuples, keys, moving)
        all_runs = spans if isinstance(self.ordered, Delta) else None
        needed = retention(self.ordered, tuples, now.cti, all_runs)
        if self.per_window.final and isinstance(self.ordered, Landmark):
            # No tuple is forgotten, but each settled tuple may close a window.
            needed = replace(needed, alarm=next_settled(tuples, tuples.until(now.cti)))
        self._keep(touched, tuples, keys, needed, known)
        shows = next_shown(self.ordered, tuples, INFINITY if now.cti == INFINITY else limit)
        self.groups.set_alarms("show", touched, keys, shows)
        return result

    def _order(self, touched: Hashes, delta: Changes) -> tuple[OrderedTuples, pa.Table, Changes]:
        """The tuples of the groups in their order, the groups' keys, and their tuples in the trace."""
        known, pasts = self.groups.events(touched), self.groups.known("groups", touched)
        if self._sees_ends and len(delta):
            delta = without_forgotten(delta, known, self.scalars["cti"])
        after = Changes.concat([known, delta]).cancelled()
        codes, keys = self.groups.number(*(x.payload for x in (after, known, pasts) if x is not None))
        tuples, _ = order_tuples(after, codes[0], keys.num_rows, self.order)
        past = Past.empty(keys.num_rows)
        if pasts is not None:
            for name, column in zip(_PAST, (past.count, past.upto, past.first, past.skip), strict=True):
                column[codes[2]] = to_numpy(pasts.payload.column(name))
        return OrderedTuples(tuples.group, tuples.le, tuples.start, tuples.events, past), keys, known

    def _until(self, tuples: OrderedTuples, seen: int, reached: int | None) -> Int64s:
        """The time up to which each group's windows are visible (rule 5.3); `reached` is the end of an ended input."""
        until = np.full(tuples.groups, seen if reached is None else reached, np.int64)
        if reached is None:
            return until
        some, window = tuples.nonempty, self.ordered
        last = tuples.le[tuples.start[some + 1] - 1]
        if isinstance(window, Fixed):
            until[some] = np.maximum(until[some], window.end)
        elif isinstance(window, (Slides, Landmark)) and isinstance(window.every, Time):
            origin: Int64s | int = tuples.origin[some]
            if isinstance(window, Landmark):
                origin = window.start
            elif window.origin is not None:
                origin = window.origin
            until[some] = np.maximum(until[some], next_slide(last, origin, window.every.ticks))
        return until

    # --- old and new outputs -----------------------------------------------------------------------------------------

    def _exchange_spans(
        self, spans: Spans, inside: Bools | None, closes: Int64s, tuples: OrderedTuples, keys: pa.Table, moving: Hashes
    ) -> Changes:
        """Replace the outputs of the moving groups by those of these windows, which close at these CTIs."""
        windows = Windows(spans.group, spans.le, spans.re, np.empty(0, np.int64))
        outputs = self._outputs_of(spans, inside, tuples, keys)
        fresh = output_rows(outputs, windows, closes, keys)
        return self._exchange(self.groups.known("given", moving), fresh)

    def _exchange(self, stale: Changes | None, fresh: Changes) -> Changes:
        """Replace stale outputs by fresh ones."""
        moved = self.groups.exchange("given", stale, fresh, UNTIL)
        self.side = self.groups.diverted(moved, partial(window_texts, dates=self.node.dates))
        return self.groups.leaving(moved)

    def _outputs_of(self, spans: Spans, inside: Bools | None, tuples: OrderedTuples, keys: pa.Table) -> Outputs:
        """The outputs of windows; `inside` is a mask of the tuples of their runs that are in them, None for all."""
        arguments = self._with_arguments(tuples)
        if self.sums is not None and inside is None:
            windows = Windows(spans.group, spans.le, spans.re, np.empty(0, np.int64))
            return self.sums.outputs(windows, spans.first, spans.last, arguments)
        if not self.per_window.sensitive:
            # No module sees times, so the place in the order decides what is first and last, not time and value.
            places = np.arange(len(tuples), dtype=np.int64)
            arguments = Changes(places, places + 1, arguments.weight, arguments.payload)
        pairs = np.r_[0, np.cumsum(np.maximum(spans.last - spans.first + 1, 0))]
        parts = []
        for start, stop in pairwise(bounded_runs(pairs, _MOST_PAIRS)):
            some = None if inside is None else inside[pairs[start] : pairs[stop]]
            outputs = self._outputs_of_some(spans.part(start, stop), some, arguments, keys)
            parts.append(outputs.of_windows_from(start))
        return Outputs.concat(parts)

    def _outputs_of_some(self, spans: Spans, inside: Bools | None, arguments: Changes, keys: pa.Table) -> Outputs:
        """The outputs of so few windows that the pairs of them and their tuples fit into memory."""
        windows = Windows(spans.group, spans.le, spans.re, np.empty(0, np.int64))
        number, row = ranges(spans.first, spans.last)
        if inside is not None:
            number, row = number[inside], row[inside]
        named = self.groups.key_columns(keys, windows.group)
        states: dict[str, list[bytes | None]] = {name: [None] * len(spans) for name in self.content.stateful}
        nothing = np.empty(0, np.int64)
        earlier = EarlierState(states, Members(nothing, nothing, arguments))
        return self.content.outputs(windows, Members(number, row, arguments), named, np.ones(len(spans), bool), earlier)

    def _with_arguments(self, tuples: OrderedTuples) -> Changes:
        """The tuples with the columns that the content needs."""
        columns = without_prefix(tuples.events.payload)
        arguments = {name: evaluate(expr, columns) for name, expr in self.content.columns}
        payload = pa.table(arguments) if arguments else columns
        return tuples.events.with_payload(canonical_floats(payload))

    # --- state to keep ------------------------------------------------------------------------------------------------

    def _keep(self, touched: Hashes, tuples: OrderedTuples, keys: pa.Table, needed: Retention, known: Changes) -> None:
        """Replace the known tuples by those to keep."""
        self.groups.exchange("events", known, tuples.events.filter(needed.keep))
        self.groups.set_alarms("forget", touched, keys, needed.alarm, needed.hold)
        past, table = needed.past, keys
        for name, column in zip(_PAST, (past.count, past.upto, past.first, past.skip), strict=True):
            table = table.append_column(name, pa.array(column))
        self.groups.set_rows("groups", touched, table.filter(pa.array(self._has_past(past))))

    def _has_past(self, past: Past) -> Bools:
        """The groups whose past is needed beside their tuples."""
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
        return f"{held}; CTI {self.time_text(self.scalars['cti'])}"
