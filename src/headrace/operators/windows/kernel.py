"""Aggregates, operators and rankings over windows of any kind (rules 5 and 6).

The general way: for the groups that a batch touches, find the windows before and after, and for each window that is
new, gone, or has a change in it, take back what was given and give what holds now. All groups of a batch are in the
same calls; only users' modules are called window by window, and only for windows that changed.

Traces carry the state:

- `events`: the events that belong to a window which is not forgotten, with what is needed of their payloads;
- `given`: the outputs of those windows, so that what is taken back is what was given, whatever a module says now;
- `states`, if a module is incremental: its state for each of those windows;
- `forget` and `show`: one row a group, with the CTI at which something of it can be forgotten, and the time m at which
  windows of it become visible (rule 5.3). A batch looks at the groups it changes and at those whose time has come, and
  at no others. `forget` also says which window of the group holds the output CTI (rule 6.4).

A window is forgotten when the CTI has reached its end and, if a module sees ends that lie behind it, every event in it
has ended before the CTI. A snapshot window is kept one tick longer: an event that ends where the CTI is may still be
extended (rule 3.1), and the window with it.

Where only final answers are asked for, a window is looked at once, when it is forgotten, and never before. So the CTI
takes the place of m, and nothing is remembered but events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, canonical_floats, factorize, hash_rows, to_numpy
from headrace.expr import lit
from headrace.operators.evaluated import evaluated
from headrace.operators.kernel import Data, Kernel, names_of
from headrace.operators.windows.content import Earlier, Outputs, content_of
from headrace.operators.windows.divide import Events, Windows, among, divide, grid_windows, pairs, places, same_as
from headrace.operators.windows.items import Members
from headrace.operators.windows.rows import beside, cancelled_rows, followed, one_more
from headrace.plan.nodes import PerWindow
from headrace.plan.source import DIVERTED, diverted_rows
from headrace.plan.windows import Count, Grid, Session, Snapshot
from headrace.progress import Progress
from headrace.schema import Field, Schema
from headrace.time import INFINITY, NEG_INFINITY, format_ticks
from headrace.trace import Trace

__all__ = ["WindowKernel"]

Hashes = NDArray[np.uint64]
_NOTHING = Events(*(np.empty(0, np.int64),) * 3)
_WLE, _WRE, _UNTIL, _REASON, _AT, _HOLD = "__wle", "__wre", "__until", "__reason", "__at", "__hold"


@dataclass(frozen=True)
class _Work:
    """The windows to work on, which of them can be seen, and those that are as they were."""

    windows: Windows
    shown: Bools
    groups: pa.Table
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
        # All events of one group are a group too: it has a key that is always the same.
        keys = [expr for _, expr in node.keys] or [lit(0)]
        self.keys = [f"key{i}" for i in range(len(keys))]
        named = [*zip(self.keys, keys, strict=True), *self.content.columns]
        self.projection = named
        below = node.input.schema
        self.schema = Schema(tuple(Field(name, expr.type(below)) for name, expr in named))
        #: Of which modules states are kept; where a window is looked at once, of none.
        self.stateful = () if node.final else self.content.stateful
        self.traces = {name: Trace(cancelled_rows) for name in ("events", "given", "forget", "show")}
        if self.stateful:
            self.traces["states"] = Trace(cancelled_rows, pickled=True)
        self.scalars = {"cti": NEG_INFINITY, "seen": NEG_INFINITY}
        self._latest: tuple[Events, Windows] | None = None

    def column_names(self) -> dict[str, str]:
        return names_of(self.projection) | {f"out.{name}": name for name in self.node.schema.names}

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
        touched = self._touched(delta, now.cti, limit)
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

    def _projected(self, changes: Changes) -> Changes:
        """What is needed of the changes, with lifetimes cut down to what matters, so that the rest cancels."""
        columns = [evaluated(expr, changes.payload, changes.weight) for _, expr in self.projection]
        payload = pa.Table.from_arrays(columns, schema=self.schema.arrow)
        le, re = changes.le, changes.re
        if self._by_start and not self.per_window.sensitive:
            re = le + 1
        delta = Changes(le, re, changes.weight, canonical_floats(payload))
        if isinstance(self.window, Count) and self.window.by == "end":
            delta = delta.filter(re != INFINITY)
        if isinstance(self.window, Grid):
            delta = delta.filter(self.window.first(delta.le) <= self.window.last(delta.le, delta.re))
        if self._forgets_by_time:
            delta = delta.filter(self._times(delta) > self.scalars["cti"])
        return delta.cancelled()

    def _touched(self, delta: Changes, cti: int, limit: int) -> Hashes:
        """The hashes of the groups to look at."""
        due = [self.traces["forget"].until(cti), self.traces["show"].until(limit)]
        hashes = [self._hashes(table) for table in [delta.payload, *(t for t in due if t is not None)]]
        return np.unique(np.concatenate(hashes))

    def _hashes(self, table: pa.Table) -> Hashes:
        return hash_rows(table.select(self.keys))

    @property
    def _by_start(self) -> bool:
        """Whether an event belongs where it starts, and may be forgotten before it ends."""
        return isinstance(self.window, Session) or (isinstance(self.window, Count) and self.window.by == "start")

    @property
    def _forgets_by_time(self) -> bool:
        """Whether an event's own lifetime says when it can be forgotten: grid windows do not depend on events."""
        return isinstance(self.window, Grid) and not self.per_window.holds_ends

    # --- windows before and after ------------------------------------------------------------------------------------

    def _recompute(self, touched: Hashes, delta: Changes, now: Progress, seen: int, limit: int) -> Changes:
        known = self._known("events", touched)
        delta = self._living(delta, known)
        after = Changes.concat([known, delta]).cancelled()
        tables = [known.payload, after.payload, delta.payload]
        codes, groups = self._grouped([t.select(self.keys) for t in tables])
        old, new, changed = (Events(c, x.le, x.re) for c, x in zip(codes, (known, after, delta), strict=True))
        old = _NOTHING if self.per_window.final else old  # nothing has been given of windows that are not forgotten
        before, was_shown = self._windows(old, groups.num_rows, self.scalars["seen"], None)
        ended = now.high if now.cti == INFINITY else None
        current, shown = self._windows(new, groups.num_rows, limit, ended)
        i, j = pairs(current, places(self.window, changed))
        same = same_as(current, before)
        same[i] = False
        same &= ~shown | same_as(current, before.filter(was_shown))
        number = np.cumsum(~same) - 1  # of each window that is not the same, among these
        work = _Work(current.filter(~same), shown[~same], groups, touched, current.filter(same))
        result = self._exchange(work, new, after, Members(number[i], j, delta))
        self._remember(touched, new, after, delta, groups, now.cti, seen, limit)
        self._latest = None
        return result

    def _known(self, trace: str, touched: Hashes) -> Changes:
        found = self.traces[trace].lookup(touched)
        if found is None:
            return Changes.empty(self.schema)
        return Changes.from_table(found).cancelled()

    def _living(self, delta: Changes, known: Changes) -> Changes:
        """Without changes to the ends of events that are forgotten: their windows are closed, and hide later ends."""
        if self.per_window.holds_ends or not self._by_start or not self.per_window.sensitive:
            return delta
        starts = [x.payload.append_column("__start", pa.array(x.le)) for x in (known, delta)]
        codes, _ = factorize(pa.concat_tables(starts))
        forgotten = (delta.le < self.scalars["cti"]) & ~np.isin(codes[len(known) :], codes[: len(known)])
        return delta.filter(~forgotten)

    def _grouped(self, tables: list[pa.Table]) -> tuple[list[Int64s], pa.Table]:
        """The number of each row's group, the same in all tables, and the groups' keys."""
        whole = pa.concat_tables(tables)
        codes, first = factorize(whole)
        borders = np.cumsum([t.num_rows for t in tables])[:-1]
        return np.split(codes, borders), whole.take(pa.array(first))

    def _windows(self, events: Events, groups: int, seen: int, ended: int | None) -> tuple[Windows, Bools]:
        """The windows that are worked on and not forgotten, and which of them can be seen (rule 5.3).

        Windows that cannot be seen yet are worked on for modules that keep a state.
        """
        found = self._divided(events, groups, seen, ended)
        closing = self._closing(found, events)
        found, closing = found.filter(closing > self.scalars["cti"]), closing[closing > self.scalars["cti"]]
        shown = np.ones(len(found), bool)
        if self.per_window.final:
            shown = closing <= seen
        elif not self._shows_at_once and ended is None:
            shown = found.re <= seen
        return (found, shown) if self.stateful else (found.filter(shown), shown[shown])

    @property
    def _shows_at_once(self) -> bool:
        return isinstance(self.window, Snapshot) or self.per_window.timestamping == "time_bound"

    def _divided(self, events: Events, groups: int, seen: int, ended: int | None) -> Windows:
        if not isinstance(self.window, Grid):
            return self._all(events, groups)
        grid, cti = self.window, self.scalars["cti"]
        low = -(2**62) if cti == NEG_INFINITY or not self._forgets_by_time else grid.closed(cti) + 1
        last_seen = self.scalars["seen"] if self.scalars["seen"] != INFINITY else NEG_INFINITY
        reached = None if ended is None else max(ended, last_seen)
        last = Grid.begun if self._shows_at_once or (self.stateful and ended is None) else Grid.closed
        ended = None if reached is None else last(grid, reached)
        return grid_windows(grid, events, groups, low, last(grid, seen), ended=ended)

    def _all(self, events: Events, groups: int) -> Windows:
        """All windows of events, whether or not they can be seen; those of the latest events are asked for thrice."""
        if self._latest is None or self._latest[0] is not events:
            self._latest = events, divide(self.window, events, groups)
        return self._latest[1]

    def _closing(self, windows: Windows, events: Events) -> Int64s:
        """The CTI at which each window is forgotten."""
        closing = windows.re + 1 if isinstance(self.window, Snapshot) else windows.re
        closing = np.where(windows.re == INFINITY, INFINITY, closing)
        if self.per_window.holds_ends and len(windows):
            i, j = pairs(windows, places(self.window, events))
            ends = events.re[j]
            closing = closing.copy()
            np.maximum.at(closing, i, np.where(ends == INFINITY, INFINITY, np.minimum(ends, INFINITY - 1) + 1))
        return closing

    # --- what is taken back and what is given ------------------------------------------------------------------------

    def _exchange(self, work: _Work, new: Events, after: Changes, changed: Members) -> Changes:
        """Outputs of the windows that were, for those of the windows that are."""
        windows, groups = work.windows, work.groups
        i, j = pairs(windows, places(self.window, new))
        names = [name for name, _ in self.per_window.keys]
        keys = groups.take(pa.array(windows.group)).select(self.keys[: len(names)]).rename_columns(names)
        stale, _ = self._stale("given", work)
        states, of_states = self._stale("states", work) if self.stateful else (None, None)
        earlier = Earlier(self._found_again(windows, states, of_states), changed)
        outputs = self.content.outputs(windows, Members(i, j, after), keys, work.shown, earlier)
        closing = self._closing(windows, new)
        fresh = self._admitted(stale, self._rows(outputs, windows, closing, groups), windows, closing, groups)
        moved = self._replace("given", stale, fresh)
        if self.stateful and outputs.states is not None:
            kept = beside(self._stamped(groups.take(pa.array(windows.group)), windows, closing), outputs.states)
            self._replace("states", states, Changes.inserts(windows.le, windows.re, kept))
        return self._leaving(moved)

    def _admitted(
        self,
        stale: Changes | None,  # noqa: ARG002
        fresh: Changes,
        windows: Windows,  # noqa: ARG002
        closing: Int64s,  # noqa: ARG002
        groups: pa.Table,  # noqa: ARG002
    ) -> Changes:
        """The outputs that may be given in place of the stale ones: all, unless they are bound in time."""
        return fresh

    def _stale(self, trace: str, work: _Work) -> tuple[Changes | None, Windows | None]:
        """What is remembered of windows that are not as they were."""
        found = self.traces[trace].lookup(work.touched)
        if found is None:
            return None, None
        standing = Changes.from_table(found).cancelled()
        codes, _ = self._grouped([work.groups, standing.payload.select(self.keys)])
        number = np.full(int(max(c.max(initial=0) for c in codes)) + 1, -1, np.int64)
        number[codes[0]] = np.arange(len(codes[0]))
        wle, wre = (to_numpy(standing.payload.column(name)) for name in (_WLE, _WRE))
        of = Windows(number[codes[1]], wle, wre, work.same.waiting)
        stale = ~among(of, work.same)
        return standing.filter(stale), of.filter(stale)

    def _replace(self, trace: str, stale: Changes | None, fresh: Changes) -> Changes:
        parts = [fresh] if stale is None else [Changes(stale.le, stale.re, -stale.weight, stale.payload), fresh]
        moved = Changes.concat(parts).cancelled()
        until = to_numpy(moved.payload.column(_UNTIL))
        self.traces[trace].append(moved.to_table(), self._hashes(moved.payload), until)
        return moved

    def _found_again(
        self, windows: Windows, states: Changes | None, of: Windows | None
    ) -> dict[str, list[bytes | None]]:
        """The state that each window had before, if it had one."""
        if states is None or of is None:
            return {name: [None] * len(windows) for name in self.content.stateful}
        both = [pa.table({"g": w.group, "a": w.le, "b": w.re}) for w in (of, windows)]
        codes, _ = factorize(pa.concat_tables(both))
        row = np.full(int(codes.max(initial=0)) + 1, -1, np.int64)
        row[codes[: len(of)]] = np.arange(len(of))
        mine = row[codes[len(of) :]]
        rows = pa.array(mine, mask=mine < 0)
        return {name: states.payload.column(name).take(rows).to_pylist() for name in self.content.stateful}

    def _rows(self, outputs: Outputs, windows: Windows, closing: Int64s, groups: pa.Table) -> Changes:
        """Outputs as they are remembered: keys, payload, window, when to forget them, and why if they failed."""
        failed = np.array([number for number, _ in outputs.failures], np.int64)
        of = np.r_[outputs.window, failed]
        table = groups.take(pa.array(windows.group[of]))
        nothing = pa.nulls(len(failed))
        for name in outputs.payload.column_names:
            column = outputs.payload.column(name)
            table = table.append_column(f"out.{name}", followed(column, nothing))
        reasons = [*[None] * len(outputs.window), *(reason for _, reason in outputs.failures)]
        table = self._stamped(table, windows.take(of), closing[of])
        table = table.append_column(_REASON, pa.array(reasons, pa.string()))
        return Changes.inserts(np.r_[outputs.le, windows.le[failed]], np.r_[outputs.re, windows.re[failed]], table)

    @staticmethod
    def _stamped(table: pa.Table, windows: Windows, closing: Int64s) -> pa.Table:
        """Rows with the window they belong to, and the CTI at which it is forgotten."""
        return beside(table, pa.table({_WLE: windows.le, _WRE: windows.re, _UNTIL: closing}))

    def _leaving(self, moved: Changes) -> Changes:
        """The changes as the next operator sees them; failures go to the side stream."""
        good = np.asarray(moved.payload.column(_REASON).is_null())
        if not good.all():
            self.side = self._diverted(moved.filter(~good))
            moved = moved.filter(good)
        there = moved.payload.column_names
        columns = [moved.payload.column(self._columns_of(name, there)) for name in self.node.schema.names]
        payload = pa.Table.from_arrays(columns, schema=self.node.schema.arrow)
        return Changes(moved.le, moved.re, moved.weight, payload).cancelled()

    def _columns_of(self, name: str, there: Sequence[str]) -> str:
        """Where a column of the output is, among those that are remembered."""
        keys = {name: mine for mine, (name, _) in zip(self.keys, self.per_window.keys, strict=False)}
        return f"out.{name}" if f"out.{name}" in there else keys[name]

    def _diverted(self, failures: Changes) -> Changes:
        who = ", ".join(map(str, self.per_window.modules))
        names = [name for name, _ in self.per_window.keys]
        keys = [dict(zip(names, row.values(), strict=False)) for row in failures.payload.select(self.keys).to_pylist()]
        wle, wre = to_numpy(failures.payload.column(_WLE)).tolist(), to_numpy(failures.payload.column(_WRE)).tolist()
        rows = [
            f"window {format_ticks(a)} .. {format_ticks(b)}" + "".join(f", {k} = {v!r}" for k, v in key.items())
            for a, b, key in zip(wle, wre, keys, strict=True)
        ]
        payload = diverted_rows(who, failures.payload.column(_REASON), rows)
        return Changes(failures.le, failures.re, failures.weight, payload).cancelled()

    # --- what is remembered ------------------------------------------------------------------------------------------

    def _remember(
        self,
        touched: Hashes,
        new: Events,
        after: Changes,
        delta: Changes,
        groups: pa.Table,
        cti: int,
        seen: int,
        limit: int,
    ) -> None:
        rows = delta
        if not self._forgets_by_time:
            keep, holds, alarms = self._kept(new, groups.num_rows, cti, seen)
            gone = after.filter(~keep)
            rows = Changes.concat([delta, Changes(gone.le, gone.re, -gone.weight, gone.payload)]).cancelled()
            self._set("forget", touched, groups, alarms, holds)
        self.traces["events"].append(rows.to_table(), self._hashes(rows.payload), self._times(rows))
        if isinstance(self.window, Grid) or not (self.per_window.final or isinstance(self.window, Snapshot)):
            shows = self._next_shown(new, groups.num_rows, limit)
            self._set("show", touched, groups, shows, np.full(len(shows), INFINITY, np.int64))

    def _times(self, rows: Changes) -> Int64s:
        """When events are dropped by themselves."""
        if not self._forgets_by_time:
            return np.full(len(rows), INFINITY, np.int64)
        assert isinstance(self.window, Grid)
        last = self.window.last(rows.le, rows.re)
        return self.window.end(last)

    def _kept(self, events: Events, groups: int, cti: int, seen: int) -> tuple[Bools, Int64s, Int64s]:
        """Which events are still needed, and for each group which window holds the CTI and when to look again."""
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
            touching = Events(events.group, events.le, one_more(events.re))
            place = touching if isinstance(self.window, Snapshot) else places(self.window, events)
            keep[pairs(windows, place)[1]] = True
            if isinstance(self.window, Grid):  # windows to come will need events that are not over
                keep |= self.window.end(self.window.last(events.le, events.re)) > cti
        else:
            # Windows are forgotten from the oldest on, so what touches the first one kept, or comes later, stays.
            place = places(self.window, events)
            keep = (events.re if isinstance(self.window, Snapshot) else place.le) >= first[events.group]
        return keep, holds, alarm

    def _next_shown(self, events: Events, groups: int, seen: int) -> Int64s:
        """When the next window of each group becomes visible."""
        shows = np.full(groups, INFINITY, np.int64)
        if seen == INFINITY:
            return shows
        if isinstance(self.window, Grid):
            grid = self.window
            bound = self.per_window.timestamping == "time_bound"
            coming = np.maximum(grid.first(events.le), (grid.begun(seen) if bound else grid.closed(seen)) + 1)
            times = grid.start(coming) if bound else grid.end(coming)
            some = coming <= grid.last(events.le, events.re)
            np.minimum.at(shows, events.group[some], times[some])
            return shows
        windows = self._all(events, groups)
        later = windows.filter(windows.re > seen)
        np.minimum.at(shows, later.group, later.re)
        return shows

    def _set(self, trace: str, touched: Hashes, groups: pa.Table, at: Int64s, hold: Int64s) -> None:
        """Replace what is remembered of the touched groups."""
        some = (at != INFINITY) | (hold != INFINITY)
        table = groups.append_column(_AT, pa.array(at)).append_column(_HOLD, pa.array(hold)).filter(pa.array(some))
        zero = np.zeros(table.num_rows, np.int64)
        rows = [Changes.inserts(zero, zero + 1, table)]
        found = self.traces[trace].lookup(touched)
        if found is not None:
            old = Changes.from_table(found).cancelled()
            rows.append(Changes(old.le, old.re, -old.weight, old.payload))
        moved = Changes.concat(rows).cancelled()
        self.traces[trace].append(moved.to_table(), self._hashes(moved.payload), to_numpy(moved.payload.column(_AT)))

    # --- progress ----------------------------------------------------------------------------------------------------

    def _promise(self, cti: int) -> int:
        """The output CTI (rule 6.4)."""
        if self.per_window.prompt or cti in (INFINITY, NEG_INFINITY):
            return cti
        promise = self.window.cti(cti) if isinstance(self.window, Grid) else cti
        if self._forgets_by_time:
            return promise
        held = self.traces["forget"].scan()
        if held is None:
            return promise
        left = Changes.from_table(held).cancelled()
        return min(promise, int(np.min(to_numpy(left.payload.column(_HOLD)), initial=INFINITY)))

    def _high(self, now: Progress) -> int:
        if not isinstance(self.window, Grid) or now.high == NEG_INFINITY:
            return now.high
        return self.window.start_of(self.window.closed(now.high))

    def held_by(self) -> str:
        held = "open windows"
        if self.per_window.holds_ends:
            held += ", and closed ones with events that have not ended (clip right to forget them)"
        return f"{held}; CTI {format_ticks(self.scalars['cti'])}"
