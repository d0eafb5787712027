"""Windows of tuples in their order, and the tuples in each (rules 8.2 and 8.3).

A window is a run of tuples of its group; under `By` some of the run are left out. All groups are divided in the same
calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.columnar import Bools, Int64s, factorize
from headrace.expr import evaluate
from headrace.operators.groups import PREFIX
from headrace.operators.ordered.tuples import OrderedTuples, distinct, ranges, run_starts
from headrace.plan.ordered import FIRST, By, Delta, Fixed, Landmark, Ordered, Slides, Time, Tuples
from headrace.time import INFINITY, add

__all__ = ["Reach", "Spans", "closing", "divide", "next_slide", "within", "without_prefix"]

_LIMIT = 2**60
#: How many tuples of a group are tested first for joining its window.
_TRIED = 16


@dataclass(frozen=True)
class Reach:
    """The windows to find: those that end after `after` and, if time triggers them, up to a time for each group."""

    after: int
    until: Int64s


@dataclass(frozen=True)
class Spans:
    """Windows: the indices of the first and last tuple of each, and its bounds."""

    group: Int64s
    first: Int64s
    last: Int64s
    le: Int64s
    re: Int64s

    def __len__(self) -> int:
        return len(self.group)

    def filter(self, mask: Bools) -> Spans:
        return self._take(mask)

    def part(self, start: int, stop: int) -> Spans:
        return self._take(slice(start, stop))

    def _take(self, some: Bools | slice) -> Spans:
        return Spans(self.group[some], self.first[some], self.last[some], self.le[some], self.re[some])


def without_prefix(table: pa.Table) -> pa.Table:
    """The columns of tuples by their own names."""
    names = [name for name in table.column_names if name.startswith(PREFIX)]
    return table.select(names).rename_columns([name[len(PREFIX) :] for name in names])


def divide(window: Ordered, tuples: OrderedTuples, reach: Reach) -> tuple[Spans, Bools | None]:
    """The windows to find, and a mask of the tuples in them, over the concatenation of their runs; None for all."""
    if isinstance(window, Slides):
        return _slides(window, tuples, reach)
    if isinstance(window, Delta):
        spans = _deltas(window, tuples)  # of closed windows only the tuples to skip are kept
        return spans, None
    if isinstance(window, Landmark):
        spans = _landmarks(window, tuples, reach)
    else:
        assert isinstance(window, Fixed)
        shown = tuples.nonempty[reach.until[tuples.nonempty] >= window.end]
        start, end = np.full(len(shown), window.start, np.int64), np.full(len(shown), window.end, np.int64)
        spans = Spans(shown, tuples.start[shown], tuples.start[shown + 1] - 1, start, end)
    return spans.filter(spans.re > reach.after), None


def closing(window: Ordered, tuples: OrderedTuples, spans: Spans) -> Int64s:
    """The CTI at which each window is closed: its end, or for a run the CTI that settles the start of the next."""
    if not isinstance(window, Delta):
        return spans.re
    more = np.r_[np.diff(spans.group) == 0, False] if len(spans) else np.empty(0, bool)
    following = np.r_[spans.first[1:], 0] if len(spans) else spans.first
    return np.where(more, tuples.le[np.where(more, following, 0)] + 1, INFINITY) if len(spans) else spans.re


# --- slides -----------------------------------------------------------------------------------------------------------


def next_slide(time: Int64s, origin: Int64s | int, every: int) -> Int64s:
    """The first of the times `origin + k·every` after each time."""
    bounded = np.clip(time, -_LIMIT, _LIMIT)
    return origin + ((bounded - origin) // every + 1) * every


def _slides(window: Slides, tuples: OrderedTuples, reach: Reach) -> tuple[Spans, Bools | None]:
    if isinstance(window.every, Tuples):
        last = _triggered_by_count(window, tuples, window.every.count)
        group, re = tuples.group[last], tuples.le[last] + 1
        wanted = re > reach.after
        group, last, re = group[wanted], last[wanted], re[wanted]
    else:
        group, re = _triggered_by_time(window, tuples, reach)
        last = tuples.place(group, re) - 1
        wanted = last >= tuples.start[group]
        group, last, re = group[wanted], last[wanted], re[wanted]
    spans, inside = _with_size(window, tuples, group, last, re)
    if isinstance(window.every, Time) and window.tick != "tuple":
        return _changed_windows(window, tuples, window.every.ticks, spans, inside)
    return spans, inside


def _with_size(
    window: Slides, tuples: OrderedTuples, group: Int64s, last: Int64s, re: Int64s
) -> tuple[Spans, Bools | None]:
    """The windows whose last tuple is known; those without tuples are left out."""
    first = tuples.start[group]
    if isinstance(window.size, Tuples):
        first = np.maximum(first, last - window.size.count + 1)
        return Spans(group, first, last, tuples.le[first], re), None
    if isinstance(window.size, Time):
        le = add(re, -window.size.ticks)
        first = tuples.place(group, le)
        return Spans(group, first, last, le, re).filter(first <= last), None
    number, row = ranges(first, last)
    inside = within(window.size, tuples)(row, last[number])
    earliest = np.full(len(group), len(tuples), np.int64)
    np.minimum.at(earliest, number[inside], row[inside])
    some = earliest < len(tuples)
    spans = Spans(group[some], first[some], last[some], tuples.le[earliest[some]], re[some])
    return spans, inside[some[number]]


def within(size: By, tuples: OrderedTuples) -> Callable[[Int64s, Int64s], Bools]:
    """A function of tuples and of the last tuples of windows: whether each is in the window, by its value."""
    column = without_prefix(tuples.events.payload).column(size.column).combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    floating = pa.types.is_floating(column.type)
    kind = pa.float64() if floating else pa.int64()
    has_value = np.asarray(pc.is_valid(column))
    values = pc.fill_null(pc.cast(column, kind), 0).to_numpy(zero_copy_only=False)
    if floating:
        has_value &= ~np.isnan(values)
    # The running maximum: ranks replace values, so that those of later groups are greater than all before.
    known, rank = np.unique(values, return_inverse=True)
    base = tuples.group * (len(known) + 1)
    high = np.maximum.accumulate(base + np.where(has_value, rank + 1, 0)) - base - 1

    def inside(row: Int64s, last: Int64s) -> Bools:
        some = has_value[row] & (high[last] >= 0)
        top, value = known[np.maximum(high[last], 0)], values[row]
        if floating:
            with np.errstate(invalid="ignore"):
                # Infinities are equal, and have no difference.
                return np.asarray(some & ((top == value) | (top - value < size.extent)))
        below = top.view(np.uint64) - value.view(np.uint64)  # exact even for values far apart
        return np.asarray(some & (top >= value) & (below < np.uint64(int(size.extent))))

    return inside


def _triggered_by_count(window: Slides, tuples: OrderedTuples, every: int) -> Int64s:
    """The last tuples of windows that a number of tuples triggers."""
    fresh = np.arange(len(tuples)) >= tuples.new[tuples.group]
    slide = tuples.position // every
    if window.tick == "tuple" or (window.tick == "batch" and window.batch is None):
        return np.flatnonzero(fresh & (tuples.position % every == 0))
    if window.tick == "time":
        begin = run_starts(tuples.group, tuples.le)
        reacts = np.r_[begin[1:] - 1, len(tuples) - 1] if len(tuples) else begin
    else:
        batch = without_prefix(tuples.events.payload).column(window.batch)
        codes, first = factorize(pa.table({"g": tuples.group, "t": tuples.le, "b": batch}))
        reacts = np.zeros(len(first), np.int64)
        reacts[codes] = np.arange(len(tuples))
        reacts = np.sort(reacts)
    reacts = reacts[fresh[reacts]]
    group = tuples.group[reacts]
    head = np.r_[True, np.diff(group) != 0] if len(reacts) else np.empty(0, bool)
    before = np.where(head, tuples.past.count[group] // every, np.r_[0, slide[reacts][:-1]] if len(reacts) else 0)
    return reacts[slide[reacts] > before]


def _origins(window: Slides, tuples: OrderedTuples) -> Int64s:
    """The origin of the slides of each group."""
    return tuples.origin if window.origin is None else np.full(tuples.groups, window.origin, np.int64)


def _triggered_by_time(window: Slides, tuples: OrderedTuples, reach: Reach) -> tuple[Int64s, Int64s]:
    """The groups and times of windows that time may trigger."""
    assert isinstance(window.every, Time)
    every, origin = window.every.ticks, _origins(window, tuples)
    by_time = isinstance(window.size, Time)
    if window.tick == "tuple" and not by_time:
        return _every_slide(tuples, origin, every, reach)
    of = origin[tuples.group]
    enters = next_slide(tuples.le, of, every)
    leaves = next_slide(add(tuples.le, window.size.ticks), of, every) if isinstance(window.size, Time) else enters
    if window.tick == "tuple":
        stop = np.minimum(leaves - every, np.clip(reach.until, -_LIMIT, _LIMIT)[tuples.group])
        number = (np.maximum(enters, next_slide(np.int64(reach.after) * np.ones_like(of), of, every)) - of) // every
        owner, slide = ranges(number, (stop - of) // every)
        return distinct(tuples.group[owner], of[owner] + slide * every)
    group, time = distinct(np.r_[tuples.group, tuples.group], np.r_[enters, leaves])
    wanted = (time > reach.after) & (time <= reach.until[group])
    return group[wanted], time[wanted]


def _every_slide(tuples: OrderedTuples, origin: Int64s, every: int, reach: Reach) -> tuple[Int64s, Int64s]:
    """All slides of each group from its first tuple on."""
    group = tuples.nonempty
    of = origin[group]
    begin = np.maximum(tuples.le[tuples.start[group]], reach.after)
    first = (next_slide(begin, of, every) - of) // every
    owner, slide = ranges(first, (np.clip(reach.until[group], -_LIMIT, _LIMIT) - of) // every)
    return group[owner], of[owner] + slide * every


def _changed_windows(
    window: Slides, tuples: OrderedTuples, every: int, spans: Spans, inside: Bools | None
) -> tuple[Spans, Bools | None]:
    """The windows whose tuples differ from those of the slide before."""
    before = add(spans.re, -every)
    last = tuples.place(spans.group, before) - 1
    if inside is None:
        changed = last != spans.last
        if isinstance(window.size, Time):
            changed |= tuples.place(spans.group, add(before, -window.size.ticks)) != spans.first
        return spans.filter(changed), None
    number, row = ranges(spans.first, spans.last)
    changed = np.bincount(number[inside & (row > last[number])], minlength=len(spans)) > 0
    return spans.filter(changed), inside[changed[number]]


# --- other kinds ------------------------------------------------------------------------------------------------------


def _landmarks(window: Landmark, tuples: OrderedTuples, reach: Reach) -> Spans:
    if isinstance(window.every, Tuples):
        last = np.flatnonzero(tuples.position % window.every.count == 0)
        group, re = tuples.group[last], tuples.le[last] + 1
    else:
        origin = np.full(tuples.groups, window.start, np.int64)
        group, re = _every_slide(tuples, origin, window.every.ticks, reach)
        last = tuples.place(group, re) - 1
    return Spans(group, tuples.start[group], last, np.full(len(group), window.start, np.int64), re)


def _deltas(window: Delta, tuples: OrderedTuples) -> Spans:
    """Greedy runs: for all groups at once, each round tests more tuples, or opens the next window."""
    payload = without_prefix(tuples.events.payload)
    end = tuples.start[1:]
    first = tuples.start[:-1] + tuples.past.skip
    cursor, step = first + 1, np.full(tuples.groups, _TRIED, np.int64)
    runs: list[tuple[Int64s, Int64s, Int64s]] = []
    active = np.flatnonzero(first < end)
    while len(active):
        stop = np.minimum(cursor[active] + step[active], end[active])
        owner, row = ranges(cursor[active], stop - 1)
        apart = ~_joins(window, payload, first[active][owner], row)
        border = stop.copy()  # the first tuple that does not join
        np.minimum.at(border, owner[apart], row[apart])
        closed = border < stop
        done = closed | (stop == end[active])
        runs.append((active[done], first[active][done], border[done] - 1))
        opens = active[closed]
        first[opens] = border[closed]
        cursor[active] = np.where(closed, border + 1, stop)
        step[active] = np.where(closed, _TRIED, step[active] * 2)
        active = active[closed | ~done]
    parts = [np.concatenate([part[i] for part in runs]) if runs else np.empty(0, np.int64) for i in range(3)]
    order = np.lexsort((parts[1], parts[0]))
    group, begin, last = (part[order] for part in parts)
    return Spans(group, begin, last, tuples.le[begin], tuples.le[last] + 1)


def _joins(window: Delta, payload: pa.Table, first: Int64s, row: Int64s) -> NDArray[np.bool_]:
    table = payload.take(pa.array(row))
    opened = payload.take(pa.array(first))
    for name in payload.column_names:
        table = table.append_column(FIRST + name, opened.column(name))
    return np.asarray(pc.fill_null(evaluate(window.joins, table), False), bool)
