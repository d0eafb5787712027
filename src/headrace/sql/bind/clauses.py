"""Clauses that stand for others: WINDOW, positions in the list, QUALIFY; ORDER BY and LIMIT in the order of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.api.stream import Stream
from headrace.errors import nearest
from headrace.expr import AggregateCall, col
from headrace.plan.instants import has_points
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.listed import at_position, named_in_list
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import Relation, Scope, visible
from headrace.sql.bind.times import starts
from headrace.sql.bind.windows import Tick
from headrace.sql.printer import to_sql
from headrace.sql.syntax.rewrite import rewritten

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["ORDERED", "behind_over", "in_order", "peek", "peeks", "qualified", "resolved", "with_windows"]

#: The column of a QUALIFY, and of the number of a row, until rows are chosen by it.
QUALIFIED, _PLACE = "_sql_qualify", "_sql_place"
#: The values of ORDER BY that are not in the list of a query, as columns behind it (`peek.py`).
ORDERED = "_sql_order"


def with_windows(context: Context, part: s.Select) -> s.Select:
    """The SELECT with the windows of its clause WINDOW in place of their names."""
    named: dict[str, s.Over] = {}

    def complete(one: s.Part) -> s.Part | None:
        if isinstance(one, (s.Subquery, s.Query)):
            return one
        return _completed(context, one, named) if isinstance(one, s.Over) and one.base is not None else None

    for window in part.windows:
        if window.name.text.lower() in named:
            raise context.error(window.name, f"there are two windows {window.name.text!r}", given=to_sql(window))
        named[window.name.text.lower()] = rewritten(window.over, complete)
    return rewritten(replace(part, windows=()), complete)


def _completed(context: Context, over: s.Over, named: Mapping[str, s.Over]) -> s.Over:
    assert over.base is not None
    base = named.get(over.base.text.lower())
    if base is None:
        raise context.error(
            over.base,
            f"there is no window {over.base.text!r}",
            given=over.base.text,
            allowed=", ".join(named) or "the names of a clause WINDOW name AS (…)",
            instead=nearest(over.base.text, named) or f"WINDOW {over.base.text} AS (PARTITION BY … ORDER BY …)",
        )
    for field in ("partition", "order"):
        if getattr(over, field) and getattr(base, field):
            raise context.error(
                over,
                f"the window {over.base.text!r} has its {field.upper()} BY already",
                given=to_sql(over),
                instead=f"OVER {over.base.text}",
            )
    if over == s.Over(base=over.base):
        return replace(base, at=over.at)
    partition, order = over.partition or base.partition, over.order or base.order
    framed = over if over.between or over.frame != "unbounded" else base
    return replace(framed, base=None, partition=partition, order=order, at=over.at)


def resolved(context: Context, part: s.Select, scope: Scope) -> s.Select:
    """The SELECT with positions in its list, and names of it in QUALIFY and ORDER BY, as what they stand for."""

    def placed(value: s.Expression, clause: str) -> s.Expression:
        place = at_position(context, value, part.entries, clause)
        return value if place is None else part.entries[place].value

    group = tuple(replace(entry, value=placed(entry.value, "GROUP BY")) for entry in part.group)
    order = tuple(replace(key, value=placed(key.value, "ORDER BY")) for key in part.order)
    entries = [
        replace(e, value=named_in_list(e.value, part.entries, scope))
        if e.alias and e.alias.text.startswith((QUALIFIED, ORDERED))
        else e
        for e in part.entries
    ]
    return replace(part, group=group, order=order, entries=tuple(entries))


# --- QUALIFY ---------------------------------------------------------------------------------------------------------


def qualified(queries: Queries, part: s.Select, tick: Tick) -> Stream:
    """The rows of a SELECT for which its QUALIFY holds: a column of the list beneath, by which they are chosen.

    ORDER BY and LIMIT are about these rows; their keys are columns of the list beneath, too.
    """
    assert part.qualify is not None
    if part.distinct and (part.limit is not None or part.order):
        raise queries.context.error(
            part.limit or part.order[0],
            "ORDER BY and LIMIT beside QUALIFY and DISTINCT stand around them",
            given=to_sql(part.limit or part.order[0]),
            instead="SELECT … FROM (SELECT DISTINCT … QUALIFY …) ORDER BY … LIMIT …",
        )
    queries.check_limit(part)
    hidden = _hidden(part.qualify, "")
    keys = _keys(queries.context, part)
    bare = replace(part, qualify=None, distinct=False, order=(), limit=None, entries=(*part.entries, hidden, *keys))
    beneath = queries.select(bare, tick)
    with queries.context.at(part.qualify):
        rows = beneath.where(col(QUALIFIED))
    return _chosen(queries, part, rows, tick)


def behind_over(queries: Queries, part: s.Select, item: Item, tick: Tick) -> Stream:
    """A SELECT with OVER, ORDER BY and LIMIT: these choose among rows that have the answers of OVER."""
    scope = Scope(queries.context, item.relations)
    order = tuple(replace(key, value=_ordering(key.value, part.entries, scope)) for key in part.order)
    part = replace(part, order=order)
    keys = _keys(queries.context, part)
    beneath = queries.selected(replace(part, order=(), limit=None, entries=(*part.entries, *keys)), item, tick)
    return _chosen(queries, part, beneath, tick)


def _keys(context: Context, part: s.Select) -> list[s.Entry]:
    """The keys of ORDER BY and of LIMIT as entries of the list beneath."""
    by = part.limit.by if part.limit is not None else ()
    values = [_in_list(context, part, key.value) for key in part.order] + list(by)
    return [_hidden(value, str(number)) for number, value in enumerate(values)]


def _chosen(queries: Queries, part: s.Select, rows: Stream, tick: Tick) -> Stream:
    """ORDER BY and LIMIT of rows that have their keys as columns, without these columns."""
    shown = [name for name in rows.schema.names if not name.startswith(QUALIFIED)]
    if part.limit is None and not part.order:
        return rows.select(*shown)
    columns = [s.Column(one.alias, at=one.at) for one in _keys(queries.context, part) if one.alias is not None]
    order = tuple(replace(key, value=column) for key, column in zip(part.order, columns, strict=False))
    limit = None if part.limit is None else replace(part.limit, by=tuple(columns[len(order) :]))
    entries = tuple(s.Entry(s.Column(s.Name(name, quoted=True)), at=part.at) for name in visible(shown))
    item = Item(rows, (Relation("", {name: name for name in rows.schema.names}),))
    return queries.selected(s.Select(entries, part.source, order=order, limit=limit, at=part.at), item, tick)


def _in_list(context: Context, part: s.Select, value: s.Expression) -> s.Expression:
    place = at_position(context, value, part.entries, "ORDER BY")
    return value if place is None else part.entries[place].value


def _hidden(value: s.Expression, number: str) -> s.Entry:
    return s.Entry(value, s.Name(f"{QUALIFIED}{number}", at=value.at), at=value.at)


# --- rows in the order of time ---------------------------------------------------------------------------------------


def in_order(queries: Queries, part: s.Select, item: Item) -> s.Select:
    """A SELECT without groups, without an ORDER BY of the stream's own time: rows come in that order.

    Other keys may be names of the list; a name alone is one before it is a column of FROM, as in the standard.
    """
    if not part.order:
        return part
    expressions = queries.expressions(item)
    values = [_ordering(key.value, part.entries, expressions.scope) for key in part.order]
    order = tuple(replace(key, value=value) for key, value in zip(part.order, values, strict=True))
    unlimited = part.limit is None or has_points(item.stream.node)
    if item.windowing is None and unlimited and not any(key.descending for key in order):
        times = [isinstance(value, s.Column) and starts(item, expressions.bind(value)) for value in values]
        order = () if all(times) else order
    return replace(part, order=order)


def _ordering(value: s.Expression, entries: Sequence[s.Entry], scope: Scope) -> s.Expression:
    if isinstance(value, s.Column) and value.stream is None:
        named = [e.value for e in entries if e.alias is not None and e.alias.text.lower() == value.name.text.lower()]
        if named:
            return named[0]
    return named_in_list(value, entries, scope)


def peeks(part: s.Select, item: Item) -> bool:
    """Whether LIMIT takes the first rows of a stream of instants, in the order of time."""
    return not part.order and item.windowing is None and item.windows is None and has_points(item.stream.node)


def peek(queries: Queries, part: s.Select, item: Item) -> Item:
    """The first rows of a stream, or of each key of LIMIT … BY."""
    limit = part.limit
    assert limit is not None
    if part.distinct:
        raise queries.context.error(
            limit,
            "LIMIT takes the first rows of the stream, before DISTINCT",
            given=to_sql(limit),
            instead="SELECT * FROM (SELECT DISTINCT …) LIMIT …",
        )
    expressions = queries.expressions(item)
    keys = [expressions.bind(key) for key in limit.by]
    with queries.context.at(limit):
        if limit.count < 1:
            raise queries.context.error(limit, "LIMIT takes at least one row", given=to_sql(limit), allowed="1, 2, …")
        numbered = item.stream.group_by(*keys).over().aggregate(**{_PLACE: AggregateCall("count")})
        until = limit.offset + limit.count
        rows = numbered.where((col(_PLACE) > limit.offset) & (col(_PLACE) <= until))
        return replace(item, stream=rows.select(*item.stream.schema.names))
