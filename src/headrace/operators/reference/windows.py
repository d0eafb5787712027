"""Grid windows by walking along them (rule 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from headrace.plan.calendar import Calendar
from headrace.plan.windows import Grid, Hopping
from headrace.time import ticks

__all__ = ["WindowSpan", "last_closed_start", "open_window_start", "windows_over"]

WindowSpan = tuple[int, int]


def windows_over(grid: Grid, le: int, re: int) -> Iterator[WindowSpan]:
    """Every window that overlaps `[le, re)`."""
    number, window = _from(grid, le)
    while le < re and window(number)[0] < re:
        start, end = window(number)
        if end > le and start < end:
            yield start, end
        number += 1


def open_window_start(grid: Grid, time: int) -> int:
    """The start of the first window that ends after `time` (rule 6.4, first row)."""
    number, window = _from(grid, time)
    while window(number)[1] <= time or _is_empty(window(number)):
        number += 1
    return window(number)[0]


def last_closed_start(grid: Grid, time: int) -> int:
    """The start of the last window that ends at or before `time`."""
    number, window = _from(grid, time)
    while window(number + 1)[1] <= time:
        number += 1
    while _is_empty(window(number)):
        number -= 1
    return window(number)[0]


def _is_empty(window: WindowSpan) -> bool:
    return window[0] == window[1]


def _from(grid: Grid, time: int) -> tuple[int, Callable[[int], WindowSpan]]:
    """A number of a window that ends at or before `time`, and what a window with a number is."""
    if isinstance(grid, Hopping):
        window = _hopping(grid)
        number = (time - grid.origin) // grid.hop
    else:
        assert isinstance(grid, Calendar)
        window = _calendar(grid)
        days = time // (86_400 * 1_000_000)
        number = (days if grid.unit == "day" else days // 31 - 1) // grid.hop
        while window(number)[0] <= time:  # from a guess to a window that begins later
            number += 1 + (time - window(number)[0]) // (32 * grid.hop * 86_400 * 1_000_000)
    while window(number)[1] > time or _is_empty(window(number)):
        number -= 1
    return number, window


def _hopping(grid: Hopping) -> Callable[[int], WindowSpan]:
    def window(number: int) -> WindowSpan:
        start = grid.origin + number * grid.hop
        return start, start + grid.size

    return window


def _calendar(grid: Calendar) -> Callable[[int], WindowSpan]:
    """Windows from the calendar and the clocks of the zone, which are asked minute by minute."""

    def begin(unit: int) -> int:
        days = grid.unit == "day"
        day = date(1970, 1, 1) + timedelta(days=unit) if days else date(1970 + unit // 12, unit % 12 + 1, 1)
        midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - a local time
        return _reached(grid.zone, midnight + timedelta(microseconds=grid.shift))

    def window(number: int) -> WindowSpan:
        first = grid.origin + number * grid.hop
        return begin(first), begin(first + grid.size)

    return window


@lru_cache(maxsize=100_000)
def _reached(zone: str, local: datetime) -> int:
    """The first instant at which the clocks of a zone show a local time, or a later one."""
    clocks = ZoneInfo(zone)
    time = local.replace(tzinfo=clocks).astimezone(UTC) - timedelta(hours=3)
    while time.astimezone(clocks).replace(tzinfo=None) >= local:  # the zone skipped a whole day
        time -= timedelta(hours=3)
    for step in (timedelta(minutes=1), timedelta(seconds=1)):
        while (time + step).astimezone(clocks).replace(tzinfo=None) < local:
            time += step
    return ticks(time + timedelta(seconds=1))
