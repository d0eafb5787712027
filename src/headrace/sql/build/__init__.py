"""Build the syntax tree: one method per rule of the grammar or `-> alias`, from the parts below it.

A method gets the place of its text and the values of its parts, without keywords and punctuation. Rules that are only a
clause of something larger give a `Clause`: which field it fills, and with what; the larger rule collects them, whatever
their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from headrace.sql import syntax as s
from headrace.sql.build.expressions import Clause, Token, clause, clauses, unquoted
from headrace.sql.build.patterns import PatternBuilder
from headrace.sql.build.tables import TableBuilder
from headrace.sql.build.window_functions import window_call, with_window_functions
from headrace.sql.syntax import Span

__all__ = ["Builder"]

P = TypeVar("P", bound=s.Part)


class Builder(PatternBuilder, TableBuilder):
    """Builds the statements, queries and windows of one text."""

    # ---- scripts and schemas

    def script(self, at: Span, *statements: s.Statement) -> s.Script:
        return s.Script(statements, at=at)

    def lone_statement(self, _: Span, statement: s.Statement) -> s.Statement:
        return statement

    def lone_expression(self, _: Span, value: s.Expression) -> s.Expression:
        return value

    def create_schema(self, at: Span, name: s.Name, *given: Clause) -> s.CreateSchema:
        return self.make(s.CreateSchema, at, given, name=name)

    columns = clauses("columns")
    like_schema = clause("like")
    extends = clause("extends")

    def typed_column(self, at: Span, name: s.Name, type: s.Name) -> s.TypedColumn:
        return s.TypedColumn(name, type, at=at)

    # ---- streams and tables

    def create_stream(self, at: Span, name: s.Name, *given: Clause) -> s.CreateStream:
        policy, rest = self._split_clauses(s.Policy, frozenset({"late", "bad_rows"}), given)
        return self.make(s.CreateStream, at, rest, name=name, policy=policy)

    def _split_clauses(self, kind: type[P], fields: frozenset[str], clauses: Iterable[Clause]) -> tuple[P, list[Clause]]:
        """A node from the clauses for these fields, and the other clauses."""
        clauses = list(clauses)
        own = [part for part in clauses if part.field in fields]
        place = (own[0].at[0], own[-1].at[1]) if own else s.NOWHERE
        return self.make(kind, place, own), [part for part in clauses if part.field not in fields]

    def order_by_time(self, at: Span, value: s.Expression) -> Clause:
        return Clause("lifetime", s.PointLifetime(value, at=at), at)

    def interval_lifetime(self, at: Span, start: s.Expression, end: s.Expression) -> Clause:
        return Clause("lifetime", s.IntervalLifetime(start, end, at=at), at)

    def edge_lifetime(self, at: Span, value: s.Expression, *given: Clause) -> Clause:
        return Clause("lifetime", self.make(s.EdgeLifetime, at, given, value=value), at)

    def changes_lifetime(self, at: Span, *given: Clause) -> Clause:
        return Clause("lifetime", self.make(s.ChangesLifetime, at, given), at)

    changes_at = clause("time")
    changes_op = clause("operation")
    changes_deletes = clause("deletes")

    def changes_encoding(self, at: Span, text: Token) -> Clause:
        return Clause("encoding", unquoted(text.text), at)

    edge_key = clauses("key")
    edge_closes = clause("closes")

    def physical_lifetime(self, at: Span) -> Clause:
        return Clause("lifetime", s.PhysicalLifetime(at=at), at)

    def source(self, at: Span, kind: s.Name, *arguments: Any) -> Clause:
        return Clause("source", self._place(s.SourceClause, at, kind, arguments), at)

    def _place(self, node: type[P], at: Span, kind: s.Name, arguments: Iterable[Any]) -> P:
        """A source or a target; a text argument may also have double quotes."""
        plain, named = self.arguments(arguments)
        kind = s.Name(kind.text.upper(), quoted=kind.quoted, at=kind.at)
        texts = tuple(self._as_text(value) for value in plain)
        named = tuple(s.Named(n.name, self._as_text(n.value), at=n.at) for n in named)
        return node(kind=kind, arguments=texts, named=named, at=at)  # type: ignore[call-arg]

    def _as_text(self, value: s.Expression) -> s.Expression:
        if isinstance(value, s.Column) and value.stream is None and self.text[value.at[0]] == '"':
            return s.Text(value.name.text, at=value.at)
        return value

    derived = clause("derived")

    def advance(self, at: Span, amount: Any, *given: Clause) -> Clause:
        return Clause("progress", self.make(s.Progress, at, given, kind="advance", amount=amount), at)

    def ordered(self, at: Span, *given: Clause) -> Clause:
        return Clause("progress", self.make(s.Progress, at, given, kind="ordered"), at)

    def explicit(self, at: Span, *given: Clause) -> Clause:
        return Clause("progress", self.make(s.Progress, at, given, kind="explicit"), at)

    def heartbeat(self, at: Span, amount: Any, *given: Clause) -> Clause:
        return Clause("progress", self.make(s.Progress, at, given, kind="heartbeat", amount=amount), at)

    every_amount = clause("every")
    skew = clause("skew")
    delay = clause("delay")
    idle = clause("idle")
    per_key = clause("per")

    def late(self, at: Span, policy: str) -> Clause:
        return Clause("late", policy.lower(), at)

    def late_into(self, at: Span, stream: s.Name) -> Clause:
        return Clause("late", stream, at)

    def bad_rows(self, at: Span, policy: str) -> Clause:
        return Clause("bad_rows", policy.lower(), at)

    # ---- insert, merge, split

    def insert(self, at: Span, target: s.Name | s.Into, source: s.Name | s.Query) -> s.Insert:
        return s.Insert(target, source, at=at)

    def target_stream(self, _: Span, name: s.Name) -> s.Name:
        return name

    def target_place(self, at: Span, kind: s.Name | str, *arguments: Any) -> s.Into:
        name = kind if isinstance(kind, s.Name) else s.Name(kind, at=at)
        return self._place(s.Into, at, name, arguments)

    def merge(self, at: Span, merge: s.Merge, *given: Clause) -> s.Merge:
        return self.make(s.Merge, at, given, streams=merge.streams)

    def diverted_from(self, at: Span, _: Token, stream: s.Name) -> s.DivertedFrom:
        return s.DivertedFrom(stream, at=at)

    def merge_of(self, at: Span, *streams: s.Name) -> s.Merge:
        return s.Merge(streams, at=at)

    def split(self, at: Span, stream: s.Name, *branches: tuple[s.SplitBranch, Span | None]) -> s.Split:
        comma = branches[-1][1]
        if comma is not None:
            self.fail("a comma, but no branch behind it", comma, instead="leave it out")
        return s.Split(stream, tuple(branch for branch, _ in branches), at=at)

    def branch(self, at: Span, target: s.Name, entries: Clause, *more: Any) -> tuple[s.SplitBranch, Span | None]:
        given = [part for part in more if isinstance(part, Clause)]
        comma = next((part for part in more if not isinstance(part, Clause)), None)
        end = comma[0] if comma else at[1]
        return self.make(s.SplitBranch, (at[0], end), [entries, *given], target=target), comma

    def comma(self, at: Span, _: Token) -> Span:
        return at

    # ---- other statements

    def ask(self, at: Span, query: s.Query) -> s.Ask:
        return s.Ask(query, at=at)

    def named_ask(self, at: Span, name: s.Name, query: s.Query) -> s.Ask:
        return s.Ask(query, name, at=at)

    def drop(self, at: Span, kind: str, name: s.Name) -> s.Drop:
        return s.Drop(kind.lower(), name, at=at)  # type: ignore[arg-type]

    def show(self, at: Span, what: str) -> s.Show:
        return s.Show(what.lower(), at=at)

    def describe(self, at: Span, name: s.Name) -> s.Describe:
        return s.Describe(name, at=at)

    def explained(self, _: Span, *words: Token) -> tuple[str, ...]:
        return tuple(word.text.upper() for word in words)

    def explain(self, at: Span, *parts: Any) -> s.Explain:
        words = parts[0] if len(parts) > 1 else ()
        return s.Explain(parts[-1], liveliness="LIVELINESS" in words, analyze="ANALYZE" in words, at=at)

    def verify(self, at: Span, target: s.Name | s.Query, *given: Clause) -> s.Verify:
        return self.make(s.Verify, at, given, target=target)

    def seeds(self, at: Span, number: Token) -> Clause:
        return Clause("seeds", self.whole(number), at)

    def over_intent(self, at: Span, _: Token, text: Token) -> Clause:
        return Clause("over", unquoted(text.text), at)

    def set(self, at: Span, name: s.Name, value: s.Expression) -> s.Set:
        return s.Set(name, value, at=at)

    # ---- queries

    def query(self, at: Span, *parts: Any) -> s.Query:
        body = next(part for part in parts if not isinstance(part, Clause))
        given = [part for part in parts if isinstance(part, Clause)]
        flat = [c for part in given for c in (part.value if part.field == "both" else (part,))]
        return self.make(s.Query, at, flat, body=body)

    def union(self, at: Span, left: s.Select | s.Union, *right: Any) -> s.Union:
        return s.Union(left, right[-1], all=len(right) > 1, at=at)

    into = clause("into")

    def emit(self, at: Span, mode: str) -> Clause:
        return Clause("emit", mode.lower(), at)

    def tick(self, at: Span, mode: str) -> Clause:
        return Clause("tick", mode.lower(), at)

    def tick_batch_by(self, at: Span, column: s.Column) -> Clause:
        return Clause("both", (Clause("tick", "batch", at), Clause("tick_by", column, at)), at)

    def select(self, at: Span, *parts: Any) -> s.Select | s.Union:
        given = [part for part in parts if isinstance(part, Clause)]
        source, *joins = next(part.value for part in given if part.field == "from")
        given = [part for part in given if part.field != "from"]
        limits = [part for part in given if part.field in ("limit", "offset")]
        given = [part for part in given if part not in limits]
        limit = self._limited(limits)
        more = {"source": source, "joins": tuple(joins), "limit": limit}
        return with_window_functions(self, self.make(s.Select, at, given, distinct="DISTINCT" in parts, **more))

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
        if "limit" not in said:
            if said:
                self.fail("OFFSET needs the number of rows behind it", said["offset"].at, instead="LIMIT 10 OFFSET 5")
            return None
        limit: s.Limit = said["limit"].value
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
            return self.make(s.FromItem, at, parts, stream=stream.stream, brackets=stream.brackets)
        alias = [part for part in parts if isinstance(part, Clause)]
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

    # ---- windows

    def _window(self, kind: type[P], at: Span, given: Iterable[Clause], /, **values: Any) -> P:
        policies, rest = self._split_clauses(s.WindowPolicies, frozenset({"clip", "timestamp"}), given)
        return self.make(kind, at, rest, policies=policies, **values)

    def size_window(self, at: Span, size: s.Measure, *given: Clause) -> s.SizeWindow:
        return self._window(s.SizeWindow, at, given, size=size)

    def rows_window(self, at: Span, rows: Token, *clauses: Clause) -> s.SizeWindow:
        if not any(part.field == "every" for part in clauses):
            clauses = (Clause("every", s.Tuples(1, at=at), at), *clauses)
        return self._window(s.SizeWindow, at, clauses, size=self.tuples((rows.start, rows.end), rows))

    def slide_rows(self, at: Span, rows: Token) -> Clause:
        return Clause("every", self.tuples((rows.start, rows.end), rows), at)

    def tumbling_window(self, at: Span, size: s.Duration, *given: Clause) -> s.GridWindow:
        return self._window(s.GridWindow, at, given, size=size)

    def hopping_window(self, at: Span, size: s.Duration, *given: Clause) -> s.GridWindow:
        if not any(part.field == "every" for part in given):
            self.fail("a hopping window needs its hop", at, instead="HOPPING 60 s EVERY 10 s, or TUMBLING 60 s")
        return self._window(s.GridWindow, at, given, size=size)

    def range_slide_window(self, at: Span, size: s.Duration, *given: Clause) -> s.GridWindow:
        return self._window(s.GridWindow, at, given, size=size)

    def snapshot_window(self, at: Span, *given: Clause) -> s.SnapshotWindow:
        return self._window(s.SnapshotWindow, at, given)

    def count_window(self, at: Span, edge: str, count: Token, *given: Clause) -> s.CountWindow:
        return self._window(s.CountWindow, at, given, edge=edge.lower(), count=self.whole(count))

    def session_window(self, at: Span, gap: s.Duration, *given: Clause) -> s.SessionWindow:
        return self._window(s.SessionWindow, at, given, gap=gap)

    def delta_window(self, at: Span, delta: s.Expression, threshold: s.Expression, *given: Clause) -> s.DeltaWindow:
        return self._window(s.DeltaWindow, at, given, delta=delta, threshold=threshold)

    def landmark_window(self, at: Span, start: s.Expression, *given: Clause) -> s.LandmarkWindow:
        return self._window(s.LandmarkWindow, at, given, start=start)

    def fixed_window(self, at: Span, start: s.Expression, end: s.Expression, *given: Clause) -> s.FixedWindow:
        return self._window(s.FixedWindow, at, given, start=start, end=end)

    def tuples(self, at: Span, count: Token) -> s.Tuples:
        return s.Tuples(self.whole(count), at=at)

    def arrival(self, at: Span, duration: s.Duration) -> s.Arrival:
        return s.Arrival(duration, at=at)

    def application(self, at: Span, amount: s.Duration | Token, column: s.Column) -> s.Application:
        return s.Application(self.amount(at, amount), column, at=at)

    every = clause("every")
    every_span = clause("every")
    longest = clause("longest")

    def zone(self, at: Span, token: Token) -> Clause:
        return Clause("zone", unquoted(token.text), at)

    starting_at = clause("starting")

    def starting_first(self, at: Span) -> Clause:
        return Clause("starting", "first", at)

    partitioned = clauses("partition")
    window_where = clause("where")

    def clip(self, at: Span, policy: str) -> Clause:
        return Clause("clip", policy.lower(), at)

    def stamp(self, at: Span, policy: str) -> Clause:
        return Clause("timestamp", policy.lower(), at)

    def range(self, at: Span, duration: s.Duration) -> s.Lifespan:
        return s.Lifespan("range", duration, at=at)

    def now(self, at: Span) -> s.Lifespan:
        return s.Lifespan("now", at=at)

    def shift(self, at: Span, duration: s.Duration | s.Unary) -> s.Lifespan:
        return s.Lifespan("shift", duration, at=at)

    def extend(self, at: Span, duration: s.Duration | s.Unary) -> s.Lifespan:
        return s.Lifespan("extend", duration, at=at)

    def cap(self, at: Span, duration: s.Duration | s.Unary) -> s.Lifespan:
        return s.Lifespan("cap", duration, at=at)

    def point_at_start(self, at: Span) -> s.Lifespan:
        return s.Lifespan("point_at_start", at=at)

    def point_at_end(self, at: Span) -> s.Lifespan:
        return s.Lifespan("point_at_end", at=at)

    def coalesce(self, at: Span) -> s.Lifespan:
        return s.Lifespan("coalesce", at=at)

    def module(self, at: Span, call: s.Call) -> s.Module:
        return s.Module(call, at=at)
