"""`headrace ui FILE[:name]|CHECKPOINT`: the dashboard for one query, without a server."""

from __future__ import annotations

import logging
import re
import secrets
import signal
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.errors import PlanError

if TYPE_CHECKING:
    from headrace.api.stream import Stream
    from headrace.server.http.ui_app import UiTarget
    from headrace.tracing.debugging import DebugSession
    from headrace.tracing.traced import TracedRun

__all__ = ["command", "in_browser"]


def command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE[:NAME]|CHECKPOINT",
            help="A Python file or a SQL script with the name of a query, or the checkpoint of one.",
        ),
    ],
    *,
    batch_rows: Annotated[
        int | None, typer.Option(min=1, help="The rows of a batch at first. Default: as the query reads its input.")
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            metavar="FILE:NAME", help="With a checkpoint: the query that it belongs to, to trace its kept batches."
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="The port to listen on, of this machine only; 0 takes a free one.")] = 0,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Show a query in the browser: every change of every operator, and why answers are there.

    The page is for the user who started it: its address has a token. Ctrl-C ends it.
    """
    try:
        from headrace.server.http.serving import AppServer
        from headrace.server.http.ui_app import make_ui_app
    except ImportError as error:
        typer.echo(f"{error}: pip install 'headrace[server]'", err=True)
        raise typer.Exit(1) from error
    token = secrets.token_urlsafe(24)
    shown = _target(target, batch_rows, query)
    logging.getLogger("headrace.ui").addHandler(logging.StreamHandler())  # what the page does not say
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with AppServer(make_ui_app(shown, token), port=port) as server:
        url = f"{server.url}/ui/#token={token}"
        typer.echo(f"{shown.about()['name']}: {url}\nCtrl-C ends it")
        with in_browser(url) if open_browser else nullcontext():
            while not stopped.wait(1.0):
                pass


@contextmanager
def in_browser(url: str) -> Iterator[None]:
    """Open an address in the browser by a file of this user, which leads there, and is there until the end.

    An argument of the browser's command would show the token of the address to all users of the machine.
    """
    with TemporaryDirectory(prefix="headrace-") as folder:
        page = Path(folder) / "open.html"
        page.touch(mode=0o600)
        page.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(url)}"><title>Headrace</title>'
        )
        webbrowser.open(page.as_uri())
        yield


def _target(target: str, batch_rows: int | None, query: str | None) -> UiTarget:
    if re.search(r"\.(py|sql)(:|$)", target):
        from headrace.cli.loading import find_stream

        if query is not None:
            raise PlanError("--query belongs to a checkpoint", given=target, instead=f"headrace ui {query}")
        name, _ = find_stream(target)  # a mistake in the file is said before anything listens
        return _File(target, name, batch_rows)
    from headrace.host.saved.query import SavedQuery

    if batch_rows is not None:
        raise PlanError("the batches of a checkpoint are those that ran", given=f"--batch-rows {batch_rows}")
    SavedQuery(target).show()
    return _Checkpoint(target, query)


def _stream_of(target: str) -> Stream:
    """The stream of a file as it is now. It may be half written: what is wrong with it is shown on the page."""
    from headrace.cli.loading import find_stream

    return find_stream(target)[1]


@dataclass(frozen=True)
class _File:
    """A query of a file, which is read again for every trace."""

    target: str
    name: str
    batch_rows: int | None

    def about(self) -> dict[str, Any]:
        return {"mode": "file", "name": self.name, "target": self.target, "screens": ["debug"]} | {
            "batchRows": self.batch_rows
        }

    def trace(self, batch_rows: int | None) -> TracedRun:
        return _stream_of(self.target).trace(batch_rows=batch_rows, state=True)

    def debug(self, batch_rows: int | None) -> DebugSession:
        return _stream_of(self.target).debug(batch_rows=batch_rows)

    def data(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class _Checkpoint:
    """A saved query."""

    path: str
    query: str | None

    def about(self) -> dict[str, Any]:
        return {"mode": "checkpoint", "name": self.path, "target": self.path, "screens": ["debug"]} | {
            "traced": self.query is not None,
            "batchRows": None,
        }

    def trace(self, batch_rows: int | None) -> TracedRun:
        from headrace.cli.replaying import trace_again
        from headrace.errors import TraceError

        del batch_rows  # batches are as they ran
        if self.query is None:
            raise TraceError(
                "the query is not in its checkpoint",
                given=self.path,
                instead="headrace ui CHECKPOINT --query FILE:NAME",
            )
        return trace_again(self.path, self.query, state=True)[1]

    def debug(self, batch_rows: int | None) -> DebugSession:
        from headrace.errors import TraceError

        del batch_rows
        raise TraceError("a checkpoint cannot be run step by step", given=self.path, instead="headrace ui FILE:NAME")

    def data(self) -> dict[str, Any]:
        from headrace.host.saved.query import SavedQuery

        return dict(SavedQuery(self.path).show())
