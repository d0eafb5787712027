"""Sub-queries as relations that are joined with the rows around them.

A sub-query that uses no columns outside stands for itself. Where equalities of its WHERE alone connect it, they leave
it and become keys of a join; what it computes, it computes for each value of its side of them. Everything else (other
conditions beside aggregates, columns outside in its list, its FROM or in queries inside it) is computed for the values
that are there outside: its *domain*, which stands before its own FROM, groups it and connects it with the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Literal

from headrace.api.stream import Stream
from headrace.errors import SqlError
from headrace.expr import Expr, col
from headrace.plan.instants import has_points
from headrace.plan.nodes import Select
from headrace.plan.windows import Snapshot
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import LiveEntry
from headrace.sql.bind.clauses import QUALIFIED
from headrace.sql.bind.conditions import aggregate_calls, all_of, columns_of, conjuncts, has_subquery, replaced
from headrace.sql.bind.context import Context
from headrace.sql.bind.correlation import Domain, Inner, divided, equates, exposed, inner_column, outer_columns
from headrace.sql.bind.expressions import has_aggregate
from headrace.sql.bind.expressions import inside as parts_inside
from headrace.sql.bind.grouping import column_name
from headrace.sql.bind.joins import Joins
from headrace.sql.bind.listed import named_in_list
from headrace.sql.bind.recursion import with_named
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.bind.sets import combined
from headrace.sql.bind.windows import Tick, Windowing
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["OWN", "Inners", "beside", "own_column"]

#: The relation of the columns that sub-queries add to rows. Only the binder names it.
OWN = "_sql_sub"
#: Aggregates that are 0 of nothing.
_COUNTS = frozenset({"count", "distinct_count", "approx_distinct", "approx_count_distinct"})
_After = Callable[[s.Expression], s.Expression]


@dataclass(frozen=True)
class Inners:
    """Binds sub-queries and joins them with the rows around them."""

    queries: Queries
    tick: Tick

    @property
    def context(self) -> Context:
        return self.queries.context

    def of(
        self,
        query: s.Query,
        outer: Item,
        *,
        values: int | None = 0,
        single: s.ScalarQuery | None = None,
        total: bool = False,
    ) -> Inner:
        """A sub-query as a stream with `values` columns (None: all of its own), and others for what connects it.

        `single`: it gives at most one row for a row outside, or this place is an error. `total`: an aggregate without
        groups has no row where there is nothing; who asks knows what it would be.
        """
        queries = with_named(replace(self.queries, renames=True), query)
        asked = replace(query, body=_relevant(query.body, values), named=())
        if values == 0 and isinstance(query.body, s.SetOperation):
            values = None  # all columns of both sides decide which rows there are
        free = (name for n in count() if (name := f"{OWN}{n}") not in outer.stream.schema)
        bound = _Bound(self, queries, asked, outer, values, single, total, free)
        return replace(bound.inner(), query=query)

    def totals(self, query: s.Query, item: Item, single: s.ScalarQuery | None = None) -> tuple[_After, Item]:
        """The aggregates of a sub-query without groups beside each row, and how expressions over them are written."""
        body = query.body
        assert isinstance(body, s.Select)
        parts = (*body.entries, *([] if body.having is None else [body.having]))
        known = self.queries.catalog.known
        calls = list(dict.fromkeys(call for part in parts for call in aggregate_calls(part, known)))
        entries = tuple(s.Entry(call, at=call.at) for call in calls)
        asked = replace(body, entries=entries, having=None, order=(), limit=None, distinct=False)
        inner = self.of(replace(query, body=asked), item, values=len(calls), single=single, total=True)
        columns = dict(zip(calls, (own_column(one.name.text) for one in inner.values), strict=True))

        def after(one: s.Part) -> s.Part | None:
            if not isinstance(one, s.Call) or one not in columns:
                return None
            counts = one.name[-1].text.lower() in _COUNTS
            return s.Call((s.Name("coalesce"),), (columns[one], s.Number(0)), at=one.at) if counts else columns[one]

        joined = self.met(item, inner, (), "left")
        return lambda part: replaced(part, after), beside(item, joined.stream, *inner.item.relations)

    def met(
        self,
        item: Item,
        inner: Inner,
        more: Sequence[s.Expression],
        kind: Literal["semi", "anti", "left", "inner"],
        called: Relation | None = None,
    ) -> Item:
        """The rows joined with a sub-query; `called` is what the conditions may call it."""
        on = all_of((*more, *inner.conditions))
        place = s.FromItem(s.Subquery(inner.query, at=inner.query.at), at=inner.query.at)
        joins = Joins(self.context, self.queries.catalog.known, instants=inner.same is not None)
        same = [(col(theirs), col(name)) for name, theirs in (inner.same or {}).items()]
        right = inner.item if called is None else replace(inner.item, relations=(called, *inner.item.relations))
        found = joins.joined(replace(item, windowing=None), right, s.Join(kind, place, on, at=place.at), same)
        return replace(item, stream=found.stream)

    def aggregates(self, body: s.Select) -> bool:
        """Whether a SELECT has aggregates."""
        parts = (*body.entries, *([] if body.having is None else [body.having]))
        return any(has_aggregate(one, self.queries.catalog.known) for one in parts)


@dataclass(frozen=True)
class _Bound:
    """One sub-query over the rows around it: what `Inners.of` is asked."""

    inners: Inners
    queries: Queries
    query: s.Query
    outer: Item
    values: int | None
    single: s.ScalarQuery | None
    total: bool
    free: Iterator[str]

    @property
    def context(self) -> Context:
        return self.queries.context

    @property
    def around(self) -> Scope:
        return Scope(self.context, self.outer.relations)

    def inner(self) -> Inner:
        body, tick = self.query.body, self.inners.tick
        try:
            if not isinstance(body, s.Select) or body.qualify is not None:
                found = self._whole(self.queries.query(self.query))
                self._check_single(unique=isinstance(body, s.Values) and len(body.rows) == 1)
                return found
            item, rest = self.queries.rows(body, tick)
        except SqlError:
            used = outer_columns(self.queries, self.query, self.around, tick)
            if not used:
                raise
            return self._over_domain(used)
        inside = Scope(self.context, item.relations, self.around)
        own, outside = divided(rest.where, inside, self.around)
        rest = replace(rest, where=all_of(own), entries=self._listed(rest, inside))
        used = outer_columns(self.queries, rest, self.around, tick, inside)
        if not outside and not used:
            return self._alone(rest, item)
        self._check_columns(rest)
        whole = self.inners.aggregates(rest) and not rest.group and not self.total
        if used or whole or (self._per_row(rest) and not _by_equalities(outside, inside)):
            connecting = [one for condition in outside for one in columns_of(condition) if not inside.mentions(one)]
            return self._over_domain(list(dict.fromkeys((*used, *connecting))))
        return self._connected(rest, item, outside, inside)

    # --- sub-queries that stand for themselves -----------------------------------------------------------------------

    def _alone(self, part: s.Select, item: Item) -> Inner:
        first = part.limit is not None and part.limit.count <= 1 and not part.limit.by
        one = not self.inners.aggregates(part) and self._has_key(part, Scope(self.context, item.relations), set())
        unique = one or (self.inners.aggregates(part) and not part.group)
        self._check_single(unique=first or unique)
        if self.values == 0 and not self._grouped(part):
            part = replace(part, entries=(s.Entry(s.Value(value=True), s.Name("_")),), order=(), limit=None)
        return self._whole(self.queries.selected(part, item, self.inners.tick))

    def _whole(self, stream: Stream) -> Inner:
        if self.values and len(stream.schema) != self.values:
            raise self.context.error(
                self.query,
                f"this sub-query has {len(stream.schema)} columns",
                given=str(stream.schema),
                allowed="one column",
            )
        names = dict(zip(stream.schema.names, self.free, strict=False))
        renamed = Stream(Select(stream.node, tuple((new, col(name)) for name, new in names.items())))
        values = tuple(map(inner_column, names.values()))[: self.values]
        return Inner(self.query, renamed, values, (), tuple(names))

    # --- connected by equalities, or by conditions on each pair of rows ----------------------------------------------

    def _connected(self, part: s.Select, item: Item, outside: list[s.Expression], inside: Scope) -> Inner:
        """A sub-query without the conditions that connect it, with the columns that these use."""
        shown = self._shown(part)
        connected: dict[s.Expression, s.Name] = {}

        def expose(one: s.Expression) -> s.Column:
            if one not in connected:
                connected[one] = s.Name(next(self.free))
            return inner_column(connected[one].text, at=one.at)

        conditions = tuple(exposed(one, inside, expose) for one in outside)
        keys = [one for one in connected if any(equates(condition, one, inside) for condition in outside)]
        entries = (*shown, *(s.Entry(one, name, at=one.at) for one, name in connected.items()))
        entries = entries or (s.Entry(s.Value(value=True), s.Name(next(self.free)), at=part.at),)
        fixed = {_resolved(one, inside) for one in keys}
        groups_fixed = all(_resolved(entry.value, inside) in fixed for entry in part.group)
        grouped = self.inners.aggregates(part) or bool(part.group)
        unique = groups_fixed if grouped else self._has_key(part, inside, fixed)
        self._check_single(unique=unique or _first(part))
        changed = self._for_each(replace(part, entries=entries), keys)
        if self.values == 0 and not self._grouped(part):
            changed = replace(changed, order=(), distinct=False)
        found = self.queries.selected(changed, item, self.inners.tick)
        return Inner(self.query, found, _columns(shown), conditions, self._names(part, item))

    # --- over the values that are there outside ----------------------------------------------------------------------

    def _over_domain(self, used: list[s.Column]) -> Inner:
        domain = Domain.of(self.around, self.outer, used, self.free)
        body = self.query.body
        unique = isinstance(body, s.Select) and (_first(body) or (self.inners.aggregates(body) and not body.group))
        self._check_single(unique=unique or (isinstance(body, s.Values) and len(body.rows) == 1))
        stream, names = self._each(body, domain)
        values = [name for name in stream.schema.names if name not in domain.columns]
        columns = tuple(map(inner_column, values))[: self.values]
        return Inner(self.query, stream, columns, (), tuple(names), domain.columns)

    def _each(self, body: s.Body, domain: Domain) -> tuple[Stream, Sequence[str]]:
        """The answers for each row of the domain, with its columns behind their own; and what people call these."""
        if isinstance(body, s.Values):
            return self._each(_as_selects(body), domain)
        if isinstance(body, s.SetOperation):
            left, names = self._each(body.left, domain)
            return combined(self.context, body, left, self._each(body.right, domain)[0]), names
        if self.inners.aggregates(body) and not body.group and not self.total:
            return self._each_total(body, domain)
        item, part = self.queries.rows(body, self.inners.tick, domain.item)
        own = Scope(self.context, tuple(one for one in item.relations if not one.level))
        part = replace(part, entries=self._listed(part, own))
        self._check_columns(part)
        order = tuple(replace(key, value=named_in_list(key.value, part.entries, own)) for key in part.order)
        group = tuple(replace(key, value=named_in_list(key.value, part.entries, own)) for key in part.group)
        having = None if part.having is None else named_in_list(part.having, part.entries, own)
        keys = domain.keys
        shown = self._shown(part)
        entries = (*shown, *(s.Entry(one, one.name) for one in keys))
        if part.qualify is not None:
            chosen = named_in_list(part.qualify, part.entries, own)
            entries = (*entries, s.Entry(chosen, s.Name(QUALIFIED), at=chosen.at))
        changed = replace(part, entries=entries, order=order, group=group, having=having, qualify=None)
        changed = self._for_each(changed, keys)
        if has_points(item.stream.node) and (self._grouped(changed) or changed.group):
            item = replace(item, windowing=Windowing(part.source, Snapshot(), (), self.queries.policy))
        found = self.queries.selected(changed, item, self.inners.tick)
        if part.qualify is not None:
            found = found.where(col(QUALIFIED)).select(*(n for n in found.schema.names if n != QUALIFIED))
        return found, self._names(part, item)

    def _each_total(self, body: s.Select, domain: Domain) -> tuple[Stream, Sequence[str]]:
        """An aggregate without groups: there is an answer also where it is about nothing."""
        after, rows = self.inners.totals(s.Query(body, at=body.at), domain.item)
        binder = self.queries.expressions(rows)
        if body.having is not None:
            rows = replace(rows, stream=rows.stream.where(binder.predicate(after(body.having))))
        values: list[tuple[str, Expr]] = [(next(self.free), binder.bind(after(one.value))) for one in body.entries]
        outputs = (*values, *((name, col(name)) for name in domain.columns))
        return Stream(Select(rows.stream.node, outputs)), [column_name(entry) for entry in body.entries]

    # --- parts -------------------------------------------------------------------------------------------------------

    def _for_each(self, part: s.Select, keys: Sequence[s.Expression]) -> s.Select:
        """A SELECT that answers for each value of some keys: groups, LIMIT and OVER are within them."""

        def within(one: s.Part) -> s.Part | None:
            if not isinstance(one, s.Over):
                return None
            return replace(one, partition=tuple(dict.fromkeys((*one.partition, *keys))))

        if self.inners.aggregates(part) or part.group:
            group = (*part.group, *(s.Entry(one, at=one.at) for one in keys))
            part = replace(part, group=tuple(dict.fromkeys(group)))
        if part.limit is not None:
            part = replace(part, limit=replace(part.limit, by=(*part.limit.by, *keys)))
        entries: tuple[s.Entry, ...] = replaced(part.entries, within)
        return replace(part, entries=entries)

    def _listed(self, part: s.Select, scope: Scope) -> tuple[s.Entry, ...]:
        """The entries that are asked for, without stars where all are."""
        if self.values == 0 and not self._grouped(part):
            return (s.Entry(s.Value(value=True), s.Name("_")),)
        if self.values is not None:
            return part.entries
        entries: list[s.Entry] = []
        for entry in part.entries:
            if isinstance(entry.value, s.Star):
                entries += [_star_column(scope, name, theirs, entry) for name, theirs in scope.star(entry.value)]
            else:
                entries.append(entry)
        return tuple(entries)

    def _shown(self, part: s.Select) -> tuple[s.Entry, ...]:
        """The entries that are values, under free names."""
        return tuple(s.Entry(one.value, s.Name(next(self.free)), at=one.at) for one in part.entries[: self.values])

    def _names(self, part: s.Select, item: Item) -> tuple[str, ...]:
        """What people call the values."""
        if self.values is not None:
            return ()
        binder = self.queries.expressions(item, aggregates=True)
        known = self.queries.catalog.known
        plain = [has_aggregate(one, known) and not has_subquery(one) and not _framed(one) for one in part.entries]
        return tuple(
            column_name(entry, binder.bind(entry.value) if bound else None)
            for entry, bound in zip(part.entries, plain, strict=True)
        )

    def _grouped(self, part: s.Select) -> bool:
        """Whether its rows are made of several."""
        return bool(self.inners.aggregates(part) or part.having is not None or part.limit is not None)

    def _per_row(self, part: s.Select) -> bool:
        """Whether what it gives for a row outside is made of all that this row is connected with."""
        framed = any(map(_framed, part.entries))
        distinct = part.distinct and self.values is None
        return self._grouped(part) or bool(part.group) or self.single is not None or framed or distinct

    def _check_columns(self, part: s.Select) -> None:
        if not self.values:
            return
        stars = [entry for entry in part.entries[: self.values] if isinstance(entry.value, s.Star)]
        if stars or len(part.entries) != self.values:
            raise self.context.error(
                self.query,
                "this sub-query has one column",
                given=to_sql(self.query),
                instead="(SELECT column FROM … WHERE …)",
            )

    def _has_key(self, part: s.Select, inside: Scope, fixed: set[s.Expression | str]) -> bool:
        """Whether the rows are those of one table, and these values are its PRIMARY KEY: there is one row at most."""
        place = part.source
        if part.joins or part.group or place.brackets or not isinstance(place.stream, s.Name):
            return False
        entries = self.queries.catalog.tables
        entry = entries.get(self.queries.catalog.key(place.stream.text, entries) or "")
        if not isinstance(entry, LiveEntry) or not entry.table.live.key:
            return False
        constant = {_resolved(one, inside) for one in map(_equals_constant, conjuncts(part.where)) if one is not None}
        return all(_resolved(s.Column(s.Name(name)), inside) in fixed | constant for name in entry.table.live.key)

    def _check_single(self, *, unique: bool) -> None:
        part = self.single
        if part is not None and not unique:
            value = to_sql(part.query.body.entries[0].value) if isinstance(part.query.body, s.Select) else "x"
            raise self.context.error(
                part,
                "a sub-query that is a value may give only one row, and this one may give several",
                given=to_sql(part),
                allowed="aggregates, ORDER BY … LIMIT 1, the row of a PRIMARY KEY, or groups by what connects it with "
                "the row outside",
                instead=f"(SELECT max({value}) …), or (SELECT {value} … ORDER BY … LIMIT 1)",
            )


def own_column(name: str) -> s.Column:
    """A column that a sub-query has added to the rows."""
    return s.Column(s.Name(name), s.Name(OWN))


def beside(item: Item, stream: Stream, *relations: Relation) -> Item:
    """Rows with more columns, which only the binder names."""
    before = {name: plan for one in item.relations if one.name == OWN for name, plan in one.columns.items()}
    columns = before | {name: plan for one in relations for name, plan in one.columns.items()}
    others = tuple(one for one in item.relations if one.name != OWN)
    return replace(item, stream=stream, relations=(*others, Relation(OWN, columns, by_name=True)))


def _relevant(body: s.Body, values: int | None) -> s.Body:
    """Whether there is a row does not depend on its order, nor on a LIMIT."""
    limit = body.limit if isinstance(body, s.Select) else None
    if values == 0 and isinstance(body, s.Select) and limit is not None and limit.count > limit.offset == 0:
        return replace(body, order=(), limit=None)
    return body


def _framed(part: s.Part) -> bool:
    return any(isinstance(one, s.Over) for one in parts_inside(part))


def _first(part: s.Select) -> bool:
    return part.limit is not None and part.limit.count <= 1 and not part.limit.by


def _columns(shown: Sequence[s.Entry]) -> tuple[s.Column, ...]:
    return tuple(inner_column(one.alias.text) for one in shown if one.alias)


def _by_equalities(conditions: Sequence[s.Expression], inside: Scope) -> bool:
    """Whether a sub-query has a part in conditions only by equalities with expressions over the rows around it."""
    exposures: list[tuple[s.Expression, s.Expression]] = []

    def expose(one: s.Expression) -> s.Column:
        exposures.append((one, condition))
        return inner_column("")

    for condition in conditions:
        exposed(condition, inside, expose)
    return all(equates(one_condition, one, inside) for one, one_condition in exposures)


def _equals_constant(part: s.Expression) -> s.Column | None:
    """The column of `id = 5`; None for any other condition."""
    if not isinstance(part, s.Binary) or part.operator != "=":
        return None
    for one, other in ((part.left, part.right), (part.right, part.left)):
        if isinstance(one, s.Column) and isinstance(other, (s.Number, s.Text, s.TypedText, s.DateTime)):
            return one
    return None


def _resolved(part: s.Expression, scope: Scope) -> s.Expression | str:
    """What tells whether two expressions of a sub-query are the same: of columns, their names in the plan."""
    return scope.column(part) if isinstance(part, s.Column) and scope.knows(part) else part


def _star_column(scope: Scope, name: str, theirs: str, entry: s.Entry) -> s.Entry:
    """A column that `*` stands for."""
    for relation in scope.relations:
        for own, plan in relation.columns.items():
            if plan == theirs and not relation.by_name:
                stream = s.Name(relation.name, quoted=True) if relation.name else None
                return s.Entry(s.Column(s.Name(own, quoted=True), stream, at=entry.at), s.Name(name), at=entry.at)
    raise AssertionError(theirs)


def _as_selects(part: s.Values) -> s.Body:
    """VALUES as SELECTs without FROM."""
    selects = [
        s.Select(
            tuple(s.Entry(one, s.Name(f"column{n}"), at=one.at) for n, one in enumerate(row.values, start=1)),
            s.NO_SOURCE,
            at=row.at,
        )
        for row in part.rows
    ]
    body: s.Body = selects[0]
    for one in selects[1:]:
        body = s.SetOperation("union", body, one, all=True, at=part.at)
    return body
