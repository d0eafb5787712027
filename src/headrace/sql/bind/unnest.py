"""UNNEST in FROM: a row for each element of a list of the row before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.api.stream import Stream
from headrace.errors import SqlError
from headrace.expr import col
from headrace.expr.nodes import Column
from headrace.plan.nodes import Explode, Select
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import Relation
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["all_unnested", "is_unnest", "no_stream", "unnested"]

#: The list, where it is computed.
_LIST = "_sql_list"


def is_unnest(join: s.Join) -> bool:
    """Whether the elements of a list are joined."""
    return isinstance(join.right.stream, s.Unnest)


def all_unnested(queries: Queries, item: Item, joins: Sequence[s.Join]) -> Item:
    """The rows of FROM so far, each with the elements of these lists."""
    for join in joins:
        item = unnested(queries, item, join)
    return item


def no_stream(context: Context, part: s.Unnest) -> SqlError:
    """The error for elements without a stream."""
    return context.error(
        part,
        "UNNEST gives the elements of a list of each row, and there is no row before it",
        given=to_sql(part),
        allowed="FROM stream, UNNEST(stream.list) AS t(element)",
    )


def unnested(queries: Queries, item: Item, join: s.Join) -> Item:
    """The rows of FROM so far, each with the elements of a list."""
    part = join.right.stream
    assert isinstance(part, s.Unnest)
    _check(queries.context, item, join)
    lists = queries.expressions(item).bind(part.value)
    stream, column = item.stream, lists.name
    if not isinstance(lists, Column):
        own = tuple((name, col(name)) for name in stream.schema.names)
        stream, column = Stream(Select(stream.node, (*own, (_LIST, lists)))), _LIST
    names = _names(queries.context, part, join.right.alias)
    taken = set(stream.schema.names)
    theirs = {}
    for name in names:
        theirs[name] = next(one for one in _numbered(name) if one not in taken)
        taken.add(theirs[name])
    element, *position = theirs.values()
    with queries.context.at(part):
        node = Explode(stream.node, column, element, next(iter(position), None), outer=join.kind == "left")
    stream = Stream(node)
    if column == _LIST:
        stream = stream.select(*(name for name in node.schema.names if name != _LIST))
    relation = Relation(join.right.alias.text if join.right.alias else "", theirs)
    # The elements last as long as the row: its times stay those of FROM.
    times = [Relation("", {}, times=one.times) for one in item.relations if one.times][:1]
    return replace(item, stream=stream, relations=(*item.relations, relation, *times))


def _names(context: Context, part: s.Unnest, alias: s.Name | None) -> list[str]:
    """What people call the columns: as listed, else as the alias."""
    usual = [alias.text if alias else "unnest", *(["ordinality"] if part.ordinality else [])]
    given = [name.text for name in part.columns]
    if len(given) > len(usual):
        raise context.error(
            part.columns[len(usual)],
            f"UNNEST gives {'an element and its place' if part.ordinality else 'an element'}",
            given=", ".join(given),
            allowed=f"{len(usual)} name{'s' if len(usual) > 1 else ''}",
            instead="" if part.ordinality else "UNNEST(list) WITH ORDINALITY AS t(element, place)",
        )
    names = given + usual[len(given) :]
    if len(set(names)) < len(names):
        raise context.error(part, f"two columns have the name {names[0]!r}", given=", ".join(names))
    return names


def _numbered(name: str) -> list[str]:
    return [name, *(f"{name}_{number}" for number in range(2, 1000))]


def _check(context: Context, item: Item, join: s.Join) -> None:
    always = isinstance(join.on, s.Value) and join.on.value is True
    allowed = join.kind == "cross" or (join.kind in ("inner", "left") and (always or join.on is None))
    if not allowed or join.using:
        raise context.error(
            join,
            "the elements of a list are joined to their own row",
            given=to_sql(join),
            allowed="a comma, CROSS JOIN, or LEFT JOIN UNNEST(list) AS t(element) ON TRUE",
            instead="WHERE with the condition",
        )
    if item.windowing is not None and not item.windowing.divides_time:
        raise context.error(
            item.windowing.part,
            "a window of tuples counts rows, and UNNEST makes more of them",
            given=to_sql(item.windowing.part),
            allowed="windows of time",
            instead="a sub-select with UNNEST and the window behind it, or the other way round",
        )
