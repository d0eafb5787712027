"""Statements about tables that live: their columns, and what changes their rows."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sql.syntax.aggregates import Assignment
from headrace.sql.syntax.expressions import Expression, Name
from headrace.sql.syntax.queries import FromItem, Join, Query, ValuesRow
from headrace.sql.syntax.statements import Statement, TypedColumn

__all__ = ["ChangeTable", "DeleteFrom", "InsertSelect", "InsertValues", "TableColumn", "Truncate", "UpdateTable"]


@dataclass(frozen=True)
class TableColumn(TypedColumn):
    """`id LONG [NOT NULL] [PRIMARY KEY] [DEFAULT value]`."""

    not_null: bool = False
    key: bool = False
    default: Expression | None = None


@dataclass(frozen=True)
class ChangeTable(Statement):
    """A statement that changes the rows of a table; `time` is when: `AT TIMESTAMP '…'` behind the table's name."""

    table: Name
    time: Expression | None = None


@dataclass(frozen=True)
class InsertValues(ChangeTable):
    """`INSERT INTO t [(a, b)] [AT time] VALUES (1, 2), (3, 4)`."""

    columns: tuple[Name, ...] = ()
    rows: tuple[ValuesRow, ...] = ()


@dataclass(frozen=True)
class InsertSelect(ChangeTable):
    """`INSERT INTO t [(a, b)] AT time SELECT …`; without a time it is an `Insert`, whose target may be a stream."""

    columns: tuple[Name, ...] = ()
    query: Query | None = None


@dataclass(frozen=True)
class UpdateTable(ChangeTable):
    """`UPDATE t [AT time] SET a = 1, b = b + 1 [FROM …] [WHERE p]`."""

    assignments: tuple[Assignment, ...] = ()
    where: Expression | None = None
    source: FromItem | None = None
    joins: tuple[Join, ...] = ()


@dataclass(frozen=True)
class DeleteFrom(ChangeTable):
    """`DELETE FROM t [AT time] [USING …] [WHERE p]`."""

    where: Expression | None = None
    source: FromItem | None = None
    joins: tuple[Join, ...] = ()


@dataclass(frozen=True)
class Truncate(ChangeTable):
    """`TRUNCATE [TABLE] t [AT time]`."""
