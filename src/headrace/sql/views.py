"""Four views of an answer, as plain data for the shell, the notebook and others.

- `rows`: the rows that hold now, without their times.
- `history`: which rows hold when, after all corrections.
- `events`: the physical events in the order of output.
- `changes`: the rows of each batch, with + for new, − for withdrawn and ± for corrected ones, with the old and the new
  value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.host.result import Result
from headrace.io.console import Row, batch_rows, text_of, texts_of
from headrace.io.sinks import Console
from headrace.sql.peek import Order, current

__all__ = ["VIEWS", "Cell", "Shown", "ViewRow", "view"]

_MARKS = {"new": "+", "latest": "+", "withdrawn": "−", "corrected": "±", "moved": "±"}


@dataclass(frozen=True)
class Cell:
    """A value, and the previous one if it has just changed."""

    text: str
    before: str | None = None


@dataclass(frozen=True)
class ViewRow:
    """A row of a table; its mark belongs to the `changes` view."""

    cells: tuple[Cell, ...]
    mark: str = ""


@dataclass(frozen=True)
class Shown:
    """A table to show, and the number of further rows."""

    columns: tuple[str, ...]
    lines: tuple[ViewRow, ...]
    more: int = 0


def view(
    kind: str, result: Result, rows: int, *, newest: bool = False, relation: bool = False, order: Order = ()
) -> Shown:
    """At most `rows` rows of an answer: the first, or the newest.

    `auto` is `rows` for a `relation`, whose rows are in this `order`, and else `history`.
    """
    if kind == "rows" or (kind == "auto" and relation):
        return _table(current(result, order), rows, newest)
    return VIEWS["history" if kind == "auto" else kind](result, rows, newest)


def _history(result: Result, rows: int, newest: bool) -> Shown:
    return _table(result.table(), rows, newest)


def _events(result: Result, rows: int, newest: bool) -> Shown:
    return _table(result.events(), rows, newest)


def _table(table: pa.Table, rows: int, newest: bool) -> Shown:
    shown = table.slice(max(0, table.num_rows - rows) if newest else 0, rows)
    lines = tuple(ViewRow(tuple(map(Cell, row))) for row in zip(*texts_of(shown, sql=True), strict=True))
    return Shown(tuple(shown.column_names), lines, table.num_rows - shown.num_rows)


def _changes(result: Result, rows: int, newest: bool) -> Shown:
    all_rows = [
        (number, row)
        for number, (changes, _) in enumerate(result.batches)
        if len(changes)
        for row in batch_rows(changes, Console())
    ]
    shown = all_rows[-rows:] if newest else all_rows[:rows]
    names = ("le", "re", *result.schema.names)
    lines = tuple(
        ViewRow((Cell(str(number)), *_cells(row, names, dates=result.dates)), _MARKS.get(row.mark, ""))
        for number, row in shown
    )
    return Shown(("batch", *names), lines, len(all_rows) - len(shown))


def _cells(row: Row, names: Sequence[str], *, dates: bool) -> list[Cell]:
    def before(name: str) -> str | None:
        return text_of(name, row.before[name], dates=dates, sql=True) if name in row.before else None

    return [Cell(text_of(name, row.values[name], dates=dates, sql=True), before(name)) for name in names]


VIEWS: Mapping[str, Callable[[Result, int, Any], Shown]] = {
    "rows": lambda result, rows, newest: _table(current(result), rows, newest),
    "events": _events,
    "changes": _changes,
    "history": _history,
}
