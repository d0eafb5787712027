"""Aggregates written in SQL (rule 7.1): their tables, and their statements for each event."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sql.syntax.expressions import Call, Expression, Name, OrderKey
from headrace.sql.syntax.parts import Part
from headrace.sql.syntax.queries import Entry, ValuesRow
from headrace.sql.syntax.statements import Statement, TypedColumn

__all__ = [
    "Assignment", "BodyStatement", "CreateAggregate", "DeleteRows", "InsertRows", "InsertSelected", "LocalJoin",
    "LocalSelect", "LocalTable", "Member", "ScalarSelect", "Stage", "UpdateRows",
]  # fmt: skip


@dataclass(frozen=True)
class LocalTable(Part):
    """`TABLE state(a REAL, b INT, KEY (a)) [LIMIT n] [AS VALUES (…)]`.

    `AS STORED '…'` has all rows in one text: that is how a stored table travels with the aggregate that reads it.
    """

    name: Name
    columns: tuple[TypedColumn, ...]
    key: tuple[Name, ...] = ()
    rows: tuple[ValuesRow, ...] = ()
    stored: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class LocalJoin(Part):
    """`JOIN t [AS x] [ON …]`, or a table after a comma."""

    table: Name
    alias: Name | None = None
    on: Expression | None = None


@dataclass(frozen=True)
class LocalSelect(Part):
    """A SELECT over tables of the aggregate's own and stored ones, or none."""

    entries: tuple[Entry, ...]
    table: Name | None = None
    alias: Name | None = None
    where: Expression | None = None
    order: tuple[OrderKey, ...] = ()
    limit: int | None = None
    joins: tuple[LocalJoin, ...] = ()
    group: tuple[Expression, ...] = ()
    having: Expression | None = None
    distinct: bool = False


@dataclass(frozen=True)
class ScalarSelect(Expression):
    """`(SELECT …)` as a value in the body of an aggregate."""

    select: LocalSelect


@dataclass(frozen=True)
class Member(Expression):
    """`oldest().price`: a column of a call's result."""

    call: Call
    name: Name


@dataclass(frozen=True)
class BodyStatement(Part):
    """A statement of a body."""


@dataclass(frozen=True)
class InsertRows(BodyStatement):
    """`INSERT INTO t | RETURN VALUES (…), (…)`."""

    target: Name
    rows: tuple[ValuesRow, ...]


@dataclass(frozen=True)
class InsertSelected(BodyStatement):
    """`INSERT INTO t | RETURN SELECT …`."""

    target: Name
    select: LocalSelect


@dataclass(frozen=True)
class Assignment(Part):
    """`a = a + 1` of an UPDATE."""

    column: Name
    value: Expression


@dataclass(frozen=True)
class UpdateRows(BodyStatement):
    """`UPDATE t SET a = … [WHERE …]`."""

    table: Name
    assignments: tuple[Assignment, ...]
    where: Expression | None = None


@dataclass(frozen=True)
class DeleteRows(BodyStatement):
    """`DELETE FROM t [WHERE …]`."""

    table: Name
    where: Expression | None = None


@dataclass(frozen=True)
class Stage(Part):
    """`INITIALIZE: ITERATE: { … }`: statements, and the events that execute them (in lower case)."""

    events: tuple[str, ...]
    statements: tuple[BodyStatement, ...] = ()


@dataclass(frozen=True)
class CreateAggregate(Statement):
    """`CREATE [WINDOW] AGGREGATE f(next REAL): REAL | (a REAL, b INT) [ALGEBRAIC] { … }`.

    `returns` is the type of its value; `columns`, instead, are those of the rows it gives.
    """

    name: Name
    parameters: tuple[TypedColumn, ...]
    returns: Name | None = None
    columns: tuple[TypedColumn, ...] = ()
    algebraic: bool = False
    tables: tuple[LocalTable, ...] = ()
    stages: tuple[Stage, ...] = ()
    window: bool = False
