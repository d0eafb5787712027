"""The axis of a timeline: which instants it names, and how times are written there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.time import format_ticks

__all__ = ["Axis"]

_SECOND, _DAY = 1_000_000, 86_400_000_000
_CALENDAR = sorted(
    [_SECOND * n for n in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)]
    + [3600 * _SECOND * n for n in (1, 2, 3, 6, 12)]
    + [_DAY * n for n in (1, 2, 7, 14, 28, 91, 182, 364, 728)]
)
_FEWEST = 4  # instants that an axis names, if the range has so many


@dataclass(frozen=True)
class Axis:
    """The times from `start` to `end` on the pixels from `left` to `right`."""

    start: int
    end: int
    left: float
    right: float
    dates: bool

    def x(self, time: int) -> float:
        """The pixel of a time; times outside are at the edge."""
        inside = min(max(time, self.start), self.end)
        return self.left + (self.right - self.left) * ((inside - self.start) / (self.end - self.start))

    def ticks(self) -> list[int]:
        """Round times, not too close to each other."""
        room = 90 if self.dates else 60
        most = max(_FEWEST, int((self.right - self.left) / room))
        step = _step((self.end - self.start) / most, dates=self.dates)
        first = -(-self.start // step) * step
        return list(range(first, self.end + 1, step))

    def label(self, time: int) -> str:
        """A time on the axis: without the day, if all times are of one day and not of midnight."""
        words = format_ticks(time, dates=self.dates)
        day, sign, clock = words.partition("T")
        if not sign:
            return words
        if self.end - self.start > 2 * _DAY and clock == "00:00:00":
            return day
        return clock.rstrip("0") if "." in clock else clock

    def span(self, le: int, re: int) -> str:
        """A lifetime in words."""
        if not self.dates:
            return f"[{format_ticks(le)}, {format_ticks(re)})"
        return f"{self.label(le)}" if re == le + 1 else f"{self.label(le)} – {self.label(re)}"

    def days(self, ticks: Iterable[int]) -> list[tuple[int, str]]:
        """The days to write below clock times: at the first of these times, and where a day begins."""
        found: list[tuple[int, str]] = []
        for time in ticks if self.dates else ():
            day = format_ticks(time, dates=True).partition("T")[0]
            if self.label(time) != day and day not in (found[-1][1:] if found else ()):
                found.append((time, day))
        return found


def _step(least: float, *, dates: bool) -> int:
    """A round distance of at least so many ticks."""
    if dates and least >= _SECOND:
        place = bisect_left(_CALENDAR, least)
        return _CALENDAR[place] if place < len(_CALENDAR) else int(-(-least // _CALENDAR[-1])) * _CALENDAR[-1]
    power = 1
    while power * 10 < least:
        power *= 10
    return next((n * power for n in (1, 2, 5) if n * power >= least), 10 * power)
