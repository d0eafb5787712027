"""Windows, as people write them."""

from __future__ import annotations

from headrace.plan.windows import Count, Grid, Session, Snapshot
from headrace.time import DurationLike, TimeLike, duration, ticks

__all__ = ["count_by_end", "count_by_start", "hopping", "session", "snapshot", "tumbling"]


def tumbling(size: DurationLike, origin: TimeLike = 0) -> Grid:
    """Windows of a size, one after the other."""
    return Grid(duration(size), duration(size), ticks(origin))


def hopping(size: DurationLike, every: DurationLike, origin: TimeLike = 0) -> Grid:
    """Windows of a size, one every so often; they overlap when `every` is smaller, and leave gaps when it is larger."""
    return Grid(duration(size), duration(every), ticks(origin))


def snapshot() -> Snapshot:
    """A window between each pair of neighbouring endpoints: as long as the same events are alive."""
    return Snapshot()


def count_by_start(n: int) -> Count:
    """From each distinct start time a window over n of them; an event belongs where it starts."""
    return Count(n, "start")


def count_by_end(n: int) -> Count:
    """From each distinct end time a window over n of them; an event belongs where it ends."""
    return Count(n, "end")


def session(gap: DurationLike) -> Session:
    """Runs of events that start less than `gap` apart, and until `gap` after the last start."""
    return Session(duration(gap))
