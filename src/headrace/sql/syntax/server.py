"""Statements for a server (`headrace serve`): queries that run, subscriptions, secrets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.sql.syntax.expressions import Expression, Name
from headrace.sql.syntax.statements import Statement

__all__ = ["AlterQuery", "CreateSecret", "ServerStatement", "StartQuery", "Subscribe"]


@dataclass(frozen=True)
class ServerStatement(Statement):
    """A statement that only a server carries out; `name` is what it is about."""

    name: Name


@dataclass(frozen=True)
class StartQuery(ServerStatement):
    """`START QUERY q`, `STOP QUERY q`."""

    stop: bool = False


@dataclass(frozen=True)
class AlterQuery(ServerStatement):
    """`ALTER QUERY q SET trigger = '1 s'`, `ALTER TABLE t SET retention = '7 days'`; the kind is in lower case."""

    setting: Name
    value: Expression
    kind: str = "query"


@dataclass(frozen=True)
class Subscribe(ServerStatement):
    """`SUBSCRIBE name [AS OF 'cursor'] [WITH EVENTS | UPSERT (a, b) | FINAL]`."""

    cursor: str | None = None
    form: Literal["events", "upsert", "final"] = "events"
    key: tuple[Name, ...] = ()


@dataclass(frozen=True)
class CreateSecret(ServerStatement):
    """`CREATE SECRET name AS 'value' | FROM ENV 'VARIABLE'`."""

    value: str
    from_environment: bool = False
