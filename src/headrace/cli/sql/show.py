"""Render tables and views of answers for the shell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.sql.views import Cell, Shown

__all__ = ["answer", "plain_table", "screen"]

_WIDE = 10_000  # columns of a page that is no terminal: nothing is cut off
_TITLES = {"le": "from", "re": "to", "re_new": "to, anew"}
_STYLES = {"+": "green", "−": "red", "±": "yellow"}


def screen(*, stderr: bool = False) -> Console:
    """The terminal; or, without one, a page so wide that tables are not wrapped."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=_WIDE)


def plain_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of texts."""
    table = _table(columns)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def answer(shown: Shown, footer: str = "") -> RenderableType:
    """A view of an answer, with the number of rows below."""
    marked = any(line.mark for line in shown.lines)
    table = _table([*([""] if marked else []), *(_TITLES.get(name, name) for name in shown.columns)])
    for line in shown.lines:
        cells = map(_cell, line.cells)
        table.add_row(*([Text(line.mark)] if marked else []), *cells, style=_STYLES.get(line.mark, ""))
    counted = f"{len(shown.lines)} row{'' if len(shown.lines) == 1 else 's'}"
    if shown.more:
        counted += f", and {shown.more} more (SET rows = … shows more)"
    return Group(table, Text(f"{counted}{footer}", "dim"))


def _table(columns: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(Text(name), overflow="fold")
    return table


def _cell(cell: Cell) -> Text:
    if cell.before is None:
        return Text(cell.text)
    return Text.assemble((cell.before, "red"), " → ", (cell.text, "bold"))
