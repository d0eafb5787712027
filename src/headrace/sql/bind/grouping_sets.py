"""GROUPING SETS, ROLLUP and CUBE: the union of a grouping for each set of keys.

A key that a set lacks is NULL in the answers of its groups, with the type of the key. The empty set is one group of
everything, and has a row also if there is nothing. `grouping(a, b)` is a number for each set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from typing import TYPE_CHECKING

from headrace.api.stream import Stream
from headrace.plan.windows import Grid
from headrace.sql import syntax as s
from headrace.sql.bind.conditions import replaced
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions, has_aggregate, inside
from headrace.sql.bind.grouping import column_name
from headrace.sql.bind.listed import at_position, named_in_list
from headrace.sql.bind.relations import Item, plain
from headrace.sql.bind.scope import MOMENTS, Relation
from headrace.sql.bind.sets import combined
from headrace.sql.bind.windows import Tick
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["by_sets", "has_sets", "is_grouping", "keys_of"]

#: How many sets a query may have: each is a grouping of its own.
MAX_SETS = 64
_FUNCTIONS = ("grouping", "grouping_id")
_Keys = tuple[s.Expression, ...]


def has_sets(part: s.Select) -> bool:
    """Whether a GROUP BY has several sets of keys, or the list asks which ones."""
    asked = (one for entry in part.entries for one in inside(entry) if isinstance(one, s.Expression))
    return any(isinstance(e.value, s.GroupingSets) for e in part.group) or (
        bool(part.group) and any(map(is_grouping, asked))
    )


def keys_of(value: s.Expression) -> list[s.Expression]:
    """The keys of an entry of GROUP BY, of all its sets."""
    if not isinstance(value, s.GroupingSets):
        return [value]
    return [key for one in inside(value) if isinstance(one, s.GroupSet) for key in one.keys]


def by_sets(queries: Queries, part: s.Select, item: Item, tick: Tick) -> Stream:
    """The answers of a SELECT for each set of keys of its GROUP BY."""
    group = [replace(entry, value=_resolved(queries, part, item, entry.value)) for entry in part.group]
    sets = _Sets(queries, item, _all_sets(queries.context, part, group))
    listed = tuple(
        replace(one, alias=one.alias or s.Name(sets.name(one), quoted=True, at=one.at)) for one in part.entries
    )
    having = None if part.having is None else named_in_list(part.having, part.entries, sets.expressions.scope)
    inner = replace(part, entries=listed, having=having, order=(), limit=None, distinct=False)
    streams = [plain(queries.selected(sets.select(inner, keys), item, tick)) for keys in sets.all]
    whole = streams[0]
    for stream in streams[1:]:
        whole = combined(queries.context, s.SetOperation("union", part, part, all=True, at=part.at), whole, stream)
    return _chosen(queries, replace(part, entries=listed), item, whole, tick)


def _chosen(queries: Queries, part: s.Select, item: Item, whole: Stream, tick: Tick) -> Stream:
    """DISTINCT, ORDER BY and LIMIT of all answers at an instant."""
    if not (part.distinct or part.order or part.limit):
        return whole
    window = item.windowing.window if item.windowing is not None else None
    if isinstance(window, Grid) and window.overlap > 1:
        raise queries.context.error(
            part.limit or part,
            "answers of overlapping windows hold at one time, and this chooses among all of them",
            given=str(window),
            allowed="windows that do not overlap",
            instead="SELECT … FROM (SELECT … GROUP BY …) …, for the answers at each instant",
        )
    values: dict[s.Part, s.Part] = {
        one.value: s.Column(one.alias, at=one.at) for one in part.entries if one.alias is not None
    }
    order = replaced(part.order, values.get)
    entries = tuple(replace(entry, value=s.Column(entry.alias, at=entry.at)) for entry in part.entries if entry.alias)
    outer = s.Select(entries, part.source, order=order, limit=part.limit, distinct=part.distinct, at=part.at)
    return queries.selected(outer, Item(whole, (Relation("", {name: name for name in whole.schema.names}),)), tick)


def _resolved(queries: Queries, part: s.Select, item: Item, value: s.Expression) -> s.Expression:
    """A key of GROUP BY, or sets of keys, without positions in the list and names of it."""
    context, scope = queries.context, queries.expressions(item).scope
    if isinstance(value, s.GroupingSets):
        return replace(value, sets=tuple(_resolved_set(queries, part, item, one) for one in value.sets))
    place = at_position(context, value, part.entries, "GROUP BY")
    return named_in_list(value, part.entries, scope) if place is None else part.entries[place].value


def _resolved_set(
    queries: Queries, part: s.Select, item: Item, one: s.GroupSet | s.GroupingSets
) -> s.GroupSet | s.GroupingSets:
    if isinstance(one, s.GroupSet):
        return replace(one, keys=tuple(_resolved(queries, part, item, key) for key in one.keys))
    return replace(one, sets=tuple(_resolved_set(queries, part, item, inner) for inner in one.sets))


# --- the sets of keys ------------------------------------------------------------------------------------------------


def _all_sets(context: Context, part: s.Select, group: Sequence[s.Entry]) -> list[_Keys]:
    """Every set of keys: each set of one entry of GROUP BY with each set of the others."""
    sides = [_sets(context, e.value) if isinstance(e.value, s.GroupingSets) else [(e.value,)] for e in group]
    number = 1
    for side in sides:
        number *= len(side)
    if number > MAX_SETS:
        raise _too_many(context, part.group[0])
    return [tuple(dict.fromkeys(chain.from_iterable(one))) for one in product(*sides)]


def _sets(context: Context, part: s.GroupingSets) -> list[_Keys]:
    if part.kind == "GROUPING SETS":
        return [one for inner in part.sets for one in _inner(context, inner)]
    for one in part.sets:
        if isinstance(one, s.GroupingSets):
            raise context.error(
                one, f"{part.kind} is of keys", given=to_sql(one), instead=f"GROUPING SETS ({to_sql(one)}, …)"
            )
    units = [one.keys for one in part.sets if isinstance(one, s.GroupSet)]
    if part.kind == "ROLLUP":
        chosen: Iterable[Sequence[_Keys]] = [units[:size] for size in range(len(units), -1, -1)]
    elif 2 ** len(units) > MAX_SETS:
        raise _too_many(context, part)
    else:
        chosen = chain.from_iterable(combinations(units, size) for size in range(len(units), -1, -1))
    return [tuple(chain.from_iterable(one)) for one in chosen]


def _inner(context: Context, part: s.GroupSet | s.GroupingSets) -> list[_Keys]:
    return [part.keys] if isinstance(part, s.GroupSet) else _sets(context, part)


def _too_many(context: Context, part: s.Part) -> Exception:
    return context.error(part, "each set is a grouping of its own, and there are too many", allowed=f"up to {MAX_SETS}")


# --- one set ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sets:
    """The sets of keys of a SELECT over the rows of its FROM."""

    queries: Queries
    item: Item
    all: Sequence[_Keys]

    @property
    def expressions(self) -> Expressions:
        return self.queries.expressions(self.item, aggregates=True)

    def name(self, entry: s.Entry) -> str:
        """What an entry of the list is called."""
        simple = isinstance(entry.value, (s.Column, s.Star)) or is_grouping(entry.value)
        return column_name(entry, None if simple else self.expressions.bind(_without_grouping(entry.value)))

    def select(self, part: s.Select, keys: _Keys) -> s.Select:
        """The SELECT of one set: other keys are NULL, and one group if there are no keys."""
        there = {self._called(key) for key in keys}
        windows = [key for one in self.all for key in one if self._of_window(key)]
        missing: Mapping[object, s.Expression] = {
            self._called(key): self._null(key)
            for one in self.all for key in one
            if self._called(key) not in there and not self._of_window(key)
        }  # fmt: skip

        def of_set(one: s.Part) -> s.Part | None:
            if isinstance(one, s.Call) and is_grouping(one):
                return self._grouping(one, there)
            if (
                isinstance(one, s.Call)
                and one.over is None
                and has_aggregate(replace(one, arguments=(), named=()), known)
            ):
                return one
            return missing.get(self._called(one)) if isinstance(one, s.Expression) else None

        known = self.queries.catalog.known
        group = tuple(s.Entry(key, at=key.at) for key in dict.fromkeys((*keys, *windows)))
        having = replaced(part.having, of_set) if part.having is not None else None
        if not group and having is None and not any(has_aggregate(entry, known) for entry in part.entries):
            having = s.Value(value=True, at=part.at)  # one group, also without an aggregate
        entries = tuple(replace(entry, value=replaced(entry.value, of_set)) for entry in part.entries)
        return replace(part, entries=entries, having=having, group=group)

    def _called(self, key: s.Expression) -> object:
        """A key as other expressions may write it, too: a column by its name in the plan."""
        scope = self.expressions.scope
        return scope.column(key) if isinstance(key, s.Column) and scope.knows(key) else key

    def _of_window(self, key: s.Expression) -> bool:
        """Whether a key is a time of the window, which divides the groups of all sets."""
        named = isinstance(key, s.Column) and key.name.text.lower() in MOMENTS
        return named and self._called(key) is key

    def _null(self, key: s.Expression) -> s.Expression:
        kind = self.expressions.bind(key).type(self.item.stream.schema)
        return s.Cast(s.Value(value=None, at=key.at), s.Name(kind.value, at=key.at), at=key.at)

    def _grouping(self, call: s.Call, there: set[object]) -> s.Expression:
        """The number whose bits say which of the arguments a set lacks, the last one in the lowest bit."""
        every = {self._called(key) for one in self.all for key in one}
        number = 0
        for argument in call.arguments:
            key = self._called(argument)
            if key not in every:
                raise self.queries.context.error(
                    argument,
                    "grouping tells which keys of GROUP BY a row is grouped by, and this is no key",
                    given=to_sql(argument),
                    allowed=", ".join(dict.fromkeys(to_sql(key) for one in self.all for key in one)),
                )
            number = 2 * number + (key not in there)
        return s.Cast(s.Number(number, at=call.at), s.Name("LONG"), at=call.at)


def is_grouping(value: s.Expression) -> bool:
    """Whether an expression is `grouping(…)`."""
    return isinstance(value, s.Call) and ".".join(part.text for part in value.name).lower() in _FUNCTIONS


def _without_grouping(value: s.Expression) -> s.Expression:
    found: s.Expression = replaced(value, lambda one: s.Number(0) if is_grouping(one) else None)  # type: ignore[arg-type]
    return found
