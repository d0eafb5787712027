"""Build the statements about tables; see `build` for the other rules and the method."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.sql import syntax as s
from headrace.sql.build.expressions import Clause, ExpressionBuilder, clause, clauses, unquoted
from headrace.sql.syntax import Span

__all__ = ["TableBuilder"]


class TableBuilder(ExpressionBuilder):
    """Builds the statements that create tables and change their rows."""

    def named_clauses(self, parts: Iterable[Any]) -> tuple[s.Name, list[Clause]]:
        """The name of a statement, which IF EXISTS may precede, and its clauses."""
        parts = list(parts)
        return next(part for part in parts if isinstance(part, s.Name)), [p for p in parts if isinstance(p, Clause)]

    def if_not_exists(self, at: Span) -> Clause:
        return Clause("if_not_exists", True, at)

    def isolated(self, at: Span) -> Clause:
        return Clause("isolated", True, at)

    def if_exists(self, at: Span) -> Clause:
        return Clause("if_exists", True, at)

    def create_view(self, at: Span, *parts: Any, **how: Any) -> s.CreateView:
        name, given = self.named_clauses(parts)
        return self.make(s.CreateView, at, given, name=name, query=parts[-1], **how)

    def replace_view(self, at: Span, name: s.Name, query: s.Query) -> s.CreateView:
        return self.create_view(at, name, query, replace=True)

    def create_materialized(self, at: Span, *parts: Any) -> s.CreateView:
        return self.create_view(at, *parts, materialized=True)

    def create_table(self, at: Span, *parts: Any) -> s.CreateTable:
        name, given = self.named_clauses(parts)
        flat = [one for part in given for one in (part.value if part.field == "parts" else (part,))]
        return self.make(s.CreateTable, at, flat, name=name)

    def create_table_as(self, at: Span, *parts: Any) -> s.CreateTable:
        name, given = self.named_clauses(parts)
        return self.make(s.CreateTable, at, given, name=name, query=parts[-1])

    def table_columns(self, at: Span, *parts: s.TypedColumn | Clause) -> Clause:
        columns = tuple(part for part in parts if isinstance(part, s.TypedColumn))
        if not columns:
            self.fail("a table needs columns", at, instead="(id LONG PRIMARY KEY, …)")
        keys = [part for part in parts if isinstance(part, Clause)]
        return Clause("parts", (Clause("columns", columns, at), *keys), at)

    table_key = clauses("key")

    def table_column(self, at: Span, column: s.TypedColumn, *rules: Clause) -> s.TypedColumn:
        if not rules:
            return column
        return self.make(s.TableColumn, at, rules, name=column.name, type=column.type)

    def not_null(self, at: Span) -> Clause:
        return Clause("not_null", True, at)

    def is_key(self, at: Span) -> Clause:
        return Clause("key", True, at)

    default = clause("default")
    at_time = clause("time")

    def insert_at(self, at: Span, target: s.Name | s.Into, time: Clause, query: s.Query) -> s.ChangeTable:
        rows = self._inserted_rows(at, target, query, [time])
        if rows is not None:
            return rows
        table, columns = self._table_target(target)
        return self.make(s.InsertSelect, at, [time], table=table, columns=columns, query=query)

    def _inserted_rows(
        self, at: Span, target: s.Name | s.Into, query: Any, time: Iterable[Clause] = ()
    ) -> s.InsertValues | None:
        """`INSERT INTO t VALUES …`, if the query is nothing but VALUES."""
        if not isinstance(query, s.Query) or not isinstance(query.body, s.Values) or query != s.Query(query.body):
            return None
        table, columns = self._table_target(target)
        return self.make(s.InsertValues, at, time, table=table, columns=columns, rows=query.body.rows)

    def _table_target(self, target: s.Name | s.Into) -> tuple[s.Name, tuple[s.Name, ...]]:
        """`t (a, b)` as a table and its columns: the grammar reads it as a place with arguments."""
        if isinstance(target, s.Name):
            return target, ()
        kind = target.kind
        written = self.text[slice(*kind.at)]
        table = s.Name(unquoted(written) if kind.quoted else written, quoted=kind.quoted, at=kind.at)
        columns = []
        for value in target.arguments:
            quoted = self.text[value.at[0]] == '"'
            if isinstance(value, s.Column) and value.stream is None:
                columns.append(value.name)
            elif isinstance(value, s.Text) and quoted:
                columns.append(s.Name(value.value, quoted=True, at=value.at))
            else:
                self.fail("the names of columns stand here", value.at, instead="INSERT INTO t (a, b) VALUES (1, 2)")
        if target.named or not columns:
            self.fail("the names of columns stand here", target.at, instead="INSERT INTO t (a, b) VALUES (1, 2)")
        return table, tuple(columns)

    delete_using = clauses("from")

    def update_table(self, at: Span, table: s.Name, *parts: Any) -> s.UpdateTable:
        given, read = _items([part for part in parts if isinstance(part, Clause)])
        assignments = tuple(part for part in parts if isinstance(part, s.Assignment))
        return self.make(s.UpdateTable, at, given, table=table, assignments=assignments, **read)

    def delete_from(self, at: Span, table: s.Name, *parts: Clause) -> s.DeleteFrom:
        given, read = _items(parts)
        return self.make(s.DeleteFrom, at, given, table=table, **read)

    def truncate(self, at: Span, table: s.Name, *given: Clause) -> s.Truncate:
        return self.make(s.Truncate, at, given, table=table)


def _items(parts: Iterable[Clause]) -> tuple[list[Clause], dict[str, Any]]:
    """The clauses without FROM or USING, and the items of these."""
    found = {"source": items.value[0], "joins": items.value[1:]} if (items := _from(parts)) is not None else {}
    return [part for part in parts if part.field != "from"], found


def _from(parts: Iterable[Clause]) -> Clause | None:
    return next((part for part in parts if part.field == "from"), None)
