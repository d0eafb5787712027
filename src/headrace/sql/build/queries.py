"""Build queries, from FROM to LIMIT; see `build` for the other rules and the method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from headrace.sql import syntax as s
from headrace.sql.build.expressions import Clause, Token, clause, clauses
from headrace.sql.build.patterns import PatternBuilder
from headrace.sql.syntax import Span

__all__ = ["QueryBuilder"]

#: Clauses behind a whole query that choose among its rows.
_CHOICES = frozenset({"order", "limit"})


class QueryBuilder(PatternBuilder):
    """Builds the queries of one text."""

    def query(self, at: Span, *parts: Any) -> s.Query:
        body = next(part for part in parts if not isinstance(part, Clause))
        given = [part for part in parts if isinstance(part, Clause)]
        flat = [c for part in given for c in (part.value if part.field == "both" else (part,))]
        chosen = {part.field: part for part in flat if part.field in _CHOICES}
        rest = [part for part in flat if part.field not in _CHOICES]
        return self.make(s.Query, at, rest, body=self._chosen(body, chosen) if chosen else body)

    bare_query = value_query = query

    def _chosen(self, body: s.Body, clauses: Mapping[str, Clause]) -> s.Select:
        """A query with ORDER BY and LIMIT behind it, which belong to all of it."""
        place = (body.at[0], max(part.at[1] for part in clauses.values()))
        values: dict[str, Any] = {name: part.value for name, part in clauses.items()}
        if isinstance(body, s.Select) and not any(getattr(body, name) for name in _CHOICES):
            return replace(body, **values, at=place)
        return s.Select((s.Entry(s.Star(at=body.at), at=body.at),), _item(body), **values, at=place)

    def query_in_parentheses(self, at: Span, query: s.Query) -> s.Body:
        if query == s.Query(query.body):
            return query.body
        return s.Select((s.Entry(s.Star(at=at), at=at),), s.FromItem(s.Subquery(query, at=at), at=at), at=at)

    def set_operation(self, at: Span, left: s.Body, word: tuple[str, ...], right: s.Body) -> s.SetOperation:
        kind: Any = word[0].lower()
        return s.SetOperation(kind, left, right, all=word[-1] == "ALL", at=at)

    def set_word(self, _: Span, *words: Token) -> tuple[str, ...]:
        return tuple(word.text.upper() for word in words)

    intersect_word = set_word

    def values(self, at: Span, *rows: s.ValuesRow) -> s.Values:
        for row in rows:
            if len(row.values) != len(rows[0].values):
                self.fail("all rows of VALUES have the same number of columns", row.at, instead="one value for each")
        return s.Values(rows, at=at)

    # ---- queries in expressions

    def scalar_query(self, at: Span, query: s.Query) -> s.ScalarQuery:
        return s.ScalarQuery(query, at=at)

    def exists(self, at: Span, query: s.Query) -> s.Exists:
        return s.Exists(query, at=at)

    def in_query(self, at: Span, value: s.Expression, *rest: Any) -> s.InQuery:
        return s.InQuery(value, rest[-1], negated=len(rest) > 1, at=at)

    def quantified(self, at: Span, value: s.Expression, sign: str, word: Token, query: s.Query) -> s.Expression:
        every = word.text.upper() == "ALL"
        operator = {"==": "=", "!=": "<>"}.get(sign, sign)
        if (operator, every) in (("=", False), ("<>", True)):
            return s.InQuery(value, query, negated=every, at=at)
        return s.Quantified(operator, value, query, all=every, at=at)

    into = clause("into")

    def emit(self, at: Span, mode: str) -> Clause:
        return Clause("emit", mode.lower(), at)

    def tick(self, at: Span, mode: str) -> Clause:
        return Clause("tick", mode.lower(), at)

    def tick_batch_by(self, at: Span, column: s.Column) -> Clause:
        return Clause("both", (Clause("tick", "batch", at), Clause("tick_by", column, at)), at)

    def select(self, at: Span, *parts: Any) -> s.Select:
        given = [part for part in parts if isinstance(part, Clause)]
        source, *joins = next((part.value for part in given if part.field == "from"), (s.NO_SOURCE,))
        given = [part for part in given if part.field != "from"]
        return self.make(s.Select, at, given, source=source, joins=tuple(joins), distinct="DISTINCT" in parts)

    entries = clauses("entries")
    from_ = clauses("from")
    where = clause("where")
    group = clauses("group")
    having = clause("having")
    order = clauses("order")

    def entry(self, at: Span, value: s.Expression, *alias: Clause) -> s.Entry:
        return self.make(s.Entry, at, alias, value=value)

    alias = clause("alias")

    def group_entry(self, at: Span, value: s.Expression, alias: s.Name | None = None) -> s.Entry:
        return s.Entry(value, alias, at=at)

    def star(self, at: Span, stream: s.Name | None = None) -> s.Star:
        return s.Star(stream, at=at)

    def order_key(self, at: Span, value: s.Expression, direction: str = "ASC") -> s.OrderKey:
        return s.OrderKey(value, descending=direction == "DESC", at=at)

    def limit(self, at: Span, count: Token, *by: s.Expression) -> Clause:
        return Clause("limit", s.Limit(self.whole(count), by, at=at), at)

    def from_item(self, at: Span, stream: s.Name | s.Subquery, *parts: Any) -> s.FromItem:
        alias = [part for part in parts if isinstance(part, Clause)]  # and the names of columns
        brackets = tuple(part for part in parts if not isinstance(part, Clause))
        return self.make(s.FromItem, at, alias, stream=stream, brackets=brackets)

    def unnest(self, at: Span, _: Token, value: s.Expression) -> s.Unnest:
        return s.Unnest(value, at=at)

    def unnest_ordinality(self, at: Span, _: Token, value: s.Expression) -> s.Unnest:
        return s.Unnest(value, ordinality=True, at=at)

    unnest_columns = clauses("columns")

    def unnest_item(self, at: Span, unnest: s.Unnest, *parts: Clause) -> s.FromItem:
        columns = [part for part in parts if part.field == "columns"]
        if columns:
            unnest = replace(unnest, columns=columns[0].value)
        return self.make(s.FromItem, at, parts[:1], stream=unnest)

    def subquery(self, at: Span, query: s.Query) -> s.Subquery:
        return s.Subquery(query, at=at)

    def _join(self, kind: str, at: Span, right: s.FromItem, clauses: Iterable[Clause]) -> s.Join:
        return self.make(s.Join, at, clauses, kind=kind, right=right)

    def cross_join(self, at: Span, right: s.FromItem) -> s.Join:
        return self._join("cross", at, right, ())

    comma_join = cross_join

    def inner_join(self, at: Span, right: s.FromItem, *condition: Clause) -> s.Join:
        return self._join("inner", at, right, condition)

    def left_join(self, at: Span, right: s.FromItem, *condition: Clause) -> s.Join:
        return self._join("left", at, right, condition)

    def right_join(self, at: Span, right: s.FromItem, *condition: Clause) -> s.Join:
        return self._join("right", at, right, condition)

    def full_join(self, at: Span, right: s.FromItem, *condition: Clause) -> s.Join:
        return self._join("full", at, right, condition)

    def semi_join(self, at: Span, right: s.FromItem, *condition: Clause) -> s.Join:
        return self._join("semi", at, right, condition)

    def natural_kind(self, _: Span, kind: Token, *__: Token) -> str:
        return kind.text.lower()

    def natural_join(self, at: Span, *parts: Any) -> s.Join:
        return self.make(s.Join, at, (), kind=parts[0] if len(parts) > 1 else "inner", right=parts[-1], natural=True)

    def anti_join(self, at: Span, right: s.FromItem, *condition: Clause) -> s.Join:
        return self._join("anti", at, right, condition)

    def clip_join(self, at: Span, right: s.FromItem, *condition: Clause) -> s.Join:
        return self._join("clip", at, right, condition)

    on = clause("on")
    using = clauses("using")


def _item(body: s.Body) -> s.FromItem:
    return s.FromItem(s.Subquery(s.Query(body, at=body.at), at=body.at), at=body.at)
