"""Windows, as people write them."""

from __future__ import annotations

from headrace.plan.windows import Grid
from headrace.time import DurationLike, TimeLike, duration, ticks

__all__ = ["hopping", "tumbling"]


def tumbling(size: DurationLike, origin: TimeLike = 0) -> Grid:
    """Windows of a size, one after the other."""
    return Grid(duration(size), duration(size), ticks(origin))


def hopping(size: DurationLike, every: DurationLike, origin: TimeLike = 0) -> Grid:
    """Windows of a size, one every so often; they overlap when `every` is smaller, and leave gaps when it is larger."""
    return Grid(duration(size), duration(every), ticks(origin))
