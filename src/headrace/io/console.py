"""Results on a terminal.

On a terminal that a person watches, one table shows the latest answers and colours those that the last batch added or
corrected. Anywhere else (a pipe, a file, an interactive Python, which needs the lines for itself) every batch prints a
table of its changes. In both, a correction is one row that shows the old value and the new one.
"""

from __future__ import annotations

import atexit
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console as Terminal
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.border import LIFETIME, as_ticks, is_shown
from headrace.changes import Changes
from headrace.errors import PlanError
from headrace.io.sinks import Console, ticks_of
from headrace.io.upserts import BATCH, OP
from headrace.literals import format_date, printable, sql_text
from headrace.progress import Progress
from headrace.time import BEGINNING, INFINITY, format_ticks

__all__ = [
    "Row", "batch_rows", "batch_table", "close", "drawn_lines", "show_batch", "show_losses", "show_table", "text_of",
    "texts_of",
]  # fmt: skip

NEW, LATEST, CORRECTED, MOVED, WITHDRAWN = "new", "latest", "corrected", "moved", "withdrawn"
_COLOURS = {NEW: "green", LATEST: "green", CORRECTED: "yellow", MOVED: "yellow", WITHDRAWN: "red"}
_WIDE = 10_000  # columns of a page that is no terminal: nothing is cut off
_MAX_ROWS = 2000  # of a batch: a person reads far fewer, and pairing rows takes time
_EARLIER = 10  # rows of a key that may hold again: the first, and the last ones
_REMEMBERED = 5  # screens of rows that are kept: where rows are withdrawn, older ones take their place
_TIMES = ("le", "re", "re_new")


@dataclass(frozen=True)
class Row:
    """One answer on the screen: its values, a mark for how the batch changed it, and the values before the change."""

    mark: str
    values: dict[str, Any]
    before: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[Any, ...]:
        return _hashable(self.values.values())

    @property
    def old_identity(self) -> tuple[Any, ...]:
        return _hashable({**self.values, **self.before}.values())


