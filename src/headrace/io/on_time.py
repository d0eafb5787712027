"""A quick look at a block of rows that are inserts: whether all of them are sound, and none is late.

That is so for nearly every block; then its rows need not be judged one by one, with reasons. And a look at their times:
which of them are trusted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.columnar import Int64s
from headrace.compiled import INT, INTS, compiled
from headrace.events import FARTHEST
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["all_on_time", "within_skew"]


@compiled(INTS, INTS, INT, INT, INT, INT)
def all_on_time(starts: Int64s, ends: Int64s, high: int, cti: int, delay: int, every: int) -> tuple[bool, int, int]:
    """Whether all rows are sound and none is late; and if so, the highest start and the CTI after them.

    `high` and `cti` are those before them. The CTI follows the highest start by `delay`, in steps of `every`; with a
    negative delay it does not.
    """
    if max(high, delay, every) >= FARTHEST:  # so no difference leaves 64 bits
        return False, high, cti
    for i in range(len(starts)):
        start, end = starts[i], ends[i]
        if start < cti or start >= end or not -FARTHEST < start < FARTHEST or FARTHEST <= end < INFINITY:
            return False, high, cti
        if start > high:
            high = start
            if delay >= 0:
                promise = start - delay
                cti = max(cti, promise if every == 1 else promise // every * every)
    return True, high, cti


def within_skew(times: Int64s, promise: NDArray[np.bool_], high: int, max_skew: int) -> NDArray[np.bool_]:
    """Which times are trusted: promises, and times at most `max_skew` ahead of the highest trusted one before.

    While none is trusted, the median of these times takes its place. If all times are trusted, as usual, one comparison
    shows it; otherwise each time is compared in turn.
    """
    if high == NEG_INFINITY:
        return promise | (times <= int(np.median(times[~promise])) + max_skew)
    before = np.maximum.accumulate(np.r_[high, times[:-1]])
    if (promise | (times <= before + max_skew)).all():
        return np.ones(len(times), bool)
    trusted = []
    for time, sure in zip(times.tolist(), promise.tolist(), strict=True):
        trusted.append(sure or time <= high + max_skew)
        high = max(high, time) if trusted[-1] else high
    return np.array(trusted, bool)
