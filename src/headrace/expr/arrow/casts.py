"""Casts: a value as another type, NULL where it has no counterpart.

Widening between numbers is a cast too. Decimals are truncated toward zero. A text is matched before it is parsed, so
that Arrow's parsers never get one that they would refuse.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.expr.arrow.columns import Datum, from_numpy, null_where, to_numpy, valid
from headrace.expr.arrow.dates import DAY, FIRST_DAY, LAST_TICK
from headrace.expr.arrow.decimals import fitted, from_floats, from_texts, to_floats, to_texts
from headrace.expr.literals import DATETIME_PARTS, TRUTHS, text_pattern
from headrace.expr.signatures import widens
from headrace.schema import Type

__all__ = ["cast"]

_MINUTE = 60_000_000
_SPANS = (Type.TIME, Type.INTERVAL)


def cast(datum: Datum, source: Type, target: Type) -> Datum:
    """`datum` of `source` as `target`."""
    if source.is_text:
        return _from_text(datum, target)
    if target.is_text:
        return _to_text(datum, source)
    if source in _SPANS or target in (*_SPANS, Type.DATE):
        return _span_cast(datum, target)
    if target.is_decimal:
        return _to_decimal(datum, source, target.arrow)
    if source.is_decimal and target != Type.BOOLEAN:
        return _to_floating(to_floats(datum), target) if target.is_floating else _whole_decimals(datum, target)
    if source is Type.DATE:
        return pc.cast(datum, Type.DATETIME.arrow)
    if Type.DATETIME in (source, target):
        return datum.cast(pa.int64()) if source == Type.DATETIME else _to_datetime(datum)
    if target == Type.BOOLEAN:
        return pc.not_equal(datum, pa.scalar(0, datum.type))
    if target.is_floating:
        return _to_floating(datum, target)
    return _to_integer(datum, source, target)


def _span_cast(datum: Datum, target: Type) -> Datum:
    """A DATETIME as a DATE, or between ticks and TIME or INTERVAL; a day has no ticks beyond its end."""
    if target is not Type.TIME:
        return pc.cast(datum, target.arrow)
    outside = pc.or_(pc.less(datum, 0), pc.greater_equal(datum, DAY))
    return null_where(outside, datum).cast(target.arrow)


def _to_decimal(datum: Datum, source: Type, kind: pa.DataType) -> Datum:
    if source.is_decimal:
        return fitted(datum, kind)
    if source.is_floating:
        return from_floats(datum, kind)
    whole = pc.cast(datum, pa.int64())
    return fitted(pc.cast(whole, pa.decimal128(Type.LONG.precision, 0)), kind)


def _whole_decimals(datum: Datum, target: Type) -> Datum:
    """Decimals as whole numbers, cut off at the point."""
    cut = pc.trunc(datum)
    return _in_range(pc.cast(cut, pa.decimal128(38, 0)), target)


def _in_range(whole: Datum, target: Type) -> Datum:
    """Decimals without decimals as integers, NULL where they do not fit."""
    limits = np.iinfo(target.arrow.to_pandas_dtype())
    low, high = (pa.scalar(int(limit), pa.int64()).cast(pa.decimal128(38, 0)) for limit in (limits.min, limits.max))
    outside = pc.or_(pc.less(whole, low), pc.greater(whole, high))
    return null_where(outside, whole).cast(target.arrow)


def _to_floating(datum: Datum, target: Type) -> Datum:
    return pc.cast(datum, target.arrow, safe=False)  # rounds; too large values become infinite


def _to_integer(datum: Datum, source: Type, target: Type) -> Datum:
    if source == Type.BOOLEAN or widens(source, target):
        return datum.cast(target.arrow)
    limits, mask = np.iinfo(target.arrow.to_pandas_dtype()), valid(datum)
    values = to_numpy(datum)
    if source.is_floating:
        # 2**63 - 1 is not a double; compare with the first double that is out of range.
        values = np.trunc(values.astype(np.float64))
        fits = (values >= float(limits.min)) & (values < float(limits.max + 1))
    else:
        fits = (values >= limits.min) & (values <= limits.max)
    clean = np.where(fits, values, 0).astype(limits.dtype)
    return from_numpy(clean, fits if mask is None else fits & mask, target.arrow)


def _to_datetime(datum: Datum) -> Datum:
    ticks = datum.cast(pa.int64())
    outside = pc.or_(pc.less(ticks, FIRST_DAY), pc.greater(ticks, LAST_TICK))
    return null_where(outside, ticks).cast(Type.DATETIME.arrow)


def _to_text(datum: Datum, source: Type) -> Datum:
    if source.is_decimal:
        return to_texts(datum)
    if source != Type.DATETIME:
        return datum.cast(pa.string())
    inside = _to_datetime(datum)
    return pc.strftime(inside, format="%Y-%m-%dT%H:%M:%SZ")  # Arrow's %S has the decimals


def _from_text(datum: Datum, target: Type) -> Datum:
    fits = pc.match_substring_regex(datum, text_pattern(target))
    text = pc.utf8_trim(pc.if_else(fits, datum, pa.scalar(None, pa.string())), " ")
    if target in (Type.DATETIME, Type.DATE):
        return pc.cast(_read_datetime(text), target.arrow)
    if target.is_decimal:
        return from_texts(text, target.arrow)
    if target == Type.BOOLEAN:
        found = pc.is_in(pc.utf8_lower(text), value_set=pa.array(TRUTHS))
        return pc.if_else(pc.is_null(text), pa.scalar(None, pa.bool_()), found)
    if target.is_floating:
        return _to_floating(_unsigned(text).cast(pa.float64()), target)
    return _read_integer(text, target)


def _unsigned(text: Datum) -> Datum:
    """Without a leading plus, which Arrow does not read."""
    return pc.utf8_ltrim(text, "+")


def _read_integer(text: Datum, target: Type) -> Datum:
    digits = pc.replace_substring_regex(_unsigned(text), r"^(-?)0+([0-9])", r"\1\2")
    short = null_where(pc.greater(pc.utf8_length(digits), 20), digits)
    return _in_range(short.cast(pa.decimal128(38, 0)), target)


def _read_datetime(text: Datum) -> Datum:
    parts = pc.extract_regex(text, DATETIME_PARTS)
    date = pc.struct_field(parts, "date")
    # Arrow refuses an entire column for one 30 February: parse the month's first day and add days.
    month = pc.binary_join_element_wise(pc.utf8_slice_codeunits(date, 0, 7), "-01", "")
    first = to_numpy(month.cast(pa.date32()).cast(pa.int32())).astype("datetime64[D]")
    day = to_numpy(pc.utf8_slice_codeunits(date, 8, 10).cast(pa.int64()))
    days = first.astype(np.int64) + day - 1
    real = days.astype("datetime64[D]").astype("datetime64[M]") == first.astype("datetime64[M]")
    ticks = days * (1440 * _MINUTE) + _time(parts) - _offset(parts)
    mask = valid(date)
    return from_numpy(ticks, real if mask is None else real & mask, pa.int64()).cast(Type.DATETIME.arrow)


def _number(parts: Datum, name: str, start: int = 0, stop: int = 9) -> NDArray[np.int64]:
    """Some digits of a part as a number, zero where there are none."""
    digits = pc.utf8_slice_codeunits(pc.struct_field(parts, name), start, stop)
    return to_numpy(null_where(pc.equal(pc.utf8_length(digits), 0), digits).cast(pa.int64()))


def _time(parts: Datum) -> NDArray[np.int64]:
    """The time of day in ticks."""
    minutes = _number(parts, "time", 0, 2) * 60 + _number(parts, "time", 3, 5)
    fraction = pc.struct_field(parts, "fraction")
    micros = to_numpy(null_where(pc.equal(fraction, ""), pc.utf8_rpad(fraction, 6, "0")).cast(pa.int64()))
    ticks: NDArray[np.int64] = minutes * _MINUTE + _number(parts, "seconds") * 1_000_000 + micros
    return ticks


def _offset(parts: Datum) -> NDArray[np.int64]:
    """The offset of the zone from UTC, in ticks."""
    zone = pc.struct_field(parts, "zone")
    east = to_numpy(pc.starts_with(zone, "+")).astype(np.int64) - to_numpy(pc.starts_with(zone, "-")).astype(np.int64)
    return east * (_number(parts, "zone", 1, 3) * 60 + _number(parts, "zone", 4, 6)) * _MINUTE
