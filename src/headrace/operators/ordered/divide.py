"""Windows of tuples in their order: which there are, and which tuples are in each (rules 8.2 and 8.3).

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
from headrace.operators.ordered.line import OrderedTuples, distinct, ranges, runs
from headrace.plan.ordered import FIRST, By, Delta, Fixed, Landmark, Ordered, Slides, Time, Tuples
from headrace.time import INFINITY, add

__all__ = ["Reach", "Spans", "closing", "divide", "next_slide", "within", "without_prefix"]

_LIMIT = 2**60
#: How many tuples of a group are tried at first for whether they join its window.
_TRIED = 16


@dataclass(frozen=True)
class Reach:
    """Which windows are wanted: those that end after `after`, and, where time triggers them, up to a time a group."""

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
        return Spans(self.group[mask], self.first[mask], self.last[mask], self.le[mask], self.re[mask])


def without_prefix(table: pa.Table) -> pa.Table:
    """The columns of tuples by their own names."""
    names = [name for name in table.column_names if name.startswith(PREFIX)]
    return table.select(names).rename_columns([name[len(PREFIX) :] for name in names])


def divide(window: Ordered, line: OrderedTuples, reach: Reach) -> tuple[Spans, Bools | None]:
    """The windows that are wanted, and which of the tuples of their runs, one after the other, are in them.

    The second is None where all are.
    """
    if isinstance(window, Slides):
        return _slides(window, line, reach)
    if isinstance(window, Delta):
        spans = _deltas(window, line)  # of closed ones no tuple is kept but those to skip
        return spans, None
    if isinstance(window, Landmark):
        spans = _landmarks(window, line, reach)
    else:
        assert isinstance(window, Fixed)
        shown = line.some[reach.until[line.some] >= window.end]
        start, end = np.full(len(shown), window.start, np.int64), np.full(len(shown), window.end, np.int64)
        spans = Spans(shown, line.start[shown], line.start[shown + 1] - 1, start, end)
    return spans.filter(spans.re > reach.after), None


def closing(window: Ordered, line: OrderedTuples, spans: Spans) -> Int64s:
    """The CTI at which each window is closed: its end, or for a run the start of the next one is settled."""
    if not isinstance(window, Delta):
        return spans.re
    more = np.r_[np.diff(spans.group) == 0, False] if len(spans) else np.empty(0, bool)
    following = np.r_[spans.first[1:], 0] if len(spans) else spans.first
    return np.where(more, line.le[np.where(more, following, 0)] + 1, INFINITY) if len(spans) else spans.re


# --- slides -----------------------------------------------------------------------------------------------------------


def next_slide(time: Int64s, origin: Int64s | int, every: int) -> Int64s:
    """The first of the times `origin + k·every` after each time."""
    bounded = np.clip(time, -_LIMIT, _LIMIT)
    return origin + ((bounded - origin) // every + 1) * every


def _slides(window: Slides, line: OrderedTuples, reach: Reach) -> tuple[Spans, Bools | None]:
    if isinstance(window.every, Tuples):
        last = _counted(window, line, window.every.count)
        group, re = line.group[last], line.le[last] + 1
        wanted = re > reach.after
        group, last, re = group[wanted], last[wanted], re[wanted]
    else:
        group, re = _timed(window, line, reach)
        last = line.place(group, re) - 1
        wanted = last >= line.start[group]
        group, last, re = group[wanted], last[wanted], re[wanted]
    spans, inside = _sized(window, line, group, last, re)
    if isinstance(window.every, Time) and window.tick != "tuple":
        return _changed(window, line, window.every.ticks, spans, inside)
    return spans, inside


def _sized(window: Slides, line: OrderedTuples, group: Int64s, last: Int64s, re: Int64s) -> tuple[Spans, Bools | None]:
    """The windows of a size whose last tuple is known; those without any tuple are left out."""
    first = line.start[group]
    if isinstance(window.size, Tuples):
        first = np.maximum(first, last - window.size.count + 1)
        return Spans(group, first, last, line.le[first], re), None
    if isinstance(window.size, Time):
        le = add(re, -window.size.ticks)
        first = line.place(group, le)
        return Spans(group, first, last, le, re).filter(first <= last), None
    number, row = ranges(first, last)
    inside = within(window.size, line)(row, last[number])
    earliest = np.full(len(group), len(line), np.int64)
    np.minimum.at(earliest, number[inside], row[inside])
    some = earliest < len(line)
    spans = Spans(group[some], first[some], last[some], line.le[earliest[some]], re[some])
    return spans, inside[some[number]]


def within(size: By, line: OrderedTuples) -> Callable[[Int64s, Int64s], Bools]:
    """A function of tuples and of the last tuples of windows: whether each is in the window, by its value."""
    column = without_prefix(line.events.payload).column(size.column).combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    floating = pa.types.is_floating(column.type)
    kind = pa.float64() if floating else pa.int64()
    there = np.asarray(pc.is_valid(column))
    values = pc.fill_null(pc.cast(column, kind), 0).to_numpy(zero_copy_only=False)
    if floating:
        there &= ~np.isnan(values)
    # The highest value so far: ranks stand in for values, so that those of later groups are greater than all before.
    known, rank = np.unique(values, return_inverse=True)
    base = line.group * (len(known) + 1)
    high = np.maximum.accumulate(base + np.where(there, rank + 1, 0)) - base - 1

    def inside(row: Int64s, last: Int64s) -> Bools:
        some = there[row] & (high[last] >= 0)
        top, value = known[np.maximum(high[last], 0)], values[row]
        if floating:
            with np.errstate(invalid="ignore"):
                return np.asarray(some & (top - value < size.extent))
        below = top.view(np.uint64) - value.view(np.uint64)  # exact, where values are far apart, too
        return np.asarray(some & (top >= value) & (below < np.uint64(int(size.extent))))

    return inside


def _counted(window: Slides, line: OrderedTuples, every: int) -> Int64s:
    """The last tuples of windows that are triggered by every so many tuples."""
    fresh = np.arange(len(line)) >= line.new[line.group]
    slide = line.position // every
    if window.tick == "tuple" or (window.tick == "batch" and window.batch is None):
        return np.flatnonzero(fresh & (line.position % every == 0))
    if window.tick == "time":
        begin = runs(line.group, line.le)
        reacts = np.r_[begin[1:] - 1, len(line) - 1] if len(line) else begin
    else:
        batch = without_prefix(line.events.payload).column(window.batch)
        codes, first = factorize(pa.table({"g": line.group, "t": line.le, "b": batch}))
        reacts = np.zeros(len(first), np.int64)
        reacts[codes] = np.arange(len(line))
        reacts = np.sort(reacts)
    reacts = reacts[fresh[reacts]]
    group = line.group[reacts]
    head = np.r_[True, np.diff(group) != 0] if len(reacts) else np.empty(0, bool)
    before = np.where(head, line.past.count[group] // every, np.r_[0, slide[reacts][:-1]] if len(reacts) else 0)
    return reacts[slide[reacts] > before]


def _origins(window: Slides, line: OrderedTuples) -> Int64s:
    """Where slides are counted from, for each group."""
    return line.origin if window.origin is None else np.full(line.groups, window.origin, np.int64)


def _timed(window: Slides, line: OrderedTuples, reach: Reach) -> tuple[Int64s, Int64s]:
    """When windows may be triggered by time, and of which groups."""
    assert isinstance(window.every, Time)
    every, origin = window.every.ticks, _origins(window, line)
    by_time = isinstance(window.size, Time)
    if window.tick == "tuple" and not by_time:
        return _every_slide(line, origin, every, reach)
    of = origin[line.group]
    enters = next_slide(line.le, of, every)
    leaves = next_slide(add(line.le, window.size.ticks), of, every) if isinstance(window.size, Time) else enters
    if window.tick == "tuple":
        stop = np.minimum(leaves - every, np.clip(reach.until, -_LIMIT, _LIMIT)[line.group])
        number = (np.maximum(enters, next_slide(np.int64(reach.after) * np.ones_like(of), of, every)) - of) // every
        whose, slide = ranges(number, (stop - of) // every)
        return distinct(line.group[whose], of[whose] + slide * every)
    group, time = distinct(np.r_[line.group, line.group], np.r_[enters, leaves])
    wanted = (time > reach.after) & (time <= reach.until[group])
    return group[wanted], time[wanted]


def _every_slide(line: OrderedTuples, origin: Int64s, every: int, reach: Reach) -> tuple[Int64s, Int64s]:
    """All slides of each group from its first tuple on."""
    group = line.some
    of = origin[group]
    begin = np.maximum(line.le[line.start[group]], reach.after)
    first = (next_slide(begin, of, every) - of) // every
    whose, slide = ranges(first, (np.clip(reach.until[group], -_LIMIT, _LIMIT) - of) // every)
    return group[whose], of[whose] + slide * every


def _changed(
    window: Slides, line: OrderedTuples, every: int, spans: Spans, inside: Bools | None
) -> tuple[Spans, Bools | None]:
    """The windows whose tuples are not those of the slide before."""
    before = add(spans.re, -every)
    last = line.place(spans.group, before) - 1
    if inside is None:
        changed = last != spans.last
        if isinstance(window.size, Time):
            changed |= line.place(spans.group, add(before, -window.size.ticks)) != spans.first
        return spans.filter(changed), None
    number, row = ranges(spans.first, spans.last)
    changed = np.bincount(number[inside & (row > last[number])], minlength=len(spans)) > 0
    return spans.filter(changed), inside[changed[number]]


# --- the others -------------------------------------------------------------------------------------------------------


def _landmarks(window: Landmark, line: OrderedTuples, reach: Reach) -> Spans:
    if isinstance(window.every, Tuples):
        last = np.flatnonzero(line.position % window.every.count == 0)
        group, re = line.group[last], line.le[last] + 1
    else:
        origin = np.full(line.groups, window.start, np.int64)
        group, re = _every_slide(line, origin, window.every.ticks, reach)
        last = line.place(group, re) - 1
    return Spans(group, line.start[group], last, np.full(len(group), window.start, np.int64), re)


def _deltas(window: Delta, line: OrderedTuples) -> Spans:
    """Greedy runs: for all groups at once, each round tries some tuples more, or opens the next window."""
    payload = without_prefix(line.events.payload)
    end = line.start[1:]
    first = line.start[:-1] + line.past.skip
    cursor, step = first + 1, np.full(line.groups, _TRIED, np.int64)
    found: list[tuple[Int64s, Int64s, Int64s]] = []
    active = np.flatnonzero(first < end)
    while len(active):
        stop = np.minimum(cursor[active] + step[active], end[active])
        whose, row = ranges(cursor[active], stop - 1)
        apart = ~_joins(window, payload, first[active][whose], row)
        border = stop.copy()  # the first tuple that does not join
        np.minimum.at(border, whose[apart], row[apart])
        closed = border < stop
        done = closed | (stop == end[active])
        found.append((active[done], first[active][done], border[done] - 1))
        opens = active[closed]
        first[opens] = border[closed]
        cursor[active] = np.where(closed, border + 1, stop)
        step[active] = np.where(closed, _TRIED, step[active] * 2)
        active = active[closed | ~done]
    parts = [np.concatenate([part[i] for part in found]) if found else np.empty(0, np.int64) for i in range(3)]
    order = np.lexsort((parts[1], parts[0]))
    group, begin, last = (part[order] for part in parts)
    return Spans(group, begin, last, line.le[begin], line.le[last] + 1)


def _joins(window: Delta, payload: pa.Table, first: Int64s, row: Int64s) -> NDArray[np.bool_]:
    table = payload.take(pa.array(row))
    opened = payload.take(pa.array(first))
    for name in payload.column_names:
        table = table.append_column(FIRST + name, opened.column(name))
    return np.asarray(pc.fill_null(evaluate(window.joins, table), False), bool)
