"""What windows of tuples need of the past, once the CTI has come to a time (rule 6.4).

Tuples that start before the CTI are settled: none will be added or deleted there. Of these, windows still to come need
the last few, or the latest; all that is kept beside them are a few numbers a group. Tuples that start together are
kept or forgotten together, so that a change of an end finds them all or none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.columnar import Bools, Int64s
from headrace.operators.ordered.divide import Spans, next_slide, within
from headrace.operators.ordered.line import OrderedTuples, Past
from headrace.operators.ordered.yields import slot_end
from headrace.plan.ordered import By, Delta, Fixed, Frame, Landmark, Ordered, Slides, Time, Tuples
from headrace.time import INFINITY, NEG_INFINITY, add, add_one

__all__ = ["Kept", "kept", "least_bound", "next_settled", "next_shown"]


@dataclass(frozen=True)
class Kept:
    """Which tuples are still needed, and of each group: what is known of its past, the least lower bound of a window
    that reaches back before the CTI (infinite if none does), and the CTI at which to look again.
    """

    keep: Bools
    past: Past
    hold: Int64s
    alarm: Int64s


def kept(window: Ordered, line: OrderedTuples, cti: int, spans: Spans | None = None) -> Kept:
    """What to keep when the CTI is at `cti`; `spans` are all windows, for those that depend on the ones before."""
    never = np.full(line.groups, INFINITY, np.int64)
    if cti == INFINITY:
        return Kept(np.zeros(len(line), bool), Past.none(line.groups), never, never)
    settled = line.until(cti)
    alarm = next_settled(line, settled)
    if isinstance(window, Landmark):
        return Kept(np.ones(len(line), bool), line.past, never, never)
    if isinstance(window, Fixed):
        alarm[line.some] = window.end
        return Kept(np.full(len(line), cti < window.end), line.past, never, alarm)
    return _Keeping(window, line, cti, settled, alarm, spans).answer()


def next_settled(line: OrderedTuples, settled: Int64s) -> Int64s:
    """For each group, the CTI at which its first tuple that is not settled will be."""
    found = np.full(line.groups, INFINITY, np.int64)
    waiting = settled < line.start[1:]
    found[waiting] = add(line.le[settled[waiting]], 1)
    return found


class _Keeping:
    """The tuples that are settled, and which of them are needed."""

    def __init__(
        self, window: Ordered, line: OrderedTuples, cti: int, settled: Int64s, alarm: Int64s, spans: Spans | None
    ) -> None:
        self.window, self.line, self.cti, self.spans = window, line, cti, spans
        self.settled, self.alarm = settled, alarm
        self.some = settled > line.start[:-1]
        self.hold = np.full(line.groups, INFINITY, np.int64)
        count = line.past.count + np.maximum(settled - line.new, 0)
        first = np.where(self.some, line.origin, line.past.first)
        self.past = Past(count, np.full(line.groups, cti, np.int64), first, np.zeros(line.groups, np.int64))

    def answer(self) -> Kept:
        window = self.window
        if isinstance(window, Delta):
            keep = self._open_run()
        elif isinstance(window, Frame):
            keep = self._frame(window)
        else:
            assert isinstance(window, Slides)
            if isinstance(window.size, By):
                keep = self._near(window.size)
            elif isinstance(window.size, Tuples):
                keep = self._last(self._needed(window, window.size.count))
            else:
                keep = self._recent(window, window.size.ticks)
        return Kept(keep, self.past, self.hold, self.alarm)

    def _last(self, count: Int64s) -> Bools:
        """So many of the last settled tuples of each group; the first of them holds the CTI."""
        first = np.maximum(self.settled - count, self.line.start[:-1])
        some = first < self.settled
        cut = np.full(self.line.groups, self.cti, np.int64)
        cut[some] = self.line.le[first[some]]
        self.hold[some] = cut[some]
        return self.line.le >= cut[self.line.group]

    def _needed(self, window: Slides, size: int) -> Int64s:
        """How many settled tuples are in the next window of each group, if nothing comes before its trigger."""
        if isinstance(window.every, Time):
            return np.full(self.line.groups, size, np.int64)
        return self._before_trigger(window.every.count, size)

    def _before_trigger(self, every: int, size: int) -> Int64s:
        trigger = (self.past.count // every + 1) * every
        return np.maximum(self.past.count - np.maximum(trigger - size, 0), 0)

    def _recent(self, window: Slides, size: int) -> Bools:
        """Those whose LE is not too far back."""
        line = self.line
        if isinstance(window.every, Tuples):
            cut = np.full(line.groups, add_one(self.cti, 1 - size), np.int64)
            self._look_again(cut, size)
            return line.le >= cut[line.group]
        every = window.every.ticks
        origin = self.past.first if window.origin is None else np.full(line.groups, window.origin, np.int64)
        known = origin != INFINITY
        slide = next_slide(np.full(line.groups, self.cti, np.int64), np.where(known, origin, 0), every)
        back = size + (every if window.tick != "tuple" else 0)
        cut = np.where(known, add(slide, -back), NEG_INFINITY)
        if window.origin is None:
            self.hold[known] = add(slide, -size)[known]
            self.alarm[known] = np.minimum(self.alarm[known], slide[known])
        kept = line.le >= cut[line.group]
        old = np.unique(line.group[kept & (line.le < self.cti)])
        self.alarm[old] = np.minimum(self.alarm[old], slide[old])
        return kept

    def _look_again(self, cut: Int64s, size: int) -> None:
        """When the first of the settled tuples that are kept is too old."""
        line = self.line
        first = line.place(np.arange(line.groups), cut)
        some = first < self.settled
        self.alarm[some] = np.minimum(self.alarm[some], add(line.le[first[some]], size))

    def _near(self, size: By) -> Bools:
        """Those whose value is not too far below the highest."""
        line = self.line
        keep = line.le >= self.cti
        old = np.flatnonzero(~keep)
        if len(old):
            keep[old] = within(size, line)(old, self.settled[line.group[old]] - 1)
        early = np.flatnonzero(keep & (line.le < self.cti))
        np.minimum.at(self.hold, line.group[early], line.le[early])
        # When the input ends, windows go on to the slide behind the last tuple, whatever its value.
        keep[self.settled[np.unique(line.group[early])] - 1] = True
        return keep

    def _open_run(self) -> Bools:
        """Those since the first of the window that the last settled tuple is in."""
        line, spans = self.line, self.spans
        assert spans is not None
        cut = np.full(line.groups, self.cti, np.int64)
        begun = spans.first < self.settled[spans.group]
        first = np.full(line.groups, -1, np.int64)
        np.maximum.at(first, spans.group[begun], spans.first[begun])
        some = first >= 0
        cut[some] = line.le[first[some]]
        self.hold[some] = cut[some]
        self.past.skip[some] = first[some] - line.place(np.arange(line.groups), cut)[some]
        return line.le >= cut[line.group]

    def _frame(self, frame: Frame) -> Bools:
        """What frames to come reach back to. Results start with their tuples, so it does not hold the CTI."""
        waits = self._waiting(frame)
        if frame.rows is not None:
            every = frame.slide.count if isinstance(frame.slide, Tuples) else 1
            keep = self._last(self._before_trigger(every, frame.rows + 1))
        elif frame.range is None:
            keep = np.ones(len(self.line), bool)
        else:
            cut = np.full(self.line.groups, add_one(self.cti, -frame.range), np.int64)
            cut[waits] = add(np.minimum(self.line.le[self.settled[waits] - 1], self.cti), -frame.range)
            self._look_again(cut, frame.range + 1)
            keep = self.line.le >= cut[self.line.group]
        self.hold[:] = INFINITY
        if isinstance(frame.slide, Time):
            last = self.line.le[self.settled[waits] - 1]
            self.hold[waits] = last
            self.alarm[waits] = self._after(waits, slot_end(frame.slide, last))
        return keep

    def _waiting(self, frame: Frame) -> Int64s:
        """The groups whose last settled tuple is in a slot that is not over: a later one may take its place."""
        if not isinstance(frame.slide, Time):
            return np.empty(0, np.int64)
        some = np.flatnonzero(self.some)
        return some[slot_end(frame.slide, self.line.le[self.settled[some] - 1]) > self.cti]

    def _after(self, groups: Int64s, end: Int64s) -> Int64s:
        """When to look at groups again whose slot is open: when it ends, or when the next tuple is settled."""
        coming = self.settled[groups]
        more = coming < self.line.start[groups + 1]
        end[more] = np.minimum(end[more], add(self.line.le[coming[more]], 1))
        return end


def least_bound(window: Ordered, cti: int) -> int:
    """The least lower bound that a window of any group may have once the CTI is at `cti`, a group's past left aside."""
    bound = cti
    if isinstance(window, Landmark):
        bound = window.start
    elif isinstance(window, Fixed):
        bound = window.start if cti < window.end else cti
    elif isinstance(window, Slides) and isinstance(window.size, Time):
        size = window.size.ticks
        if isinstance(window.every, Tuples):
            bound = add_one(cti, 1 - size)
        elif window.origin is None:
            bound = add_one(cti, window.every.ticks - size)
        else:
            slide = next_slide(np.array([cti]), window.origin, window.every.ticks)
            bound = int(slide[0]) - size
    return min(cti, bound)


