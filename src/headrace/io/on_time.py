"""A quick look at a block of rows that are inserts: whether all of them are sound, and none is late.

That is so for nearly every block; then its rows need not be judged one by one. Lateness is looked at by stretches of
rows: no row of a stretch arrives after a CTI beyond the one that follows from the highest start up to the end of the
stretch.
"""

from __future__ import annotations

from headrace.columnar import Int64s
from headrace.compiled import compiled
from headrace.events import FARTHEST
from headrace.time import INFINITY

__all__ = ["surely_on_time"]


@compiled
def surely_on_time(
    starts: Int64s, ends: Int64s, high: int, cti: int, delay: int, every: int, stretch: int
) -> tuple[bool, int, int]:
    """Whether all rows are sound and none is late; and if so, the highest start and the CTI after them.

    `high` and `cti` are those before them. The CTI follows the highest start by `delay`, in steps of `every`; with a
    negative delay it does not.
    """
    if max(high, delay, every) >= FARTHEST:  # so no difference leaves 64 bits
        return False, high, cti
    for begin in range(0, len(starts), stretch):
        stop = min(begin + stretch, len(starts))
        low, farthest, sound = starts[begin], starts[begin], True
        for i in range(begin, stop):
            low, farthest = min(low, starts[i]), max(farthest, starts[i])
            sound &= (starts[i] < ends[i]) & ((ends[i] < FARTHEST) | (ends[i] == INFINITY))
        if not sound or low <= -FARTHEST or farthest >= FARTHEST:
            return False, high, cti
        high = max(high, farthest)
        if delay >= 0:
            cti = max(cti, (high - delay) // every * every)
        if low < cti:
            return False, high, cti
    return True, high, cti
