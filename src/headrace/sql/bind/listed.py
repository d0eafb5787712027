"""The list of a SELECT as other clauses name it: by positions, as in GROUP BY 1, and by the names of its entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.scope import Scope
from headrace.sql.printer import to_sql
from headrace.sql.syntax.rewrite import rewritten

__all__ = ["at_position", "by_window", "named_in_list", "order_of_answers"]

#: The times of a window's answers.
_TIMES = ("le", "window_start", "window_end")


def named_in_list(value: s.Expression, entries: Sequence[s.Entry], scope: Scope) -> s.Expression:
    """An expression with the names of the list replaced by what they name; columns of FROM take precedence."""
    named = {entry.alias.text.lower(): entry.value for entry in reversed(entries) if entry.alias is not None}

    def meant(part: s.Part) -> s.Part | None:
        if not isinstance(part, s.Column) or part.stream is not None or scope.knows(part):
            return None
        return named.get(part.name.text.lower())

    return rewritten(value, meant)


def at_position(context: Context, value: s.Expression, entries: Sequence[s.Entry], clause: str) -> int | None:
    """The place of the entry that a number names; None for other expressions."""
    if not isinstance(value, s.Number):
        return None
    if any(isinstance(entry.value, s.Star) for entry in entries):
        raise context.error(
            value, "positions are counted in a list without *", given=f"{clause} {to_sql(value)}", allowed="names"
        )
    if not isinstance(value.value, int) or not 1 <= value.value <= len(entries):
        raise context.error(
            value,
            f"the list has no entry {to_sql(value)}",
            given=f"{clause} {to_sql(value)}",
            allowed=f"1 to {len(entries)}" if len(entries) > 1 else "1",
        )
    return value.value - 1


def order_of_answers(part: s.Select, names: Sequence[str]) -> s.Select:
    """A SELECT with groups, whose ORDER BY and LIMIT … BY name the columns of its answers."""

    def column(value: s.Expression) -> s.Expression:
        equal = [name for name, entry in zip(names, part.entries, strict=True) if entry.value == value]
        return s.Column(s.Name(equal[0], quoted=True, at=value.at), at=value.at) if equal else value

    order = tuple(replace(key, value=column(key.value)) for key in part.order)
    limit = None if part.limit is None else replace(part.limit, by=tuple(map(column, part.limit.by)))
    return replace(part, order=order, limit=limit)


def by_window(part: s.Select) -> bool:
    """Whether answers of windows are ordered by the times of these, in which they come anyway."""
    named = {entry.alias.text.lower(): entry.value for entry in part.entries if entry.alias is not None}
    values = [named.get(_name(key.value), key.value) for key in part.order]
    return not any(key.descending for key in part.order) and all(_name(value) in _TIMES for value in values)


def _name(value: s.Expression) -> str:
    return value.name.text.lower() if isinstance(value, s.Column) and value.stream is None else ""
