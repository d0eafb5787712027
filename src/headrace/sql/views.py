"""Three ways to look at an answer, as plain data: whoever shows it decides how.

- `history`: what holds when, after all corrections.
- `events`: the physical events in the order they left.
- `changes`: what each batch brought, with + for what is new, − for what was withdrawn and ± for what was corrected,
  from the old value to the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.host.result import Result
from headrace.io.console import Row, batch_rows
from headrace.io.sinks import Console
from headrace.time import format_ticks

__all__ = ["VIEWS", "Cell", "Shown", "ViewRow", "text_of", "view"]

_REAL_DATE = 10**12  # ticks beyond this are shown as dates, the small ones of drawn tables as they are
_TIMES = ("le", "re", "re_new")
_MARKS = {"new": "+", "latest": "+", "withdrawn": "−", "corrected": "±", "moved": "±"}


@dataclass(frozen=True)
class Cell:
    """A value, and the one it had before if it has just changed."""

    text: str
    before: str | None = None


@dataclass(frozen=True)
class ViewRow:
    """A row of a table; its mark is what the `changes` view says of it."""

    cells: tuple[Cell, ...]
    mark: str = ""


@dataclass(frozen=True)
class Shown:
    """A table to look at, and how many rows there are that it does not have."""

    columns: tuple[str, ...]
    lines: tuple[ViewRow, ...]
    more: int = 0


def view(kind: str, result: Result, rows: int, *, newest: bool = False) -> Shown:
    """At most so many rows of an answer: the first, or the newest."""
    return VIEWS[kind](result, rows, newest)


def text_of(name: str, value: object) -> str:
    """A value of a column, for people."""
    if value is None:
        return ""
    if name in _TIMES and isinstance(value, int):
        return format_ticks(value, as_datetime=abs(value) > _REAL_DATE)
    return str(value)


def _history(result: Result, rows: int, newest: bool) -> Shown:
    found = result.cht()
    names = [field.name for field in found.schema if not pa.types.is_nested(field.type)]
    return _table(found.sort_by([(name, "ascending") for name in names]), rows, newest)


def _events(result: Result, rows: int, newest: bool) -> Shown:
    return _table(result.events(), rows, newest)


def _table(table: pa.Table, rows: int, newest: bool) -> Shown:
    kept = table.slice(max(0, table.num_rows - rows) if newest else 0, rows)
    values = [[Cell(text_of(name, value)) for value in kept.column(name).to_pylist()] for name in kept.column_names]
    lines = tuple(ViewRow(cells) for cells in zip(*values, strict=True))
    return Shown(tuple(kept.column_names), lines, table.num_rows - kept.num_rows)


def _changes(result: Result, rows: int, newest: bool) -> Shown:
    every = [
        (number, row)
        for number, (changes, _) in enumerate(result.batches)
        if len(changes)
        for row in batch_rows(changes, Console())
    ]
    kept = every[-rows:] if newest else every[:rows]
    names = ("le", "re", *result.schema.names)
    lines = tuple(ViewRow((Cell(str(number)), *_cells(row, names)), _MARKS.get(row.mark, "")) for number, row in kept)
    return Shown(("batch", *names), lines, len(every) - len(kept))


def _cells(row: Row, names: Sequence[str]) -> list[Cell]:
    def before(name: str) -> str | None:
        return text_of(name, row.before[name]) if name in row.before else None

    return [Cell(text_of(name, row.values[name]), before(name)) for name in names]


VIEWS: Mapping[str, Callable[[Result, int, Any], Shown]] = {"events": _events, "changes": _changes, "history": _history}
