"""Build queries, from FROM to LIMIT; see `build` for the other rules and the method."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from headrace.sql import syntax as s
from headrace.sql.build.expressions import Clause, Token, clause, clauses
from headrace.sql.build.patterns import PatternBuilder
from headrace.sql.build.window_functions import grouped_by_function, window_call
from headrace.sql.syntax import Span

__all__ = ["QueryBuilder"]

#: Clauses behind a whole query that choose among its rows.
_CHOICES = frozenset({"order", "limit", "offset"})

#: Of generate_series: each number is a row of VALUES.
MAX_SERIES = 10_000


class _Raw(NamedTuple):
    """A SELECT that clauses behind it may still complete; `first` is that of each key of DISTINCT ON."""

    select: s.Select
    first: s.Limit | None = None


class QueryBuilder(PatternBuilder):
    """Builds the queries of one text."""

    def query(self, at: Span, *parts: Any) -> s.Query:
        body = next(part for part in parts if not isinstance(part, Clause))
        given = [part for part in parts if isinstance(part, Clause)]
        flat = [c for part in given for c in (part.value if part.field == "both" else (part,))]
        chosen = [part for part in flat if part.field in _CHOICES]
        rest = [part for part in flat if part.field not in _CHOICES]
        return self.make(s.Query, at, rest, body=self._chosen(body, chosen) if chosen else self._done(body))

    bare_query = value_query = query

    def _chosen(self, body: s.Body | _Raw, clauses: Sequence[Clause]) -> s.Body:
        """A query with ORDER BY and LIMIT behind it, which belong to all of it."""
        limit = self._limited([part for part in clauses if part.field != "order"])
        order = next((part.value for part in clauses if part.field == "order"), ())
        values: dict[str, Any] = {"order": order, "limit": limit}
        if isinstance(body, _Raw):
            place = (body.select.at[0], clauses[-1].at[1])
            if body.first is not None and limit is not None:
                self.fail(
                    "DISTINCT ON takes the first row of each key, and LIMIT would choose among them",
                    limit.at,
                    instead="SELECT * FROM (SELECT DISTINCT ON …) ORDER BY … LIMIT …",
                )
            return self._done(_Raw(replace(body.select, **values, at=place), body.first))
        place = (body.at[0], clauses[-1].at[1])
        if isinstance(body, s.Select) and not body.order and body.limit is None:
            return replace(body, **values, at=place)
        return s.Select((s.Entry(s.Star(at=body.at), at=body.at),), _item(body), **values, at=place)

    def _done(self, body: s.Body | _Raw) -> s.Body:
        """A body with all its clauses."""
        if not isinstance(body, _Raw):
            return body
        limit = body.first or body.select.limit
        return grouped_by_function(self, replace(body.select, limit=limit))

    def query_in_parentheses(self, at: Span, query: s.Query) -> s.Body:
        if query == s.Query(query.body):
            return query.body
        return s.Select((s.Entry(s.Star(at=at), at=at),), s.FromItem(s.Subquery(query, at=at), at=at), at=at)

    def set_operation(
        self, at: Span, left: s.Body | _Raw, word: tuple[str, ...], right: s.Body | _Raw
    ) -> s.SetOperation:
        kind: Any = word[0].lower()
        return s.SetOperation(kind, self._done(left), self._done(right), all=word[-1] == "ALL", at=at)

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

    def select(self, at: Span, *parts: Any) -> _Raw:
        given = [part for part in parts if isinstance(part, Clause)]
        source, *joins = next((part.value for part in given if part.field == "from"), (s.NO_SOURCE,))
        given = [part for part in given if part.field != "from"]
        first = next((part for part in parts if isinstance(part, s.Limit)), None)
        more = {"source": source, "joins": tuple(joins), "distinct": "DISTINCT" in parts}
        return _Raw(self.make(s.Select, at, given, **more), first)

    def distinct_on(self, at: Span, _: Token, *keys: s.Expression) -> s.Limit:
        return s.Limit(1, keys, at=at)

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

    def group_set(self, at: Span, *keys: s.Expression) -> s.GroupSet:
        return s.GroupSet(keys, at=at)

    def group_sets(self, at: Span, word: Token, *sets: s.GroupSet | s.Entry) -> s.Entry:
        kind: Any = " ".join(word.text.upper().split())
        inner = tuple(one.value if isinstance(one, s.Entry) else one for one in sets)
        return s.Entry(s.GroupingSets(kind, inner, at=at), at=at)  # type: ignore[arg-type]

    def star(self, at: Span, stream: s.Name | None = None) -> s.Star:
        return s.Star(stream, at=at)

    def order_key(self, at: Span, value: s.Expression, *words: str) -> s.OrderKey:
        key = s.OrderKey(value, "DESC" in words, at=at)
        if "NULLS FIRST" in words:
            return replace(key, nulls="first")
        return replace(key, nulls="last") if "NULLS LAST" in words else key

    def nulls(self, _: Span, *words: Token) -> str:
        return " ".join(word.text.upper() for word in words)

    def limit(self, at: Span, count: Token, *by: s.Expression) -> Clause:
        return Clause("limit", s.Limit(self.whole(count), by, at=at), at)

    fetch = limit

    def fetch_one(self, at: Span) -> Clause:
        return Clause("limit", s.Limit(1, at=at), at)

    def offset(self, at: Span, count: Token) -> Clause:
        return Clause("offset", self.whole(count), at)

    def _limited(self, given: list[Clause]) -> s.Limit | None:
        """LIMIT or FETCH, with OFFSET."""
        for part in given:
            if [other.field for other in given].count(part.field) > 1:
                self.fail("this was said already", given[-1].at, instead="LIMIT or FETCH once, and OFFSET once")
        said = {part.field: part for part in given}
        if not said:
            return None
        limit: s.Limit = said["limit"].value if "limit" in said else s.Limit(s.ALL_ROWS, at=said["offset"].at)
        return replace(limit, offset=said["offset"].value) if "offset" in said else limit

    qualify = clause("qualify")
    windows = clauses("windows")

    def named_window(self, at: Span, name: s.Name, *given: Any) -> s.NamedWindow:
        return s.NamedWindow(name, self.window_of(at, given), at=at)

    def window_function(self, at: Span, *parts: Any) -> s.FromItem:
        return window_call(self, at, parts)

    def rows_of(self, at: Span, _: Token, name: s.Name, *partition: Clause) -> s.FromItem:
        keys = self.make(s.SnapshotWindow, at, partition)  # only for its PARTITION BY
        return s.FromItem(name, (keys,) if partition else (), at=at)

    def descriptor(self, _: Span, __: Token, column: s.Column) -> s.Column:
        return column

    function_keys = clauses("partition")
    window_on = clause("on")

    def from_item(self, at: Span, stream: s.Name | s.Subquery | s.FromItem, *parts: Any) -> s.FromItem:
        if isinstance(stream, s.FromItem):
            return self.make(s.FromItem, at, parts, stream=stream.stream)
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

    def series(self, at: Span, _: Token, *bounds: s.Expression) -> s.Values:
        """`generate_series(1, 10, 2)`: whole numbers, the last one included."""
        numbers = [self._whole(bound) for bound in bounds]
        start, last, step = (*numbers, 1)[:3]
        found = range(start, last + (1 if step > 0 else -1), step) if step else range(0)
        if not step or len(found) > MAX_SERIES:
            self.fail(
                f"a series has up to {MAX_SERIES} numbers, and a step that is not 0", at,
                instead="a table with the numbers",
            )  # fmt: skip
        rows = tuple(s.ValuesRow((_number(one, at),), at=at) for one in found)
        return s.Values(rows or (s.ValuesRow((s.Value(value=None, at=at),), at=at),), at=at)

    def _whole(self, part: s.Expression) -> int:
        sign = -1 if isinstance(part, s.Unary) and part.operator == "-" else 1
        value = part.value if isinstance(part, s.Unary) else part
        if not isinstance(value, s.Number) or not isinstance(value.value, int):
            self.fail("generate_series takes whole numbers", part.at, instead="generate_series(1, 10)")
        return sign * value.value

    def series_item(self, at: Span, values: s.Values, *parts: Clause) -> s.FromItem:
        alias = next((part.value for part in parts if part.field == "alias"), s.Name("generate_series", at=at))
        columns = next((part.value for part in parts if part.field == "columns"), (alias,))
        first = s.Column(s.Name("column1"), at=at)
        empty = values.rows[0].values == (s.Value(value=None),)
        number = s.Cast(first, s.Name("LONG"), at=at)
        rows = s.FromItem(s.Subquery(s.Query(values, at=at), at=at), at=at)
        select = s.Select((s.Entry(number, columns[0], at=at),), rows, at=at)
        select = replace(select, where=s.IsNull(first, negated=True, at=at)) if empty else select
        return s.FromItem(s.Subquery(s.Query(select, at=at), at=at), alias=alias, columns=columns, at=at)

    def subquery(self, at: Span, query: s.Query) -> s.Subquery:
        return s.Subquery(query, at=at)

    def lateral(self, at: Span, _: Token, query: s.Query) -> s.Subquery:
        return s.Subquery(query, lateral=True, at=at)

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


def _number(value: int, at: Span) -> s.Expression:
    return s.Number(value, at=at) if value >= 0 else s.Unary("-", s.Number(-value, at=at), at=at)
