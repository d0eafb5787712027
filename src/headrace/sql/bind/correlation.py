"""Correlated sub-queries: what connects a sub-query with the rows around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.api.stream import Stream
from headrace.errors import SqlError
from headrace.expr import col
from headrace.plan.nodes import Select
from headrace.sql import syntax as s
from headrace.sql.bind.conditions import columns_of, conjuncts, has_subquery, replaced
from headrace.sql.bind.expressions import inside as parts_inside
from headrace.sql.bind.recursion import with_named
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.bind.sets import without_duplicates
from headrace.sql.bind.stored import parts_of
from headrace.sql.bind.windows import Tick

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["Domain", "Inner", "divided", "equates", "exposed", "inner_column", "outer_columns"]

#: The names of a sub-query while it is joined, and of the values of the rows around it. Only the binder names them.
_IN, _AROUND = "_sql_in", "_sql_around"


@dataclass(frozen=True)
class Inner:
    """A sub-query as a relation: the names of its values, and the conditions that connect it with a row outside."""

    query: s.Query
    stream: Stream
    values: tuple[s.Column, ...]
    conditions: tuple[s.Expression, ...]
    #: What people call its values.
    names: tuple[str, ...] = ()
    #: Columns of the rows outside, by the columns of the sub-query that have the same values, perhaps NULL.
    same: Mapping[str, str] | None = None

    @property
    def item(self) -> Item:
        return Item(self.stream, (Relation(_IN, {name: name for name in self.stream.schema.names}, by_name=True),))


def inner_column(name: str, at: s.Span = s.NOWHERE) -> s.Column:
    """A column of the sub-query, as the conditions that connect it name it."""
    return s.Column(s.Name(name), s.Name(_IN), at=at)


@dataclass(frozen=True)
class Domain:
    """The values of the rows around a sub-query that it uses: each once at every instant.

    Joined with what the sub-query reads, they give its answer for each of them. Their columns are called as outside;
    names of the sub-query's own FROM come first.
    """

    item: Item
    #: The columns of the rows around, by their names here.
    columns: Mapping[str, str]

    @classmethod
    def of(cls, around: Scope, outer: Item, used: Iterable[s.Column], free: Iterator[str]) -> Domain:
        names = {theirs: next(free) for theirs in dict.fromkeys(map(around.column, used))}
        rows = Stream(Select(outer.stream.node, tuple((name, col(theirs)) for theirs, name in names.items())))
        relations = [
            replace(
                one,
                columns={name: names[theirs] for name, theirs in one.columns.items() if theirs in names},
                times={moment: names[theirs] for moment, theirs in one.times.items() if theirs in names},
                level=one.level + 1,
            )
            for one in around.relations
        ]
        own = Relation(_AROUND, {name: name for name in names.values()}, by_name=True)
        kept = (one for one in relations if one.columns or one.times)
        return cls(Item(without_duplicates(rows), (own, *kept)), {name: theirs for theirs, name in names.items()})

    @property
    def keys(self) -> list[s.Column]:
        """Its columns, as the sub-query names them."""
        return [s.Column(s.Name(name), s.Name(_AROUND)) for name in self.columns]


def outer_columns(
    queries: Queries, part: s.Query | s.Body, around: Scope, tick: Tick, inside: Scope | None = None
) -> list[s.Column]:
    """The columns of the rows around that a sub-query uses, in queries inside it too.

    `inside`: the columns of its own FROM, if they are known. Where these cannot be known, because FROM itself uses
    columns of the rows around, a name that may be one of these counts as one.
    """
    return [one for one in dict.fromkeys(_free(queries, part, around, tick, inside)) if around.knows(one)]


def _free(
    queries: Queries, part: s.Query | s.Body, around: Scope, tick: Tick, inside: Scope | None = None
) -> list[s.Column]:
    if not any(isinstance(one, s.Column) and around.knows(one) for one in parts_of(part)):
        return []
    if isinstance(part, s.Query):
        return _free(with_named(queries, part), part.body, around, tick)
    if isinstance(part, s.SetOperation):
        return [*_free(queries, part.left, around, tick), *_free(queries, part.right, around, tick)]
    if isinstance(part, s.Values):
        return columns_of(part)
    places = (part.source, *(join.right for join in part.joins))
    if inside is None:
        inside = _own_scope(queries, part, around, tick)
    named = {place.alias or place.stream for place in places}
    names = {name.text.lower() for name in named if isinstance(name, s.Name)}
    listed = {entry.alias.text.lower() for entry in part.entries if entry.alias is not None}
    later = (*part.group, *part.order, *([] if part.having is None else [part.having]))
    found: list[s.Column] = []
    clauses = [child for child in part.parts() if not isinstance(child, (s.FromItem, s.Join))]
    clauses += [join.on for join in part.joins if join.on is not None]
    clauses += [place.stream for place in places if not isinstance(place.stream, s.Name)]
    for clause in clauses:
        own = columns_of(clause) if not isinstance(clause, s.Subquery) else []
        found += [one for one in own if one.stream or clause not in later or one.name.text.lower() not in listed]
        for query in _queries_in(clause):
            found += _free(queries, query, around, tick)
    if inside is not None:
        return [one for one in found if not inside.mentions(one)]
    return [one for one in found if one.stream is None or one.stream.text.lower() not in names]


def _queries_in(part: s.Part) -> list[s.Query]:
    """The queries directly in a part."""
    children = [child for one in parts_inside(part) for child in one.parts()]
    found = [part, *children] if isinstance(part, s.Subquery) else children
    queries = [one.query if isinstance(one, s.Subquery) else one for one in found]
    return [one for one in dict.fromkeys(queries) if isinstance(one, s.Query)]


def _own_scope(queries: Queries, part: s.Select, around: Scope, tick: Tick) -> Scope | None:
    try:
        return Scope(queries.context, queries.rows(part, tick)[0].relations, around)
    except SqlError:
        return None


def divided(where: s.Expression | None, inside: Scope, around: Scope) -> tuple[list[s.Expression], list[s.Expression]]:
    """The conditions of a sub-query's own, and those that use columns of the query around it."""
    own: list[s.Expression] = []
    outside: list[s.Expression] = []
    for one in conjuncts(where):
        foreign = [column for column in columns_of(one) if not inside.mentions(column) and around.knows(column)]
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
