"""Build the nodes of aggregates written in SQL; see `build` for the other rules and the method."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from headrace.sql import syntax as s
from headrace.sql.build.expressions import Clause, ExpressionBuilder, Token, clause, clauses, unquoted
from headrace.sql.syntax import Span

__all__ = ["AggregateBuilder"]


class AggregateBuilder(ExpressionBuilder):
    """Builds the aggregates of one text."""

    def create_aggregate(self, at: Span, name: s.Name, *parts: Any, window: bool = False) -> s.CreateAggregate:
        tables = tuple(part for part in parts if isinstance(part, s.LocalTable))
        stages = tuple(self._localized(part) for part in parts if isinstance(part, s.Stage))
        given = [part for part in parts if isinstance(part, Clause)]
        return self.make(s.CreateAggregate, at, given, name=name, tables=tables, stages=stages, window=window)

    def _localized(self, part: Any) -> Any:
        """A part of a body, whose sub-queries read its own tables."""
        if isinstance(part, tuple):
            return tuple(map(self._localized, part))
        if not isinstance(part, s.Part) or isinstance(part, s.Name):
            return part
        if isinstance(part, (s.Exists, s.InQuery, s.Quantified)):
            self.fail("an aggregate has no sub-queries but single values", part.at, instead="(SELECT count(*) …) > 0")
        inner = {f.name: self._localized(getattr(part, f.name)) for f in fields(part) if f.name != "at"}
        made = replace(part, **inner)
        return s.ScalarSelect(self._local(made.query), at=made.at) if isinstance(made, s.ScalarQuery) else made

    def _local(self, query: s.Query) -> s.LocalSelect:
        """A sub-query over tables of the body as a SELECT of the body."""
        body = query.body
        plain = isinstance(body, s.Select) and query == s.Query(body) and not (body.qualify or body.windows)
        if not isinstance(body, s.Select) or not plain or (body.limit and (body.limit.by or body.limit.offset)):
            self.fail("a sub-query of an aggregate is one SELECT", query.at, instead="(SELECT … FROM table WHERE …)")
        places = () if body.source == s.NO_SOURCE else (body.source, *(join.right for join in body.joins))
        names = [place.stream for place in places if isinstance(place.stream, s.Name)]
        odd = [place for place in places if not isinstance(place.stream, s.Name) or place.brackets or place.columns]
        odd_joins = [join for join in body.joins if join.kind not in ("inner", "cross") or join.using or join.natural]
        for one in (*odd, *odd_joins):
            self.fail("an aggregate reads tables, by their names", one.at, allowed="FROM table [AS t] [JOIN … ON …]")
        joins = zip(names[1:], body.joins, strict=True)
        return s.LocalSelect(
            body.entries,
            names[0] if names else None,
            body.source.alias,
            body.where,
            body.order,
            None if body.limit is None else body.limit.count,
            tuple(s.LocalJoin(name, join.right.alias, join.on, at=join.at) for name, join in joins),
            tuple(entry.value for entry in body.group),
            body.having,
            body.distinct,
            at=body.at,
        )

    def create_window_aggregate(self, at: Span, name: s.Name, *parts: Any) -> s.CreateAggregate:
        return self.create_aggregate(at, name, *parts, window=True)

    parameters = clauses("parameters")
    returned = clause("returns")

    def algebraic(self, at: Span, _: Token) -> Clause:
        return Clause("algebraic", value=True, at=at)

    def local_table(self, at: Span, name: s.Name, *parts: Any) -> s.LocalTable:
        columns = tuple(part for part in parts if isinstance(part, s.TypedColumn))
        return self.make(s.LocalTable, at, [p for p in parts if isinstance(p, Clause)], name=name, columns=columns)

    local_key = clauses("key")
    local_rows = clauses("rows")

    def local_stored(self, at: Span, rows: Token) -> Clause:
        return Clause("stored", unquoted(rows.text), at)

    def values_row(self, at: Span, *values: s.Expression) -> s.ValuesRow:
        return s.ValuesRow(values, at=at)

    def stage(self, at: Span, *parts: Any) -> s.Stage:
        events = tuple(part for part in parts if isinstance(part, str))
        return s.Stage(events, parts[len(events) :], at=at)

    def stage_event(self, _: Span, event: str) -> str:
        return event.lower()

    def insert_rows(self, at: Span, target: s.Name, *rows: s.ValuesRow) -> s.InsertRows:
        return s.InsertRows(target, rows, at=at)

    def insert_selected(self, at: Span, target: s.Name, select: s.LocalSelect) -> s.InsertSelected:
        return s.InsertSelected(target, select, at=at)

    def update_rows(self, at: Span, table: s.Name, *parts: Any) -> s.UpdateRows:
        assignments = tuple(part for part in parts if isinstance(part, s.Assignment))
        where = [part for part in parts if isinstance(part, Clause)]
        return self.make(s.UpdateRows, at, where, table=table, assignments=assignments)

    def assignment(self, at: Span, column: s.Name, value: s.Expression) -> s.Assignment:
        return s.Assignment(column, value, at=at)

    def delete_rows(self, at: Span, table: s.Name, *where: Clause) -> s.DeleteRows:
        return self.make(s.DeleteRows, at, where, table=table)

    def local_select(self, at: Span, *parts: Any) -> s.LocalSelect:
        given = [part for part in parts if isinstance(part, Clause)]
        flat = [c for part in given for c in (part.value if part.field == "from" else (part,))]
        return self.make(s.LocalSelect, at, flat, distinct="DISTINCT" in parts)

    def local_from(self, at: Span, table: s.Name, *parts: Any) -> Clause:
        alias = [part for part in parts if isinstance(part, Clause)]
        joins = tuple(part for part in parts if isinstance(part, s.LocalJoin))
        return Clause("from", (Clause("table", table, at), *alias, Clause("joins", joins, at)), at)

    def local_join(self, at: Span, table: s.Name, *given: Clause) -> s.LocalJoin:
        return self.make(s.LocalJoin, at, given, table=table)

    local_group = clauses("group")

    def local_limit(self, at: Span, count: Token) -> Clause:
        return Clause("limit", self.whole(count), at)

    def member(self, at: Span, call: s.Call, name: s.Name) -> s.Member:
        return s.Member(call, name, at=at)
