"""Parts of a DATETIME, in UTC and the proleptic Gregorian calendar.

Ticks are divided by NumPy's calendar, which covers all 64 bits; Arrow's own kernels end at the year 32767.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.expr.arrow.columns import Datum, Kernel, from_numpy, null_where, to_numpy, valid
from headrace.expr.arrow.numbers import NUMBERS
from headrace.schema import Type

__all__ = ["DATES", "DAY", "FIRST_DAY", "LAST_TICK", "ticks_of"]

_SECOND = 1_000_000
DAY = 86_400 * _SECOND
_SIZES = {"second": _SECOND, "minute": 60 * _SECOND, "hour": 3_600 * _SECOND, "day": DAY}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}

# The DATETIMEs that have a text, and that a LONG can be cast to: the years 1 to 9999.
FIRST_DAY = -62_135_596_800 * _SECOND
LAST_TICK = 253_402_300_800 * _SECOND - 1


def ticks_of(times: Datum) -> NDArray[np.int64]:
    """A column of DATETIME as ticks, zero where NULL."""
    return to_numpy(times.cast(pa.int64())).astype(np.int64, copy=False)


def _part(of: Kernel) -> Kernel:
    return lambda times: from_numpy(of(ticks_of(times)).astype(np.int32), valid(times), pa.int32())


def _days(ticks: NDArray[np.int64]) -> NDArray[np.datetime64]:
    return (ticks // DAY).astype("datetime64[D]")


def _months(ticks: NDArray[np.int64]) -> NDArray[np.int64]:
    return _days(ticks).astype("datetime64[M]").astype(np.int64)


def _first_days(months: NDArray[np.int64]) -> NDArray[np.int64]:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _day(ticks: NDArray[np.int64]) -> NDArray[np.int64]:
    return ticks // DAY - _first_days(_months(ticks)) + 1


def _day_of_week(ticks: NDArray[np.int64]) -> NDArray[np.int64]:
    return (ticks // DAY + 3) % 7 + 1  # 1970 began on a Thursday


def _day_of_year(ticks: NDArray[np.int64]) -> NDArray[np.int64]:
    months = _months(ticks)
    return ticks // DAY - _first_days(months - months % 12) + 1


def epoch(times: Datum) -> Datum:
    """Whole seconds since 1970, rounded down."""
    return from_numpy(ticks_of(times) // _SECOND, valid(times), pa.int64())


def time_diff(later: Datum, earlier: Datum) -> Datum:
    return NUMBERS["subtract"](later.cast(pa.int64()), earlier.cast(pa.int64()))


def shift_time(times: Datum, ticks: Datum) -> Datum:
    moved = NUMBERS["add"](times.cast(pa.int64()), ticks)
    outside = pc.or_(pc.less(moved, FIRST_DAY), pc.greater(moved, LAST_TICK))
    return null_where(outside, moved).cast(Type.DATETIME.arrow)


def _days_of(dates: Datum) -> Datum:
    """Days since 1970; a scalar stays one."""
    return pc.cast(pc.cast(dates, pa.int32()), pa.int64())


def shift_date(dates: Datum, days: Datum) -> Datum:
    moved = NUMBERS["add"](_days_of(dates), days)
    outside = pc.or_(pc.less(moved, FIRST_DAY // DAY), pc.greater(moved, LAST_TICK // DAY))
    return pc.cast(pc.cast(null_where(outside, moved), pa.int32()), pa.date32())


def days_between(later: Datum, earlier: Datum) -> Datum:
    return pc.cast(pc.subtract(_days_of(later), _days_of(earlier)), pa.int32())


def shift_months(times: Datum, count: Datum) -> Datum:
    """Moved to the same day of another month, or to that month's last day."""
    kind = times.type
    ticks = ticks_of(pc.cast(times, Type.DATETIME.arrow))
    months = _months(ticks) + count.as_py()
    first = _first_days(months)
    day = np.minimum(_day(ticks), _first_days(months + 1) - first)
    moved = (first + day - 1) * DAY + ticks % DAY
    inside, mask = (moved >= FIRST_DAY) & (moved <= LAST_TICK), valid(times)
    column = from_numpy(moved, inside if mask is None else inside & mask, pa.int64()).cast(Type.DATETIME.arrow)
    return pc.cast(column, kind)


def date_trunc(times: Datum, unit: Datum) -> Datum:
    ticks, name = ticks_of(times), unit.as_py()
    if name in _SIZES:
        start = ticks - ticks % _SIZES[name]
    elif name == "week":
        start = (ticks // DAY - (_day_of_week(ticks) - 1)) * DAY
    else:
        months = _months(ticks)
        start = _first_days(months - months % _MONTHS[name]) * DAY
    return from_numpy(start, valid(times), pa.int64()).cast(Type.DATETIME.arrow)


DATES: dict[str, Kernel] = {
    "year": _part(lambda ticks: _months(ticks) // 12 + 1970),
    "month": _part(lambda ticks: _months(ticks) % 12 + 1),
    "day": _part(_day),
    "hour": _part(lambda ticks: ticks % DAY // _SIZES["hour"]),
    "minute": _part(lambda ticks: ticks % _SIZES["hour"] // _SIZES["minute"]),
    "second": _part(lambda ticks: ticks % _SIZES["minute"] // _SECOND),
    "day_of_week": _part(_day_of_week),
    "day_of_year": _part(_day_of_year),
    "epoch": epoch,
    "time_diff": time_diff,
    "shift_time": shift_time,
    "shift_date": shift_date,
    "shift_months": shift_months,
    "days_between": days_between,
    "date_trunc": date_trunc,
}
