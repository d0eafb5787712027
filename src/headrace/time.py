"""Application time: a signed 64-bit count of ticks (rules 1.1 and 1.2).

One tick, the *chronon* `h`, is one microsecond since the Unix epoch. A lifetime is `[LE, RE)`. `INFINITY` is the
largest 64-bit value and stands for "never ends"; `NEG_INFINITY`, the smallest, for "before everything". The two are
sticky: moving them by a duration leaves them where they are, and finite times that would pass them saturate.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from headrace.errors import TimeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Times = NDArray[np.int64]

__all__ = [
    "BEGINNING",
    "CHRONON",
    "INFINITY",
    "NEG_INFINITY",
    "DurationLike",
    "TimeLike",
    "add",
    "duration",
    "format_ticks",
    "ticks",
]

INFINITY = 2**63 - 1
NEG_INFINITY = -(2**63)
CHRONON = 1

TimeLike = int | datetime | str
DurationLike = int | timedelta | str

_UNITS = {
    "us": 1, "µs": 1, "microsecond": 1, "tick": 1,
    "ms": 1_000, "millisecond": 1_000,
    "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000,
    "m": 60_000_000, "min": 60_000_000, "minute": 60_000_000,
    "h": 3_600_000_000, "hour": 3_600_000_000,
    "d": 86_400_000_000, "day": 86_400_000_000,
    "w": 604_800_000_000, "week": 604_800_000_000,
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The first instant of the calendar: when the rows begin that a table has always had.
BEGINNING = -62_135_596_800_000_000
_DURATION_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-zµ]+)\s*")
#: Dates out of the range of Python's, as `format_ticks` and files show them.
_FAR_DATE = re.compile(r"(?:-\d+|\d{5,}|0000)-[-\d]+(?:[T ][\d:.]+([Zz]|[+-]\d\d:\d\d)?)?")
_ALLOWED_DURATION = "an int (ticks), a timedelta, or text such as '10 s', '5 minutes', '1 h 30 min'"
_ALLOWED_TIME = "an int (ticks), a datetime, ISO text such as '2024-05-01T12:00:00Z', or 'inf'"


def duration(value: DurationLike) -> int:
    """`value` as a count of ticks.

    >>> duration("10 s"), duration("1 h 30 min"), duration(5)
    (10000000, 5400000000, 5)
    """
    if isinstance(value, bool):
        raise TimeError("a duration cannot be a boolean", given=value, allowed=_ALLOWED_DURATION)
    if isinstance(value, (int, np.integer)):
        return _in_range(int(value), value)
    if isinstance(value, timedelta):
        return _in_range(value // timedelta(microseconds=1), value)
    if isinstance(value, str):
        return _in_range(_parse_duration(value), value)
    raise TimeError("this is not a duration", given=value, allowed=_ALLOWED_DURATION, instead="'10 s'")


def _parse_duration(text: str) -> int:
    position, total = 0, 0
    while position < len(text):
        part = _DURATION_PART.match(text, position)
        if part is None:
            break
        unit = part[2] if part[2] in _UNITS else part[2].lower()
        if unit not in _UNITS and unit.endswith("s"):
            unit = unit[:-1]
        if unit not in _UNITS:
            raise TimeError(f"unknown unit {part[2]!r}", given=text, allowed=", ".join(_UNITS), instead="'10 s'")
        whole, _, fraction = part[1].partition(".")
        total += int(whole) * _UNITS[unit]
        if fraction:
            sign = -1 if whole.startswith("-") else 1
            total += sign * (int(fraction) * _UNITS[unit] // 10 ** len(fraction))
        position = part.end()
    if position == 0 or position < len(text):
        raise TimeError("this text is not a duration", given=text, allowed=_ALLOWED_DURATION)
    return total


def ticks(value: TimeLike) -> int:
    """`value` as an instant in ticks; naive datetimes and texts are UTC.

    >>> ticks("1970-01-01T00:00:01Z"), ticks("inf") == INFINITY
    (1000000, True)
    """
    if isinstance(value, bool):
        raise TimeError("a time cannot be a boolean", given=value, allowed=_ALLOWED_TIME)
    if isinstance(value, (int, np.integer)):
        return _in_range(int(value), value)
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, str):
        return _parse_time(value.strip())
    raise TimeError("this is not a time", given=value, allowed=_ALLOWED_TIME)


def _parse_time(text: str) -> int:
    if text.lower() in {"inf", "+inf", "infinity", "∞", "+∞"}:
        return INFINITY
    if text.lower() in {"-inf", "-infinity", "-∞"}:
        return NEG_INFINITY
    if re.fullmatch(r"[+-]?\d{1,100}", text):  # int() refuses thousands of digits with an error of its own
        return _in_range(int(text), text)
    try:
        if far := _FAR_DATE.fullmatch(text):
            zone = far[1] or ""
            return int(np.datetime64(text.removesuffix(zone), "us").astype(np.int64)) - _offset(zone)
        return ticks(datetime.fromisoformat(text))
    except ValueError:
        raise TimeError("this text is not a time", given=text, allowed=_ALLOWED_TIME) from None


def _offset(zone: str) -> int:
    """The distance of a time zone from UTC, in ticks."""
    since = datetime.fromisoformat(f"1970-01-01T00:00:00{zone.upper()}").utcoffset() or timedelta()
    return since // timedelta(microseconds=1)


def _in_range(value: int, given: object) -> int:
    if not NEG_INFINITY <= value <= INFINITY:
        raise TimeError("this does not fit in 64 bits", given=given, allowed=f"{NEG_INFINITY} to {INFINITY}")
    return value


def add(times: Times, delta: int) -> Times:
    """`times + delta`, infinities sticky (an infinite delta too), finite results saturating."""
    if delta == 0:
        return times
    if delta == INFINITY:
        return np.where(times == NEG_INFINITY, times, np.int64(INFINITY))
    with np.errstate(over="ignore"):
        moved = times + np.int64(delta)
    if delta > 0:
        moved = np.where(moved < times, np.int64(INFINITY), moved)
    else:
        moved = np.where(moved > times, np.int64(NEG_INFINITY), moved)
    endless = (times == INFINITY) | (times == NEG_INFINITY)
    return np.where(endless, times, moved)


def add_one(time: int, delta: int) -> int:
    """`add` for a single time."""
    if time in (INFINITY, NEG_INFINITY):
        return time
    return INFINITY if delta == INFINITY else max(NEG_INFINITY, min(INFINITY, time + delta))


def format_ticks(value: int, *, dates: bool = False) -> str:
    """A time as text: `∞`, a plain count, or (for dates) an ISO time in UTC.

    >>> format_ticks(INFINITY), format_ticks(42), format_ticks(1_000_000, dates=True)
    ('∞', '42', '1970-01-01T00:00:01')
    """
    if value == INFINITY:
        return "∞"
    if value == NEG_INFINITY:
        return "-∞"
    if not dates:
        return str(value)
    try:
        return (_EPOCH + timedelta(microseconds=value)).replace(tzinfo=None).isoformat()
    except OverflowError:  # before year 1 or after year 9999
        return str(np.datetime64(value, "us"))


def format_duration(value: int) -> str:
    """A duration in its largest whole unit.

    >>> format_duration(10_000_000), format_duration(1_500_000), format_duration(7)
    ('10 s', '1500 ms', '7 ticks')
    """
    for unit, size in (
        ("d", _UNITS["d"]),
        ("h", _UNITS["h"]),
        ("min", _UNITS["min"]),
        ("s", _UNITS["s"]),
        ("ms", 1000),
    ):
        if value and value % size == 0:
            return f"{value // size} {unit}"
    return f"{value} ticks"
