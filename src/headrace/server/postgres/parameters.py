"""Values of parameters, in text and binary form, as literals of Headrace SQL.

A value never becomes a part of the statement's text as it was sent: it is read as a value of its type, and written as a
literal. A type that the client does not give is text.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from headrace.errors import ServerError
from headrace.literals import format_date, format_interval

__all__ = ["PARAMETER_NAMES", "ParameterError", "bound_literals", "literal", "parameter_literal"]

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_INTERVAL = re.compile(
    r"\s*(?:(?P<days>[+-]?\d+)\s*days?)?\s*"
    r"(?:(?P<sign>[+-])?(?P<h>\d+):(?P<m>\d\d):(?P<s>\d\d(?:\.\d{1,6})?))?\s*"
)
_NAME_OF = {
    16: "bool", 17: "bytea", 18: "char", 19: "name", 20: "int8", 21: "int2", 23: "int4", 25: "text", 26: "oid",
    114: "json", 700: "float4", 701: "float8", 705: "unknown", 1042: "bpchar", 1043: "varchar", 1082: "date",
    1083: "time", 1114: "timestamp", 1184: "timestamptz", 1186: "interval", 1700: "numeric", 2950: "uuid",
    3802: "jsonb",
}  # fmt: skip
#: The types of lists, and of their elements.
_ELEMENTS = {
    1000: 16, 1005: 21, 1007: 23, 1016: 20, 1009: 25, 1015: 1043, 1014: 1042, 1021: 700, 1022: 701, 1231: 1700,
    1182: 1082, 1115: 1114, 1185: 1184, 1003: 19, 1028: 26, 1002: 18,
}  # fmt: skip
#: Types of parameters by their numbers, for messages.
PARAMETER_NAMES: Mapping[int, str] = _NAME_OF | {oid: f"{_NAME_OF[element]}[]" for oid, element in _ELEMENTS.items()}


class ParameterError(ServerError):
    """A value of a parameter that cannot be read."""

    code = "PARAMETER"


def bound_literals(types: Sequence[int], formats: Sequence[int], values: Sequence[bytes | None]) -> list[str]:
    """The values of a Bind message as literals."""
    if len(formats) not in (0, 1, len(values)):
        raise ParameterError("the formats do not fit the values", given=len(formats), allowed=f"0, 1 or {len(values)}")
    each = list(formats) * len(values) if len(formats) == 1 else list(formats) or [0] * len(values)
    oids = [*types, *([0] * (len(values) - len(types)))]
    return [
        parameter_literal(oid, form, value, number)
        for number, (oid, form, value) in enumerate(zip(oids, each, values, strict=False), 1)
    ]


def parameter_literal(oid: int, form: int, value: bytes | None, number: int = 1) -> str:
    """The value of one parameter as a literal."""
    if value is None:
        return "NULL"
    kind = PARAMETER_NAMES.get(oid, "text" if oid == 0 else None)
    if kind is None or kind == "bytea":
        raise ParameterError(
            f"parameter ${number} is of a type that Headrace does not have",
            given=kind or f"the type number {oid}",
            allowed="bool, numbers, text, dates, times, intervals, json, uuid, and lists of them",
            instead=f"CAST(${number} AS STRING), with a text",
        )
    try:
        return literal(_read(oid, form, value))
    except (ValueError, struct.error, IndexError, ArithmeticError, KeyError) as error:
        shown = value[:40].decode(errors="replace") if form == 0 else f"{len(value)} bytes"
        raise ParameterError(f"the value of ${number} is no {kind}", given=shown) from error


def _read(oid: int, form: int, value: bytes) -> Any:
    if form not in (0, 1):
        raise ValueError("no such format")
    if oid in _ELEMENTS:
        return _binary_list(value) if form else _text_list(value.decode(), _ELEMENTS[oid])
    reader = (_BINARY if form else _TEXT).get(oid)
    return value.decode() if reader is None else reader(value if form else value.decode())  # type: ignore[arg-type]


def literal(value: Any) -> str:
    """A value as a literal of Headrace SQL. Numbers with a sign stand in parentheses: `1 --1` would be a comment.

    >>> literal("it's"), literal(-1), literal(1.5), literal(True), literal([1, None])
    ("'it''s'", '(-1)', '1.5', 'TRUE', 'ARRAY[1, NULL]')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("a text with a zero")
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(literal, value))}]"
    if isinstance(value, (int, float, Decimal)):
        return _number(value)
    return _moment(value)


def _number(value: float | Decimal) -> str:
    if isinstance(value, int):
        return str(value) if value >= 0 else f"({value})"
    if isinstance(value, float):
        text = repr(value)
        finite = text.lstrip("-")[0].isdigit()
        return (text if value >= 0 and text[0] != "-" else f"({text})") if finite else f"CAST('{text}' AS DOUBLE)"
    if not value.is_finite():
        return f"CAST('{value}' AS DOUBLE)"
    text = format(value, "f")
    return f"({text})" if text[0] == "-" else text


def _moment(value: Any) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP '{format_date(value)}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, time):
        return f"TIME '{value.isoformat()}'"
    assert isinstance(value, timedelta)
    return f"CAST('{format_interval(value)}' AS INTERVAL)"


# --- text ------------------------------------------------------------------------------------------------------------


