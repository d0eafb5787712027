"""HTML for notebooks: tables that are short, and plans. It never runs a query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import pyarrow as pa

from headrace.display.words import clipped, columns_text, value_text
from headrace.plan.nodes import Node, walk

__all__ = ["html_preview", "html_stream", "html_table"]

_PREVIEW, _STEPS = 10, 30
_WIDE = 30  # columns of a preview


def html_table(columns: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells of `rows` are HTML, the names of columns are text."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def html_preview(table: pa.Table) -> str:
    """The first rows and columns of a table, and what is left out."""
    names = table.column_names[:_WIDE]
    first = table.select(names).slice(0, _PREVIEW).to_pylist()
    rows = [[escape(clipped(value_text(value), 60)) for value in row.values()] for row in first]
    missing = [f"{table.num_rows - _PREVIEW:,} more rows"] if table.num_rows > _PREVIEW else []
    missing += [f"{len(table.column_names) - _WIDE} more columns"] if len(table.column_names) > _WIDE else []
    return html_table(names, rows) + (f"<p>and {', '.join(missing)}</p>" if missing else "")


def html_stream(node: Node) -> str:
    """The columns of a stream, and its plan as it was written; `explain` shows it as it runs."""
    nodes = list(walk(node))
    numbers = {n.fingerprint: i for i, n in enumerate(nodes, 1)}
    shown = nodes if len(nodes) <= _STEPS else [*nodes[: _STEPS // 2], *nodes[-_STEPS // 2 :]]
    rows = [
        [
            str(numbers[n.fingerprint]),
            escape(clipped(n.describe(), 300)),
            ", ".join(str(numbers[child.fingerprint]) for child in n.inputs),
            escape(n.liveliness.state),
            escape(n.liveliness.cti),
        ]
        for n in shown
    ]
    more = f"<p>{len(nodes) - len(shown)} operators between them are not shown</p>" if len(nodes) > len(shown) else ""
    table = html_table(("#", "operator", "reads", "state", "CTI"), rows)
    return f"<p><b>Stream</b> of <code>{escape(columns_text(node.schema))}</code></p>\n{table}{more}"
