"""The windows of events, for many groups in the same calls (rules 5.1 to 5.4).

Windows are three arrays, group, LE and RE, sorted by group and start. An event belongs to the windows that overlap its
*place*: its lifetime, or for windows that count starts or ends the instant of that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, factorize
from headrace.compiled import INT, INTS, NEW_TRUTHS, compiled
from headrace.operators.aggregate.window_runs import expand_runs
from headrace.operators.overlap import overlapping
from headrace.plan.windows import ENDLESS, Count, Grid, Session, Snapshot, WindowKind
from headrace.time import INFINITY

__all__ = ["GroupedLifetimes", "Windows", "are_among", "are_in", "divide", "grid_windows", "pairs", "places"]


@dataclass(frozen=True)
class GroupedLifetimes:
    """Lifetimes of events and the numbers of their groups."""

    group: Int64s
    le: Int64s
    re: Int64s

    def __len__(self) -> int:
        return len(self.le)


@dataclass(frozen=True)
class Windows:
    """Windows by group and start; `waiting` is for each group the first time whose window is not complete yet."""

    group: Int64s
    le: Int64s
    re: Int64s
    waiting: Int64s

    def __len__(self) -> int:
        return len(self.le)

    def take(self, rows: Int64s) -> Windows:
        """The windows at these positions."""
        return Windows(self.group[rows], self.le[rows], self.re[rows], self.waiting)

    def filter(self, mask: Bools) -> Windows:
        """The windows where `mask` is true."""
        return Windows(self.group[mask], self.le[mask], self.re[mask], self.waiting)


def places(window: WindowKind, events: GroupedLifetimes) -> GroupedLifetimes:
    """The places of events: an event belongs to the windows that overlap its place."""
    if isinstance(window, Session) or (isinstance(window, Count) and window.by == "start"):
        return GroupedLifetimes(events.group, events.le, events.le + 1)
    if isinstance(window, Count):
        return GroupedLifetimes(events.group, events.re, np.minimum(events.re, INFINITY - 1) + 1)
    return events


def divide(window: WindowKind, events: GroupedLifetimes, groups: int) -> Windows:
    """The windows of every group, for kinds of windows that depend on events."""
    if isinstance(window, Snapshot):
        return _snapshots(events, groups)
    place = places(window, events)
    group, time = _distinct(place.group, place.le)
    if isinstance(window, Session):
        return _sessions(window, group, time, groups)
    assert isinstance(window, Count)
    return _counts(window, group, time, groups)


def _distinct(group: Int64s, time: Int64s) -> tuple[Int64s, Int64s]:
    """Each time of each group once, in order."""
    order = np.lexsort((time, group))
    group, time = group[order], time[order]
    new = np.r_[True, (np.diff(group) != 0) | (time[1:] != time[:-1])] if len(time) else np.empty(0, bool)
    return group[new], time[new]


def _snapshots(events: GroupedLifetimes, groups: int) -> Windows:
    all_groups, all_times = np.r_[events.group, events.group], np.r_[events.le, events.re]
    step = np.r_[np.ones(len(events), np.int64), -np.ones(len(events), np.int64)]
    order = np.lexsort((all_times, all_groups))
    all_groups, all_times, step = all_groups[order], all_times[order], step[order]
    group, time = _distinct(all_groups, all_times)
    if len(time) == 0:
        return Windows(group, time, time, np.full(groups, INFINITY, np.int64))
    new = np.r_[True, (np.diff(all_groups) != 0) | (all_times[1:] != all_times[:-1])]
    # How many events are alive after each endpoint; it is back at zero after the last one of a group.
    alive = np.cumsum(np.add.reduceat(step, np.flatnonzero(new)))
    last = len(time) - 1
    nonempty = np.flatnonzero(alive[:last] > 0)
    return Windows(group[nonempty], time[nonempty], time[nonempty + 1], np.full(groups, INFINITY, np.int64))


def _counts(window: Count, group: Int64s, time: Int64s, groups: int) -> Windows:
    place = np.arange(len(time))
    end = place + window.n - 1
    complete = end < len(time)
    complete[complete] = group[end[complete]] == group[complete]
    waiting = np.full(groups, INFINITY, np.int64)
    np.minimum.at(waiting, group[~complete], time[~complete])
    return Windows(group[complete], time[complete], time[end[complete]] + 1, waiting)


def _sessions(window: Session, group: Int64s, time: Int64s, groups: int) -> Windows:
    waiting = np.full(groups, INFINITY, np.int64)
    if len(time) == 0:
        return Windows(group, time, time, waiting)
    begins = np.r_[True, (np.diff(group) != 0) | (np.diff(time) >= window.gap)]
    if window.longest is not None:
        _cut_runs(begins, time, window.longest)
    first = np.flatnonzero(begins)
    last = np.r_[first[1:] - 1, len(time) - 1]
    end = time[last] + window.gap
    if window.longest is not None:
        end = np.minimum(end, time[first] + window.longest)
    return Windows(group[first], time[first], end, waiting)


@compiled(NEW_TRUTHS, INTS, INT)
def _cut_runs(begins: Bools, time: Int64s, longest: int) -> None:
    """Mark where a session begins because the one before would become too long."""
    start = 0
    for i in range(len(time)):
        if begins[i] or time[i] - start >= longest:
            begins[i] = True
            start = time[i]


def grid_windows(
    grid: Grid, events: GroupedLifetimes, groups: int, low: int, high: int, *, ended: int | None
) -> Windows:
    """The windows numbered `low..high` that some event overlaps.

    If the input has ended, windows of endless events stop with the last end in their group, or with window `ended`
    (rule 5.3).
    """
    first, last = grid.first(events.le), grid.last(events.le, events.re)
    if ended is not None:
        endless = last >= ENDLESS // 2
        limit = np.full(groups, ended, np.int64)
        np.maximum.at(limit, events.group, np.where(endless, last - ENDLESS, last))
        last = np.where(endless, limit[events.group], last)
        high = ENDLESS
    first, last = np.maximum(first, low), np.minimum(last, high)
    rows, numbers = expand_runs(first, last, grid)
    group, number = _distinct(events.group[rows], numbers)
    return Windows(group, grid.start(number), grid.end(number), np.full(groups, INFINITY, np.int64))


def are_in(windows: Windows, others: Windows) -> Bools:
    """For each window, whether the others contain it."""
    parts = [np.concatenate([getattr(windows, name), getattr(others, name)]) for name in ("group", "le", "re")]
    order = np.lexsort(parts[::-1])
    equal = np.ones(max(len(order) - 1, 0), bool)
    for part in parts:
        equal &= part[order][1:] == part[order][:-1]
    # Each side has a window once, so an equal neighbour is from the other side.
    twice = np.zeros(len(order), bool)
    twice[order] = np.r_[equal, False] | np.r_[False, equal] if len(order) else twice
    return twice[: len(windows)]


def pairs(windows: Windows, events: GroupedLifetimes) -> tuple[Int64s, Int64s]:
    """Which windows overlap which events of their group."""
    left = _lifetimes(windows.le, windows.re)
    right = _lifetimes(events.le, events.re)
    return overlapping(left, right, pa.table({"g": windows.group}), pa.table({"g": events.group}))


def _lifetimes(le: Int64s, re: Int64s) -> Changes:
    return Changes(le, re, np.ones(len(le), np.int64), _no_columns(len(le)))


def are_among(windows: Windows, others: Windows) -> Bools:
    """Like `are_in`, for windows that may have equal ones among them."""
    if len(windows) == 0:
        return np.empty(0, bool)
    table = pa.table({"g": windows.group, "a": windows.le, "b": windows.re})
    codes, first = factorize(table)
    distinct = Windows(windows.group[first], windows.le[first], windows.re[first], windows.waiting)
    return are_in(distinct, others)[codes]


def _no_columns(rows: int) -> pa.Table:
    return pa.table({"__": pa.nulls(rows)}).select([])
