"""Build the syntax tree: one method per rule of the grammar or `-> alias`, from the parts below it.

A method gets the place of its text and the values of its parts, without keywords and punctuation. Rules that are only a
clause of something larger give a `Clause`: which field it fills, and with what; the larger rule collects them, whatever
their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from headrace.sql import syntax as s
from headrace.sql.build.expressions import Clause, Token, clause, clauses, unquoted
from headrace.sql.build.queries import QueryBuilder
from headrace.sql.build.server import ServerBuilder
from headrace.sql.build.tables import TableBuilder
from headrace.sql.syntax import Span

__all__ = ["Builder"]

P = TypeVar("P", bound=s.Part)


class Builder(QueryBuilder, TableBuilder, ServerBuilder):
    """Builds the statements, queries and windows of one text."""

    # ---- scripts and schemas

    def script(self, at: Span, *statements: s.Statement) -> s.Script:
        return s.Script(statements, at=at)

    def lone_statement(self, _: Span, statement: s.Statement) -> s.Statement:
        return statement

    def lone_expression(self, _: Span, value: s.Expression) -> s.Expression:
        return value

    def create_schema(self, at: Span, *parts: Any) -> s.CreateSchema:
        name, given = self.named_clauses(parts)
        return self.make(s.CreateSchema, at, given, name=name)

    columns = clauses("columns")
    like_schema = clause("like")
    extends = clause("extends")

    def typed_column(self, at: Span, name: s.Name, type: s.Name) -> s.TypedColumn:
        return s.TypedColumn(name, type, at=at)

    # ---- streams and tables

    def create_stream(self, at: Span, *parts: Any) -> s.CreateStream:
        name, given = self.named_clauses(parts)
        policy, rest = self._split_clauses(s.Policy, frozenset({"late", "bad_rows", "shedding"}), given)
        return self.make(s.CreateStream, at, rest, name=name, policy=policy)

    def _split_clauses(
        self, kind: type[P], fields: frozenset[str], clauses: Iterable[Clause]
    ) -> tuple[P, list[Clause]]:
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

    def shedding(self, at: Span, *given: s.Name | Token) -> Clause:
        *by, rows = given
        return Clause("shedding", s.Shedding(self.whole(rows), by[0] if by else None, at=at), at)  # type: ignore[arg-type]

    # ---- insert, merge, split

    def insert(self, at: Span, target: s.Name | s.Into, source: s.Name | s.Query) -> s.Statement:
        return self._inserted_rows(at, target, source) or s.Insert(target, source, at=at)

    def insert_as(self, at: Span, target: s.Name | s.Into, source: s.Name | s.Query) -> s.Insert:
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

    def drop(self, at: Span, kind: str, *parts: Any) -> s.Drop:
        name, given = self.named_clauses(parts)
        return self.make(s.Drop, at, given, kind=kind, name=name)

    def drop_cascade(self, at: Span, kind: str, *parts: Any) -> s.Drop:
        name, given = self.named_clauses(parts[:-1])
        return self.make(s.Drop, at, given, kind=kind, name=name, cascade=True)

    def drop_kind(self, _: Span, *words: Token) -> str:
        return " ".join(word.text for word in words).lower()

    def show(self, at: Span, what: str) -> s.Show:
        return s.Show(what.lower(), at=at)

    def show_part(self, at: Span, what: str, *given: Clause) -> s.Show:
        return self.make(s.Show, at, given, what=what.lower())

    show_for = clause("name")

    def show_limit(self, at: Span, number: Token) -> Clause:
        return Clause("limit", self.whole(number), at)

    def show_create(self, at: Span, name: s.Name) -> s.ShowCreate:
        return s.ShowCreate(name, at=at)

    def show_create_kind(self, at: Span, kind: str, name: s.Name) -> s.ShowCreate:
        return s.ShowCreate(name, kind, at=at)

    def describe(self, at: Span, target: s.Name | s.Query) -> s.Describe:
        return s.Describe(target, at=at)

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

    def chop(self, at: Span, duration: s.Duration, *starting: Clause) -> s.Lifespan:
        return self.make(s.Lifespan, at, starting, kind="chop", duration=duration)

    def point_at_start(self, at: Span) -> s.Lifespan:
        return s.Lifespan("point_at_start", at=at)

    def point_at_end(self, at: Span) -> s.Lifespan:
        return s.Lifespan("point_at_end", at=at)

    def coalesce(self, at: Span) -> s.Lifespan:
        return s.Lifespan("coalesce", at=at)

    def module(self, at: Span, call: s.Call) -> s.Module:
        return s.Module(call, at=at)
