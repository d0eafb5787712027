"""Columns of rows as clients see them: the type of PostgreSQL of each, and values in text and binary form.

| Headrace | PostgreSQL |
|---|---|
| BOOLEAN | bool |
| BYTE, SHORT; INT; LONG | int2; int4; int8 |
| FLOAT, DOUBLE | float4, float8 |
| DECIMAL(p,s) | numeric(p,s) |
| STRING, CHAR | text |
| DATETIME, DATE, TIME, INTERVAL | timestamptz, date, time, interval |
| lists, structs | json |

A whole column is converted at once. Values are made of integers where Python's dates would end at the year 9999.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.literals import format_date, format_interval

__all__ = ["WireColumn", "encoded", "numeric_bytes", "wire_columns"]

#: Microseconds and days from 1970 to 2000, where PostgreSQL counts from.
_EPOCH, _EPOCH_DAYS = 946_684_800_000_000, 10_957
_Value = bytes | None


@dataclass(frozen=True)
class WireColumn:
    """A column's name, and its type as RowDescription gives it."""

    name: str
    oid: int
    #: The bytes of a value, -1 if they vary.
    size: int = -1
    #: The precision and scale of a numeric, else -1.
    modifier: int = -1


@dataclass(frozen=True)
class _Kind:
    """How values of an Arrow type travel."""

    oid: int
    size: int
    text: Callable[[pa.ChunkedArray], list[_Value]]
    binary: Callable[[pa.ChunkedArray], list[_Value]]


def wire_columns(schema: pa.Schema) -> list[WireColumn]:
    """The columns of a schema."""
    return [_column(field.name, field.type) for field in schema]


def _column(name: str, kind: pa.DataType) -> WireColumn:
    found = _kind(kind)
    modifier = -1
    if pa.types.is_decimal(kind):
        modifier = ((kind.precision << 16) | kind.scale) + 4
    return WireColumn(name, found.oid, found.size, modifier)


def encoded(rows: pa.Table, formats: Sequence[int]) -> Iterable[tuple[_Value, ...]]:
    """The values of rows, row by row; 0 is a column in text, 1 one in binary."""
    if not rows.num_columns:
        return [()] * rows.num_rows
    columns = []
    for column, form in zip(rows.columns, formats, strict=True):
        kind = _kind(column.type)
        columns.append(kind.binary(column) if form else kind.text(column))
    return zip(*columns, strict=True)


def _kind(kind: pa.DataType) -> _Kind:
    return next((found for test, found in _KINDS if test(kind)), _JSON)


def _each(convert: Callable[[Any], bytes]) -> Callable[[pa.ChunkedArray], list[_Value]]:
    def column(values: pa.ChunkedArray) -> list[_Value]:
        return [None if value is None else convert(value) for value in values.to_pylist()]

    return column


def _packed(form: str) -> Callable[[pa.ChunkedArray], list[_Value]]:
    return _each(struct.Struct(form).pack)


def _as_ints(values: pa.ChunkedArray, kind: pa.DataType) -> list[int | None]:
    found: list[int | None] = values.cast(kind, safe=False).cast(pa.int64()).to_pylist()
    return found


def _float_text(value: float) -> bytes:
    if math.isnan(value):
        return b"NaN"
    if math.isinf(value):
        return b"Infinity" if value > 0 else b"-Infinity"
    return repr(value).removesuffix(".0").encode()


def _single_text(value: float) -> bytes:
    return _float_text(value) if not math.isfinite(value) else str(np.float32(value)).removesuffix(".0").encode()


def _timestamps(values: pa.ChunkedArray) -> list[int | None]:
    return _as_ints(values, pa.timestamp("us", values.type.tz))


def _timestamp_text(zone: bytes) -> Callable[[pa.ChunkedArray], list[_Value]]:
    def column(values: pa.ChunkedArray) -> list[_Value]:
        return [None if ticks is None else _instant(ticks, zone) for ticks in _timestamps(values)]

    return column


def _instant(ticks: int, zone: bytes) -> bytes:
    day, rest = divmod(ticks, 86_400_000_000)
    written, before = _day(day)
    return written + b" " + _clock(rest) + zone + before


def _day(day: int) -> tuple[bytes, bytes]:
    """A day as text, and what is behind the time if it is before the year 1."""
    text = str(np.datetime64(day, "D"))
    year, month, rest = text.rsplit("-", 2)
    if int(year) > 0:
        return f"{int(year):04d}-{month}-{rest}".encode(), b""
    return f"{1 - int(year):04d}-{month}-{rest}".encode(), b" BC"