def _hashable(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def show_batch(sink: Console, name: str, batch_id: int, changes: Changes, progress: Progress) -> None:
    """Show the changes of a batch; without changes, print nothing."""
    if _SCREENS.watched():
        _SCREENS.update((id(sink), name), sink, batch_id, changes, progress)
    elif len(changes):
        terminal = Terminal()
        if not terminal.is_terminal:
            terminal.width = _WIDE
        terminal.print(batch_table(sink, name, batch_id, changes, progress))


def show_losses(losses: str) -> None:
    """Show the losses below the tables, if there are any."""
    if losses and not _SCREENS.note(losses):
        Terminal().print(Text(losses, "yellow"), soft_wrap=True)


def close(sink: Console) -> None:
    """End the live table of this sink; it stays on the screen."""
    _SCREENS.close(sink)


def show_table(table: pa.Table, rows: int) -> None:
    """Print the first rows of a table, as drawn tables are written, and how many there are more."""
    if type(rows) is not int or rows < 1:
        raise PlanError("this is not a number of rows", given=rows, allowed="a whole number from 1 on", instead="20")
    more = table.num_rows - rows
    lines = [*drawn_lines(table.slice(0, rows)), *([f"… and {more} more"] if more > 0 else [])]
    sys.stdout.write(printable("\n".join(lines)) + "\n")


def drawn_lines(table: pa.Table, *, sql: bool = False) -> Iterator[str]:
    """The lines of a table, as drawn tables are written; or, with `sql`, with values as SQL writes them."""
    columns = [[name, *texts] for name, texts in zip(table.column_names, texts_of(table, sql=sql), strict=True)]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        yield " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def text_of(name: str, value: object, *, dates: bool = False, sql: bool = False) -> str:
    """A value of a column, as text, with `sql` as SQL writes it; times are in ticks, and may be missing."""
    if name in _TIMES and (value is None or isinstance(value, int)):
        always = name == "le" and value == BEGINNING  # the rows that a table has always had
        return "-∞" if always else "" if value is None else format_ticks(value, dates=dates)
    if sql:
        return sql_text(value)
    if value is None:
        return ""
    return format_date(value) if isinstance(value, datetime) else str(value)


def texts_of(table: pa.Table, *, sql: bool = False) -> list[list[str]]:
    """The columns of a table of rows, events or a history, as texts. A CTI has no values."""
    dates = is_shown(table)
    ticks = as_ticks(table)
    columns = [
        [text_of(name, value, dates=dates, sql=sql) for value in ticks[name].to_pylist()] for name in ticks.column_names
    ]
    if not sql or "kind" not in ticks.column_names:
        return columns
    ctis = [kind == "cti" for kind in ticks["kind"].to_pylist()]
    return [
        ["" if cti and text == "NULL" else text for text, cti in zip(column, ctis, strict=True)] for column in columns
    ]


def batch_table(sink: Console, name: str, batch_id: int, changes: Changes, progress: Progress) -> Group:
    """The changes of one batch as a table, with the batch and its CTI as title."""
    rows = batch_rows(changes, sink)
    more = [Text(f"… and {len(rows) - sink.rows} more")] if len(rows) > sink.rows else []
    title = Text(f"{name} · batch {batch_id} · CTI {format_ticks(progress.cti, dates=sink.dates)}", "bold")
    return Group(title, _table(rows[: sink.rows], progress, sink, marked=True), *more)


# --- what changed ---------------------------------------------------------------------------------------------------


def batch_rows(changes: Changes, sink: Console) -> list[Row]:
    """The rows of a batch, by time, which is in ticks; at most the newest few thousand."""
    table = ticks_of(changes, sink)
    table = table.take(pc.sort_indices(table, [("le", "ascending")])).slice(max(0, table.num_rows - _MAX_ROWS))
    if sink.encoding == "upsert":
        marks = {"upsert": LATEST, "delete": WITHDRAWN}
        return [Row(marks[row.pop(OP)], row) for row in table.drop_columns([BATCH]).to_pylist()]
    if sink.encoding == "final":
        return [Row(NEW, row) for row in table.to_pylist()]
    return _events(table)


def _events(events: pa.Table) -> list[Row]:
    """Physical events; a deletion and the insert that replaces it are one correction."""
    rows: list[Row] = []
    new: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    gone: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in events.to_pylist():
        kind, re_new = row.pop("kind"), row.pop("re_new")
        if kind == "insert":
            new[row["le"], row["re"]].append(row)
        elif re_new == row["le"]:
            gone[row["le"], row["re"]].append(row)
        else:
            rows.append(Row(MOVED, {**row, "re": re_new}, {"re": row["re"]}))
    for life in {**new, **gone}:
        rows += _pair(gone[life], new[life])
    return sorted(rows, key=lambda row: (row.values["le"], row.values["re"]))


def _pair(gone: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterable[Row]:
    """Answers with one lifetime: pair old and new answers with the same key.

    The keys are not known here, but they are the first columns: rows with the longest common prefix are a pair.
    """
    left = list(gone)
    for row in new:
        best = max(left, key=lambda old: _common(old, row), default=None)
        if best is not None and (_common(best, row) > 2 or len(gone) == len(new) == 1):
            left.remove(best)
            yield Row(CORRECTED, row, {name: best[name] for name in row if best[name] != row[name]})
        else:
            yield Row(NEW, row)
    yield from (Row(WITHDRAWN, row) for row in left)


def _common(old: dict[str, Any], new: dict[str, Any]) -> int:
    """How many leading columns are equal; the lifetime is the first two."""
    return next((i for i, name in enumerate(new) if old[name] != new[name]), len(new))


# --- a table kept up to date ------------------------------------------------------------------------------------------


@dataclass
class _Screen:
    """The latest answers of one output."""

    sink: Console
    shown: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    #: For the keys of upsert rows on the screen: the row, and earlier ones, which may hold again.
    earlier: dict[tuple[Any, ...], list[Row]] = field(default_factory=dict)
    batch_id: int = -1
    progress: Progress = field(default_factory=Progress)
    answers: int = 0
    corrected: int = 0

    def update(self, batch_id: int, changes: Changes, progress: Progress) -> None:
        self.batch_id, self.progress = batch_id, progress
        self.shown = {key: Row("", row.values) for key, row in self.shown.items() if row.mark != WITHDRAWN}
        for row in batch_rows(changes, self.sink):
            old = self.shown.pop(self._key(row.old_identity, row), None)
            if self.sink.encoding == "upsert":
                row = self._latest(row, old)
            self.shown[self._key(row.identity, row)] = row
            self.answers += row.mark in (NEW, LATEST)
            self.corrected += row.mark in (CORRECTED, MOVED, WITHDRAWN)
        newest = sorted(self.shown, key=lambda key: self.shown[key].values["le"])[-_REMEMBERED * self.sink.rows :]
        self.shown = {key: self.shown[key] for key in newest}
        self.earlier = {key: self._needed(rows) for key, rows in self.earlier.items() if key in self.shown}

    def _latest(self, row: Row, old: Row | None) -> Row:
        """A key's new row with its changes; after a delete, the earlier row that holds again."""
        key = self._key((), row)
        if row.mark == LATEST:
            before = {} if old is None else {n: v for n, v in old.values.items() if v != row.values[n]}
            self.earlier[key] = [*self._before(key, row), row]
            return Row(LATEST, row.values, before)
        self.earlier[key] = self._before(key, row)
        return Row(CORRECTED, self.earlier[key][-1].values) if self.earlier[key] else row

    def _before(self, key: tuple[Any, ...], row: Row) -> list[Row]:
        """The rows of a key that start before another row."""
        return [other for other in self.earlier.get(key, []) if other.values["le"] < row.values["le"]]

    def _needed(self, rows: list[Row]) -> list[Row]:
        """The rows of a key that may hold again: a settled row alone, else the last settled one and the newest ones."""
        if rows and rows[-1].values["le"] < self.progress.cti:
            return rows[-1:]
        return [*rows[:1], *rows[1:][-_EARLIER:]]

    def _key(self, identity: tuple[Any, ...], row: Row) -> tuple[Any, ...]:
        if self.sink.encoding == "upsert":
            return _hashable(row.values[name] for name in self.sink.key)
        return identity

    def table(self) -> Group:
        rows = list(self.shown.values())[-self.sink.rows :]
        counts = f"{self.answers} answers, {self.corrected} corrections"
        footer = f"batch {self.batch_id} · CTI {format_ticks(self.progress.cti, dates=self.sink.dates)} · {counts}"
        return Group(_table(rows, self.progress, self.sink, marked=False), Text(footer, "dim"))


class _Screens:
    """All tables of this process, one below the other."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, str], _Screen] = {}
        self._live: Live | None = None
        self._note = ""

    def watched(self) -> bool:
        """Whether a person watches, outside an interactive Python, which needs the terminal's lines for itself."""
        return Terminal().is_terminal and not hasattr(sys, "ps1")

    def update(
        self, place: tuple[int, str], sink: Console, batch_id: int, changes: Changes, progress: Progress
    ) -> None:
        self._open.setdefault(place, _Screen(sink)).update(batch_id, changes, progress)
        if self._live is None:
            self._live = Live(auto_refresh=False, vertical_overflow="visible")
            self._live.start()
            atexit.register(self._live.stop)  # shows the cursor again
        self._draw(self._live)

    def note(self, text: str) -> bool:
        """Show a text below the live tables; False if there are none."""
        if self._live is None:
            return False
        self._note = text
        self._draw(self._live)
        return True

    def _draw(self, live: Live) -> None:
        note = [Text(self._note, "yellow")] if self._note else []
        live.update(Group(*(screen.table() for screen in self._open.values()), *note), refresh=True)

    def close(self, sink: Console) -> None:
        for place in [place for place in self._open if place[0] == id(sink)]:
            del self._open[place]
        if self._live is not None and not self._open:
            self._live.stop()
            self._live, self._note = None, ""


_SCREENS = _Screens()


# --- drawing ----------------------------------------------------------------------------------------------------------


def _table(rows: list[Row], progress: Progress, sink: Console, *, marked: bool) -> Table:
    """Rows as a table; `marked` adds a column with the marks in words, besides the colours."""
    table = Table()
    if marked:
        table.add_column("")
    names = list(rows[0].values) if rows else []
    titles = dict(zip(LIFETIME, ("from", "to") if sink.time_columns == LIFETIME else sink.time_columns, strict=True))
    for name in names:
        table.add_column(titles.get(name, name))
    for row in rows:
        final = not row.mark and row.values.get("re", INFINITY) <= progress.cti
        style = "dim" if final else _COLOURS.get(row.mark, "") + (" strike" if row.mark == WITHDRAWN else "")
        cells = [_cell(name, row, sink) for name in names]
        table.add_row(*([Text(row.mark)] if marked else []), *cells, style=style.strip())
    return table


def _cell(name: str, row: Row, sink: Console) -> Text:
    new = _text(name, row.values[name], sink)
    if name not in row.before:
        return Text(new)
    return Text.assemble((_text(name, row.before[name], sink), "red"), " → ", (new, "bold yellow"))


def _text(name: str, value: object, sink: Console) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_text('', item, sink) or 'null' for item in value)}]"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    return text_of(name, value, dates=sink.dates, sql=sink.sql)
