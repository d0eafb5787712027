"""Queries inside expressions: `EXISTS`, `IN`, `ANY`, `ALL` and single values become joins.

A sub-query may use columns of the query around it in conditions of its WHERE; it is *correlated* then. These conditions
leave the sub-query and become those of a join with it; what they use of the sub-query becomes columns of it. So a row
has, at every instant, the answer that the sub-query gives for it then:

- `EXISTS`, `IN` and `ANY` among the conditions of WHERE are semi joins, `NOT EXISTS` and `NOT IN` anti joins.
  Elsewhere, such as under OR, they are columns: true in the rows of the semi join, false in those of the anti join.
- A single value is a left join with the aggregates of the sub-query, grouped by what correlates it. The expression
  around the aggregates is computed after the join, where a count of nothing is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from headrace.api.stream import Stream
from headrace.expr import Expr, col, lit
from headrace.plan.instants import has_points
from headrace.plan.nodes import Select
from headrace.plan.windows import Snapshot
from headrace.sql import syntax as s
from headrace.sql.bind.conditions import aggregate_calls, all_of, columns_of, conjuncts, has_subquery, replaced
from headrace.sql.bind.context import Context
from headrace.sql.bind.correlation import Inner, divided, equates, exposed, inner_column
from headrace.sql.bind.expressions import has_aggregate
from headrace.sql.bind.joins import Joins
from headrace.sql.bind.recursion import with_named
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.bind.windows import Tick
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["Subqueries"]

#: The relation of the columns that sub-queries add to rows. Only the binder names it.
_OWN = "_sql_sub"
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_Test = s.Exists | s.InQuery | s.Quantified


@dataclass(frozen=True)
class Subqueries:
    """Rewrites one SELECT and its rows so that no expression has a query inside."""

    queries: Queries
    tick: Tick

    @property
    def context(self) -> Context:
        return self.queries.context

    def applied(self, part: s.Select, item: Item) -> tuple[s.Select, Item]:
        """The SELECT without sub-queries, over rows that have their answers as columns."""
        if not any(has_subquery(one) for one in _clauses(part)):
            return part, item
        self._check_window(part, item)
        part, item = self._filtered(part, item)
        entries = []
        for entry in part.entries:
            if has_subquery(entry):
                alias = entry.alias or s.Name(to_sql(entry.value), quoted=True, at=entry.at)
                value, item = self._without(entry.value, item)
                entry = replace(entry, value=value, alias=alias)
            entries.append(entry)
        group, item = self._all_without(part.group, item)
        order, item = self._all_without(part.order, item)
        return replace(part, entries=tuple(entries), group=group, order=order), item

    def _check_window(self, part: s.Select, item: Item) -> None:
        windowing = item.windowing
        if item.windows is None and (windowing is None or isinstance(windowing.window, Snapshot)):
            return
        if windowing is None or not windowing.divides_time or not has_points(item.stream.node):
            raise self.context.error(
                part.source,
                "a sub-query is answered at every instant, and a window has many",
                given=to_sql(part.source),
                allowed="a sub-query in a SELECT without a window, or with a window of time over instants",
                instead=f"FROM (SELECT … FROM {to_sql(replace(part.source, brackets=()))} WHERE …) [TUMBLING 10 s]",
            )

    # --- clauses -----------------------------------------------------------------------------------------------------

    def _filtered(self, part: s.Select, item: Item) -> tuple[s.Select, Item]:
        """Conditions with a sub-query are applied; the others first, so that there are fewer rows."""
        if part.where is None or not has_subquery(part.where):
            return part, item
        conditions = conjuncts(part.where)
        plain = all_of(one for one in conditions if not has_subquery(one))
        if plain is not None:
            item = replace(item, stream=item.stream.where(self.queries.expressions(item).predicate(plain)))
        kept: list[s.Expression] = []
        for one in conditions:
            if not has_subquery(one):
                continue
            test, negated = _test(one)
            if test is None:
                value, item = self._without(one, item)
                kept.append(value)
            else:
                item = self._tested(test, item, negated=negated)
        return replace(part, where=all_of(kept)), item

    def _all_without(self, parts: tuple[Any, ...], item: Item) -> tuple[tuple[Any, ...], Item]:
        found = []
        for one in parts:
            value = one
            if has_subquery(one):
                inner, item = self._without(one.value, item)
                value = replace(one, value=inner)
            found.append(value)
        return tuple(found), item

    def _without(self, part: s.Expression, item: Item) -> tuple[s.Expression, Item]:
        """An expression whose sub-queries are columns of the rows."""
        rows = item

        def column(one: s.Part) -> s.Part | None:
            nonlocal rows
            if isinstance(one, s.ScalarQuery):
                found, rows = self._scalar(one, rows)
            elif isinstance(one, s.Exists):
                found, rows = self._marked(self._inner(one.query, rows), (), rows)
            elif isinstance(one, (s.InQuery, s.Quantified)):
                found, rows = self._compared(one, rows)
            else:
                return None
            return found

        return replaced(part, column), rows

    # --- EXISTS, IN, ANY, ALL ----------------------------------------------------------------------------------------

    def _tested(self, test: _Test, item: Item, *, negated: bool) -> Item:
        """The rows for which a test holds."""
        if isinstance(test, s.Exists):
            if self._always(test.query):
                return replace(item, stream=item.stream.where(lit(not negated)))
            return self._met(item, self._inner(test.query, item), (), "anti" if negated else "semi")
        value, operator, against = _comparison(test)
        value, item = self._without(value, item)
        inner = self._inner(test.query, item, values=1)
        match = s.Binary(operator, value, inner.values[0], at=test.at)
        if negated is against:  # no double negation, or two
            return self._met(item, inner, (match,), "semi")
        return self._in_none(value, match, inner, item)

    def _in_none(self, value: s.Expression, match: s.Expression, inner: Inner, item: Item) -> Item:
        """The rows that match nothing, for certain: no row inside is NULL, and the value is not, if there are any."""
        item = self._met(item, inner, (match,), "anti")
        item = self._met(item, self._present(inner, nulls=True), (), "anti")
        known = self.queries.expressions(item).bind(s.IsNull(value, negated=True, at=value.at))
        unknown = self.queries.expressions(item).bind(s.IsNull(value, at=value.at))
        rest = self._met(
            replace(item, stream=item.stream.where(unknown)), self._present(inner, nulls=False), (), "anti"
        )
        return replace(item, stream=item.stream.where(known).union(rest.stream))

    def _compared(self, test: s.InQuery | s.Quantified, item: Item) -> tuple[s.Expression, Item]:
        """A comparison with rows as a column: true, false, or NULL where a NULL decides."""
        value, operator, against = _comparison(test)
        value, item = self._without(value, item)
        inner = self._inner(test.query, item, values=1)
        match = s.Binary(operator, value, inner.values[0], at=test.at)
        found, item = self._marked(inner, (match,), item)
        nulls, item = self._marked(self._present(inner, nulls=True), (), item)
        some, item = self._marked(self._present(inner, nulls=False), (), item)
        unknown = s.Binary("OR", nulls, s.Binary("AND", s.IsNull(value, at=value.at), some))
        yes, no = s.Value(value=not against), s.Value(value=against)
        return s.Case(((found, yes), (unknown, s.Value(value=None))), no, at=test.at), item

    def _present(self, inner: Inner, *, nulls: bool) -> Inner:
        """Once for what correlates it: whether there are rows, or rows with NULL as their value."""
        stream = inner.stream
        if nulls:
            stream = stream.where(col(inner.values[0].name.text).is_null())
        used = {column.name.text for one in inner.conditions for column in columns_of(one)}
        names = [name for name in stream.schema.names if name in used]
        outputs: list[tuple[str, Expr]] = [(name, col(name)) for name in names] or [(f"{_OWN}_any", lit(value=True))]
        once = Stream(Select(stream.node, tuple(outputs)))
        return replace(inner, stream=once if has_points(once.node) else once.distinct())

    def _marked(self, inner: Inner, more: Sequence[s.Expression], item: Item) -> tuple[s.Expression, Item]:
        """A column that says whether a row has a match."""
        name = next(one for n in count() if (one := f"{_OWN}_is{n}") not in item.stream.schema)
        columns = [(one, col(one)) for one in item.stream.schema.names]
        sides = []
        for kind, flag in (("semi", True), ("anti", False)):
            rows = self._met(item, inner, more, kind).stream  # type: ignore[arg-type]
            sides.append(Stream(Select(rows.node, (*columns, (name, lit(flag))))))
        marks = Relation(_OWN, {name: name}, by_name=True)
        return _own(name), _beside(item, sides[0].union(sides[1]), marks)

    def _met(
        self, item: Item, inner: Inner, more: Sequence[s.Expression], kind: Literal["semi", "anti", "left"]
    ) -> Item:
        """The rows joined with a sub-query."""
        on = all_of((*more, *inner.conditions))
        place = s.FromItem(s.Subquery(inner.query, at=inner.query.at), at=inner.query.at)
        joins = Joins(self.context, self.queries.catalog.known)
        found = joins.joined(replace(item, windowing=None), inner.item, s.Join(kind, place, on, at=place.at))
        return replace(item, stream=found.stream)

    def _always(self, query: s.Query) -> bool:
        """Whether a sub-query always has a row: an aggregate without groups."""
        body = query.body
        return isinstance(body, s.Select) and self._aggregates(body) and not body.group and body.having is None

    # --- single values -----------------------------------------------------------------------------------------------

    def _scalar(self, part: s.ScalarQuery, item: Item) -> tuple[s.Expression, Item]:
        """A sub-query that is a value: the expression that stands for it, over rows with its columns."""
        body = part.query.body
        if not isinstance(body, s.Select) or len(body.entries) != 1 or isinstance(body.entries[0].value, s.Star):
            raise self.context.error(
                part, "a sub-query that is a value has one column", given=to_sql(part), instead="(SELECT max(x) FROM …)"
            )
        if body.source == s.NO_SOURCE and body.where is None and not has_subquery(body.entries[0]):
            return body.entries[0].value, item
        if self._aggregates(body) and not body.group:
            return self._aggregated(part, body, item)
        inner = self._inner(part.query, item, values=1, single=part)
        joined = self._met(item, inner, (), "left")
        return _own(inner.values[0].name.text), _beside(item, joined.stream, *inner.item.relations)

    def _aggregated(self, part: s.ScalarQuery, body: s.Select, item: Item) -> tuple[s.Expression, Item]:
        """The aggregates of a sub-query beside each row, and the expression over them."""
        value, known = body.entries[0].value, self.queries.catalog.known
        whole = s.Case(((body.having, value),), at=value.at) if body.having is not None else value
        calls = list(dict.fromkeys(aggregate_calls(whole, known)))
        entries = tuple(s.Entry(call, at=call.at) for call in calls)
        asked = replace(body, entries=entries, having=None, order=(), limit=None, distinct=False)
        inner = self._inner(replace(part.query, body=asked), item, values=len(calls), single=part)
        columns = dict(zip(calls, (_own(one.name.text) for one in inner.values), strict=True))

        def after(one: s.Part) -> s.Part | None:
            if not isinstance(one, s.Call) or one not in columns:
                return None
            counts = one.name[-1].text.lower() in _COUNTS
            return s.Call((s.Name("coalesce"),), (columns[one], s.Number(0)), at=one.at) if counts else columns[one]

        joined = self._met(item, inner, (), "left")
        return replaced(whole, after), _beside(item, joined.stream, *inner.item.relations)

    def _aggregates(self, body: s.Select) -> bool:
        parts = (*body.entries, *([] if body.having is None else [body.having]))
        return any(has_aggregate(one, self.queries.catalog.known) for one in parts)

    # --- the sub-query as a relation ---------------------------------------------------------------------------------

    def _inner(self, query: s.Query, outer: Item, *, values: int = 0, single: s.ScalarQuery | None = None) -> Inner:
        """A sub-query as a stream with `values` columns, and others for what correlates it.

        `single`: it gives at most one row for a row outside, or this place is an error.
        """
        queries = with_named(replace(self.queries, renames=True), query)
        body = query.body
        if (
            not values
            and isinstance(body, s.Select)
            and body.limit is not None
            and body.limit.count > body.limit.offset == 0
        ):
            body = replace(body, order=(), limit=None)  # whether there is a row does not depend on them
        free = (name for n in count() if (name := f"{_OWN}{n}") not in outer.stream.schema)
        if not isinstance(body, s.Select) or body.qualify is not None:
            self._check_single(single, unique=isinstance(body, s.Values) and len(body.rows) == 1)
            return self._whole(queries.query(replace(query, named=())), free, values, query)
        item, rest = queries.rows(body, self.tick)
        inside, around = Scope(self.context, item.relations), Scope(self.context, outer.relations)
        own, outside = divided(rest.where, inside, around)
        rest = replace(rest, where=all_of(own))
        if not outside:
            first = rest.limit is not None and rest.limit.count <= 1 and not rest.limit.by
            self._check_single(single, unique=first or (self._aggregates(rest) and not rest.group))
            if not values and not self._grouped(rest):
                rest = replace(rest, entries=(s.Entry(s.Value(value=True), s.Name("_")),), order=(), limit=None)
            return self._whole(queries.selected(rest, item, self.tick), free, values, query)
        stars = [entry for entry in rest.entries[:values] if isinstance(entry.value, s.Star)]
        if stars or (values and len(rest.entries) != values):
            raise self.context.error(
                query, "this sub-query has one column", given=to_sql(query), instead="(SELECT column FROM … WHERE …)"
            )
        correlated = self._correlated(queries, rest, item, outside, inside, free, values, single)
        return replace(correlated, query=query)

    def _whole(self, stream: Stream, free: Iterable[str], values: int, query: s.Query) -> Inner:
        """A sub-query that stands for itself."""
        if values and len(stream.schema) != values:
            raise self.context.error(
                query,
                f"this sub-query has {len(stream.schema)} columns",
                given=str(stream.schema),
                allowed="one column",
            )
        names = dict(zip(stream.schema.names, free, strict=False))
        renamed = Stream(Select(stream.node, tuple((new, col(name)) for name, new in names.items())))
        return Inner(query, renamed, tuple(inner_column(new) for new in list(names.values())[:values]), ())

    def _correlated(
        self,
        queries: Queries,
        part: s.Select,
        item: Item,
        outside: list[s.Expression],
        inside: Scope,
        free: Iterable[str],
        values: int,
        single: s.ScalarQuery | None,
    ) -> Inner:
        """A sub-query without the conditions that correlate it, with the columns that these use."""
        names = iter(free)
        shown = [s.Entry(entry.value, s.Name(next(names)), at=entry.at) for entry in part.entries[:values]]
        connected: dict[s.Expression, s.Name] = {}

        def expose(one: s.Expression) -> s.Column:
            if one not in connected:
                connected[one] = s.Name(next(names))
            return inner_column(connected[one].text, at=one.at)

        conditions = tuple(exposed(one, inside, expose) for one in outside)
        keys = [one for one in connected if any(equates(condition, one, inside) for condition in outside)]
        grouped = self._grouped(part) or single is not None
        if grouped and len(keys) < len(connected):
            condition = next(one for one in outside if not any(equates(one, key, inside) for key in keys))
            raise self.context.error(
                condition,
                "a sub-query with aggregates, groups or LIMIT is connected by equalities",
                given=to_sql(condition),
                allowed="inner.column = outer.column",
                instead="EXISTS (SELECT … WHERE …), or a join with this condition and an aggregate around it",
            )
        entries = (*shown, *(s.Entry(one, name, at=one.at) for one, name in connected.items()))
        changed = replace(part, entries=entries)
        aggregates = self._aggregates(part)
        if aggregates or part.group:
            group = (*part.group, *(s.Entry(one, at=one.at) for one in keys))
            fixed = {_resolved(one, inside) for one in keys}
            unique = all(_resolved(entry.value, inside) in fixed for entry in part.group)
            changed = replace(changed, group=tuple(dict.fromkeys(group)))
        else:
            unique = False
        if part.limit is not None:
            changed = replace(changed, limit=replace(part.limit, by=(*part.limit.by, *keys)))
            unique = unique or (part.limit.count <= 1 and not part.limit.by)
        self._check_single(single, unique=unique)
        if not grouped and not values:
            changed = replace(changed, order=(), distinct=False)
        found = queries.selected(changed, item, self.tick)
        return Inner(
            s.Query(part), found, tuple(inner_column(one.alias.text) for one in shown if one.alias), conditions
        )

    def _grouped(self, part: s.Select) -> bool:
        """Whether its rows are made of several."""
        return bool(self._aggregates(part) or part.having is not None or part.limit is not None)

    def _check_single(self, part: s.ScalarQuery | None, *, unique: bool) -> None:
        if part is not None and not unique:
            value = to_sql(part.query.body.entries[0].value) if isinstance(part.query.body, s.Select) else "x"
            raise self.context.error(
                part,
                "a sub-query that is a value may give only one row, and this one may give several",
                given=to_sql(part),
                allowed="aggregates, ORDER BY … LIMIT 1, or groups by what connects it with the row outside",
                instead=f"(SELECT max({value}) …), or (SELECT {value} … ORDER BY … LIMIT 1)",
            )


#: Aggregates that are 0 of nothing.
_COUNTS = frozenset({"count", "distinct_count", "approx_distinct", "approx_count_distinct"})


def _clauses(part: s.Select) -> list[s.Part]:
    """The clauses in which sub-queries may stand."""
    where = [] if part.where is None else [part.where]
    return [*part.entries, *where, *part.group, *part.order]


def _own(name: str) -> s.Column:
    return s.Column(s.Name(name), s.Name(_OWN))


def _resolved(part: s.Expression, scope: Scope) -> s.Expression | str:
    """What tells whether two expressions of a sub-query are the same: of columns, their names in the plan."""
    return scope.column(part) if isinstance(part, s.Column) and scope.knows(part) else part


def _beside(item: Item, stream: Stream, *relations: Relation) -> Item:
    """Rows with more columns, which only the binder names."""
    before = {name: plan for one in item.relations if one.name == _OWN for name, plan in one.columns.items()}
    columns = before | {name: plan for one in relations for name, plan in one.columns.items()}
    others = tuple(one for one in item.relations if one.name != _OWN)
    return replace(item, stream=stream, relations=(*others, Relation(_OWN, columns, by_name=True)))


def _test(part: s.Expression) -> tuple[_Test | None, bool]:
    """The test that a condition is, and whether it is negated."""
    negated = False
    while isinstance(part, s.Unary) and part.operator == "NOT":
        part, negated = part.value, not negated
    return (part, negated) if isinstance(part, (s.Exists, s.InQuery, s.Quantified)) else (None, False)


def _comparison(test: s.InQuery | s.Quantified) -> tuple[s.Expression, str, bool]:
    """A test as a comparison with any row: the value, the operator, and whether no row may match."""
    if isinstance(test, s.InQuery):
        return test.value, "=", test.negated
    return test.value, _OPPOSITE[test.operator] if test.all else test.operator, test.all
