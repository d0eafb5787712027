"""Sub-queries and window functions beside aggregates, and an order by what the list lacks: a SELECT over the answers of
groups.

`SELECT k, sum(x) FROM t GROUP BY k HAVING sum(x) > (SELECT …)` groups first, and compares each group's answer then;
`rank() OVER (ORDER BY sum(x))` places the groups' answers that hold at each instant, or those of one window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.api.stream import Stream
from headrace.plan.instants import has_points
from headrace.plan.windows import Grid, Hopping
from headrace.sql import syntax as s
from headrace.sql.bind.conditions import aggregate_calls, columns_of, has_subquery, replaced
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions, inside
from headrace.sql.bind.grouping import column_name, not_grouped
from headrace.sql.bind.grouping_sets import is_grouping, keys_of
from headrace.sql.bind.relations import Item, plain
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.bind.times import window_times
from headrace.sql.bind.windows import Tick
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["over_groups"]

#: The relation of keys and aggregates. Only the binder names it.
_ANSWERS = "_sql_answers"


def over_groups(queries: Queries, part: s.Select, item: Item, tick: Tick) -> Stream | None:
    """A SELECT over the answers of its groups, if its list, HAVING or order needs more than these; else None."""
    around = [*part.entries, *part.order, *([] if part.having is None else [part.having])]
    known = queries.catalog.known
    calls = list(dict.fromkeys(call for one in around for call in aggregate_calls(one, known)))
    if not calls and not part.group:
        return None
    # What is inside an aggregate is answered before the groups.
    asks = any(has_subquery(replaced(one, lambda e: s.Value(value=None) if e in calls else None)) for one in around)
    framed = _is_framed(part) and (bool(calls) or _makes_groups(item))
    if not asks and not framed and not _is_ordered_by_others(part):
        return None
    window = s.Entry(s.Column(s.Name("window_start")))  # answers of different windows stay apart, also equal ones
    expressions = queries.expressions(window_times(replace(part, group=(*part.group, window)), item), aggregates=True)
    groups = list(dict.fromkeys(_aliased(key, part, expressions.scope) for e in part.group for key in keys_of(e.value)))
    calls += [one for part in around for one in inside(part) if isinstance(one, s.Call) and is_grouping(one)]
    groups += [one for one in _times_of_windows(around, item, expressions.scope) if one not in groups]
    names: dict[s.Expression, str] = {one: f"_sql_key{n}" for n, one in enumerate(groups)}
    names |= {one: f"_sql_value{n}" for n, one in enumerate(calls)}
    entries = tuple(s.Entry(one, s.Name(name), at=one.at) for one, name in names.items())
    grouped = tuple(replace(entry, value=_aliased(entry.value, part, expressions.scope)) for entry in part.group)
    inner = replace(part, entries=entries, group=grouped, having=None, order=(), limit=None, distinct=False)
    stream = plain(queries.selected(inner, item, tick))
    columns = {expressions.scope.column(one): name for one, name in names.items() if isinstance(one, s.Column)}
    relations = [
        replace(one, columns={name: columns[theirs] for name, theirs in one.columns.items() if theirs in columns})
        for one in item.relations
    ]
    answers = Relation(_ANSWERS, {name: name for name in names.values()}, by_name=True)

    def after(one: s.Part) -> s.Part | None:
        return (
            s.Column(s.Name(names[one]), s.Name(_ANSWERS), at=one.at)
            if isinstance(one, s.Expression) and one in names
            else None
        )

    listed = tuple(
        replace(
            one, value=replaced(one.value, after), alias=one.alias or s.Name(_called(one, expressions), quoted=True)
        )
        for one in part.entries
    )
    for one in (*listed, *([] if part.having is None else [replaced(part.having, after)])):
        for column in columns_of(one):
            if expressions.scope.knows(column) and expressions.scope.column(column) not in columns:
                raise not_grouped(queries.context, column, to_sql(column))
    place = s.FromItem(s.Subquery(s.Query(inner, at=part.at), at=part.source.at), at=part.source.at)
    outer = s.Select(
        listed, place, where=replaced(part.having, after), order=replaced(part.order, after),
        limit=replaced(part.limit, after), distinct=part.distinct, at=part.at,
    )  # fmt: skip
    if not (framed or outer.limit or outer.distinct):
        return queries.selected(outer, Item(stream, (*relations, answers)), tick)
    apart, size = _apart(queries.context, part, item, stream, asks=asks)
    found = queries.selected(outer, Item(apart, (*relations, answers)), tick)
    return found if size is None else found.set_duration(size)


def _is_framed(part: s.Select) -> bool:
    places = (*part.entries, *part.order)
    return any(isinstance(one, s.Call) and one.over is not None for place in places for one in inside(place))


def _makes_groups(item: Item) -> bool:
    """Whether GROUP BY alone makes rows: a stream of instants without a window stays as it is."""
    return item.windowing is not None or item.windows is not None or not has_points(item.stream.node)


def _is_ordered_by_others(part: s.Select) -> bool:
    """Whether the answers that LIMIT takes are ordered by what is not in the list."""
    if part.limit is None:
        return False
    names = {column_name(entry).lower() for entry in part.entries}
    values = [entry.value for entry in part.entries]

    def there(key: s.Expression) -> bool:
        return key in values or all(
            isinstance(one, s.Column) and one.stream is None and one.name.text.lower() in names
            for one in inside(key) if isinstance(one, (s.Column, s.Call))
        )  # fmt: skip

    return not all(map(there, (*(key.value for key in part.order), *part.limit.by)))


def _times_of_windows(around: Sequence[s.Part], item: Item, scope: Scope) -> list[s.Column]:
    """The times of the window as expressions over the answers use them, and its start: each answer has them."""
    used = [one for part in around for one in inside(part) if isinstance(one, s.Column) and one.stream is None]
    times = [one for one in used if one.name.text.lower() in ("window_start", "window_end")]
    if item.windows is not None or (item.windowing is not None and isinstance(item.windowing.window, Grid)):
        times.append(s.Column(s.Name("window_start")))
    return [one for one in dict.fromkeys(times) if scope.knows(one) and scope.column(one).endswith("()")]


def _apart(context: Context, part: s.Select, item: Item, made: Stream, *, asks: bool) -> tuple[Stream, int | None]:
    """Answers such that those of one window alone hold at an instant, and how long they last."""
    window = item.windows or (item.windowing.window if item.windowing is not None else None)
    if not isinstance(window, Grid) or window.overlap <= 1:
        return made, None
    if isinstance(window, Hopping) and not asks and not part.distinct:
        return made.set_duration(window.hop), window.size
    raise context.error(
        part,
        "OVER, DISTINCT and LIMIT choose among the answers of a window, so calendar windows, and windows beside "
        "sub-queries or DISTINCT, may not overlap here",
        given=str(window),
        allowed="windows that do not overlap",
        instead="SELECT … FROM (SELECT … GROUP BY …) …, for the answers at each instant",
    )


def _aliased(value: s.Expression, part: s.Select, scope: Scope) -> s.Expression:
    """An entry of GROUP BY, which may be the name of an entry of the list."""
    if isinstance(value, s.Column) and value.stream is None and not scope.knows(value):
        for entry in part.entries:
            if entry.alias is not None and entry.alias.text.lower() == value.name.text.lower():
                return entry.value
    return value


def _called(entry: s.Entry, expressions: Expressions) -> str:
    framed = any(isinstance(one, s.Call) and one.over is not None for one in inside(entry))
    return column_name(entry, None if framed or has_subquery(entry) else expressions.bind(entry.value))
