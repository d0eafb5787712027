"""Sub-queries beside aggregates: a SELECT over the answers of groups.

`SELECT k, sum(x) FROM t GROUP BY k HAVING sum(x) > (SELECT …)` groups first, and compares each group's answer then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.api.stream import Stream
from headrace.sql import syntax as s
from headrace.sql.bind.conditions import aggregate_calls, has_subquery, replaced
from headrace.sql.bind.expressions import Expressions
from headrace.sql.bind.grouping import column_name
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.bind.windows import Tick

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["over_groups"]

#: The relation of keys and aggregates. Only the binder names it.
_ANSWERS = "_sql_answers"


def over_groups(queries: Queries, part: s.Select, item: Item, tick: Tick) -> Stream | None:
    """A SELECT with groups whose list, HAVING or order has sub-queries: a SELECT over the answers of its groups."""
    around = [*part.entries, *part.order, *([] if part.having is None else [part.having])]
    known = queries.catalog.known
    calls = list(dict.fromkeys(call for one in around for call in aggregate_calls(one, known)))
    if not calls and not part.group:
        return None
    # What is inside an aggregate is answered before the groups.
    if not any(has_subquery(replaced(one, lambda e: s.Value(value=None) if e in calls else None)) for one in around):
        return None
    expressions = queries.expressions(item, aggregates=True)
    groups = [_aliased(entry.value, part, expressions.scope) for entry in part.group]
    names: dict[s.Expression, str] = {one: f"_sql_key{n}" for n, one in enumerate(groups)}
    names |= {one: f"_sql_value{n}" for n, one in enumerate(calls)}
    entries = tuple(s.Entry(one, s.Name(name), at=one.at) for one, name in names.items())
    inner = replace(part, entries=entries, having=None, order=(), limit=None, distinct=False)
    stream = queries.selected(inner, item, tick)
    plain = {expressions.scope.column(one): name for one, name in names.items() if isinstance(one, s.Column)}
    relations = [
        replace(one, columns={name: plain[theirs] for name, theirs in one.columns.items() if theirs in plain})
        for one in item.relations
    ]
    answers = Relation(_ANSWERS, {name: name for name in names.values()}, by_name=True)

    def after(one: s.Part) -> s.Part | None:
        return (
            s.Column(s.Name(names[one]), s.Name(_ANSWERS)) if isinstance(one, s.Expression) and one in names else None
        )

    listed = tuple(
        replace(
            one, value=replaced(one.value, after), alias=one.alias or s.Name(_called(one, expressions), quoted=True)
        )
        for one in part.entries
    )
    place = s.FromItem(s.Subquery(s.Query(inner, at=part.at), at=part.source.at), at=part.source.at)
    outer = s.Select(
        listed, place, where=replaced(part.having, after), order=replaced(part.order, after), limit=part.limit,
        distinct=part.distinct, at=part.at,
    )  # fmt: skip
    return queries.selected(outer, Item(stream, (*relations, answers)), tick)


def _aliased(value: s.Expression, part: s.Select, scope: Scope) -> s.Expression:
    """An entry of GROUP BY, which may be the name of an entry of the list."""
    if isinstance(value, s.Column) and value.stream is None and not scope.knows(value):
        for entry in part.entries:
            if entry.alias is not None and entry.alias.text.lower() == value.name.text.lower():
                return entry.value
    return value


def _called(entry: s.Entry, expressions: Expressions) -> str:
    return column_name(entry, None if has_subquery(entry) else expressions.bind(entry.value))
