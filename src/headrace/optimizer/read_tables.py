"""Tables in files are read when the query starts, and become part of it."""

from __future__ import annotations

from dataclasses import replace

from headrace.io.tables import TableFiles, TableRows
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Node, Output, Recurse, TableJoin

__all__ = ["read_tables"]


def read_tables(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """A join with a file becomes a join with its current rows; each file is read once."""
    tables: dict[TableFiles, TableRows] = {}

    def read(node: Node) -> Node:
        if isinstance(node, Recurse):
            (body,) = rewrite((Output(node.body, "body"),), read)
            return replace(node, body=body.input)
        if not isinstance(node, TableJoin) or not isinstance(node.table, TableFiles):
            return node
        if node.table not in tables:
            tables[node.table] = node.table.read()
        return replace(node, table=tables[node.table])

    return rewrite(outputs, read)