def _clock(ticks: int) -> bytes:
    seconds, parts = divmod(ticks, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return (text + f".{parts:06d}".rstrip("0") if parts else text).encode()


def _timestamp_binary(values: pa.ChunkedArray) -> list[_Value]:
    # The ends of int64 mean never, as they do in PostgreSQL.
    least = -(1 << 63)
    return [None if ticks is None else struct.pack("!q", max(ticks - _EPOCH, least)) for ticks in _timestamps(values)]


def _days(values: pa.ChunkedArray) -> list[int | None]:
    found: list[int | None] = values.cast(pa.date32()).cast(pa.int32()).to_pylist()
    return found


def _date_text(values: pa.ChunkedArray) -> list[_Value]:
    return [None if day is None else b"".join(_day(day)) for day in _days(values)]


def _date_binary(values: pa.ChunkedArray) -> list[_Value]:
    return [None if day is None else struct.pack("!i", day - _EPOCH_DAYS) for day in _days(values)]


def _times(values: pa.ChunkedArray) -> list[int | None]:
    return _as_ints(values, pa.time64("us"))


def _time_text(values: pa.ChunkedArray) -> list[_Value]:
    return [None if ticks is None else _clock(ticks) for ticks in _times(values)]


def _time_binary(values: pa.ChunkedArray) -> list[_Value]:
    return [None if ticks is None else struct.pack("!q", ticks) for ticks in _times(values)]


def _spans(values: pa.ChunkedArray) -> list[int | None]:
    return _as_ints(values, pa.duration("us"))


def _interval_text(values: pa.ChunkedArray) -> list[_Value]:
    spans = _spans(values)
    return [None if ticks is None else _span(ticks) for ticks in spans]


def _span(ticks: int) -> bytes:
    return (b"-" if ticks < 0 else b"") + _clock(abs(ticks))


def _interval_binary(values: pa.ChunkedArray) -> list[_Value]:
    return [None if ticks is None else struct.pack("!qii", ticks, 0, 0) for ticks in _spans(values)]


def numeric_bytes(value: Decimal) -> bytes:
    """A number in groups of four decimal digits, as PostgreSQL sends it."""
    if not value.is_finite():
        return struct.pack("!hhHh", 0, 0, 0xC000 if value.is_nan() else 0xD000 if value > 0 else 0xF000, 0)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    text = ("".join(map(str, digits)) + "0" * max(0, exponent)).rjust(scale, "0")
    # Before and behind the point, whole groups of four.
    whole, part = text[: len(text) - scale], text[len(text) - scale :]
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    part = part.ljust(-(-len(part) // 4) * 4, "0")
    groups = [int((whole + part)[place : place + 4]) for place in range(0, len(whole) + len(part), 4)]
    weight = len(whole) // 4 - 1
    while groups and groups[0] == 0:
        groups.pop(0)
        weight -= 1
    while groups and groups[-1] == 0:
        groups.pop()
    weight = weight if groups else 0
    return struct.pack(f"!hhHh{len(groups)}h", len(groups), weight, 0x4000 if sign and groups else 0, scale, *groups)


def _number_text(value: Decimal | int) -> bytes:
    return format(value, "f").encode() if isinstance(value, Decimal) else str(value).encode()


def _plain(value: object) -> object:
    """A value inside JSON that JSON has no form for."""
    if isinstance(value, datetime):
        return format_date(value)
    if isinstance(value, timedelta):
        return format_interval(value)
    if isinstance(value, (date, time, Decimal)):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"no JSON for {type(value).__name__}")


def _finite(value: Any) -> Any:
    """A value without the floats that JSON does not have: they are texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return _float_text(value).decode()
    if isinstance(value, list):
        return [_finite(part) for part in value]
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return value


def _json(value: object) -> bytes:
    return json.dumps(_finite(value), default=_plain, ensure_ascii=False).encode(errors="replace")


def _utf8(value: str) -> bytes:
    return value.encode(errors="replace")


_is = pa.types
_INT = _each(lambda value: str(value).encode())
_TEXT = _Kind(25, -1, _each(_utf8), _each(_utf8))
_JSON = _Kind(114, -1, _each(_json), _each(_json))
_NUMERIC = _Kind(1700, -1, _each(_number_text), _each(lambda value: numeric_bytes(Decimal(value))))
_KINDS: Sequence[tuple[Callable[[pa.DataType], bool], _Kind]] = (
    (_is.is_boolean, _Kind(16, 1, _each(lambda value: b"t" if value else b"f"), _packed("!?"))),
    (lambda t: t in (pa.int8(), pa.uint8(), pa.int16()), _Kind(21, 2, _INT, _packed("!h"))),
    (lambda t: t in (pa.uint16(), pa.int32()), _Kind(23, 4, _INT, _packed("!i"))),
    (lambda t: t in (pa.uint32(), pa.int64()), _Kind(20, 8, _INT, _packed("!q"))),
    (lambda t: t in (pa.float16(), pa.float32()), _Kind(700, 4, _each(_single_text), _packed("!f"))),
    (lambda t: t == pa.float64(), _Kind(701, 8, _each(_float_text), _packed("!d"))),
    (lambda t: _is.is_decimal(t) or t == pa.uint64(), _NUMERIC),
    (lambda t: _is.is_string(t) or _is.is_large_string(t) or _is.is_string_view(t) or _is.is_null(t), _TEXT),
    (lambda t: _is.is_timestamp(t) and t.tz, _Kind(1184, 8, _timestamp_text(b"+00"), _timestamp_binary)),
    (_is.is_timestamp, _Kind(1114, 8, _timestamp_text(b""), _timestamp_binary)),
    (_is.is_date, _Kind(1082, 4, _date_text, _date_binary)),
    (_is.is_time, _Kind(1083, 8, _time_text, _time_binary)),
    (_is.is_duration, _Kind(1186, 16, _interval_text, _interval_binary)),
    (
        lambda t: _is.is_binary(t) or _is.is_large_binary(t),
        _Kind(17, -1, _each(lambda value: b"\\x" + value.hex().encode()), _each(bytes)),
    ),
)  # fmt: skip