def _bool(text: str) -> bool:
    return {"t": True, "true": True, "1": True, "on": True, "yes": True, "y": True}.get(
        text.strip().lower(), False
    ) or (_false(text))


def _false(text: str) -> bool:
    if text.strip().lower() not in ("f", "false", "0", "off", "no", "n"):
        raise ValueError(text)
    return False


def _whole(text: str) -> int:
    if not re.fullmatch(r"\s*[+-]?\d{1,40}\s*", text, re.ASCII):
        raise ValueError(text)
    return int(text)


def _decimal(text: str) -> Decimal:
    try:
        value = Decimal(text.strip())
    except InvalidOperation as error:
        raise ValueError(text) from error
    if value.is_finite() and abs(value.adjusted()) > 400:
        raise ValueError(text)
    return value


def _timestamp(text: str) -> datetime:
    value = datetime.fromisoformat(text.strip())
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _interval(text: str) -> timedelta:
    found = _INTERVAL.fullmatch(text)
    if found is None or not text.strip():
        raise ValueError(text)
    clock = timedelta(hours=int(found["h"] or 0), minutes=int(found["m"] or 0), seconds=float(found["s"] or 0))
    return timedelta(days=int(found["days"] or 0)) + (-clock if found["sign"] == "-" else clock)


def _valid_json(text: str) -> str:
    json.loads(text)
    return text


def _text_list(text: str, element: int) -> list[Any]:
    """A list such as `{1,NULL,"a,b"}`; lists in lists are not read."""
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError(text)
    inside = text[1:-1]
    item = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^",{}\\]+))\s*(,|$)', re.DOTALL)
    found: list[Any] = []
    place = 0
    reader = _TEXT.get(element, str)
    while place < len(inside) or (found and inside.endswith(",") and place == len(inside)):
        match = item.match(inside, place)
        if match is None:
            raise ValueError(text)
        quoted, plain, _ = match.groups()
        if quoted is None and plain.strip().upper() == "NULL":
            found.append(None)
        else:
            found.append(reader(plain.strip() if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)))
        place = match.end()
    return found


_TEXT: Mapping[int, Callable[[str], Any]] = {
    16: _bool, 20: _whole, 21: _whole, 23: _whole, 26: _whole, 700: float, 701: float, 1700: _decimal,
    1082: lambda text: date.fromisoformat(text.strip()), 1083: lambda text: time.fromisoformat(text.strip()),
    1114: _timestamp, 1184: _timestamp, 1186: _interval, 114: _valid_json, 3802: _valid_json,
}  # fmt: skip

# --- binary ----------------------------------------------------------------------------------------------------------


def _unpacked(form: str) -> Callable[[bytes], Any]:
    return lambda value: struct.unpack(form, value)[0]


def _numeric(value: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from("!hhHh", value)
    if sign in (0xC000, 0xD000, 0xF000):
        return Decimal({0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}[sign])
    groups = struct.unpack(f"!{count}h", value[8:])
    if abs(weight) > 200 or not 0 <= scale < 1000 or any(not 0 <= group < 10_000 for group in groups):
        raise ValueError("no numeric")
    digits = int("".join(f"{group:04d}" for group in groups) or "0")
    number = Decimal(digits).scaleb((weight - count + 1) * 4) if digits else Decimal(0)
    return -number if sign else number


def _binary_interval(value: bytes) -> timedelta:
    ticks, days, months = struct.unpack("!qii", value)
    if months:
        raise ValueError("months have no length")
    return timedelta(days=days, microseconds=ticks)


def _binary_list(value: bytes) -> list[Any]:
    dimensions, _, element = struct.unpack_from("!iiI", value)
    if dimensions == 0:
        return []
    (count,) = struct.unpack_from("!i", value, 12)
    if dimensions != 1 or element not in PARAMETER_NAMES or element in _ELEMENTS or not 0 <= count <= len(value):
        raise ValueError("no list")
    found, place = list[Any](), 20
    for _ in range(count):
        (length,) = struct.unpack_from("!i", value, place)
        place += 4
        if length < 0:
            found.append(None)
        elif place + length > len(value):
            raise ValueError("a list ends too early")
        else:
            found.append(_read(element, 1, value[place : place + length]))
            place += length
    return found


def _clock(value: bytes) -> time:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=struct.unpack("!q", value)[0])
    return moment.time()


_BINARY: Mapping[int, Callable[[bytes], Any]] = {
    16: _unpacked("!?"), 20: _unpacked("!q"), 21: _unpacked("!h"), 23: _unpacked("!i"), 26: _unpacked("!I"),
    700: _unpacked("!f"), 701: _unpacked("!d"), 1700: _numeric,
    1082: lambda value: (_EPOCH + timedelta(days=struct.unpack("!i", value)[0])).date(),
    1083: _clock,
    1114: lambda value: _EPOCH + timedelta(microseconds=struct.unpack("!q", value)[0]),
    1184: lambda value: _EPOCH + timedelta(microseconds=struct.unpack("!q", value)[0]),
    1186: _binary_interval,
    3802: lambda value: _valid_json(value[1:].decode()), 114: lambda value: _valid_json(value.decode()),
    2950: lambda value: str(UUID(bytes=value)),
}  # fmt: skip
