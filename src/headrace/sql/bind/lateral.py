"""What a join computes for the rows before it: sub-queries behind LATERAL, and those in the condition of a join."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from headrace.api.stream import Stream
from headrace.expr import Expr, col
from headrace.plan.nodes import Select
from headrace.sql import syntax as s
from headrace.sql.bind.conditions import all_of, columns_of, conjuncts, has_subquery
from headrace.sql.bind.context import Context
from headrace.sql.bind.correlation import outer_columns
from headrace.sql.bind.grouping import column_name
from headrace.sql.bind.inner import OWN
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.bind.stored import parts_of
from headrace.sql.bind.subqueries import Subqueries
from headrace.sql.printer import to_sql

__all__ = ["Lateral", "answered", "is_lateral"]

#: The columns of conditions with sub-queries. Only the binder names them.
_ON = "_sql_on"


def is_lateral(join: s.Join) -> bool:
    """Whether a sub-query behind LATERAL is joined."""
    return isinstance(join.right.stream, s.Subquery) and join.right.stream.lateral


class Lateral(Subqueries):
    """Joins rows with a sub-query that may use their columns."""

    def joined(self, item: Item, join: s.Join, seen: tuple[Relation, ...]) -> Item:
        """The rows of FROM so far, each with the rows of the sub-query; `seen` are the relations that it may use."""
        place = join.right
        assert isinstance(place.stream, s.Subquery)
        _check(self.context, item, join)
        query, body = place.stream.query, place.stream.query.body
        around = replace(item, relations=seen, windowing=None)
        on = [one for one in conjuncts(join.on) if not (isinstance(one, s.Value) and one.value is True)]
        if isinstance(body, s.Select) and self.inners.aggregates(body) and not body.group and body.qualify is None:
            after, rows = self.inners.totals(query, around)
            values = [(column_name(entry), after(entry.value)) for entry in body.entries]
            return self._computed(item, rows, join, values, body.having and after(body.having), on)
        if isinstance(body, s.Select) and _is_row(body):
            values = [(column_name(entry), entry.value) for entry in body.entries]
            return self._computed(item, around, join, values, body.where, on)
        inner = self.inners.of(query, around, values=None)
        names = dict(zip(inner.names, (one.name.text for one in inner.values), strict=True))
        relation = self.queries.columns_named(place, Relation(place.alias.text if place.alias else "", names))
        found = self.inners.met(around, inner, on, "left" if join.kind == "left" else "inner", relation)
        return replace(item, stream=found.stream, relations=(*item.relations, relation))

    def _computed(
        self,
        item: Item,
        rows: Item,
        join: s.Join,
        values: list[tuple[str, s.Expression]],
        condition: s.Expression | None,
        on: list[s.Expression],
    ) -> Item:
        """One row for each row, computed from it; where the conditions do not hold, none, or NULLs instead."""
        left, place = join.kind == "left", join.right
        if condition is not None and not left:
            condition, rows = self.filtered(conjuncts(condition), rows)
            if condition is not None:
                rows = replace(rows, stream=rows.stream.where(self.queries.expressions(rows).predicate(condition)))
        elif condition is not None:
            values = [(name, s.Case(((condition, value),), at=value.at)) for name, value in values]
        free = (one for n in count() if (one := f"{OWN}{n}") not in rows.stream.schema)
        outputs: list[tuple[str, Expr]] = []
        columns: dict[str, str] = {}
        for name, value in values:
            value, rows = self.without(value, rows)
            columns[name] = next(free)
            outputs.append((columns[name], self.queries.expressions(rows).bind(value)))
        kept = [(name, col(name)) for name in rows.stream.schema.names]
        stream = Stream(Select(rows.stream.node, (*kept, *outputs)))
        relation = self.queries.columns_named(place, Relation(place.alias.text if place.alias else "", columns))
        found = replace(item, stream=stream, relations=(*item.relations, relation))
        if not on:
            return found
        if not left:
            met = all_of(on)
            assert met is not None
            return replace(found, stream=stream.where(self.queries.expressions(found).predicate(met)))
        return self._where_met(found, columns, on)

    def _where_met(self, item: Item, columns: dict[str, str], on: list[s.Expression]) -> Item:
        """The columns of the sub-query are NULL where the condition of a LEFT JOIN does not hold."""
        binder = self.queries.expressions(item)
        condition = all_of(on)
        assert condition is not None
        theirs = set(columns.values())
        named = {plan: own for own, plan in item.relations[-1].columns.items()}
        alias = item.relations[-1].name
        outputs = []
        for name in item.stream.schema.names:
            column = s.Column(s.Name(named.get(name, name)), s.Name(alias) if alias else None)
            outputs.append((name, binder.bind(s.Case(((condition, column),))) if name in theirs else col(name)))
        return replace(item, stream=Stream(Select(item.stream.node, tuple(outputs))))


def _is_row(body: s.Select) -> bool:
    """Whether it is one row, computed from the row before it: without FROM, and nothing that chooses among rows."""
    stars = any(isinstance(entry.value, s.Star) for entry in body.entries)
    framed = any(isinstance(one, s.Over) for one in parts_of(body))
    plain = not body.group and body.having is None and not body.order and body.limit is None and body.qualify is None
    return body.source == s.NO_SOURCE and plain and not stars and not framed


def _check(context: Context, item: Item, join: s.Join) -> None:
    if join.kind not in ("inner", "cross", "left") or join.using or join.natural:
        raise context.error(
            join,
            "a sub-query that uses the rows before it is joined to each of them",
            given=to_sql(join),
            allowed="a comma, CROSS JOIN LATERAL (…), JOIN LATERAL (…) ON …, LEFT JOIN LATERAL (…) ON …",
        )
    if join.right.brackets:
        raise context.error(
            join.right.brackets[0],
            "LATERAL (…) is answered at every instant: it has no window of its own",
            given=to_sql(join.right.brackets[0]),
            instead="the window behind a sub-select with the whole FROM",
        )
    if item.windows is not None or item.windowing is not None:
        raise context.error(
            join,
            "a sub-query is answered at every instant, and a window has many",
            given=to_sql(join),
            allowed="LATERAL beside rows without a window",
            instead="FROM (SELECT … FROM stream, LATERAL (…)) [TUMBLING 10 s]",
        )


# --- sub-queries in ON -----------------------------------------------------------------------------------------------


def answered(subqueries: Subqueries, left: Item, right: Item, join: s.Join) -> tuple[Item, Item, s.Join]:
    """A join whose condition has no sub-queries: their answers are columns of the side that they are about."""
    if join.on is None or not has_subquery(join.on):
        return left, right, join
    conditions: list[s.Expression] = []
    for number, one in enumerate(conjuncts(join.on)):
        if has_subquery(one):
            ours = _is_about(subqueries, one, left, right)
            side, one = _marked(subqueries, one, left if ours else right, f"{_ON}{number}")
            left, right = (side, right) if ours else (left, side)
        conditions.append(one)
    return left, right, replace(join, on=all_of(conditions))


def _is_about(subqueries: Subqueries, part: s.Expression, left: Item, right: Item) -> bool:
    """Whether a condition is about the left side; else about the right one, or it is refused."""
    queries, context = subqueries.queries, subqueries.context
    whole = s.Select((s.Entry(part, at=part.at),), s.NO_SOURCE, at=part.at)
    both = Scope(context, (*left.relations, *right.relations))
    used = [*columns_of(part), *outer_columns(queries, whole, both, subqueries.tick, Scope(context, ()))]
    for side, ours in ((left, True), (right, False)):
        if all(Scope(context, side.relations).knows(one) for one in used):
            return ours
    raise context.error(
        part,
        "a sub-query in the condition of this join is about one of its sides, and this one is about both",
        given=to_sql(part),
        allowed="columns of one side beside and inside a sub-query; an inner JOIN has no such limit",
        instead="the sub-query as a column of a sub-select in FROM",
    )


def _marked(subqueries: Subqueries, part: s.Expression, item: Item, name: str) -> tuple[Item, s.Expression]:
    """The rows of one side with a condition on them as a column, and that column."""
    value, rows = subqueries.without(part, item)
    outputs: list[tuple[str, Expr]] = [(one, col(one)) for one in item.stream.schema.names]
    outputs.append((name, subqueries.queries.expressions(rows).predicate(value)))
    relations = (*item.relations, Relation(name, {name: name}, by_name=True))
    stream = Stream(Select(rows.stream.node, tuple(outputs)))
    return replace(item, stream=stream, relations=relations), s.Column(s.Name(name), s.Name(name), at=part.at)