def next_shown(window: Ordered, line: OrderedTuples, seen: int) -> Int64s:
    """For each group, the time m at which a window may come that no tuple triggers."""
    shows = np.full(line.groups, INFINITY, np.int64)
    if seen == INFINITY:
        return shows
    some = line.some
    if isinstance(window, Fixed):
        shows[some] = window.end if window.end > seen else INFINITY
    elif isinstance(window, Landmark) and isinstance(window.every, Time):
        begin = np.maximum(line.le[line.start[some]], seen)
        shows[some] = next_slide(begin, window.start, window.every.ticks)
    elif isinstance(window, Slides) and isinstance(window.every, Time):
        _next_slides(window, window.every.ticks, line, seen, shows)
    elif isinstance(window, Frame) and isinstance(window.slide, Time):
        end = slot_end(window.slide, line.le)
        later = end > seen
        np.minimum.at(shows, line.group[later], end[later])
    return shows


def _next_slides(window: Slides, every: int, line: OrderedTuples, seen: int, shows: Int64s) -> None:
    origin = line.origin if window.origin is None else np.full(line.groups, window.origin, np.int64)
    if window.tick == "tuple" and not isinstance(window.size, Time):
        some = line.some
        shows[some] = next_slide(np.maximum(line.le[line.start[some]], seen), origin[some], every)
        return
    of = origin[line.group]
    enters = next_slide(line.le, of, every)
    times = [enters]
    if isinstance(window.size, Time):
        leaves = next_slide(add(line.le, window.size.ticks), of, every)
        # While a tuple is in the windows, each slide gives one; else only those that it enters or leaves.
        times = [enters, leaves]
        if window.tick == "tuple":
            coming = np.maximum(enters, next_slide(np.full(len(line), seen, np.int64), of, every))
            times = [np.where(coming < leaves, coming, INFINITY)]
    for time in times:
        later = time > seen
        np.minimum.at(shows, line.group[later], time[later])
