"""The past tuples that windows of tuples still need at a CTI (rule 6.4).

Tuples that start before the CTI are settled: none will be added or deleted there. Later windows need the last few of
these, or the latest; beside them the kernel keeps only a few numbers per group. Tuples that start together are kept or
forgotten together, so that a change of an end finds all of them or none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.columnar import Bools, Int64s
from headrace.operators.ordered.divide import Spans, next_slide, within
from headrace.operators.ordered.tuples import OrderedTuples, Past
from headrace.operators.ordered.yields import slot_end
from headrace.plan.ordered import By, Delta, Fixed, Frame, Landmark, Ordered, Slides, Time, Tuples
from headrace.time import INFINITY, NEG_INFINITY, add, add_one

__all__ = ["Retention", "least_bound", "next_settled", "next_shown", "retention"]


@dataclass(frozen=True)
class Retention:
    """Which tuples are still needed, and for each group: its past, the least lower bound of a window that reaches back
    before the CTI (infinite if none does), and the CTI at which it is due.
    """

    keep: Bools
    past: Past
    hold: Int64s
    alarm: Int64s


def retention(window: Ordered, tuples: OrderedTuples, cti: int, spans: Spans | None = None) -> Retention:
    """The tuples to keep at a CTI; `spans` are all windows, if windows depend on the ones before."""
    never = np.full(tuples.groups, INFINITY, np.int64)
    if cti == INFINITY:
        return Retention(np.zeros(len(tuples), bool), Past.empty(tuples.groups), never, never)
    settled = tuples.until(cti)
    alarm = next_settled(tuples, settled)
    if isinstance(window, Landmark):
        return Retention(np.ones(len(tuples), bool), tuples.past, never, never)
    if isinstance(window, Fixed):
        alarm[tuples.nonempty] = window.end
        return Retention(np.full(len(tuples), cti < window.end), tuples.past, never, alarm)
    return _SettledTuples(window, tuples, cti, settled, alarm, spans).retention()


def next_settled(tuples: OrderedTuples, settled: Int64s) -> Int64s:
    """For each group, the CTI that settles its next tuple."""
    times = np.full(tuples.groups, INFINITY, np.int64)
    waiting = settled < tuples.start[1:]
    times[waiting] = add(tuples.le[settled[waiting]], 1)
    return times


class _SettledTuples:
    """The settled tuples, and which of them are needed."""

    def __init__(
        self, window: Ordered, tuples: OrderedTuples, cti: int, settled: Int64s, alarm: Int64s, spans: Spans | None
    ) -> None:
        self.window, self.line, self.cti, self.spans = window, tuples, cti, spans
        self.settled, self.alarm = settled, alarm
        self.has_settled = settled > tuples.start[:-1]
        self.hold = np.full(tuples.groups, INFINITY, np.int64)
        count = tuples.past.count + np.maximum(settled - tuples.new, 0)
        first = np.where(self.has_settled, tuples.origin, tuples.past.first)
        self.past = Past(count, np.full(tuples.groups, cti, np.int64), first, np.zeros(tuples.groups, np.int64))

    def retention(self) -> Retention:
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
        return Retention(keep, self.past, self.hold, self.alarm)

    def _last(self, count: Int64s) -> Bools:
        """The last `count` settled tuples of each group; the first of them holds the CTI."""
        first = np.maximum(self.settled - count, self.line.start[:-1])
        some = first < self.settled
        cut = np.full(self.line.groups, self.cti, np.int64)
        cut[some] = self.line.le[first[some]]
        self.hold[some] = cut[some]
        return self.line.le >= cut[self.line.group]

    def _needed(self, window: Slides, size: int) -> Int64s:
        """The number of settled tuples in the next window of each group, if none arrives before its trigger."""
        if isinstance(window.every, Time):
            return np.full(self.line.groups, size, np.int64)
        return self._before_trigger(window.every.count, size)

    def _before_trigger(self, every: int, size: int) -> Int64s:
        trigger = (self.past.count // every + 1) * every
        return np.maximum(self.past.count - np.maximum(trigger - size, 0), 0)

    def _recent(self, window: Slides, size: int) -> Bools:
        """The tuples whose LE is not too far back."""
        tuples = self.line
        if isinstance(window.every, Tuples):
            cut = np.full(tuples.groups, add_one(self.cti, 1 - size), np.int64)
            self._look_again(cut, size)
            return tuples.le >= cut[tuples.group]
        every = window.every.ticks
        origin = self.past.first if window.origin is None else np.full(tuples.groups, window.origin, np.int64)
        known = origin != INFINITY
        slide = next_slide(np.full(tuples.groups, self.cti, np.int64), np.where(known, origin, 0), every)
        back = size + (every if window.tick != "tuple" else 0)
        cut = np.where(known, add(slide, -back), NEG_INFINITY)
        if window.origin is None:
            self.hold[known] = add(slide, -size)[known]
            self.alarm[known] = np.minimum(self.alarm[known], slide[known])
        keep = tuples.le >= cut[tuples.group]
        old = np.unique(tuples.group[keep & (tuples.le < self.cti)])
        self.alarm[old] = np.minimum(self.alarm[old], slide[old])
        return keep

    def _look_again(self, cut: Int64s, size: int) -> None:
        """Set the alarm to when the first settled tuple that is kept is too old."""
        tuples = self.line
        first = tuples.place(np.arange(tuples.groups), cut)
        some = first < self.settled
        self.alarm[some] = np.minimum(self.alarm[some], add(tuples.le[first[some]], size))

    def _near(self, size: By) -> Bools:
        """The tuples whose value is not too far below the highest."""
        tuples = self.line
        keep = tuples.le >= self.cti
        old = np.flatnonzero(~keep)
        if len(old):
            keep[old] = within(size, tuples)(old, self.settled[tuples.group[old]] - 1)
        early = np.flatnonzero(keep & (tuples.le < self.cti))
        np.minimum.at(self.hold, tuples.group[early], tuples.le[early])
        # When the input ends, windows continue to the slide after the last tuple, for any value of it.
        keep[self.settled[np.unique(tuples.group[early])] - 1] = True
        return keep

    def _open_run(self) -> Bools:
        """The tuples from the start of the window of the last settled tuple."""
        tuples, spans = self.line, self.spans
        assert spans is not None
        cut = np.full(tuples.groups, self.cti, np.int64)
        begun = spans.first < self.settled[spans.group]
        first = np.full(tuples.groups, -1, np.int64)
        np.maximum.at(first, spans.group[begun], spans.first[begun])
        some = first >= 0
        cut[some] = tuples.le[first[some]]
        self.hold[some] = cut[some]
        self.past.skip[some] = first[some] - tuples.place(np.arange(tuples.groups), cut)[some]
        return tuples.le >= cut[tuples.group]

    def _frame(self, frame: Frame) -> Bools:
        """The tuples of later frames. Results start with their tuples, so these do not hold the CTI."""
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
        """The groups whose last settled tuple is in an open slot: a later tuple may replace it."""
        if not isinstance(frame.slide, Time):
            return np.empty(0, np.int64)
        some = np.flatnonzero(self.has_settled)
        return some[slot_end(frame.slide, self.line.le[self.settled[some] - 1]) > self.cti]

    def _after(self, groups: Int64s, end: Int64s) -> Int64s:
        """When groups with an open slot are due: at its end, or when the next tuple is settled."""
        coming = self.settled[groups]
        more = coming < self.line.start[groups + 1]
        end[more] = np.minimum(end[more], add(self.line.le[coming[more]], 1))
        return end


def least_bound(window: Ordered, cti: int) -> int:
    """The least lower bound of a window of any group at a CTI, apart from the group's past."""
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


