"""What arguments mean beside one another: the types are known only when an expression is bound.

A text beside a DATE or DATETIME is one too, and beside a duration it is a duration. A plain number beside a DECIMAL is
an exact decimal. Adding and subtracting of dates become the functions that move dates.
"""

from __future__ import annotations

import decimal
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from headrace.errors import ExpressionError
from headrace.expr.decimals import EXACT
from headrace.expr.literals import Plain, is_date, is_instant
from headrace.expr.spans import beside_spans
from headrace.schema import Type
from headrace.time import duration, ticks

if TYPE_CHECKING:
    from headrace.expr.nodes import Bound, Call

__all__ = ["as_read", "as_type", "resolved"]

#: Functions that take a text beside a DATETIME as a DATETIME, and beside a duration as a duration.
_COMPARING = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "isin", "coalesce", "greatest", "least"))
_EXACT = _COMPARING | {"add", "subtract", "multiply"}
_TIMES = (Type.DATETIME, Type.DATE)
_DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def resolved(call: Call, args: list[Bound]) -> tuple[Call, list[Bound]]:
    """The call that computes with dates or decimals, where arguments are some."""
    if call.function in _EXACT:
        args = _read_numbers(args)
    if call.function in _COMPARING:
        return call, _read_texts(beside_spans(args))
    if call.function not in ("add", "subtract"):
        return call, args
    if not any(arg.type in _TIMES for arg in args):
        return call, _read_texts(args)
    left, right = (_read_text(arg) if arg.is_text else arg for arg in args)
    adds = call.function == "add"
    if adds and (right.type in _TIMES and left.type not in _TIMES):
        left, right = right, left
    function, operands = _moved(left, right, adds)
    if not function:
        raise _without_unit(call, args)
    return replace(call, function=function), operands


def as_read(args: list[Bound]) -> list[Bound]:
    """Values of which one is chosen: texts and numbers as the others."""
    return _read_texts(_read_numbers(beside_spans(args)))


def as_type(value: Any, type: Type) -> Plain:
    """A value as that of a wider type."""
    if type.is_floating:
        return float(value)
    if type.is_decimal:
        return EXACT.quantize(decimal.Decimal(value), decimal.Decimal(1).scaleb(-type.scale))
    if type is Type.DATETIME and not isinstance(value, datetime):
        return datetime.combine(value, time(), UTC)
    plain: Plain = value
    return plain


def _moved(left: Bound, right: Bound, adds: bool) -> tuple[str, list[Bound]]:
    """The function that moves dates or tells the time between them; an empty name if there is none."""
    if left.type is Type.DATE and right.type.is_integer and _counts_days(right):
        days = right.of(right.ticks // _DAY) if right.is_duration else right
        return "shift_date", [left, days if adds else days.negated()]
    if left.type in _TIMES and right.is_duration:
        return "shift_time", [left.widened(Type.DATETIME), right if adds else right.negated()]
    if left.type is Type.DATE and right.type is Type.DATE and not adds:
        return "days_between", [left, right]
    if left.type in _TIMES and right.type in _TIMES and not adds:
        return "time_diff", [left.widened(Type.DATETIME), right.widened(Type.DATETIME)]
    return "", []


def _counts_days(arg: Bound) -> bool:
    """A plain number, or a duration of whole days that is known."""
    return not arg.is_duration or (arg.is_plain and arg.ticks % _DAY == 0)


def _without_unit(call: Call, args: list[Bound]) -> ExpressionError:
    kinds = ", ".join(arg.type.value for arg in args)
    if not any(arg.type.is_numeric for arg in args):
        return ExpressionError(f"{call} cannot take {kinds}", given=kinds, allowed="a time and a duration")
    return ExpressionError(
        f"{call}: a number beside a DATETIME has no unit",
        given=kinds,
        allowed="timedelta(...), a text such as '10 min', the difference of two DATETIMEs; days beside a DATE",
        instead="col('ts') + col('n') * timedelta(seconds=1)",
    )


# --- texts and numbers -----------------------------------------------------------------------------------------------


def _read_numbers(args: list[Bound]) -> list[Bound]:
    """Plain numbers beside decimals as decimals, if no other is a FLOAT or DOUBLE."""
    if not any(arg.type.is_decimal for arg in args) or all(arg.type.is_decimal for arg in args):
        return args
    exact = [arg.exact if arg.type.is_numeric else None for arg in args]
    if any(arg.type.is_floating and value is None for arg, value in zip(args, exact, strict=True)):
        return args
    return [
        arg if value is None or arg.type.is_decimal else arg.of(value) for arg, value in zip(args, exact, strict=True)
    ]


def _read_texts(args: list[Bound]) -> list[Bound]:
    """Texts beside DATEs and DATETIMEs as these, and beside durations as durations."""
    if not any(arg.is_text for arg in args):
        return args
    if any(arg.type in _TIMES for arg in args):
        days = not any(arg.type is Type.DATETIME for arg in args)
        return [_read_instant(arg, days=days) if arg.is_text else arg for arg in args]
    if any(arg.is_duration for arg in args):
        return [_read_duration(arg) if arg.is_text else arg for arg in args]
    return args


def _read_text(arg: Bound) -> Bound:
    """A text that is added or subtracted: a DATETIME if it looks like one, else a duration."""
    return _read_instant(arg) if is_instant(arg.text) else _read_duration(arg)


def _read_instant(arg: Bound, *, days: bool = False) -> Bound:
    text = arg.text
    if days and is_date(text):
        return arg.of(date.fromisoformat(text.strip()))
    if not is_instant(text):
        raise ExpressionError(
            f"this text beside a {'DATE' if days else 'DATETIME'} is not one",
            given=text,
            allowed="a date, and perhaps a time and a zone",
            instead="'2024-05-01' or '2024-05-01T12:00:00Z'",
        )
    return arg.of(_EPOCH + timedelta(microseconds=ticks(text.strip())))


def _read_duration(arg: Bound) -> Bound:
    return arg.of(timedelta(microseconds=duration(arg.text)))
