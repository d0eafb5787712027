"""Functions of SQL that are combinations of others: the engines need not know of them.

Each has the numbers of arguments that it takes, the form that messages show, and what it becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.expr import Expr, lit
from headrace.expr import nodes as engine
from headrace.expr.formats import formatted, parsed
from headrace.expr.functions import call, coalesce, concat, from_epoch
from headrace.schema import Type

__all__ = ["EXPANDED", "Expanded"]


@dataclass(frozen=True)
class Expanded:
    """A function: the fewest and the most arguments, its form, which arguments are plain values, and its meaning."""

    form: str
    build: Callable[..., Expr]
    least: int = 1
    most: int = 1
    #: The places of plain values, which `build` gets as Python values.
    plain: tuple[int, ...] = ()


def _quarter(time: Expr) -> Expr:
    return call("floor_divide", time.month() + 2, 3)


def _thursday(time: Expr) -> Expr:
    """The Thursday of a week, whose year is that of the week."""
    return time.date_trunc("week") + timedelta(days=3)


def _week(time: Expr) -> Expr:
    return call("floor_divide", _thursday(time).day_of_year() + 6, 7)


def _century(time: Expr) -> Expr:
    return call("floor_divide", time.year() + 99, 100)


def _last_day(time: Expr) -> Expr:
    return (time.date_trunc("month") + engine.Months(1) - timedelta(days=1)).cast(Type.DATE)


def _made_date(year: Expr, month: Expr, day: Expr) -> Expr:
    parts = [year.cast(Type.STRING).lpad(4, "0"), *(part.cast(Type.STRING).lpad(2, "0") for part in (month, day))]
    inside = year.between(1, 9999) & month.between(1, 12) & day.between(1, 31)
    return engine.Case(((inside, concat(parts[0], lit("-"), parts[1], lit("-"), parts[2])),), lit(None)).cast(Type.DATE)


def _to_date(text: Expr, format: str | None = None) -> Expr:
    return text.cast(Type.DATE) if format is None else parsed(text, format, Type.DATE)


def _to_timestamp(value: Expr, format: str | None = None) -> Expr:
    """A text; seconds since 1970, if there is no format and the argument is a number, are `from_unixtime`."""
    return value.cast(Type.DATETIME) if format is None else parsed(value, format)


def _joined(separator: str, *texts: Expr) -> Expr:
    """Texts with a separator between them, without those that are NULL."""
    parts = [coalesce(concat(lit(separator), text.cast(Type.STRING)), lit("")) for text in texts]
    return concat(*parts).substring(len(separator) + 1)


def _overlay(text: Expr, new: str, start: int, length: int | None = None) -> Expr:
    after = start + (len(new) if length is None else length)
    return concat(text.left(start - 1), lit(new), text.substring(after))


def _truncated(number: Expr) -> Expr:
    return engine.Case(((number < 0, number.ceil()),), number.floor())


def _bucket(value: Expr, low: Any, high: Any, count: Any) -> Expr:
    """The number of the bucket of a value among `count` from `low` to `high`; 0 below, and one more above."""
    inside = ((value - low) / (lit(high) - low) * count).floor().cast(Type.INT) + 1
    return engine.Case(((value < low, lit(0)), (value >= high, lit(count + 1))), inside)


EXPANDED: Mapping[str, Expanded] = {
    "quarter": Expanded("quarter(time)", _quarter),
    "week": Expanded("week(time)", _week),
    "isoyear": Expanded("isoyear(time)", lambda time: _thursday(time).year()),
    "dow": Expanded("dow(time)", lambda time: call("modulo", time.day_of_week(), 7)),
    "decade": Expanded("decade(time)", lambda time: call("floor_divide", time.year(), 10)),
    "century": Expanded("century(time)", _century),
    "last_day": Expanded("last_day(time)", _last_day),
    "make_date": Expanded("make_date(year, month, day)", _made_date, 3, 3),
    "date_format": Expanded("date_format(time, 'yyyy-MM-dd HH:mm:ss')", formatted, 2, 2, (1,)),
    "to_char": Expanded("to_char(time, 'YYYY-MM-DD HH24:MI:SS')", formatted, 2, 2, (1,)),
    "to_date": Expanded("to_date(text), to_date(text, 'dd/MM/yyyy')", _to_date, 1, 2, (1,)),
    "to_timestamp": Expanded(
        "to_timestamp(text), to_timestamp(text, 'dd/MMM/yyyy:HH:mm:ss Z')", _to_timestamp, 1, 2, (1,)
    ),
    "from_unixtime": Expanded("from_unixtime(seconds)", lambda seconds: from_epoch(seconds, "s")),
    "datediff": Expanded("datediff(later, earlier)", lambda a, b: a.cast(Type.DATE) - b.cast(Type.DATE), 2, 2),
    "date_add": Expanded("date_add(day, days)", lambda day, n: day.cast(Type.DATE) + n, 2, 2),
    "date_sub": Expanded("date_sub(day, days)", lambda day, n: day.cast(Type.DATE) - n, 2, 2),
    "add_months": Expanded("add_months(day, 3)", lambda day, n: day + engine.Months(n), 2, 2, (1,)),
    "concat_ws": Expanded("concat_ws(', ', a, b)", _joined, 2, 100, (0,)),
    "overlay": Expanded("overlay(text, 'new', 3, 2)", _overlay, 3, 4, (1, 2, 3)),
    "trunc": Expanded("trunc(number)", _truncated),
    "width_bucket": Expanded("width_bucket(value, 0, 100, 10)", _bucket, 4, 4, (1, 2, 3)),
}
