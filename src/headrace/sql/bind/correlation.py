"""Correlated sub-queries: what connects a sub-query with the rows around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.api.stream import Stream
from headrace.sql import syntax as s
from headrace.sql.bind.conditions import columns_of, conjuncts, has_subquery, replaced
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import Relation, Scope

__all__ = ["Inner", "divided", "equates", "exposed", "inner_column"]

#: The name of a sub-query while it is joined. Only the binder names it.
_IN = "_sql_in"


@dataclass(frozen=True)
class Inner:
    """A sub-query as a relation: the names of its values, and the conditions that connect it with a row outside."""

    query: s.Query
    stream: Stream
    values: tuple[s.Column, ...]
    conditions: tuple[s.Expression, ...]

    @property
    def item(self) -> Item:
        return Item(self.stream, (Relation(_IN, {name: name for name in self.stream.schema.names}, by_name=True),))


def inner_column(name: str, at: s.Span = s.NOWHERE) -> s.Column:
    """A column of the sub-query, as the conditions that connect it name it."""
    return s.Column(s.Name(name), s.Name(_IN), at=at)


def divided(where: s.Expression | None, inside: Scope, around: Scope) -> tuple[list[s.Expression], list[s.Expression]]:
    """The conditions of a sub-query's own, and those that use columns of the query around it."""
    own: list[s.Expression] = []
    outside: list[s.Expression] = []
    for one in conjuncts(where):
        foreign = [column for column in columns_of(one) if not inside.knows(column) and around.knows(column)]
        (outside if foreign and not has_subquery(one) else own).append(one)
    return own, outside


def _sides(part: s.Expression, inside: Scope) -> tuple[s.Expression, s.Expression] | None:
    """Of an equality of the sub-query with the query around it: the side of each."""
    if not isinstance(part, s.Binary) or part.operator != "=":
        return None
    for own, other in ((part.left, part.right), (part.right, part.left)):
        used = columns_of(own)
        if used and all(map(inside.knows, used)) and not any(map(inside.knows, columns_of(other))):
            return own, other
    return None


def equates(part: s.Expression, key: s.Expression, inside: Scope) -> bool:
    """Whether a condition says that an expression of the sub-query equals one of the query around it."""
    sides = _sides(part, inside)
    return sides is not None and sides[0] == key


def exposed(part: s.Expression, inside: Scope, expose: Callable[[s.Expression], s.Column]) -> s.Expression:
    """A condition that connects: what it uses of the sub-query is a column of it."""
    sides = _sides(part, inside)
    if sides is not None:
        return s.Binary("=", sides[1], expose(sides[0]), at=part.at)

    def column(one: s.Part) -> s.Part | None:
        return expose(one) if isinstance(one, s.Column) and inside.knows(one) else None

    found: s.Expression = replaced(part, column)
    return found
