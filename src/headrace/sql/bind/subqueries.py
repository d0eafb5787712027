"""Queries inside expressions: `EXISTS`, `IN`, `ANY`, `ALL` and single values become joins; `LATERAL` is one.

A sub-query may use columns of the query around it; it is *correlated* then. It becomes a relation that is joined with
the rows around it (`inner.py`). So a row has, at every instant, the answer that the sub-query gives for it then:

- `EXISTS`, `IN` and `ANY` among the conditions of WHERE are semi joins, `NOT EXISTS` and `NOT IN` anti joins.
  Elsewhere, such as under OR, they are columns: true in the rows of the semi join, false in those of the anti join.
- A single value is a left join with the aggregates of the sub-query, for each value that connects it. The expression
  around the aggregates is computed after the join, where a count of nothing is 0.
- A sub-query behind LATERAL is a join with all of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from headrace.api.stream import Stream
from headrace.expr import Expr, col, lit
from headrace.plan.instants import has_points
from headrace.plan.nodes import Select
from headrace.plan.windows import Snapshot
from headrace.sql import syntax as s
from headrace.sql.bind.compared_rows import row_in_query, row_test
from headrace.sql.bind.conditions import all_of, columns_of, conjuncts, has_subquery, replaced
from headrace.sql.bind.context import Context
from headrace.sql.bind.correlation import Inner
from headrace.sql.bind.inner import OWN, Inners, beside, own_column
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import Relation
from headrace.sql.bind.windows import Tick
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["Subqueries"]

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

    @property
    def inners(self) -> Inners:
        return Inners(self.queries, self.tick)

    def applied(self, part: s.Select, item: Item) -> tuple[s.Select, Item]:
        """The SELECT without sub-queries, over rows that have their answers as columns."""
        if not any(has_subquery(one) for one in _clauses(part)):
            return part, item
        self.check_window(part, item)
        if part.where is not None and has_subquery(part.where):
            where, item = self.filtered(conjuncts(part.where), item)
            part = replace(part, where=where)
        entries = []
        for entry in part.entries:
            if has_subquery(entry):
                alias = entry.alias or s.Name(to_sql(entry.value), quoted=True, at=entry.at)
                value, item = self.without(entry.value, item)
                entry = replace(entry, value=value, alias=alias)
            entries.append(entry)
        group, item = self._all_without(part.group, item)
        order, item = self._all_without(part.order, item)
        return replace(part, entries=tuple(entries), group=group, order=order), item

    def check_window(self, part: s.Select, item: Item) -> None:
        """Refuse a window whose rows are no relation at every instant."""
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

    def filtered(self, conditions: Sequence[s.Expression], item: Item) -> tuple[s.Expression | None, Item]:
        """Conditions are applied, those with a sub-query last, so that there are fewer rows; and what is left of them:
        an expression over columns that the rows now have.
        """
        plain = all_of(one for one in conditions if not has_subquery(one))
        if plain is not None:
            item = replace(item, stream=item.stream.where(self.queries.expressions(item).predicate(plain)))
        kept: list[s.Expression] = []
        for one in conditions:
            if not has_subquery(one):
                continue
            test, negated = _test(one)
            if test is None:
                value, item = self.without(one, item)
                kept.append(value)
            else:
                item = self._tested(test, item, negated=negated)
        return all_of(kept), item

    def _all_without(self, parts: tuple[Any, ...], item: Item) -> tuple[tuple[Any, ...], Item]:
        found = []
        for one in parts:
            value = one
            if has_subquery(one):
                inner, item = self.without(one.value, item)
                value = replace(one, value=inner)
            found.append(value)
        return tuple(found), item

    def without(self, part: s.Expression, item: Item) -> tuple[s.Expression, Item]:
        """An expression whose sub-queries are columns of the rows."""
        rows = item

        def column(one: s.Part) -> s.Part | None:
            nonlocal rows
            if isinstance(one, s.ScalarQuery):
                found, rows = self._scalar(one, rows)
            elif isinstance(one, s.InQuery) and isinstance(one.value, s.Row):
                found, rows = self.without(row_test(self.context, one), rows)
            elif isinstance(one, s.Exists) and self._always(one.query):
                found = s.Value(value=True, at=one.at)
            elif isinstance(one, s.Exists):
                found, rows = self._marked(self.inners.of(one.query, rows), (), rows)
            elif isinstance(one, (s.InQuery, s.Quantified)):
                found, rows = self._compared(one, rows)
            else:
                return None
            return found

        return replaced(part, column), rows

    # --- EXISTS, IN, ANY, ALL ----------------------------------------------------------------------------------------

    def _tested(self, test: _Test, item: Item, *, negated: bool) -> Item:
        """The rows for which a test holds."""
        if isinstance(test, s.InQuery) and isinstance(test.value, s.Row):
            negated = negated is not test.negated
            test = row_in_query(self.context, test, negated=negated)
        if isinstance(test, s.Exists):
            if self._always(test.query):
                return replace(item, stream=item.stream.where(lit(not negated)))
            return self.inners.met(item, self.inners.of(test.query, item), (), "anti" if negated else "semi")
        value, operator, against = _comparison(test)
        value, item = self.without(value, item)
        inner = self.inners.of(test.query, item, values=1)
        match = s.Binary(operator, value, inner.values[0], at=test.at)
        if negated is against:  # no double negation, or two
            return self.inners.met(item, inner, (match,), "semi")
        return self._in_none(value, match, inner, item)

    def _in_none(self, value: s.Expression, match: s.Expression, inner: Inner, item: Item) -> Item:
        """The rows that match nothing, for certain: no row inside is NULL, and the value is not, if there are any."""
        item = self.inners.met(item, inner, (match,), "anti")
        item = self.inners.met(item, self._present(inner, nulls=True), (), "anti")
        known = self.queries.expressions(item).bind(s.IsNull(value, negated=True, at=value.at))
        unknown = self.queries.expressions(item).bind(s.IsNull(value, at=value.at))
        rest = self.inners.met(
            replace(item, stream=item.stream.where(unknown)), self._present(inner, nulls=False), (), "anti"
        )
        return replace(item, stream=item.stream.where(known).union(rest.stream))

    def _compared(self, test: s.InQuery | s.Quantified, item: Item) -> tuple[s.Expression, Item]:
        """A comparison with rows as a column: true, false, or NULL where a NULL decides."""
        value, operator, against = _comparison(test)
        value, item = self.without(value, item)
        inner = self.inners.of(test.query, item, values=1)
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
        names = [name for name in stream.schema.names if name in used or name in (inner.same or {})]
        outputs: list[tuple[str, Expr]] = [(name, col(name)) for name in names] or [(f"{OWN}_any", lit(value=True))]
        once = Stream(Select(stream.node, tuple(outputs)))
        return replace(inner, stream=once if has_points(once.node) else once.distinct())

    def _marked(self, inner: Inner, more: Sequence[s.Expression], item: Item) -> tuple[s.Expression, Item]:
        """A column that says whether a row has a match."""
        name = next(one for n in count() if (one := f"{OWN}_is{n}") not in item.stream.schema)
        columns = [(one, col(one)) for one in item.stream.schema.names]
        sides = []
        for kind, flag in (("semi", True), ("anti", False)):
            rows = self.inners.met(item, inner, more, kind).stream  # type: ignore[arg-type]
            sides.append(Stream(Select(rows.node, (*columns, (name, lit(flag))))))
        marks = Relation(OWN, {name: name}, by_name=True)
        return own_column(name), beside(item, sides[0].union(sides[1]), marks)

    def _always(self, query: s.Query) -> bool:
        """Whether a sub-query always has a row: an aggregate without groups."""
        body = query.body
        return isinstance(body, s.Select) and self.inners.aggregates(body) and not body.group and body.having is None

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
        if self.inners.aggregates(body) and not body.group:
            after, item = self.inners.totals(part.query, item, part)
            value = after(body.entries[0].value)
            if body.having is not None:
                value = s.Case(((after(body.having), value),), at=value.at)
            return self.without(value, item)
        inner = self.inners.of(part.query, item, values=1, single=part)
        joined = self.inners.met(item, inner, (), "left")
        return own_column(inner.values[0].name.text), beside(item, joined.stream, *inner.item.relations)


def _clauses(part: s.Select) -> list[s.Part]:
    """The clauses in which sub-queries may stand."""
    where = [] if part.where is None else [part.where]
    return [*part.entries, *where, *part.group, *part.order]


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
