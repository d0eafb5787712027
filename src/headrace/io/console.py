"""Results on a terminal: one table a batch, corrections beside what they correct."""

from __future__ import annotations

from rich.console import Console as Terminal
from rich.table import Table

from headrace.changes import Changes
from headrace.io.sinks import Console, rows_of
from headrace.progress import Progress
from headrace.time import format_ticks

__all__ = ["batch_table", "show_batch"]

_COLOURS = {"insert": "green", "retract": "yellow", "delete": "red", "upsert": "green"}
_TIMES = ("le", "re", "re_new")


def show_batch(sink: Console, name: str, batch_id: int, changes: Changes, progress: Progress) -> None:
    """Print what a batch changed; a batch that changed nothing prints nothing."""
    if len(changes):
        Terminal().print(batch_table(sink, name, batch_id, changes, progress))


def batch_table(sink: Console, name: str, batch_id: int, changes: Changes, progress: Progress) -> Table:
    """The changes of a batch as a table."""
    rows = rows_of(changes, sink)
    cti = format_ticks(progress.cti, as_datetime=True)
    table = Table(title=f"{name} · batch {batch_id} · CTI {cti}", title_justify="left")
    for column in rows.column_names:
        table.add_column(column)
    for row in rows.slice(0, sink.rows).to_pylist():
        mark = row.get("kind") or row.get("op")
        table.add_row(*(_cell(column, value) for column, value in row.items()), style=_COLOURS.get(str(mark), ""))
    if rows.num_rows > sink.rows:
        table.caption = f"… and {rows.num_rows - sink.rows} more"
    return table


def _cell(column: str, value: object) -> str:
    if value is None:
        return ""
    if column in _TIMES and isinstance(value, int):
        return format_ticks(value, as_datetime=abs(value) > 10**12)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
