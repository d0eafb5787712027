"""Plain values in a text: durations, instants, numbers, words."""

from __future__ import annotations

from typing import Any

from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.printer import to_sql
from headrace.time import INFINITY, duration, ticks

__all__ = ["constant", "duration_of", "ticks_of", "word"]


def duration_of(context: Context, part: s.Duration | s.Number | s.Unary) -> int:
    """A duration in ticks; `FOREVER` is infinity, a bare number counts ticks."""
    if isinstance(part, s.Unary):
        assert isinstance(part.value, (s.Duration, s.Number))
        return -duration_of(context, part.value) if part.operator == "-" else duration_of(context, part.value)
    if isinstance(part, s.Number):
        if not isinstance(part.value, int):
            raise context.error(part, "a duration without a unit is a whole number of ticks", given=part.value)
        return part.value
    if not part.amounts:
        return INFINITY
    with context.at(part):
        return duration(" ".join(f"{amount} {unit}" for amount, unit in part.amounts))


def ticks_of(context: Context, part: s.Expression) -> int:
    """An instant in ticks: a number of them, or a date and time."""
    with context.at(part):
        if isinstance(part, s.Number) and isinstance(part.value, int):
            return part.value
        if isinstance(part, s.Unary) and part.operator == "-":
            return -ticks_of(context, part.value)
        if isinstance(part, (s.Text, s.DateTime)):
            text = part.value if isinstance(part, s.Text) else part.text
            return ticks(text.strip().replace("/", "-").replace(" ", "T", 1))
    raise context.error(
        part, "this is not a time", given=to_sql(part), allowed="DATETIME '2015-01-01 12:00:00', or a number of ticks"
    )


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
