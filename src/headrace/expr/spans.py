"""TIME and INTERVAL are computed as ticks: when an expression is bound, it becomes one over LONG and casts.

So engines need no functions of these types but the casts to and from LONG: a TIME is a number of ticks since midnight,
an INTERVAL its number of ticks. Their texts, `12:30:00.000000` and `-36:00:00.000000`, are put together and taken apart
here too.
"""

# ruff: noqa: SLF001 - the classes of expressions use this module, so it builds them by their own methods

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import time, timedelta
from typing import TYPE_CHECKING

from headrace.errors import ExpressionError
from headrace.expr.literals import text_pattern
from headrace.schema import Type
from headrace.time import duration

if TYPE_CHECKING:
    from headrace.expr.nodes import Bound, Expr

__all__ = ["SPANS", "beside_spans", "cast_by_ticks", "in_ticks", "read_interval", "read_time"]

SPANS = (Type.TIME, Type.INTERVAL)
_SECOND = 1_000_000
_MINUTE, _HOUR, _DAY = 60 * _SECOND, 3_600 * _SECOND, 86_400 * _SECOND
#: The parts of an INTERVAL: the ticks of the part, and of the next greater one.
_PARTS = {"day": (_DAY, None), "hour": (_HOUR, _DAY), "minute": (_MINUTE, _HOUR), "second": (_SECOND, _MINUTE)}
_SHIFTS = ("add", "subtract")
_BY_TICKS = frozenset((*_SHIFTS, *_PARTS, "multiply", "divide", "floor_divide", "modulo", "negate", "abs", "epoch"))
_INSTANTS = (Type.DATETIME, Type.DATE)


def in_ticks(function: str, args: Sequence[Bound], expr: Callable[[Bound], Expr]) -> Expr | None:
    """A call with a TIME or INTERVAL among its arguments as one over ticks; None for calls that take them as they are.

    `expr` makes an expression of an argument.
    """
    if not any(arg.type in SPANS for arg in args) or function not in _BY_TICKS:
        return None
    if function in _SHIFTS or (args[0].type.is_numeric and function != "multiply"):
        args = beside_spans([_as_span(arg) for arg in args])
    kinds, values = [arg.type for arg in args], [expr(arg) for arg in args]
    if not any(kind in SPANS for kind in kinds):
        return values[0]._call(function, *values[1:])
    ticks = [value.cast(Type.LONG) if kind in SPANS else value for value, kind in zip(values, kinds, strict=True)]
    spans = [arg.type is Type.INTERVAL or (arg.is_duration and arg.type.is_integer) for arg in args]
    if function in ("negate", "abs"):
        return ticks[0]._call(function).cast(Type.INTERVAL) if spans[0] else None
    if function == "epoch":
        return ticks[0] // _SECOND
    if function in _PARTS:
        return _part(function, kinds[0], ticks[0])
    if function in _SHIFTS:
        return _moved(function == "add", kinds, values, ticks, spans)
    return _scaled(function, kinds, ticks, spans)


def _as_span(arg: Bound) -> Bound:
    """A text that is added or subtracted is a duration."""
    return arg.of(read_interval(arg.text)) if arg.is_text else arg


def _moved(adds: bool, kinds: list[Type], values: list[Expr], ticks: list[Expr], spans: list[bool]) -> Expr | None:
    """Times moved by intervals, the time between two TIMEs, and sums of intervals."""
    if adds and spans[0] and not spans[1]:
        kinds, values, ticks, spans = kinds[::-1], values[::-1], ticks[::-1], spans[::-1]
    by = ticks[1] if adds else -ticks[1]
    if kinds[0] in _INSTANTS and spans[1]:
        return values[0]._call("shift_time", by)
    if kinds[0] is Type.TIME and spans[1]:
        return _within_day(ticks[0] + by % _DAY).cast(Type.TIME)
    if kinds == [Type.TIME, Type.TIME] and not adds:
        return (ticks[0] - ticks[1]).cast(Type.INTERVAL)
    return (ticks[0] + by).cast(Type.INTERVAL) if all(spans) else None


def _within_day(ticks: Expr) -> Expr:
    return (ticks % _DAY + _DAY) % _DAY


def _scaled(function: str, kinds: list[Type], ticks: list[Expr], spans: list[bool]) -> Expr | None:
    """An INTERVAL times, or divided by, a number; or compared with another as a ratio."""
    if function == "multiply" and sum(spans) == 1:
        length, number = (0, 1) if spans[0] else (1, 0)
        return _rounded(ticks[length] * ticks[number], kinds[number]) if kinds[number].is_numeric else None
    if function not in ("divide", "floor_divide", "modulo") or not spans[0]:
        return None
    found = ticks[0]._call(function, ticks[1])
    if function == "divide":
        return found if spans[1] else _rounded(found, Type.DOUBLE)
    if spans[1]:
        return found.cast(Type.INTERVAL) if function == "modulo" else found
    return _rounded(found, kinds[1]) if function == "floor_divide" else None


def _rounded(ticks: Expr, beside: Type) -> Expr:
    """An INTERVAL of ticks that may have decimals."""
    return (ticks if beside.is_integer else ticks.round().cast(Type.LONG)).cast(Type.INTERVAL)


