"""Conditions as lists of conjuncts, and the columns that they use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from headrace.sql import syntax as s
from headrace.sql.bind.expressions import has_aggregate, inside

__all__ = ["aggregate_calls", "all_of", "columns_of", "conjuncts", "has_subquery", "replaced"]


def conjuncts(part: s.Expression | None) -> list[s.Expression]:
    """The conditions that must all hold; what all branches of an OR demand is one of them."""
    found: list[s.Expression] = []
    for one in _chain("AND", part):
        found += _common(one) if isinstance(one, s.Binary) and one.operator == "OR" else [one]
    return found


def all_of(parts: Iterable[s.Expression]) -> s.Expression | None:
    """The condition that all of these hold; None if there are none."""
    return _joined("AND", list(parts))


def columns_of(part: s.Part) -> list[s.Column]:
    """The columns in a part, without those of sub-queries."""
    return [one for one in inside(part) if isinstance(one, s.Column)]


def aggregate_calls(part: s.Part, own: Mapping[str, Any]) -> list[s.Call]:
    """The calls over many events in a part, in their order."""
    calls = [one for one in reversed(inside(part)) if isinstance(one, s.Call)]
    bare = {call: replace(call, arguments=(), named=(), filter=None, order=()) for call in calls if call.over is None}
    return [call for call in calls if call in bare and has_aggregate(bare[call], own)]


def has_subquery(part: s.Part) -> bool:
    """Whether a part contains a query."""
    return any(isinstance(child, (s.Subquery, s.Query)) or has_subquery(child) for child in part.parts())


def replaced(part: Any, replacement: Callable[[s.Part], s.Part | None]) -> Any:
    """A part with some parts inside it replaced, from the outside in; what is in sub-queries stays."""
    if isinstance(part, tuple):
        return tuple(replaced(one, replacement) for one in part)
    if not isinstance(part, s.Part) or isinstance(part, (s.Name, s.Query)):
        return part
    found = replacement(part)
    if found is not None:
        return found
    inner = {f.name: replaced(getattr(part, f.name), replacement) for f in fields(part) if f.name != "at"}
    return replace(part, **inner)


def _common(part: s.Binary) -> list[s.Expression]:
    """`(a AND b) OR (a AND c)` as `a`, `b OR c`."""
    branches = [_chain("AND", branch) for branch in _chain("OR", part)]
    common = [one for one in dict.fromkeys(branches[0]) if all(one in branch for branch in branches[1:])]
    if not common:
        return [part]
    rests = [all_of(one for one in branch if one not in common) for branch in branches]
    rest = [one for one in rests if one is not None]
    whole = _joined("OR", rest) if len(rest) == len(rests) else None  # a branch that demands no more decides it
    return common if whole is None else [*common, whole]


def _chain(operator: str, part: s.Expression | None) -> list[s.Expression]:
    found: list[s.Expression] = []
    waiting = [] if part is None else [part]
    while waiting:
        one = waiting.pop()
        if isinstance(one, s.Binary) and one.operator == operator:
            waiting += [one.right, one.left]
        else:
            found.append(one)
    return found


def _joined(operator: str, parts: Sequence[s.Expression]) -> s.Expression | None:
    if not parts:
        return None
    whole = parts[0]
    for one in parts[1:]:
        whole = s.Binary(operator, whole, one, at=(whole.at[0], one.at[1]))
    return whole
