"""Windows of the calendar: days, weeks, months, quarters and years of a time zone (rule 5.1).

A calendar has two kinds of *units*, days and months; a week is 7 days, a quarter 3 months and a year 12. Unit u begins
at the first instant at which the clocks of the zone show its first date, or a later one. So a day may have 23 or 25
hours, a month may be an hour short, and units never overlap, even if clocks are set back past midnight. Windows are
then hopping windows on the axis of units: window j is `[unit o + jH, unit o + jH + S)`.

A zone may leave out a whole day (Samoa had no 30 December 2011). A window that would be empty is none: the numbers of
windows go on as if it were not there.

**Rules of zones.** `ZoneRules` has the changes of a zone's offset from 1850 to 2200, read from the time zone database
of the machine that plans the query; outside of these years the nearest offset holds. The rules are a part of the plan,
so all machines use the same ones, and a checkpoint is refused if they have changed since (`Calendar.mark`).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from headrace.columnar import Int64s
from headrace.errors import PlanError
from headrace.plan.windows import ENDLESS, LIMIT, Grid, even_runs
from headrace.time import INFINITY, ticks

__all__ = ["Calendar", "CalendarSpan", "ZoneRules", "calendar", "calendar_span", "zone_rules"]

DAY = 86_400_000_000
_FIRST_YEAR, _LAST_YEAR = 1850, 2200
_SECOND = 1_000_000
#: The number of the first Monday after the start of 1970, as a unit of days.
_MONDAY = 4

Unit = Literal["day", "month"]
_UNITS: dict[str, tuple[Unit, int]] = {
    "d": ("day", 1), "day": ("day", 1), "w": ("day", 7), "week": ("day", 7),
    "month": ("month", 1), "quarter": ("month", 3), "year": ("month", 12),
}  # fmt: skip
_SPAN = re.compile(r"\s*(\d+)\s*(d|day|w|week|month|quarter|year)s?\s*", re.IGNORECASE)
_NAMES = {"day": ((7, "week"), (1, "day")), "month": ((12, "year"), (3, "quarter"), (1, "month"))}


@dataclass(frozen=True)
class ZoneRules:
    """The offsets of a zone's clocks from UTC, in ticks, and the times of their changes: one fewer."""

    changes: tuple[int, ...]
    offsets: tuple[int, ...]


