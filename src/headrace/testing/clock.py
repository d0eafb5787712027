"""A clock that stands still until a test moves it.

>>> clock = ManualClock("2024-05-01T12:00:00Z")
>>> clock.advance("10 s") - ManualClock("2024-05-01T12:00:00Z").now
10000000
"""

from __future__ import annotations

from headrace.errors import TimeError
from headrace.time import DurationLike, TimeLike, duration, format_ticks, ticks

__all__ = ["ManualClock"]


class ManualClock:
    """The time of day in ticks, for `stream.run(host="local", clock=clock)` and for scripted streams.

    Inputs with heartbeat progress and the skew guard use it. A run reads it at least once in every batch.
    """

    def __init__(self, start: TimeLike = 0) -> None:
        self._now = ticks(start)

    @property
    def now(self) -> int:
        """The current time."""
        return self._now

    def advance(self, by: DurationLike) -> int:
        """Move the clock forward and return the new time; a clock does not go back."""
        step = duration(by)
        if step < 0:
            raise TimeError("a clock does not go back", given=by, allowed="a duration that is not negative")
        self._now = ticks(self._now + step)
        return self._now

    def __call__(self) -> int:
        return self._now

    def __repr__(self) -> str:
        return f"ManualClock({format_ticks(self._now)})"
