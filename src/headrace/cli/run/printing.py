"""What `headrace run` prints: answers on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from headrace.cli.loading import folder_of
from headrace.cli.run.options import Options, PrintOptions
from headrace.io.encode import physical_to_jsonl
from headrace.sql.views import text_of

if TYPE_CHECKING:
    from headrace.sql.session import Outcome

__all__ = ["AnswerPrinter", "busy", "print_table", "say", "show_outcomes", "sorted_history"]

_PATIENCE = 1.0  # seconds before a person wants to know what goes on


class AnswerPrinter:
    """Prints the answers of one or several queries; those of several have titles, or say whose they are."""

    def __init__(self, options: Options, *, several: bool) -> None:
        self.output, self.to, self.several = options.shown, options.to, several
        self._printed = False

    def place(self, name: str) -> Path | None:
        """Where the history of a query is to be written, if it is."""
        return self.to / folder_of(name) if self.to is not None and self.several else self.to

    def table(self, name: str, table: pa.Table) -> None:
        """A table, under the name of its query if there are several."""
        if self.several:
            typer.echo(name if not self._printed else "\n" + name)
        self._printed = True
        print_table(table)

    def events(self, name: str, events: pa.Table) -> None:
        """Physical events, as a table or as JSON lines."""
        if self.output is not PrintOptions.jsonl:
            self.table(name, events)
            return
        lines = physical_to_jsonl(events)
        if self.several:
            whose = f'{{"query": {json.dumps(name, ensure_ascii=False)}, '.encode()
            lines = b"".join(whose + line[1:] for line in lines.splitlines(keepends=True))
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()


@contextmanager
def busy(what: str) -> Iterator[None]:
    """A line that says what is going on, and for how long; on standard error, and only if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    progress = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    )
    progress.add_task(what, total=None)
    patience = threading.Timer(_PATIENCE, progress.start)
    patience.daemon = True
    patience.start()
    try:
        yield
    finally:
        patience.cancel()
        patience.join()
        progress.stop()


def say(words: str) -> None:
    """Tell the person who runs it something that is no answer."""
    Console(stderr=True).print(words, style="dim", markup=False, highlight=False, soft_wrap=True)


def show_outcomes(outcomes: Iterable[Outcome], *, quiet: bool) -> None:
    """What statements of a script gave by themselves: tables, texts, reports. `quiet` keeps standard output free."""
    from headrace.sql.session import ShownTable, Verified, Words

    for outcome in outcomes:
        if isinstance(outcome, ShownTable):
            columns = zip(*outcome.rows, strict=True) if outcome.rows else [()] * len(outcome.columns)
            print_table(pa.table([pa.array(c, pa.string()) for c in columns], names=list(outcome.columns)), err=quiet)
        elif isinstance(outcome, Words):
            typer.echo(outcome.text, err=quiet)
        elif isinstance(outcome, Verified):
            say(f"{outcome.report.cases} cases were tried: all of them held")


def sorted_history(history: pa.Table) -> pa.Table:
    """By time, then by everything that has an order, which lists do not."""
    names = [field.name for field in history.schema if "list" not in str(field.type)]
    return history.sort_by([(name, "ascending") for name in names])


def print_table(table: pa.Table, *, err: bool = False) -> None:
    """Columns under each other, as drawn tables are written."""
    columns = [
        [name, *(text_of(name, value) for value in table.column(name).to_pylist())] for name in table.column_names
    ]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo(" | ".join(cells).rstrip(), err=err)
