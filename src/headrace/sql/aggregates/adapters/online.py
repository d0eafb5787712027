"""Aggregates without a window: those that are not blocking answer at each tuple (rules 7.2 and 8.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import reduce
from typing import Any

from headrace.sql import syntax as s
from headrace.sql.bind.expressions import has_aggregate
from headrace.sql.printer import to_sql

__all__ = ["online"]


def online(part: s.Select, known: Mapping[str, Any]) -> s.Select:
    """Rewrite a SELECT of nonblocking aggregates to answer at each tuple, over all preceding tuples; keep any other.

    A tuple with no output, or only NULL, gives no answer.
    """
    calls = [call for entry in part.entries for call in _calls(entry, known)]
    if not calls or not all(_answers_at_once(call, known) for call in calls) or _needs_window(part):
        return part
    over = s.Over(tuple(entry.value for entry in part.group))
    named = [(entry, entry.alias or _name(entry)) for entry in part.entries]
    given = [s.Entry(_with_over(entry.value, over, known), name, at=entry.at) for entry, name in named]
    answers = [s.Column(name, at=entry.at) for entry, name in named if _calls(entry, known)]
    there: list[s.Expression] = [s.IsNull(one, negated=True, at=one.at) for one in answers]
    some = reduce(_either, there)
    inner = s.Query(replace(part, entries=tuple(given), group=()), at=part.at)
    shown = tuple(s.Entry(s.Column(name, at=entry.at), at=entry.at) for entry, name in named)
    return s.Select(shown, s.FromItem(s.Subquery(inner, at=part.at), at=part.at), where=some, at=part.at)


def _either(left: s.Expression, right: s.Expression) -> s.Expression:
    return s.Binary("OR", left, right, at=left.at)


def _needs_window(part: s.Select) -> bool:
    """Whether the SELECT uses clauses that need a window."""
    windows = any(isinstance(bracket, s.Window) for bracket in part.source.brackets)
    stars = any(isinstance(entry.value, s.Star) for entry in part.entries)
    return bool(windows or stars or part.joins or part.having or part.order or part.limit or part.distinct)


def _calls(part: s.Part, known: Mapping[str, Any]) -> list[s.Call]:
    """The calls of aggregates without OVER in a part."""
    if isinstance(part, s.Call) and has_aggregate(replace(part, arguments=(), named=()), known):
        return [part]
    return [call for child in part.parts() for call in _calls(child, known)]


def _answers_at_once(call: s.Call, known: Mapping[str, Any]) -> bool:
    found = known.get(".".join(one.text for one in call.name))
    return getattr(found, "blocking", True) is False and getattr(found, "kind", "") == "aggregate"


def _name(entry: s.Entry) -> s.Name:
    own = entry.value.name.text if isinstance(entry.value, s.Column) else to_sql(entry.value)
    return s.Name(own, quoted=True, at=entry.at)


def _with_over(part: Any, over: s.Over, known: Mapping[str, Any]) -> Any:
    if isinstance(part, tuple):
        return tuple(_with_over(one, over, known) for one in part)
    if not isinstance(part, s.Part):
        return part
    if isinstance(part, s.Call) and _calls(part, known)[:1] == [part]:
        return replace(part, over=over)
    return replace(part, **{f.name: _with_over(getattr(part, f.name), over, known) for f in _inner(fields(part))})


def _inner(every: Iterable[Any]) -> list[Any]:
    return [one for one in every if one.name != "at"]