@lru_cache(maxsize=64)
def zone_rules(name: str) -> ZoneRules:
    """The rules of a zone of the time zone database."""
    try:
        zone = ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise PlanError(
            "there is no such time zone",
            given=name,
            allowed="a name of the time zone database",
            instead="zone='Europe/Berlin' (without a database on the machine: pip install tzdata)",
        ) from error
    changes: list[int] = []
    time, end = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (_FIRST_YEAR, _LAST_YEAR))
    offsets = [_offset(zone, time)]
    while time < end:
        later = time + 86_400
        while _offset(zone, later) != offsets[-1]:
            time = _change(zone, time, later)
            changes.append(time)
            offsets.append(_offset(zone, time))
        time = later
    return ZoneRules(tuple(t * _SECOND for t in changes), tuple(o * _SECOND for o in offsets))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _offset(zone: ZoneInfo, second: int) -> int:
    offset = (_EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _change(zone: ZoneInfo, low: int, high: int) -> int:
    """The second between two at which the offset is first another than at `low`."""
    before = _offset(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True)
class Calendar(Grid):
    """Windows of `size` units of a zone's calendar, one every `hop` units.

    One window begins with unit `origin`; units of 1970-01-01 have number 0. `shift` is how much later than midnight,
    and for months than the first of the month, units begin.
    """

    unit: Unit
    size: int
    hop: int
    origin: int = 0
    shift: int = 0
    zone: str = "UTC"
    rules: ZoneRules = ZoneRules((), (0,))

    def __post_init__(self) -> None:
        for name, value in (("size", self.size), ("hop", self.hop)):
            if not 0 < value < 120_000:
                raise PlanError(
                    f"a calendar window's {name} must be positive, and less than 10 000 years",
                    given=f"{value} {self.unit}s",
                    instead="hopping('3 months', every='1 month')",
                )
        if not 0 <= self.shift < (DAY if self.unit == "day" else 28 * DAY):
            raise PlanError(
                "a calendar window begins on one of the days 1 to 28, which every month has",
                given=f"{self.shift // DAY + 1}",
                instead="origin='2024-01-28'",
            )

    @property
    def overlap(self) -> int:
        return -(-self.size // self.hop)

    # --- units -------------------------------------------------------------------------------------------------------

    @cached_property
    def _segments(self) -> tuple[Int64s, Int64s, Int64s]:
        """Segments of one offset: their starts, their offsets, and the latest date before each one's end."""
        changes = np.array(self.rules.changes, np.int64)
        offsets = np.array(self.rules.offsets, np.int64) - self.shift
        dates = np.maximum.accumulate((changes - 1 + offsets[:-1]) // DAY)
        return np.r_[np.int64(-4 * LIMIT), changes], offsets, np.r_[dates, np.int64(LIMIT)]

    def units(self, times: Int64s) -> Int64s:
        """The number of the unit of each time."""
        starts, offsets, dates = self._segments
        times = np.clip(times, 1 - LIMIT, LIMIT - 1)
        if len(starts) == 1:
            days = (times + offsets[0]) // DAY
        else:
            segment = np.searchsorted(starts, times, "right") - 1
            # Where clocks are set back past midnight, the date before does not come again.
            before = np.r_[np.int64(-LIMIT), dates[:-1]][segment]
            days = np.maximum((times + offsets[segment]) // DAY, before)
        return days if self.unit == "day" else _converted(days, "D", "M")

    def starts(self, units: Int64s) -> Int64s:
        """The start of each unit."""
        starts, offsets, dates = self._segments
        units = np.clip(units, -(LIMIT // DAY), LIMIT // DAY)
        days = units if self.unit == "day" else _converted(units, "M", "D")
        days = np.clip(days, -(LIMIT // DAY), LIMIT // DAY)
        segment = np.searchsorted(dates, days, "left")
        found: Int64s = np.maximum(starts[segment], days * DAY - offsets[segment])
        return found

    @cached_property
    def _empty(self) -> Int64s:
        """The windows that would be empty: the dates that clocks pass over when they are set forward, if any."""
        starts, offsets, dates = self._segments
        after = (starts[1:] + offsets[1:]) // DAY
        gaps = [np.arange(low + 1, high) for low, high in zip(dates[:-1], after, strict=True) if high - low > 1]
        if self.unit == "month" or not gaps:
            return np.empty(0, np.int64)
        windows = np.unique((np.concatenate(gaps) - self.origin) // self.hop)
        first = self.origin + windows * self.hop
        empty: Int64s = windows[self.starts(first) == self.starts(first + self.size)]
        return empty

    # --- windows -----------------------------------------------------------------------------------------------------

    def runs(self, le: Int64s, re: Int64s) -> tuple[Int64s, Int64s | int]:
        endless = re == INFINITY
        until = np.where(endless, INFINITY, self.units(np.where(endless, le, re - 1)) + 1)
        first, later = even_runs(self.units(le), until, self.size, self.hop, self.origin)
        empty = self._empty
        if not len(empty):
            return first, later
        last = first + later
        beyond = np.where(endless, ENDLESS, 0)
        last -= np.searchsorted(empty, last - beyond, "right")
        first = first - np.searchsorted(empty, first, "left")
        return first, last - first

    def _unit(self, k: Int64s) -> Int64s:
        """The number of the unit with which each window begins."""
        empty = self._empty
        if len(empty):
            k = k + np.searchsorted(empty - np.arange(len(empty)), k, "right")
        return self.origin + k * self.hop

    def start(self, k: Int64s) -> Int64s:
        return self.starts(self._unit(np.clip(k, -LIMIT // self.hop, LIMIT // self.hop)))

    def end(self, k: Int64s) -> Int64s:
        endless = k >= ENDLESS // 2
        ends = self.starts(self._unit(np.clip(k, -LIMIT // self.hop, LIMIT // self.hop)) + self.size)
        return np.where(endless, INFINITY, ends)

    def closed(self, time: int) -> int:
        return self._at(time, self.size)

    def begun(self, time: int) -> int:
        return self._at(time, 0)

    def _at(self, time: int, later: int) -> int:
        """The last window that, at a time, began at least so many units before."""
        time = max(-LIMIT, min(LIMIT, time))
        unit = int(self.units(np.array([time], np.int64))[0])
        number = (unit - self.origin - later) // self.hop
        return number - int(np.searchsorted(self._empty, number, "right"))

    # --- texts -------------------------------------------------------------------------------------------------------

    @property
    def delay(self) -> str:
        return f"up to {self._span(self.size)}"

    @property
    def mark(self) -> str:
        """A short text that changes with the rules of the zone."""
        rules = f"{self.rules.changes} {self.rules.offsets}"
        return f"zone {self.zone} {hashlib.sha256(rules.encode()).hexdigest()[:12]}"

    @property
    def anchor(self) -> datetime | None:
        """The local time from which windows are counted; None if it is the usual one."""
        if (self.origin, self.shift) == (_usual_origin(self.unit, self.size, self.hop), 0):
            return None
        units = np.array([self.origin], np.int64)
        day = int((units if self.unit == "day" else _converted(units, "M", "D"))[0])
        return datetime(1970, 1, 1) + timedelta(days=day, microseconds=self.shift)  # noqa: DTZ001 - a local time

    def _span(self, units: int) -> str:
        many, name = next((n, name) for n, name in _NAMES[self.unit] if units % n == 0)
        return f"{units // many} {name}{'s' if units > many else ''}"

    @property
    def spans(self) -> tuple[str, str]:
        """The size and the hop, as text."""
        return self._span(self.size), self._span(self.hop)

    def __str__(self) -> str:
        origin = "" if self.anchor is None else f", origin={self.anchor.isoformat()}"
        size, hop = self.spans
        every = "" if size == hop else f", every={hop}"
        return f"{'hopping' if every else 'tumbling'}({size}{every}, zone={self.zone}{origin})"


def _converted(units: Int64s, unit: str, to: str) -> Int64s:
    """Numbers of days (D) as those of months (M), or months as their first days."""
    found: Int64s = np.ascontiguousarray(units).view(f"M8[{unit}]").astype(f"M8[{to}]").view(np.int64)
    return found


def _usual_origin(unit: Unit, size: int, hop: int) -> int:
    return _MONDAY if unit == "day" and size % 7 == hop % 7 == 0 else 0


class CalendarSpan(NamedTuple):
    """A number of days or months."""

    unit: Unit
    many: int


def calendar_span(value: object) -> CalendarSpan | None:
    """The span that a size or hop names: text with one of the calendar's units, or a timedelta of days; else None."""
    if isinstance(value, timedelta):
        return CalendarSpan("day", value.days) if value == timedelta(days=value.days) else None
    found = _SPAN.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    unit, many = _UNITS[found[2].lower()]
    return CalendarSpan(unit, int(found[1]) * many)


def calendar(size: CalendarSpan, hop: CalendarSpan, zone: str, origin: datetime | None) -> Calendar:
    """Calendar windows, counted from a local time, or as usual: weeks from Mondays, the others from 1970."""
    unit, hops = size.unit, hop.many
    usual = _usual_origin(unit, size.many, hops)
    window = Calendar(unit, size.many, hops, usual, zone=zone, rules=zone_rules(zone))
    if origin is None:
        return window
    number, shift = divmod(ticks(origin.replace(tzinfo=UTC)), DAY)
    if unit == "month":
        month = _converted(np.array([number], np.int64), "D", "M")
        shift += (number - int(_converted(month, "M", "D")[0])) * DAY
        number = int(month[0])
    # The same windows have the same origin, and so the same numbers.
    return replace(window, origin=window.origin + (number - window.origin) % hops, shift=shift)
