"""Windows of a grid, which do not depend on events: a change costs what it changes (rules 5 and 6).

The windows of an event follow from its lifetime, so a batch changes only the windows that its own events are in. The
kernel looks up these windows, not their groups:

- `events`: the events of windows that are not forgotten, found by the *cells* they are in (`cells.py`);
- `given`: the outputs of windows, found by group and window;
- `states`, if modules are incremental: their states, and the number of items, for each window that has begun;
- `show`: groups and windows to look at when time reaches the window's end. An event is entered at the first of its
  windows that is not visible yet; what is found there and lasts longer is entered again at the next one. So all windows
  that become visible (rule 5.3) are found, and an event without an end has one entry.

**A change that a window does not see does not touch it.** A retraction changes the windows between the two ends; if
modules see lifetimes, also those that the earlier end was in. Modules are called for no others.

**States.** A window with a state takes in what comes and goes, and its events are not read. They are read where there
is no state: a window that is new, a module that keeps none or cannot take items back, a failure. So a lost state is
made again when it is needed.

This is for windows that are forgotten by time alone; where ends after the window's may matter, or outputs are bound in
time, the general kernel runs (`kernel.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, group_sum, hash_rows, to_numpy
from headrace.operators.aggregate.window_runs import expand_runs
from headrace.operators.groups import OUT, UNTIL, Groups, Hashes, as_rows, difference, positions_among
from headrace.operators.kernel import Data, Kernel, SavedTraces, cancelled_rows, expression_texts
from headrace.operators.per_window.cells import ENDLESS_LEVEL, cells_meeting, cells_of
from headrace.operators.per_window.content import content_of
from headrace.operators.per_window.divide import GroupedLifetimes, Windows, pairs
from headrace.operators.per_window.items import EarlierState, Members, StoredMembers
from headrace.operators.per_window.rows import (
    ITEMS,
    WLE,
    earlier_state,
    output_rows,
    window_texts,
    with_columns,
    with_outputs,
    with_window_columns,
)
from headrace.plan.nodes import PerWindow
from headrace.plan.source import DIVERTED
from headrace.plan.windows import ENDLESS, Grid
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import Segment, Trace

__all__ = ["GridKernel", "runs_on_grid"]

#: Of an entry in `show`: the number of the window.
_NUMBER = "__number"
_NONE = np.empty(0, np.int64)


def runs_on_grid(node: PerWindow) -> bool:
    """Whether the windows of a node are forgotten by time alone."""
    plain = not node.holds_ends and not node.final
    return isinstance(node.window, Grid) and plain and node.timestamping != "time_bound"


@dataclass(frozen=True)
class _Horizon:
    """How far windows go in a batch, by their numbers: those forgotten, and those visible before and after it."""

    #: The first window that is not forgotten.
    low: int
    #: The last window visible before, and the last one visible now; if the input has ended, that depends on the group.
    shown: int
    shows: int
    #: The last window in which changes count: those visible before, or with states all that have begun.
    counted: int
    ended: bool


@dataclass(frozen=True)
class _Delta:
    """The changes of a batch, in pieces of one event: their group, and the windows in which they show."""

    changes: Changes
    group: Int64s
    first: Int64s
    last: Int64s


@dataclass(frozen=True)
class _Keys:
    """The groups of a batch: their keys and the hashes of these."""

    table: pa.Table
    hashes: Hashes


@dataclass(frozen=True)
class _Events:
    """Events of some groups, and the windows they are in."""

    events: Changes
    group: Int64s
    first: Int64s
    last: Int64s

    @property
    def lifetimes(self) -> GroupedLifetimes:
        return GroupedLifetimes(self.group, self.events.le, self.events.re)


@dataclass(frozen=True)
class _GridWork:
    """The windows of a batch: those that changes count in, and those that become visible."""

    keys: _Keys
    number: Int64s
    windows: Windows
    #: Whether they are visible now, and were before.
    shown: Bools
    was_shown: Bools
    #: The changes in them.
    changed: Members
    #: All events of the windows that become visible, and perhaps others.
    showing: _Events


class GridKernel(Kernel):
    """Outputs per group and window of a grid, given early and corrected."""

    divisible = True
    merged: ClassVar[Mapping[str, str]] = {"level": "max"}

    def __init__(self, node: PerWindow) -> None:
        super().__init__(node)
        assert isinstance(node.window, Grid)
        self.per_window, self.grid = node, node.window
        self.content = content_of(node)
        self.keeps_states = self.content.keeps_states
        self.traces = {name: Trace(cancelled_rows) for name in ("events", "given", "show")}
        if self.keeps_states:
            self.traces["states"] = Trace(cancelled_rows, pickled=bool(self.content.stateful))
        self.groups = Groups(node, self.content.columns, self.traces)
        self.keys = self.groups.keys
        #: `level` is the highest level of cells that has events, but for those without an end.
        self.scalars = {"cti": NEG_INFINITY, "seen": NEG_INFINITY, "level": 0}

    def column_names(self) -> dict[str, str]:
        return expression_texts(self.groups.projection) | {OUT + name: name for name in self.node.schema.names}

    # --- one batch ---------------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        delta = self._project(changes)
        now = Progress(max(now.cti, self.scalars["cti"]), now.high)
        seen = max(now.seen, self.scalars["seen"])
        horizon = self._horizon(now, seen)
        self.side = Changes.empty(DIVERTED)
        self._store(delta)
        due = self.traces["show"].until(seen)
        result = Changes.empty(self.node.schema)
        if len(delta) or due is not None:
            result = self._correct(delta, due, horizon)
        for name in self.traces:
            self.traces[name].drop(seen if name == "show" else now.cti)
        self.scalars |= {"cti": now.cti, "seen": seen}
        return result, Progress(self.grid.cti(now.cti), self._high(now))

    def _project(self, changes: Changes) -> Changes:
        """The needed columns of changes that windows still see."""
        delta = self.groups.project(changes, changes.re)
        first, last = self._range(delta)
        seen = (first <= last) & (self.grid.end(last) > self.scalars["cti"])
        return self._in_windows(delta.filter(seen)).cancelled()

    def _in_windows(self, delta: Changes) -> Changes:
        """Without the difference between ends in the same window, if no module sees it."""
        if self.per_window.sensitive:
            return delta
        endless = delta.re == INFINITY
        start = self.grid.start(np.where(endless, 0, self._range(delta)[1]))
        re = np.where(endless, INFINITY, np.maximum(delta.le, start) + 1)
        return Changes(delta.le, re, delta.weight, delta.payload)

    def _range(self, events: Changes) -> tuple[Int64s, Int64s]:
        return self.grid.first(events.le), self.grid.last(events.le, events.re)

    def _horizon(self, now: Progress, seen: int) -> _Horizon:
        grid, cti, before = self.grid, self.scalars["cti"], self.scalars["seen"]
        low = -(2**62) if cti == NEG_INFINITY else grid.closed(cti) + 1
        ended = now.cti == INFINITY
        counted = grid.closed(before)
        if self.keeps_states:
            counted = grid.begun(before if ended else seen)
        shows = grid.closed(max(now.high, before if before != INFINITY else NEG_INFINITY) if ended else seen)
        return _Horizon(low, grid.closed(before), shows, counted, ended)

    def _high(self, now: Progress) -> int:
        return now.high if now.high == NEG_INFINITY else self.grid.start_of(self.grid.closed(now.high))

    # --- finding windows and events ----------------------------------------------------------------------------------

    def _store(self, delta: Changes) -> None:
        """Add the changes to the events."""
        first, last = self._range(delta)
        level, cell = cells_of(first, last)
        finite = level[level < ENDLESS_LEVEL]
        self.scalars = self.scalars | {"level": max(self.scalars["level"], int(finite.max(initial=0)))}
        hashes = _placed(self.groups.hashes(delta.payload), level, cell)
        self.traces["events"].append(delta.to_table(), hashes, self.grid.end(last))

    def _read(self, keys: _Keys, group: Int64s, window: Int64s) -> _Events:
        """The events of these windows, and of some others."""
        row, level, cell = cells_meeting(window, self.scalars["level"])
        hashes = _placed(keys.hashes[group[row]], level, cell)
        rows = self.traces["events"].lookup(hashes) if len(hashes) else None
        if rows is None:
            return _Events(Changes.empty(self.groups.schema), _NONE, _NONE, _NONE)
        events = Changes.from_table(rows).cancelled()
        of = positions_among(keys.table, events.payload.select(self.keys))
        if (of < 0).any():
            events, of = events.filter(of >= 0), of[of >= 0]
        return _Events(events, of, *self._range(events))

    def _look_up(self, trace: str, work: _GridWork, some: Int64s) -> tuple[Changes | None, Int64s]:
        """The rows that a trace has of some windows, and the position of each one's window."""
        keys, windows = work.keys, work.windows.take(some)
        hashes = _placed(keys.hashes[windows.group], -1, windows.le)
        rows = self.traces[trace].lookup(hashes) if len(hashes) else None
        if rows is None:
            return None, _NONE
        found = Changes.from_table(rows).cancelled()
        group = positions_among(keys.table, found.payload.select(self.keys))
        wanted, others = (
            pa.table({"g": g, "a": a}) for g, a in ((windows.group, windows.le), (group, found.payload.column(WLE)))
        )
        of = positions_among(wanted, others)
        return found.filter(of >= 0), some[of[of >= 0]]

    def _pieces(self, delta: Changes, group: Int64s) -> _Delta:
        """The changes, and the windows in which each one shows: a retraction not in those before both its ends."""
        if (delta.weight > 0).all():
            return _Delta(delta, group, *self._range(delta))
        numbered = delta.with_payload(delta.payload.append_column(_NUMBER, pa.array(group)))
        pieces, sync = numbered.pieces()
        group = to_numpy(pieces.payload.column(_NUMBER))
        first, last = self._range(pieces)
        moved = sync > pieces.le
        # A module that sees lifetimes sees none after its window: windows up to the earlier end do not differ.
        later = self.grid.first(sync) if self.per_window.sensitive else self.grid.last(pieces.le, sync) + 1
        first = np.where(moved, np.maximum(first, later), first)
        return _Delta(pieces.with_payload(pieces.payload.drop_columns([_NUMBER])), group, first, last)

    # --- windows that become visible ---------------------------------------------------------------------------------

    def _entries(self, delta: _Delta, shown: int) -> tuple[Int64s, Int64s]:
        """The groups and windows to enter for new events: the first window after the `shown` ones."""
        window = np.maximum(self.grid.first(delta.changes.le), shown + 1)
        entered = (delta.changes.weight > 0) & (window <= delta.last)
        return _numbered(delta.group[entered], window[entered])[:2]

    def _enter(self, keys: _Keys, group: Int64s, window: Int64s) -> None:
        """Enter windows to look at when time reaches their end, once each."""
        hashes = _placed(keys.hashes[group], -1, window)
        rows = keys.table.take(pa.array(group)).append_column(_NUMBER, pa.array(window))
        known = self.traces["show"].lookup(hashes)
        if known is not None:
            names = [*self.keys, _NUMBER]
            new = positions_among(known.select(names), rows) < 0
            rows, hashes, window = rows.filter(pa.array(new)), hashes[new], window[new]
        self.traces["show"].append(as_rows(rows).to_table(), hashes, self.grid.end(window))

    def _enter_next(self, keys: _Keys, events: _Events, horizon: _Horizon) -> None:
        """Enter events that last longer than the windows that are visible now."""
        window = np.maximum(events.first, horizon.shows + 1)
        longer = window <= events.last
        if longer.any():
            self._enter(keys, *_numbered(events.group[longer], window[longer])[:2])

    def _visible(self, events: _Events, groups: int, horizon: _Horizon) -> Int64s:
        """The last visible window of each group (rule 5.3)."""
        visible = np.full(groups, horizon.shows, np.int64)
        if horizon.ended:
            last = np.where(events.last >= ENDLESS // 2, events.last - ENDLESS, events.last)
            np.maximum.at(visible, events.group, last)
        return visible

    # --- the windows that change -------------------------------------------------------------------------------------

    def _correct(self, delta: Changes, due: pa.Table | None, horizon: _Horizon) -> Changes:
        """Take back the old outputs of windows that change or become visible, and give the new ones."""
        codes, table = self.groups.number(delta.payload, *([] if due is None else [due]))
        keys = _Keys(table, self.groups.hashes(table))
        pieces = self._pieces(delta, codes[0])
        group, window = self._entries(pieces, horizon.shown)
        later = (window > horizon.shows) & (not horizon.ended)
        if later.any():
            self._enter(keys, group[later], window[later])
        group, window = group[~later], window[~later]
        if due is not None:
            group, window = np.r_[group, codes[1]], np.r_[window, to_numpy(due.column(_NUMBER))]
        showing = self._read(keys, group, window)
        if not horizon.ended:
            self._enter_next(keys, showing, horizon)
        visible = self._visible(showing, table.num_rows, horizon)
        row, changed = expand_runs(
            np.maximum(pieces.first, horizon.low), np.minimum(pieces.last, horizon.counted), self.grid
        )
        low = max(horizon.low, horizon.shown + 1)
        of, shows = expand_runs(
            np.maximum(showing.first, low), np.minimum(showing.last, visible[showing.group]), self.grid
        )
        group, number, place = _numbered(np.r_[pieces.group[row], showing.group[of]], np.r_[changed, shows])
        if len(number) == 0:
            return Changes.empty(self.node.schema)
        work = _GridWork(
            keys,
            number,
            Windows(group, self.grid.start(number), self.grid.end(number), _NONE),
            shown=number <= visible[group],
            was_shown=number <= horizon.shown,
            changed=Members(place[: len(row)], row, pieces.changes),
            showing=showing,
        )
        return self._exchange(work)

    def _exchange(self, work: _GridWork) -> Changes:
        """Replace the outputs and the states of the windows."""
        windows, keys = work.windows, work.keys.table
        if self.content.adds_up:
            return self._leaving(self._outputs_of_changes(work))
        everywhere = np.arange(len(windows))
        states, of = self._look_up("states", work, everywhere) if self.keeps_states else (None, _NONE)
        stale, of_stale = self._look_up("given", work, np.flatnonzero(work.was_shown))
        earlier = earlier_state(self.content, work.changed, len(windows), states, of)
        if stale is not None and self.content.from_outputs:
            earlier = with_outputs(earlier, stale, of_stale, len(windows))
        members, items = self._members(work, earlier, states, of)
        shown = work.shown & (items > 0)
        named = self.groups.key_columns(keys, windows.group)
        outputs = self.content.outputs(windows, members, named, shown, earlier)
        if self.keeps_states and outputs.states is not None:
            kept = with_window_columns(keys.take(pa.array(windows.group)), windows, windows.re)
            kept = with_columns(kept, outputs.states).append_column(ITEMS, pa.array(items))
            rows = Changes.inserts(windows.le, windows.re, kept).filter(items > 0)
            self._keep("states", difference(rows, states))
        moved = difference(output_rows(outputs, windows, windows.re, keys), stale)
        self._keep("given", moved)
        return self._leaving(moved)

    def _leaving(self, moved: Changes) -> Changes:
        if len(moved) == 0:
            return Changes.empty(self.node.schema)
        self.side = self.groups.diverted(moved, partial(window_texts, dates=self.node.dates))
        return self.groups.leaving(moved)

    def _outputs_of_changes(self, work: _GridWork) -> Changes:
        """The changes of outputs, where each event has its own: they need not be known to be taken back."""
        changed, sign = work.changed, work.changed.events.weight[work.changed.row]
        known = work.was_shown[changed.window]
        events = replace(changed.events, weight=np.abs(changed.events.weight))
        parts = [
            Members(changed.window[some], changed.row[some], events)
            for some in (known & (sign < 0), known & (sign > 0))
        ]
        parts.append(self._read_members(work, np.flatnonzero(work.shown & ~work.was_shown)))
        named = self.groups.key_columns(work.keys.table, work.windows.group)
        shown, nothing = np.ones(len(work.windows), bool), EarlierState({}, changed)
        rows = [
            output_rows(
                self.content.outputs(work.windows, part, named, shown, nothing),
                work.windows,
                work.windows.re,
                work.keys.table,
            )
            for part in parts
        ]
        return Changes.concat([rows[0].negated(), *rows[1:]]).cancelled()

    def _members(
        self, work: _GridWork, earlier: EarlierState, states: Changes | None, of: Int64s
    ) -> tuple[StoredMembers, Int64s]:
        """The members of windows, at least where the earlier state is not enough; and the items of each window."""
        count, changed = len(work.windows), work.changed
        items = group_sum(changed.window, changed.events.weight[changed.row], count)
        if states is not None:
            np.add.at(items, of, to_numpy(states.payload.column(ITEMS)))
        reads = self.content.needs(earlier, count).any
        here = self._read_members(work, np.flatnonzero(reads))
        items[reads] = group_sum(here.window, here.events.weight[here.row], count)[reads]
        if self.content.from_outputs:  # what is not read has outputs, and loses none of them
            items[~reads] = 1
        nothing = np.zeros(count, bool)
        return StoredMembers(here, reads, lambda some: self._read_members(work, some), nothing), items

    def _read_members(self, work: _GridWork, some: Int64s) -> Members:
        """The members of some windows, from the events that are here already if those are all."""
        windows, read = work.windows.take(some), work.showing
        if work.was_shown[some].any() or not work.shown[some].all():
            read = self._read(work.keys, windows.group, work.number[some])
        i, j = pairs(windows, read.lifetimes)
        return Members(some[i], j, read.events)

    def _keep(self, trace: str, moved: Changes) -> None:
        """Add changes of rows of windows."""
        if len(moved) == 0:
            return
        hashes = _placed(self.groups.hashes(moved.payload), -1, to_numpy(moved.payload.column(WLE)))
        self.traces[trace].append(moved.to_table(), hashes, to_numpy(moved.payload.column(UNTIL)))

    # --- state from a checkpoint -------------------------------------------------------------------------------------

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        """Restore the saved state; that of an earlier Headrace is found by group alone, and is arranged anew."""
        super().restore(scalars, traces, held)
        if "level" in scalars:
            return
        self.scalars = scalars | {"level": 0}
        given, events = self.traces["given"].scan(), self.traces["events"].scan()
        nothing = np.empty(0, np.uint64), _NONE
        for trace in self.traces.values():
            trace.replace(pa.table({}), *nothing)
        if given is not None:
            self._keep("given", Changes.from_table(given).cancelled())
        if events is not None:
            rows = self._in_windows(Changes.from_table(events)).cancelled()
            self._store(rows)
            (group,), table = self.groups.number(rows.payload)
            keys = _Keys(table, self.groups.hashes(table))
            self._enter(keys, *self._entries(self._pieces(rows, group), self.grid.closed(scalars["seen"])))

    def held_by(self) -> str:
        return f"open windows; CTI {self.time_text(self.scalars['cti'])}"


def _placed(keys: Hashes, level: Int64s | int, place: Int64s) -> Hashes:
    """The hashes of places of groups: cells of a level, or windows."""
    levels = np.broadcast_to(np.asarray(level, np.int64), place.shape)
    return hash_rows(pa.table({"key": keys.view(np.int64), "level": levels, "place": place}))


def _numbered(group: Int64s, window: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Each window of each group once, in order; and the position there of each that is given."""
    order = np.lexsort((window, group))
    place = np.empty(len(order), np.int64)
    group, window = group[order], window[order]
    new = np.r_[True, (group[1:] != group[:-1]) | (window[1:] != window[:-1])] if len(order) else np.empty(0, bool)
    place[order] = np.cumsum(new) - 1
    return group[new], window[new], place
