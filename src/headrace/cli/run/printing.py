"""What `headrace run` prints: answers on standard output, everything else on standard error."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import typer
from rich.console import Console

from headrace.cli.loading import folder_of
from headrace.cli.run.options import Options, PrintOptions
from headrace.io.console import drawn_lines
from headrace.io.encode import physical_to_jsonl

if TYPE_CHECKING:
    from headrace.sql.session import Outcome

__all__ = ["AnswerPrinter", "log_shown", "print_note", "show_outcomes", "sorted_history"]


class AnswerPrinter:
    """Print the answers of one or several queries; several have titles, or a field with their name.

    The answers of a script have values as SQL writes them.
    """

    def __init__(self, options: Options, *, several: bool, sql: bool) -> None:
        self.output, self.to, self.several, self.sql = options.shown, options.to, several, sql
        self._printed = False

    def place(self, name: str) -> Path | None:
        """Where to write the history of a query, or None."""
        return self.to / folder_of(name) if self.to is not None and self.several else self.to

    def table(self, name: str, table: pa.Table) -> None:
        """Print a table, under the name of its query if there are several."""
        if self.several:
            typer.echo(name if not self._printed else "\n" + name)
        self._printed = True
        _print_table(table, sql=self.sql)

    def events(self, name: str, events: pa.Table) -> None:
        """Print physical events, as a table or as JSON lines."""
        if self.output is not PrintOptions.jsonl:
            self.table(name, events)
            return
        lines = physical_to_jsonl(events)
        if self.several:
            prefix = f'{{"query": {json.dumps(name, ensure_ascii=False)}, '.encode()
            lines = b"".join(prefix + line[1:] for line in lines.splitlines(keepends=True))
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()


def print_note(text: str) -> None:
    """Print a note on standard error."""
    Console(stderr=True).print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


class _Notes(logging.Handler):
    """Prints the warnings of the log as notes. Errors end the command, which prints them."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.ERROR:
            print_note(record.getMessage())


@contextmanager
def log_shown(*, losses: bool) -> Iterator[None]:
    """Show what a query that runs has to say, such as alarms: a command has no other log; `losses`: also lost rows."""
    notes = _Notes(logging.WARNING)
    notes.addFilter(lambda record: losses or record.module != "losses")
    log = logging.getLogger("headrace")
    log.addHandler(notes)
    try:
        yield
    finally:
        log.removeHandler(notes)


def show_outcomes(outcomes: Iterable[Outcome], *, quiet: bool) -> None:
    """Print the outcomes of a script's statements: tables, texts, reports. `quiet` keeps them off standard output."""
    from headrace.sql.session import ShownTable, Verified, Words

    for outcome in outcomes:
        if isinstance(outcome, ShownTable):
            columns = zip(*outcome.rows, strict=True) if outcome.rows else [()] * len(outcome.columns)
            texts = pa.table([pa.array(c, pa.string()) for c in columns], names=list(outcome.columns))
            _print_table(texts, sql=True, err=quiet)
        elif isinstance(outcome, Words):
            typer.echo(outcome.text, err=quiet)
        elif isinstance(outcome, Verified):
            print_note(f"{outcome.report.cases} cases were tested: all passed")


def sorted_history(history: pa.Table) -> pa.Table:
    """Sort a history by time, then by all columns that have an order; lists have none."""
    names = [field.name for field in history.schema if "list" not in str(field.type)]
    return history.sort_by([(name, "ascending") for name in names])


def _print_table(table: pa.Table, *, sql: bool, err: bool = False) -> None:
    """Print a table as drawn tables are written."""
    for line in drawn_lines(table, sql=sql):
        typer.echo(line, err=err)
