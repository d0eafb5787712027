"""The shell of a server: statements are carried out there, and their replies shown here."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.cli.loading import read_text
from headrace.cli.sql.pieces import Piece, pieces
from headrace.cli.sql.shell import ExitShell
from headrace.cli.sql.show import plain_table
from headrace.display.words import counted
from headrace.errors import HeadraceError, PlanError, nearest
from headrace.literals import sql_text
from headrace.schema import Schema
from headrace.server.client import Client
from headrace.server.interface import Reply, RowsReply, Said
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import StreamEntry
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql
from headrace.sql.session import SqlSession

__all__ = ["RemoteShell"]

_CHANGING = ("CREATE", "DROP", "QUERY")


class RemoteShell:
    """A client of a server and the consoles that show its replies. Errors are raised to the caller."""

    def __init__(self, client: Client, console: Console, errors: Console) -> None:
        self.client, self.console, self.errors = client, console, errors
        #: What exists on the server, for completion.
        self.session = SqlSession()
        self._last = ""
        self._refresh()

    def execute(self, text: str) -> None:
        """Carry out the pieces of a text, one after the other."""
        for piece in pieces(text):
            if piece.is_command:
                self._command(piece)
            else:
                self._send(piece.placed(text))

    def include(self, file: Path) -> None:
        """Carry out a file of this machine."""
        self.execute(read_text(file))

    def show_error(self, error: BaseException) -> None:
        """Show an error."""
        self.errors.print(Text(str(error), "red"), soft_wrap=True)

    def close(self) -> None:
        """End the connection."""
        self.client.close()

    # --- statements --------------------------------------------------------------------------------------------------

    def _send(self, text: str) -> None:
        for part in parse(text).statements:
            if isinstance(part, s.Subscribe):
                self._follow(part)
                return
        for reply in self.client.replies(text):
            self._show(reply)
            if reply.tag == "SELECT":
                self._last = text
            elif reply.tag.startswith(_CHANGING):
                self._refresh()

    def _show(self, reply: Reply) -> None:
        if isinstance(reply, Said):
            self.errors.print(Text(reply.message, "dim"), soft_wrap=True)
        elif isinstance(reply, RowsReply) and reply.table.num_columns == 1 and reply.tag in ("EXPLAIN", "SHOW CREATE"):
            self.console.print(Text("\n".join(map(str, reply.table.column(0).to_pylist()))), soft_wrap=True)
        elif isinstance(reply, RowsReply):
            self.console.print(_table(reply.table))
            self.console.print(Text(counted(reply.table.num_rows, "row"), "dim"))
            for note in reply.notes:
                self.errors.print(Text(note, "dim"), soft_wrap=True)

    def _follow(self, part: s.Subscribe) -> None:
        """Print the changes of a subscription until Ctrl-C, which shows the cursor after what was printed."""
        stream = self.client.stream(part.name.text)
        subscriber = stream.subscribe(part.form, part.cursor, key=[name.text for name in part.key])
        printed = part.cursor
        try:
            for batch in subscriber:
                with _whole():
                    self.console.print(_table(pa.Table.from_batches([batch])))
                    printed = subscriber.cursor
        except KeyboardInterrupt:
            again = to_sql(replace(part, cursor=printed)) if printed else ""
            self.errors.print(Text(f"ended{'; to go on: ' if again else ''}{again}", "dim"), soft_wrap=True)

    def _refresh(self) -> None:
        """Read the names and columns of what exists, for completion."""
        found: dict[str, StreamEntry] = {}
        try:
            for what in ("STREAMS", "TABLES", "VIEWS"):
                for row in self.client.sql(f"SHOW {what}").to_pylist():
                    name = str(next(iter(row.values())))
                    found[name] = StreamEntry(name, Schema.of(str(row["columns"])), None)
        except HeadraceError as error:
            self.show_error(error)
        self.session.catalog.streams.clear()
        self.session.catalog.streams.update(found)

    # --- commands ----------------------------------------------------------------------------------------------------

    def _command(self, piece: Piece) -> None:
        name, *arguments = piece.text.removeprefix("\\").rstrip("; \t").split() or [""]
        found = self._commands.get(name.lower())
        if found is None:
            close = nearest(name, self._commands, least=0.7)
            raise PlanError(
                f"there is no command \\{name} for a server", allowed=", ".join(f"\\{one}" for one in self._commands),
                instead=f"\\{close}" if close else "\\help",
            )  # fmt: skip
        found(self, *arguments)

    def _help(self, *_: str) -> None:
        """List the commands."""
        about = {name: (command.__doc__ or "").partition("\n")[0] for name, command in self._commands.items()}
        rows = [(f"\\{name}", text) for name, text in about.items()]
        self.console.print(plain_table(("command", "what it does"), rows))

    def _quit(self, *_: str) -> None:
        """Quit, as Ctrl-D does."""
        raise ExitShell

    def _list(self, *names: str) -> None:
        """The streams, tables and views; or the columns of one."""
        if names:
            self._show(self.client.replies(f"DESCRIBE {names[0]}")[0])
            return
        for what in ("STREAMS", "TABLES", "VIEWS", "QUERIES"):
            (reply,) = self.client.replies(f"SHOW {what}")
            if isinstance(reply, RowsReply) and reply.table.num_rows:
                self._show(reply)

    def _include(self, *names: str) -> None:
        """Carry out a file of this machine."""
        for name in names:
            self.include(Path(name).expanduser())

    def _watch(self, seconds: str = "1", times: str | None = None) -> None:
        """Ask the last SELECT again every so many seconds."""
        if not self._last:
            raise PlanError("there is nothing to watch", given="\\watch", allowed="after a SELECT", instead="SELECT …;")
        left = None if times is None else int(times)
        try:
            with Live(console=self.console, auto_refresh=False, vertical_overflow="crop") as live:
                while left is None or left > 0:
                    live.update(_table(self.client.sql(self._last)), refresh=True)
                    left = None if left is None else left - 1
                    if left != 0:
                        time.sleep(float(seconds))
        except KeyboardInterrupt:
            pass

    _commands: ClassVar[Mapping[str, Callable[..., None]]] = {
        "help": _help, "d": _list, "watch": _watch, "i": _include, "quit": _quit, "q": _quit, "exit": _quit,
    }  # fmt: skip


@contextmanager
def _whole() -> Iterator[None]:
    """A Ctrl-C takes effect after this, not within."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # signals are for the main thread alone
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    if hasattr(signal, "pthread_sigmask"):  # a write that a signal interrupts may be cut off
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def _table(table: pa.Table) -> Table:
    rows = ([sql_text(value) for value in row.values()] for row in table.to_pylist())
    return plain_table(table.column_names, rows)
