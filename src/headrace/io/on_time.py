"""A quick look at a block of rows that are inserts: whether all of them are sound, and none is late.

That is so for nearly every block; then its rows need not be judged one by one, with reasons.
"""

from __future__ import annotations

from headrace.columnar import Int64s
from headrace.compiled import INT, INTS, compiled
from headrace.events import FARTHEST
from headrace.time import INFINITY

__all__ = ["all_on_time"]


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