def _part(name: str, kind: Type, ticks: Expr) -> Expr | None:
    """The hour of a TIME; of an INTERVAL the hours beside its days, with its sign."""
    if kind is Type.TIME:
        return None if name == "day" else getattr(ticks.cast(Type.DATETIME), name)()
    size, greater = _PARTS[name]
    rest = ticks if greater is None else ticks % greater
    return ((rest - rest % size) // size).cast(Type.INT)


# --- casts -----------------------------------------------------------------------------------------------------------


def cast_by_ticks(value: Expr, source: Type, target: Type) -> Expr | None:
    """A cast that goes by ticks, or by the fields of a struct; None for those that engines know."""
    if source.is_struct and target.is_struct:
        return _by_fields(value, source, target)
    if source is Type.DATETIME and target is Type.TIME:
        return _within_day(value.cast(Type.LONG)).cast(Type.TIME)
    if source in SPANS and (target.is_text or target in SPANS):
        ticks = value.cast(Type.LONG)
        return _text(ticks, signed=source is Type.INTERVAL) if target.is_text else ticks.cast(target)
    if source.is_text and target in SPANS:
        return _read(value, target).cast(target)
    return (
        value.cast(Type.LONG).cast(target)
        if source.is_integer and target in SPANS and source is not Type.LONG
        else None
    )


def _by_fields(value: Expr, source: Type, target: Type) -> Expr:
    pairs = zip(source.fields, target.fields, strict=True)
    parts = [value.field(name).cast(kind) for (name, _), (_, kind) in pairs]
    names = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name, _ in target.fields)
    return value.is_not_null()._case(parts[0]._call("struct", *parts[1:], names), None)


def _text(ticks: Expr, *, signed: bool) -> Expr:
    hours = _two(_whole(ticks, _HOUR))
    rest = _digits((ticks % _SECOND).abs(), 6)
    minutes, seconds = _two(_whole(ticks % _HOUR, _MINUTE)), _two(_whole(ticks % _MINUTE, _SECOND))
    text = hours.concat(":", minutes, ":", seconds, ".", rest)
    return (ticks < 0)._case("-", "").concat(text) if signed else text


def _whole(ticks: Expr, size: int) -> Expr:
    """How many times a size fits, without the sign; also of the least number, which has no opposite."""
    return ((ticks - ticks % size) // size).abs()


def _digits(number: Expr, width: int) -> Expr:
    return number.cast(Type.STRING).lpad(width, "0")


def _two(number: Expr) -> Expr:
    """At least two digits."""
    return (number < 10)._case(_digits(number, 2), number.cast(Type.STRING))


def _read(text: Expr, target: Type) -> Expr:
    """The ticks that a text tells, NULL if it has another form."""
    tidy = text.trim()
    unsigned = tidy.replace("-", "").replace("+", "")
    hours, minutes = (unsigned.split_part(":", place).cast(Type.LONG) for place in (1, 2))
    seconds = unsigned.split_part(":", 3).cast("DECIMAL(8,6)").coalesce(0) * _SECOND
    ticks = hours * _HOUR + minutes * _MINUTE + seconds.cast(Type.LONG)
    signed = tidy.starts_with("-")._case(-ticks, ticks)
    return text.rlike(text_pattern(target).replace(r"\A", "^").replace(r"\z", "$"))._case(signed, None)


# --- what stands beside one ------------------------------------------------------------------------------------------


def beside_spans(args: list[Bound]) -> list[Bound]:
    """Texts and durations beside a TIME or INTERVAL as one; a plain INTERVAL beside whole numbers is its ticks."""
    kinds = {arg.type for arg in args if not arg.untyped}
    if Type.TIME in kinds:
        return [arg.of(read_time(arg.text)) if arg.is_text else arg for arg in args]
    if Type.INTERVAL not in kinds:
        return args
    numbers = any(arg.type.is_numeric and not arg.is_duration for arg in args)
    if numbers and all(arg.is_plain for arg in args if arg.type is Type.INTERVAL):
        return [arg.of(timedelta(microseconds=arg.ticks)) if arg.type is Type.INTERVAL else arg for arg in args]
    spans = [_as_span(arg) for arg in args]
    return [arg.widened(Type.INTERVAL) if arg.type.is_integer and arg.is_duration else arg for arg in spans]


def read_interval(text: str) -> timedelta:
    """The length of time that a text tells: `36:00:00`, `10 min`."""
    if re.fullmatch(text_pattern(Type.INTERVAL).removesuffix(r"\z"), text) is None:
        return timedelta(microseconds=duration(text))
    hours, minutes, seconds = [*text.strip().lstrip("+-").split(":"), "0"][:3]
    length = timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds))
    return -length if text.strip().startswith("-") else length


def read_time(text: str) -> time:
    """The TIME that a text tells."""
    if re.fullmatch(text_pattern(Type.TIME).removesuffix(r"\z"), text) is None:
        raise ExpressionError(
            "this text beside a TIME is not one", given=text, allowed="hours, minutes and seconds", instead="'12:30:00'"
        )
    return time.fromisoformat(text.strip())
