"""The times of events and windows in SQL: `le`, `re`, `window_start` and `window_end` are columns where no other is.

`stream.le` is the start of that stream's events, before any join; `le` alone is the start of the rows of FROM: of the
joined events, in a join. With a window in FROM, `window_start` is that of the window; after a window, of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from headrace.api.stream import Stream
from headrace.expr import Expr, col, lit
from headrace.expr.nodes import Column
from headrace.expr.times import EventTime, Moment, window_end, window_start
from headrace.plan.arrival import is_stamped, stamped, starts_at
from headrace.plan.nodes import Select
from headrace.plan.times import with_times
from headrace.schema import ARRIVAL, Field, Type
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import inside
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import ARRIVED, CLOCKS, MOMENTS, NOTHING, Relation, clock_of
from headrace.sql.printer import to_sql

__all__ = ["as_times", "event_columns", "joined_columns", "starts", "window_columns", "window_times"]


AnyMoment = Moment | Literal["arrival"]


def event_columns(context: Context, part: s.Select, item: Item, *, alone: bool) -> Item:
    """An item of FROM with the times of its events as columns, if the SELECT uses them; `alone`: without joins."""
    (relation,) = item.relations
    asked = _asked(part, relation, bare=alone)
    if item.windowing is not None:
        asked = {name: at for name, at in asked.items() if not name.startswith("window")}
    stream, times = _added(context, item.stream, asked)
    return replace(item, stream=stream, relations=(replace(relation, times=times),))


def joined_columns(context: Context, part: s.Select, item: Item) -> Item:
    """Joined events with their own times as columns, if the SELECT uses them without the name of a stream."""
    asked = {name: at for name, at in _asked(part, Relation("", {}), bare=True).items() if not _known(item, name)}
    if item.windows is not None:
        asked = {name: at for name, at in asked.items() if not name.startswith("window")}
    stream, times = _added(context, item.stream, asked)
    return _with_relation(replace(item, stream=stream), times)


def window_columns(context: Context, part: s.Select, item: Item) -> Item:
    """An item whose rows are the contents of windows, with the times of these as columns."""
    asked = {name: at for name, at in _of_window(part).items() if not _known(item, name)}
    stream, times = _added(context, item.stream, asked)
    return _with_relation(replace(item, stream=stream), times)


def window_times(part: s.Select, item: Item) -> Item:
    """An item to be grouped by windows: the times of a window stand beside its aggregates (`as_times`)."""
    windows = item.windows
    if item.windowing is None and (windows is None or windows.size != windows.hop):
        return item
    asked = [name for name in _of_window(part) if not _known(item, name)]
    kind = Type.DATETIME if item.stream.node.dates else Type.LONG
    times = {MOMENTS[name]: f"{MOMENTS[name]}()" for name in asked}
    fields = tuple(Field(name, kind) for name in times.values())
    return _with_relation(replace(item, window_times=fields), times)


def starts(item: Item, expr: Expr) -> bool:
    """Whether a column has the start of each event: `le`, or the column that the stream's times come from."""
    if isinstance(expr, Column) and any(relation.times.get("start") == expr.name for relation in item.relations):
        return True
    kind = expr.type(item.stream.schema)
    return (kind is Type.DATETIME or kind.is_integer) and starts_at(item.stream.node, expr)


def as_times(expr: Expr) -> Expr:
    """An expression over the columns of `window_times`, with the times of the window that they stand for."""
    return expr.transform(lambda e: _PLACEHOLDERS.get(e.column, e) if isinstance(e, Column) else e)


_PLACEHOLDERS: Mapping[str, Expr] = {"window_start()": window_start(), "window_end()": window_end()}


def _asked(part: s.Select, relation: Relation, *, bare: bool) -> dict[str, s.Column]:
    """The names of times that a SELECT uses of a relation, each with a place; a column of the same name wins."""
    own = {name.lower() for name in relation.columns}
    found: dict[str, s.Column] = {}
    for one in _outside_brackets(part):
        if isinstance(one, s.Call) and (clock := clock_of(one)) is not None:
            one = clock
        if isinstance(one, s.Column) and (name := one.name.text.lower()) in MOMENTS and name not in own:
            named = bare if one.stream is None else one.stream.text.lower() == relation.name.lower()
            if named:
                found.setdefault(name, one)
    return found


def _outside_brackets(part: s.Select) -> list[s.Part]:
    """All parts of a SELECT but the items of FROM, whose brackets say `ON le` for the time of the stream itself."""
    clauses = [child for child in part.parts() if not isinstance(child, (s.FromItem, s.Join))]
    clauses += [join.on for join in part.joins if join.on is not None]
    return [one for clause in clauses for one in inside(clause)]


def _of_window(part: s.Select) -> dict[str, s.Column]:
    return {name: at for name, at in _asked(part, Relation("", {}), bare=True).items() if name.startswith("window")}


def _with_relation(item: Item, times: Mapping[AnyMoment, str]) -> Item:
    """An item with a relation of nothing but times, which are meant without the name of a stream."""
    return replace(item, relations=(*item.relations, Relation("", {}, times=times))) if times else item


def _known(item: Item, name: str) -> bool:
    return any(name == column.lower() for relation in item.relations for column in relation.columns)


def _added(context: Context, stream: Stream, asked: Mapping[str, s.Column]) -> tuple[Stream, dict[AnyMoment, str]]:
    """A stream with these times as columns, and the names of the columns."""
    if not asked:
        return stream, {}
    found: dict[AnyMoment, str] = {}
    if clock := next((at for name, at in asked.items() if name in CLOCKS), None):
        stream, found = _with_arrival(context, stream, clock), {"arrival": ARRIVED}
    moments = [moment for name in asked if (moment := MOMENTS[name]) != "arrival"]
    if not moments:
        return stream, found
    with context.at(next(iter(asked.values()))):
        node, columns = with_times(stream.node, [EventTime(moment) for moment in moments])
    return Stream(node), found | {moment: column.name for moment, column in zip(moments, columns, strict=True)}


def _with_arrival(context: Context, stream: Stream, at: s.Column) -> Stream:
    """A stream with the time of arrival of each row as a column; the row of a SELECT without FROM arrives now."""
    if stream.schema.names == (NOTHING,):
        return stream.select(NOTHING, **{ARRIVED: lit(datetime.now(UTC))})
    node = stamped(stream.node)
    if not is_stamped(node):
        raise context.error(
            at,
            "the time of arrival is that of a row of a source, and these rows are made by the query",
            given=to_sql(at),
            allowed=f"{at.name.text} in a SELECT over a source, before windows, joins and groups",
            instead=f"FROM (SELECT *, {at.name.text} AS arrived FROM source)",
        )
    outputs = tuple((name, col(name)) for name in stream.schema.names)
    return Stream(Select(node, (*outputs, (ARRIVED, col(ARRIVAL).cast(Type.DATETIME)))))
