"""Print the statements about tables; see `printer` for the rest."""

from __future__ import annotations

from headrace.sql import syntax as s
from headrace.sql.printer.expressions import clause, clauses, listed, text, words, writes, written_name

__all__ = ["if_not_exists", "new_name", "table_columns"]

#: Words that are keywords in these places, and names elsewhere.
_AS_NEW = frozenset({"IF"})
ISOLATED = "WITH (ISOLATED)"
_AS_COLUMN = frozenset({"PRIMARY"})
_AS_TARGET = frozenset({"CONSOLE"})
_AS_TRUNCATED = frozenset({"TABLE"})


def if_not_exists(part: s.CreateSchema | s.CreateStream | s.CreateTable | s.CreateView) -> str:
    """IF NOT EXISTS, where it is said."""
    return "IF NOT EXISTS" if part.if_not_exists else ""


def new_name(name: s.Name) -> str:
    """A name where IF may stand."""
    return written_name(name, _AS_NEW)


@writes(s.CreateView)
def _(part: s.CreateView) -> str:
    kind = "CREATE OR REPLACE VIEW" if part.replace else "CREATE VIEW"
    kind = "CREATE MATERIALIZED VIEW" if part.materialized else kind
    return (
        words(kind, if_not_exists(part), new_name(part.name), ISOLATED if part.isolated else "", "AS")
        + f"\n{text(part.query)}"
    )


def table_columns(part: s.CreateTable) -> str:
    """The columns of a table and its key, in parentheses."""
    columns = [_column(column) for column in part.columns]
    key = [f"PRIMARY KEY ({listed(part.key)})"] if part.key else []
    return f"({', '.join([*columns, *key])})" if columns else ""


def _column(column: s.TypedColumn) -> str:
    first = text(s.TypedColumn(column.name, column.type))
    if column.name.text.upper() in _AS_COLUMN:
        first = written_name(column.name, _AS_COLUMN) + first[len(text(column.name)) :]
    if not isinstance(column, s.TableColumn):
        return first
    rules = "NOT NULL" if column.not_null else "", "PRIMARY KEY" if column.key else ""
    default = f"DEFAULT ({text(column.default)})" if column.default is not None else ""
    return words(first, *rules, default)


text.register(s.TableColumn, _column)


def _target(table: s.Name, columns: tuple[s.Name, ...]) -> str:
    named = f"({', '.join(_argument(column) for column in columns)})" if columns else ""
    return words("INSERT INTO", written_name(table, frozenset() if columns else _AS_TARGET), named)


def _argument(column: s.Name) -> str:
    return text(s.Column(column))


@writes(s.InsertValues)
def _(part: s.InsertValues) -> str:
    return words(_target(part.table, part.columns), clause("AT", part.time), clauses("VALUES", part.rows))


@writes(s.InsertSelect)
def _(part: s.InsertSelect) -> str:
    assert part.query is not None
    return words(_target(part.table, part.columns), clause("AT", part.time)) + f"\n{text(part.query)}"


@writes(s.UpdateTable)
def _(part: s.UpdateTable) -> str:
    first = words(f"UPDATE {text(part.table)}", clause("AT", part.time))
    return words(first, clauses("SET", part.assignments), _items("FROM", part), clause("WHERE", part.where))


@writes(s.DeleteFrom)
def _(part: s.DeleteFrom) -> str:
    first = words(f"DELETE FROM {text(part.table)}", clause("AT", part.time))
    return words(first, _items("USING", part), clause("WHERE", part.where))


def _items(word: str, part: s.UpdateTable | s.DeleteFrom) -> str:
    """The items whose rows decide about those of a table."""
    return words(clause(word, part.source), *map(text, part.joins))


@writes(s.Truncate)
def _(part: s.Truncate) -> str:
    return words(f"TRUNCATE TABLE {written_name(part.table, _AS_TRUNCATED)}", clause("AT", part.time))
