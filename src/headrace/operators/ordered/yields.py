"""Which tuples of a line give results under a slide: the yield tuples (rule 7.5).

Equal tuples with different ends stand in the order of their ends, and ends may move after all else is settled. So
whoever remembers the result of a yield tuple remembers its equals as well: one of them may have to take its place.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.columnar import Bools, Int64s, factorize
from headrace.operators.ordered.line import Line, runs
from headrace.plan.ordered import Frame, Time, Tuples
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["equals", "open_since", "slot_end", "ties", "yields"]

_LIMIT = 2**60


def slot_end(slide: Time, le: Int64s) -> Int64s:
    """Where the slot of each time ends."""
    return (np.clip(le, -_LIMIT, _LIMIT) // slide.ticks + 1) * slide.ticks


def open_since(frame: Frame, cti: int) -> int:
    """From when on results may still change: from the CTI on, or in the whole slot that it is in."""
    if not isinstance(frame.slide, Time) or cti in (INFINITY, NEG_INFINITY):
        return cti
    return cti // frame.slide.ticks * frame.slide.ticks


def yields(frame: Frame, line: Line, seen: int) -> Bools:
    """Which tuples give results that can be seen; right for all that are not counted by their group's past.

    `seen` is m of rule 5.3, infinite when the input has ended.
    """
    if frame.slide is None:
        return np.ones(len(line), bool)
    if isinstance(frame.slide, Tuples):
        return np.asarray(line.position % frame.slide.count == 0)
    end = slot_end(frame.slide, line.le)
    last = np.ones(len(line), bool)
    last[:-1] = (np.diff(line.group) != 0) | (np.diff(end) != 0)
    return last & (end <= seen)


def equals(line: Line, some: Bools) -> Bools:
    """The tuples that are equal to one of these but for their ends, and these."""
    if some.all() or not some.any():
        return some
    number = np.cumsum(ties(line) == 0) - 1
    found = np.zeros(len(line), bool)
    found[number[some]] = True
    return np.asarray(found[number])


def ties(line: Line) -> Int64s:
    """The place of each tuple among those that are equal but for their ends."""
    found = np.zeros(len(line), np.int64)
    begins = runs(line.group, line.le)
    lengths = np.diff(np.r_[begins, len(line)])
    together = np.flatnonzero(np.repeat(lengths > 1, lengths))  # only these may be equal, and there are few
    if len(together):
        codes, _ = factorize(line.events.payload.take(pa.array(together)))
        begins = runs(line.group[together], line.le[together], codes)
        found[together] = np.arange(len(together)) - np.repeat(begins, np.diff(np.r_[begins, len(together)]))
    return found
