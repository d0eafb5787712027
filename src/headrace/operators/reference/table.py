"""The twin of the stream–table join: every event against every row."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.io.tables import TableFiles, TableRows
from headrace.operators.reference.rows import Row, identity
from headrace.plan.table import TableJoin

__all__ = ["table_join"]


def table_join(node: TableJoin, rows: Sequence[Row]) -> list[Row]:
    """An event for each row with its keys, none of them null; or, in a left join, one with nulls."""
    table = node.table.read() if isinstance(node.table, TableFiles) else node.table
    assert isinstance(table, TableRows)
    table_rows = table.table.to_pylist()
    result = []
    for le, re, payload in rows:
        key = [identity(payload[name]) for name, _ in node.on]
        matches = [row for row in table_rows if None not in key and [identity(row[name]) for _, name in node.on] == key]
        if not matches and node.how == "left":
            matches = [dict.fromkeys(node.columns.names)]
        added = [{new: row[name] for name, new in node.table_columns.items()} for row in matches]
        result += [(le, re, payload | columns) for columns in added]
    return result
