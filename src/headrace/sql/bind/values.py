"""Plain values in a text: durations, instants, numbers, words.

A bare number that measures time, or is one, counts the unit of the attribute that the time comes from: its own where
that is a number, seconds where it is a date (rule 8.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Decimal, InvalidOperation
from typing import Any

from headrace.errors import ExpressionError
from headrace.expr import col
from headrace.expr.spans import read_time
from headrace.plan.arrival import starts_at
from headrace.plan.nodes import Admit, Node, Source
from headrace.plan.policies import Interval, Lifetime, Physical, arrives
from headrace.schema import Schema, Type
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.printer import to_sql
from headrace.time import INFINITY, duration, ticks

__all__ = [
    "calendar_of",
    "constant",
    "duration_of",
    "no_value",
    "ticks_of",
    "typed_value",
    "unit_of",
    "unit_of_lifetime",
    "unit_of_type",
    "word",
]

_SECOND = 1_000_000
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def unit_of(node: Node) -> int:
    """The number of ticks of a bare number on a stream's own time: a second of dates, else one (rule 8.2)."""
    while node.inputs and not isinstance(node, Admit):
        node = node.inputs[0]
    if isinstance(node, Admit):  # events in memory have ticks, which may be those of a column of dates
        dates = [field.name for field in node.schema if field.type is Type.DATETIME]
        if any(starts_at(node, col(name)) for name in dates):
            return _SECOND
        node = node.source
    return unit_of_lifetime(node.lifetime, node.columns) if isinstance(node, Source) else 1


def unit_of_lifetime(lifetime: Lifetime, columns: Schema) -> int:
    """The number of ticks of a bare number beside the times of rows with this lifetime."""
    if arrives(lifetime):
        return _SECOND
    if isinstance(lifetime, Physical):
        return unit_of_type(columns["le"].type) if "le" in columns else 1
    return unit_of_type((lifetime.start if isinstance(lifetime, Interval) else lifetime.at).type(columns))


def unit_of_type(kind: Type) -> int:
    """The number of ticks of a bare number beside a time of this type: seconds on a DATETIME, else its own unit."""
    return _SECOND if kind is Type.DATETIME else 1


def duration_of(context: Context, part: s.Duration | s.Number | s.Unary, unit: int = 1) -> int:
    """A duration in ticks; `FOREVER` is infinity, a bare number counts units of `unit` ticks."""
    if isinstance(part, s.Unary):
        assert isinstance(part.value, (s.Duration, s.Number))
        size = duration_of(context, part.value, unit)
        return -size if part.operator == "-" else size
    if isinstance(part, s.Number):
        return _counted(context, part, unit)
    if not part.amounts:
        return INFINITY
    with context.at(part):
        return duration(" ".join(f"{amount} {unit}" for amount, unit in part.amounts))


def calendar_of(context: Context, part: s.Duration) -> tuple[int, s.Duration | None]:
    """The months of a duration, and the rest of it that has a fixed length."""
    months, rest = 0, []
    for amount, unit in part.amounts:
        size = _MONTHS.get(unit.lower().rstrip("s"))
        if size is None:
            rest.append((amount, unit))
        elif not isinstance(amount, int):
            raise context.error(part, "months and years are whole", given=to_sql(part), instead="INTERVAL '18' MONTH")
        else:
            months += amount * size
    return months, s.Duration(tuple(rest), at=part.at) if rest else None


def _counted(context: Context, part: s.Number, unit: int) -> int:
    if unit == 1 and not isinstance(part.value, int):
        raise context.error(part, "a duration without a unit is a whole number of ticks", given=part.value)
    return round(part.value * unit)


def ticks_of(context: Context, part: s.Expression, unit: int = 1) -> int:
    """An instant in ticks: a date and time, a number of units, or the time since 1970."""
    with context.at(part):
        if isinstance(part, s.Duration) and part.amounts:
            return duration_of(context, part)
        if isinstance(part, s.Number) and (unit > 1 or isinstance(part.value, int)):
            return _counted(context, part, unit)
        if isinstance(part, s.Unary) and part.operator == "-":
            return -ticks_of(context, part.value, unit)
        if isinstance(part, (s.Text, s.DateTime, s.TypedText)):
            text = part.value if isinstance(part, s.Text) else part.text
            return ticks(text.strip().replace("/", "-").replace(" ", "T", 1))
    raise context.error(
        part, "this is not a time", given=to_sql(part), allowed="DATETIME '2015-01-01 12:00:00', or a number"
    )


_EXAMPLES: Mapping[str, tuple[Callable[[str], date | time | Decimal], str]] = {
    "DATE": (date.fromisoformat, "DATE '2024-05-01'"),
    "DECIMAL": (Decimal, "DECIMAL '1.25'"),
    "TIME": (read_time, "TIME '12:30:00'"),
}


def typed_value(context: Context, part: s.TypedText) -> date | time | Decimal:
    """The value of `DATE '2024-05-01'`."""
    read, example = _EXAMPLES[part.kind]
    try:
        return read(part.text.strip())
    except (ValueError, InvalidOperation, ExpressionError):
        raise context.error(
            part, f"this is no {part.kind}", given=part.text, allowed=example, instead=example
        ) from None


def constant(context: Context, part: s.Expression) -> Any:
    """A plain value; a bare word is its text."""
    if isinstance(part, (s.Number, s.Text, s.Value)):
        return part.value
    if isinstance(part, s.Unary) and part.operator == "-" and isinstance(part.value, s.Number):
        return -part.value.value
    if isinstance(part, s.Column) and part.stream is None:
        return part.name.text
    raise context.error(part, "this must be a plain value", given=to_sql(part), allowed="a number, a text, TRUE, FALSE")


def word(context: Context, part: s.Expression, what: str) -> str:
    """A text."""
    value = constant(context, part)
    if not isinstance(value, str):
        raise context.error(part, f"{what} is a text", given=value, allowed="a text in quotes")
    return value


def no_value(context: Context, part: s.Part) -> Exception:
    """The error for a part that is no expression here."""
    if isinstance(part, (s.Exists, s.InQuery, s.Quantified, s.ScalarQuery)):
        return context.error(
            part,
            "a sub-query cannot stand here",
            given=to_sql(part),
            allowed="sub-queries in the list of a SELECT, in FROM, ON, WHERE and HAVING",
            instead="a sub-select in FROM that computes it first",
        )
    return context.error(part, "this has no value here", given=to_sql(part), allowed="an expression")