def next_shown(window: Ordered, tuples: OrderedTuples, seen: int) -> Int64s:
    """For each group, the time m at which time alone may trigger a window."""
    shows = np.full(tuples.groups, INFINITY, np.int64)
    if seen == INFINITY:
        return shows
    some = tuples.nonempty
    if isinstance(window, Fixed):
        shows[some] = window.end if window.end > seen else INFINITY
    elif isinstance(window, Landmark) and isinstance(window.every, Time):
        begin = np.maximum(tuples.le[tuples.start[some]], seen)
        shows[some] = next_slide(begin, window.start, window.every.ticks)
    elif isinstance(window, Slides) and isinstance(window.every, Time):
        _next_slides(window, window.every.ticks, tuples, seen, shows)
    elif isinstance(window, Frame) and isinstance(window.slide, Time):
        end = slot_end(window.slide, tuples.le)
        later = end > seen
        np.minimum.at(shows, tuples.group[later], end[later])
    return shows


def _next_slides(window: Slides, every: int, tuples: OrderedTuples, seen: int, shows: Int64s) -> None:
    origin = tuples.origin if window.origin is None else np.full(tuples.groups, window.origin, np.int64)
    if window.tick == "tuple" and not isinstance(window.size, Time):
        some = tuples.nonempty
        shows[some] = next_slide(np.maximum(tuples.le[tuples.start[some]], seen), origin[some], every)
        return
    of = origin[tuples.group]
    enters = next_slide(tuples.le, of, every)
    times = [enters]
    if isinstance(window.size, Time):
        leaves = next_slide(add(tuples.le, window.size.ticks), of, every)
        # While a tuple is in the windows, each slide has one; else only the slides at which it enters or leaves.
        times = [enters, leaves]
        if window.tick == "tuple":
            coming = np.maximum(enters, next_slide(np.full(len(tuples), seen, np.int64), of, every))
            times = [np.where(coming < leaves, coming, INFINITY)]
    for time in times:
        later = time > seen
        np.minimum.at(shows, tuples.group[later], time[later])
