"""Times as texts of a format, and back: compositions of other functions, so that all engines agree on them.

A format has the letters of Spark and Flink (`yyyy-MM-dd HH:mm:ss`) or the words of PostgreSQL (`YYYY-MM-DD
HH24:MI:SS`); every other character, and text in quotes, stands for itself. Each part has a fixed width, so a text is
taken apart by places. A text that does not fit its format is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from headrace.errors import ExpressionError
from headrace.expr.functions import call, concat
from headrace.expr.nodes import Case, Expr, lit
from headrace.schema import Type

__all__ = ["formatted", "parsed"]

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True)
class _FormatPart:
    """A part of a time: its width in the text, and its value; none for text that stands for itself."""

    kind: str
    width: int
    text: str = ""


#: The words of formats, the longest first, with the parts of a time that they mean.
_WORDS: dict[str, tuple[str, int]] = {
    "yyyy": ("year", 4), "YYYY": ("year", 4), "SSSSSS": ("micros", 6), "HH24": ("hour", 2), "HH12": ("hour12", 2),
    "MMM": ("name", 3), "Mon": ("name", 3), "EEE": ("weekday", 3), "Dy": ("weekday", 3), "SSS": ("millis", 3),
    "XXX": ("zone:", 6), "MM": ("month", 2), "dd": ("day", 2), "DD": ("day", 2), "HH": ("hour", 2),
    "hh": ("hour12", 2), "mm": ("minute", 2), "MI": ("minute", 2), "ss": ("second", 2), "SS": ("second", 2),
    "US": ("micros", 6), "MS": ("millis", 3), "AM": ("half", 2), "PM": ("half", 2), "a": ("half", 2), "Z": ("zone", 5),
}  # fmt: skip
_TOKEN = re.compile(r"'((?:[^']|'')*)'|\"([^\"]*)\"|" + "|".join(_WORDS) + r"|[^A-Za-z'\"]|(.)", re.DOTALL)
#: Where parts are in the text of a DATETIME: 2024-05-01T12:30:15.000000Z.
_PLACES = {
    "year": (1, 4), "month": (6, 2), "day": (9, 2), "hour": (12, 2), "minute": (15, 2), "second": (18, 2),
    "millis": (21, 3), "micros": (21, 6),
}  # fmt: skip
_ALLOWED = "yyyy MM dd HH mm ss SSS SSSSSS MMM EEE hh a Z XXX, YYYY MM DD HH24 MI SS MS US Mon Dy HH12 AM, 'text'"


def _parts(format: str) -> list[_FormatPart]:
    parts = []
    for found in _TOKEN.finditer(format):
        quoted, double, letter = found.groups()
        if letter is not None:
            raise ExpressionError(
                f"{letter!r} is no part of a time in a format", given=format, allowed=_ALLOWED,
                instead="'yyyy-MM-dd HH:mm:ss'",
            )  # fmt: skip
        if found[0] in _WORDS:
            parts.append(_FormatPart(*_WORDS[found[0]]))
        else:
            text = double if double is not None else found[0] if quoted is None else quoted.replace("''", "'") or "'"
            parts.append(_FormatPart("", len(text), text))
    return parts


# --- texts of times --------------------------------------------------------------------------------------------------


def formatted(time: Expr, format: str) -> Expr:
    """A time in a format, in UTC."""
    whole = time.cast(Type.DATETIME).cast(Type.STRING)
    pieces = [lit(part.text) if not part.kind else _WRITTEN[part.kind](time, whole) for part in _parts(format)]
    return concat(whole.left(0), *pieces)  # NULL where the time is, also of a format without parts


def _named(number: Expr, names: tuple[str, ...]) -> Expr:
    return Case(tuple((number == place, lit(name)) for place, name in enumerate(names, 1)), lit(None))


def _hour_of_twelve(time: Expr, _: Expr) -> Expr:
    return (call("modulo", time.hour() + 11, 12) + 1).cast(Type.STRING).lpad(2, "0")


def _taken(kind: str) -> Callable[[Expr, Expr], Expr]:
    return lambda _, whole: whole.substring(*_PLACES[kind])


_WRITTEN: dict[str, Callable[[Expr, Expr], Expr]] = {
    **{kind: _taken(kind) for kind in _PLACES},
    "name": lambda time, _: _named(time.month(), _MONTHS),
    "weekday": lambda time, _: _named(time.day_of_week(), _DAYS),
    "hour12": _hour_of_twelve,
    "half": lambda time, _: Case(((time.hour() < 12, lit("AM")),), lit("PM")),
    "zone": lambda _, __: lit("+0000"),
    "zone:": lambda _, __: lit("+00:00"),
}


# --- times of texts --------------------------------------------------------------------------------------------------


def parsed(text: Expr, format: str, kind: Type = Type.DATETIME) -> Expr:
    """The time that a text of a format tells, in UTC unless it names a zone."""
    found: dict[str, Expr] = {}
    place, shape = 1, ""
    for part in _parts(format):
        if part.kind:
            found[part.kind] = text.substring(place, part.width)
        shape += "_" * part.width if part.kind else re.sub(r"([%_\\])", r"\\\1", part.text)
        place += part.width
    if "year" not in found:
        raise ExpressionError("a format of a time has a year", given=format, allowed=_ALLOWED, instead="yyyy")
    whole = concat(_date(found), lit("T"), _clock(found), lit("."), _fraction(found), _zone(found))
    fits = Case(((text.like(shape), whole),), lit(None))
    return fits.cast(Type.DATETIME) if kind is Type.DATETIME else fits.left(10).cast(kind)


def _date(found: dict[str, Expr]) -> Expr:
    month = found.get("month", lit("01"))
    if "name" in found:
        names = [(found["name"].lower() == name.lower(), lit(f"{n:02d}")) for n, name in enumerate(_MONTHS, 1)]
        month = Case(tuple(names), lit(None))
    return concat(found["year"], lit("-"), month, lit("-"), found.get("day", lit("01")))


def _clock(found: dict[str, Expr]) -> Expr:
    hour = found.get("hour", lit("00"))
    if "hour12" in found:
        number = found["hour12"].cast(Type.INT)
        after = found["half"].upper() == "PM" if "half" in found else lit(False)
        inside = Case(
            ((number.between(1, 12), call("modulo", number, 12) + Case(((after, lit(12)),), lit(0))),), lit(None)
        )
        hour = inside.cast(Type.STRING).lpad(2, "0")
    return concat(hour, lit(":"), found.get("minute", lit("00")), lit(":"), found.get("second", lit("00")))


def _fraction(found: dict[str, Expr]) -> Expr:
    return found.get("micros", found.get("millis", lit("000")))


def _zone(found: dict[str, Expr]) -> Expr:
    if "zone" in found:
        return concat(found["zone"].left(3), lit(":"), found["zone"].right(2))
    return found.get("zone:", lit("Z"))
