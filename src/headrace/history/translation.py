"""The state of a translation: the relations so far, their names in SQL, and expressions over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

import pyarrow as pa

from headrace.expr import Expr
from headrace.expr.nodes import Column
from headrace.history.dialect import Dialect
from headrace.history.grid import grid_sql
from headrace.history.inputs import Late
from headrace.history.script import HistoryFunction, HistoryRelation, HistoryScript, HistoryStatement
from headrace.plan.nodes import Node, PerWindow, Shift
from headrace.plan.windows import Grid
from headrace.schema import Field, Schema

__all__ = ["Translation"]


class Translation:
    """The translation of one plan."""

    def __init__(self, dialect: Dialect, late: Late, prefix: str, *, orphans: bool) -> None:
        self.dialect, self.late, self.prefix, self.orphans = dialect, late, prefix, orphans
        self.script = HistoryScript()
        self.relations: dict[str, HistoryRelation] = {}
        self.highs: dict[str, str] = {}
        self._numbers = count()

    # --- relations ---------------------------------------------------------------------------------------------------

    def of(self, node: Node, position: int = 0) -> HistoryRelation:
        """The relation of an input."""
        return self.relations[node.inputs[position].fingerprint]

    def give(self, node: Node, query: str) -> None:
        """Add a statement for a node; its highest time is that of its inputs."""
        relation = HistoryRelation(f"{self.prefix}n{next(self._numbers)}", node.schema)
        self.script.statements.append(HistoryStatement(relation, query, " ".join(node.describe().split())))
        self.relations[node.fingerprint] = relation
        if node.inputs:
            self.highs[node.fingerprint] = self._high(node)

    def same(self, node: Node) -> None:
        """An operator that does not change a complete history."""
        self.relations[node.fingerprint] = self.of(node)
        self.highs[node.fingerprint] = self.highs[node.inputs[0].fingerprint]

    def _high(self, node: Node) -> str:
        """The highest time of a node's complete output, as SQL; null where there is none."""
        below = [self.highs[child.fingerprint] for child in node.inputs]
        if isinstance(node, PerWindow) and isinstance(node.window, Grid):
            return grid_sql(self, node.window).last_closed(below[0])
        if isinstance(node, Shift):
            return f"({below[0]} + ({node.by}))"
        return f"greatest({', '.join(dict.fromkeys(below))})" if len(set(below)) > 1 else below[0]

    def table(self, table: pa.Table) -> str:
        """Add a table that the statements read; return its name."""
        name = f"{self.prefix}t{len(self.script.tables)}"
        self.script.tables[name] = table
        return name

    def function(self, made: Callable[[str], HistoryFunction]) -> str:
        """Add a function that statements may call; return its name."""
        function = made(f"{self.prefix}f{len(self.script.functions)}")
        self.script.functions.append(function)
        return function.name

    # --- names and expressions ---------------------------------------------------------------------------------------

    def quote(self, name: str) -> str:
        return self.dialect.quote(name)

    def columns(self, relation: HistoryRelation, prefix: str = "") -> list[str]:
        """The payload's columns."""
        return [prefix + self.quote(name) for name in relation.columns.values()]

    def all(self, relation: HistoryRelation) -> str:
        """The columns of an event."""
        return ", ".join(["le", "re", *self.columns(relation)])

    def expr(self, expr: Expr, schema: Schema, names: Mapping[str, str]) -> str:
        """An expression over columns with these names."""
        renamed = expr.transform(lambda e: Column(names[e.column]) if isinstance(e, Column) else e)
        fields = Schema(tuple(Field(names[field.name], field.type) for field in schema if field.name in names))
        return self.dialect.printer.sql(renamed.bind(fields))

    def over(self, expr: Expr, relation: HistoryRelation) -> str:
        """An expression over a relation's payload."""
        return self.expr(expr, relation.schema, relation.columns)

    def named(self, values: Mapping[str, str], schema: Schema) -> str:
        """`value AS column` for the payload of a schema."""
        columns = HistoryRelation("", schema).columns
        return ", ".join(f"{values[name]} AS {self.quote(columns[name])}" for name in schema.names)
