"""Aggregates, operators and rankings over windows of any kind (rules 5 and 6).

The general way: for the groups that a batch touches, find the windows before and after, and for each window that is
new, gone, or has a change in it, take back the old outputs and insert the new ones. All groups of a batch are in the
same calls; only users' modules are called window by window, and only for windows that changed.

Traces carry the state:

- `events`: the events that belong to a window which is not forgotten, with the columns that are needed;
- `given`: the outputs of those windows, so that they can be taken back even if a module would now return others;
- `states`, if a module is incremental: its state for each of those windows;
- `forget` and `show`: one row per group, with the CTI at which some of its state can be forgotten, and the time m at
  which more of its windows become visible (rule 5.3). A batch recomputes only the groups that it changes and those that
  are due. `forget` also has the window of the group that holds back the output CTI (rule 6.4).

A window is forgotten when the CTI has reached its end and, if a module sees later ends, every event in it has ended
before the CTI. A snapshot window is kept one tick longer: an event that ends at the CTI may still be extended (rule
3.1), and the window with it.

If a query gives only final answers, a window is computed once, when it is forgotten. The CTI then replaces m, and only
events are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, to_numpy
from headrace.operators.groups import HOLD, OUT, UNTIL, Groups, Hashes, difference, positions_among
from headrace.operators.kernel import Data, Kernel, cancelled_rows, expression_texts
from headrace.operators.per_window.content import EarlierState, content_of
from headrace.operators.per_window.divide import (
    GroupedLifetimes,
    Windows,
    are_among,
    are_in,
    divide,
    grid_windows,
    pairs,
    places,
)
from headrace.operators.per_window.items import Members
from headrace.operators.per_window.rows import (
    WLE,
    WRE,
    next_tick,
    output_rows,
    window_texts,
    with_columns,
    with_window_columns,
    without_forgotten,
)
from headrace.plan.nodes import PerWindow
from headrace.plan.source import DIVERTED
from headrace.plan.windows import Count, Grid, Session, Snapshot
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import Trace

__all__ = ["WindowKernel"]

_NOTHING = GroupedLifetimes(*(np.empty(0, np.int64),) * 3)


@dataclass(frozen=True)
class _Work:
    """The windows to compute, which of them are visible, and the windows that are unchanged."""

    windows: Windows
    shown: Bools
    keys: pa.Table
    touched: Hashes
    same: Windows


class WindowKernel(Kernel):
    """Outputs per group and window, given early and corrected."""

    divisible = True

    def __init__(self, node: PerWindow) -> None:
        super().__init__(node)
        self.per_window = node
        self.window = node.window
        self.content = content_of(node)
        #: The modules whose states are kept; none if a window is computed only once.
        self.stateful = () if node.final else self.content.stateful
        self.traces = {name: Trace(cancelled_rows) for name in ("events", "given", "forget", "show")}
        if self.stateful:
            self.traces["states"] = Trace(cancelled_rows, pickled=True)
        self.groups = Groups(node, self.content.columns, self.traces)
        self.keys = self.groups.keys
        self.scalars = {"cti": NEG_INFINITY, "seen": NEG_INFINITY}
        self._latest: tuple[GroupedLifetimes, Windows] | None = None

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
        touched = self.groups.touched(delta, forget=now.cti, show=limit)
        if len(touched):
            result = self._recompute(touched, delta, now, seen, limit)
        for name in ("given", "states"):
            if name in self.traces:
                self.traces[name].drop(now.cti)
        if self._forgets_by_time:
            self.traces["events"].drop(now.cti)
        self.traces["forget"].drop(now.cti)
        self.traces["show"].drop(limit)
        self.scalars = {"cti": now.cti, "seen": seen}
        return result, Progress(self._promise(now.cti), self._high(now))

    def _project(self, changes: Changes) -> Changes:
        """The needed columns of changes, with lifetimes reduced to what matters, so that other differences cancel."""
        starts_only = self._by_start and not self.per_window.sensitive
        delta = self.groups.project(changes, changes.le + 1 if starts_only else changes.re)
        if isinstance(self.window, Count) and self.window.by == "end":
            delta = delta.filter(delta.re != INFINITY)
        if isinstance(self.window, Grid):
            delta = delta.filter(self.window.first(delta.le) <= self.window.last(delta.le, delta.re))
        if self._forgets_by_time:
            delta = delta.filter(self._times(delta) > self.scalars["cti"])
        return delta.cancelled()

    @property
    def _by_start(self) -> bool:
        """Whether the start of an event decides its windows, so that it may be forgotten before its end."""
        return isinstance(self.window, Session) or (isinstance(self.window, Count) and self.window.by == "start")

    @property
    def _forgets_by_time(self) -> bool:
        """Whether an event's own lifetime decides when it is forgotten: grid windows do not depend on events."""
        return isinstance(self.window, Grid) and not self.per_window.holds_ends

    # --- windows before and after ------------------------------------------------------------------------------------

    def _recompute(self, touched: Hashes, delta: Changes, now: Progress, seen: int, limit: int) -> Changes:
        known = self.groups.events(touched)
        if self._by_start and self.per_window.sensitive and not self.per_window.holds_ends:
            delta = without_forgotten(delta, known, self.scalars["cti"])
        after = Changes.concat([known, delta]).cancelled()
        codes, keys = self.groups.number(known.payload, after.payload, delta.payload)
        old, new, changed = (GroupedLifetimes(c, x.le, x.re) for c, x in zip(codes, (known, after, delta), strict=True))
        old = _NOTHING if self.per_window.final else old  # windows that are not forgotten have no outputs yet
        before, was_shown = self._windows(old, keys.num_rows, self.scalars["seen"], None)
        ended = now.high if now.cti == INFINITY else None
        current, shown = self._windows(new, keys.num_rows, limit, ended)
        i, j = pairs(current, places(self.window, changed))
        same = are_in(current, before)
        same[i] = False
        same &= ~shown | are_in(current, before.filter(was_shown))
        number = np.cumsum(~same) - 1  # the number of each window among those that are not the same
        work = _Work(current.filter(~same), shown[~same], keys, touched, current.filter(same))
        result = self._exchange(work, new, after, Members(number[i], j, delta))
        self._remember(touched, new, after, delta, keys, now.cti, seen, limit)
        self._latest = None
        return result

    def _windows(self, events: GroupedLifetimes, groups: int, seen: int, ended: int | None) -> tuple[Windows, Bools]:
        """The windows to compute that are not forgotten, and which of them are visible (rule 5.3).

        Windows that are not visible yet are computed only for modules with states.
        """
        windows = self._divided(events, groups, seen, ended)
        closing = self._closing(windows, events)
        windows, closing = windows.filter(closing > self.scalars["cti"]), closing[closing > self.scalars["cti"]]
        shown = np.ones(len(windows), bool)
        if self.per_window.final:
            shown = closing <= seen
        elif not self._shows_at_once and ended is None:
            shown = windows.re <= seen
        return (windows, shown) if self.stateful else (windows.filter(shown), shown[shown])

    @property
    def _shows_at_once(self) -> bool:
        return isinstance(self.window, Snapshot) or self.per_window.timestamping == "time_bound"

    def _divided(self, events: GroupedLifetimes, groups: int, seen: int, ended: int | None) -> Windows:
        if not isinstance(self.window, Grid):
            return self._all(events, groups)
        grid, cti = self.window, self.scalars["cti"]
        low = -(2**62) if cti == NEG_INFINITY or not self._forgets_by_time else grid.closed(cti) + 1
        last_seen = self.scalars["seen"] if self.scalars["seen"] != INFINITY else NEG_INFINITY
        reached = None if ended is None else max(ended, last_seen)
        last = grid.begun if self._shows_at_once or (self.stateful and ended is None) else grid.closed
        ended = None if reached is None else last(reached)
        return grid_windows(grid, events, groups, low, last(seen), ended=ended)

    def _all(self, events: GroupedLifetimes, groups: int) -> Windows:
        """All windows of events, visible or not. A batch needs those of its events three times, so they are cached."""
        if self._latest is None or self._latest[0] is not events:
            self._latest = events, divide(self.window, events, groups)
        return self._latest[1]

    def _closing(self, windows: Windows, events: GroupedLifetimes) -> Int64s:
        """The CTI at which each window is forgotten."""
        closing = windows.re + 1 if isinstance(self.window, Snapshot) else windows.re
        closing = np.where(windows.re == INFINITY, INFINITY, closing)
        if self.per_window.holds_ends and len(windows):
            i, j = pairs(windows, places(self.window, events))
            ends = events.re[j]
            closing = closing.copy()
            np.maximum.at(closing, i, np.where(ends == INFINITY, INFINITY, np.minimum(ends, INFINITY - 1) + 1))
        return closing

    # --- old and new outputs -----------------------------------------------------------------------------------------

    def _exchange(self, work: _Work, new: GroupedLifetimes, after: Changes, changed: Members) -> Changes:
        """Replace the old outputs of the windows by the new ones."""
        windows, keys = work.windows, work.keys
        i, j = pairs(windows, places(self.window, new))
        named = self.groups.key_columns(keys, windows.group)
        stale, _ = self._stale("given", work)
        states, of_states = self._stale("states", work) if self.stateful else (None, None)
        earlier = EarlierState(self._states_before(windows, states, of_states), changed)
        outputs = self.content.outputs(windows, Members(i, j, after), named, work.shown, earlier)
        closing = self._closing(windows, new)
        fresh = self._admit(stale, output_rows(outputs, windows, closing, keys), windows, closing, keys)
        moved = self.groups.exchange("given", stale, fresh, UNTIL)
        if self.stateful and outputs.states is not None:
            kept = with_columns(
                with_window_columns(keys.take(pa.array(windows.group)), windows, closing), outputs.states
            )
            self.groups.exchange("states", states, Changes.inserts(windows.le, windows.re, kept), UNTIL)
        self.side = self.groups.diverted(moved, partial(window_texts, dates=self.node.dates))
        return self.groups.leaving(moved)

    def _admit(
        self,
        stale: Changes | None,  # noqa: ARG002
        fresh: Changes,
        windows: Windows,  # noqa: ARG002
        closing: Int64s,  # noqa: ARG002
        keys: pa.Table,  # noqa: ARG002
    ) -> Changes:
        """The outputs that may replace the stale ones: all, unless they are bound in time."""
        return fresh

    def _stale(self, trace: str, work: _Work) -> tuple[Changes | None, Windows | None]:
        """The rows that a trace keeps of windows that have changed, and those windows."""
        standing = self.groups.known(trace, work.touched)
        if standing is None:
            return None, None
        group = positions_among(work.keys, standing.payload.select(self.keys))
        wle, wre = (to_numpy(standing.payload.column(name)) for name in (WLE, WRE))
        of = Windows(group, wle, wre, work.same.waiting)
        stale = ~are_among(of, work.same)
        return standing.filter(stale), of.filter(stale)

    def _states_before(
        self, windows: Windows, states: Changes | None, of: Windows | None
    ) -> dict[str, list[bytes | None]]:
        """The earlier state of each window, or None."""
        if states is None or of is None:
            return {name: [None] * len(windows) for name in self.content.stateful}
        row = positions_among(*(pa.table({"g": w.group, "a": w.le, "b": w.re}) for w in (of, windows)))
        rows = pa.array(row, mask=row < 0)
        return {name: states.payload.column(name).take(rows).to_pylist() for name in self.content.stateful}

    # --- state to keep -----------------------------------------------------------------------------------------------

    def _remember(
        self,
        touched: Hashes,
        new: GroupedLifetimes,
        after: Changes,
        delta: Changes,
        keys: pa.Table,
        cti: int,
        seen: int,
        limit: int,
    ) -> None:
        rows = delta
        if not self._forgets_by_time:
            keep, holds, alarms = self._kept(new, keys.num_rows, cti, seen)
            rows = difference(delta, after.filter(~keep))
            self.groups.set_alarms("forget", touched, keys, alarms, holds)
        self.traces["events"].append(rows.to_table(), self.groups.hashes(rows.payload), self._times(rows))
        if isinstance(self.window, Grid) or not (self.per_window.final or isinstance(self.window, Snapshot)):
            shows = self._next_shown(new, keys.num_rows, limit)
            self.groups.set_alarms("show", touched, keys, shows)

    def _times(self, rows: Changes) -> Int64s:
        """When each event is forgotten by time alone."""
        if not self._forgets_by_time:
            return np.full(len(rows), INFINITY, np.int64)
        assert isinstance(self.window, Grid)
        last = self.window.last(rows.le, rows.re)
        return self.window.end(last)

    def _kept(self, events: GroupedLifetimes, groups: int, cti: int, seen: int) -> tuple[Bools, Int64s, Int64s]:
        """The events still needed; for each group, the start of the window that holds the CTI, and when it is due."""
        never = np.full(groups, INFINITY, np.int64)
        if cti == INFINITY:
            return np.zeros(len(events), bool), never, never
        if isinstance(self.window, Grid):
            windows = grid_windows(self.window, events, groups, -(2**62), self.window.begun(seen), ended=None)
        else:
            windows = self._all(events, groups)
        closing = self._closing(windows, events)
        windows, closing = windows.filter(closing > cti), closing[closing > cti]
        first, alarm = windows.waiting.copy(), never.copy()
        np.minimum.at(first, windows.group, windows.le)
        np.minimum.at(alarm, windows.group, closing)
        holds = never if self.per_window.prompt else first
        if self.per_window.holds_ends and not isinstance(self.window, Count):
            keep = np.zeros(len(events), bool)
            touching = GroupedLifetimes(events.group, events.le, next_tick(events.re))
            place = touching if isinstance(self.window, Snapshot) else places(self.window, events)
            keep[pairs(windows, place)[1]] = True
            if isinstance(self.window, Grid):  # later windows will need events that have not ended
                keep |= self.window.end(self.window.last(events.le, events.re)) > cti
        else:
            # Windows are forgotten from the oldest on, so events that touch the first one kept, or come later, stay.
            place = places(self.window, events)
            keep = (events.re if isinstance(self.window, Snapshot) else place.le) >= first[events.group]
        return keep, holds, alarm

    def _next_shown(self, events: GroupedLifetimes, groups: int, seen: int) -> Int64s:
        """When the next window of each group becomes visible."""
        shows = np.full(groups, INFINITY, np.int64)
        if seen == INFINITY:
            return shows
        if isinstance(self.window, Grid):
            grid = self.window
            bound = self.per_window.timestamping == "time_bound"
            coming = np.maximum(grid.first(events.le), (grid.begun(seen) if bound else grid.closed(seen)) + 1)
            times = grid.start(coming) if bound else grid.end(coming)
            reaching = coming <= grid.last(events.le, events.re)
            np.minimum.at(shows, events.group[reaching], times[reaching])
            return shows
        windows = self._all(events, groups)
        later = windows.filter(windows.re > seen)
        np.minimum.at(shows, later.group, later.re)
        return shows

    # --- progress ----------------------------------------------------------------------------------------------------

    def _promise(self, cti: int) -> int:
        """The output CTI (rule 6.4)."""
        if self.per_window.prompt or cti in (INFINITY, NEG_INFINITY):
            return cti
        promise = self.window.cti(cti) if isinstance(self.window, Grid) else cti
        return promise if self._forgets_by_time else min(promise, self.groups.least("forget", HOLD))

    def _high(self, now: Progress) -> int:
        if not isinstance(self.window, Grid) or now.high == NEG_INFINITY:
            return now.high
        return self.window.start_of(self.window.closed(now.high))

    def held_by(self) -> str:
        held = "open windows"
        if self.per_window.holds_ends:
            held += ", and closed ones with events that have not ended (clip right to forget them)"
        return f"{held}; CTI {self.time_text(self.scalars['cti'])}"
