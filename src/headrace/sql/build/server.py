"""Build the statements for a server; see `build` for the other rules and the method."""

from __future__ import annotations

from headrace.sql import syntax as s
from headrace.sql.build.expressions import Clause, ExpressionBuilder, Token, unquoted
from headrace.sql.syntax import Span

__all__ = ["ServerBuilder"]


class ServerBuilder(ExpressionBuilder):
    """Builds the statements about running queries, subscriptions and secrets."""

    def start_query(self, at: Span, name: s.Name) -> s.StartQuery:
        return s.StartQuery(name, at=at)

    def stop_query(self, at: Span, name: s.Name) -> s.StartQuery:
        return s.StartQuery(name, stop=True, at=at)

    def alter_query(self, at: Span, kind: str, name: s.Name, setting: s.Name, value: s.Expression) -> s.AlterQuery:
        return s.AlterQuery(name, setting, value, kind, at=at)

    def alter_kind(self, _: Span, *words: Token) -> str:
        return " ".join(word.text for word in words).lower()

    def subscribe(self, at: Span, name: s.Name, *given: Clause | list[Clause]) -> s.Subscribe:
        clauses = [one for part in given for one in (part if isinstance(part, list) else [part])]
        return self.make(s.Subscribe, at, clauses, name=name)

    def subscribed_from(self, at: Span, cursor: Token) -> Clause:
        return Clause("cursor", unquoted(cursor.text), at)

    def subscribed_events(self, at: Span) -> Clause:
        return Clause("form", "events", at)

    def subscribed_final(self, at: Span) -> Clause:
        return Clause("form", "final", at)

    def subscribed_upsert(self, at: Span, *key: s.Name) -> list[Clause]:
        return [Clause("form", "upsert", at), Clause("key", key, at)]

    def create_secret(self, at: Span, name: s.Name, value: Token) -> s.CreateSecret:
        return s.CreateSecret(name, unquoted(value.text), at=at)

    def create_env_secret(self, at: Span, name: s.Name, variable: Token) -> s.CreateSecret:
        return s.CreateSecret(name, unquoted(variable.text), from_environment=True, at=at)
