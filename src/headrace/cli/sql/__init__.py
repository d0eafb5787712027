"""`headrace sql`: the shell for Headrace SQL; it also runs a file, a text, or a pipe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headrace.cli.sql.remote import RemoteShell
    from headrace.cli.sql.shell import Shell

__all__ = ["command"]


def command(
    *,
    file: Annotated[
        list[Path] | None, typer.Option("-f", "--file", metavar="FILE", help="Execute a file. May be repeated.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option("-c", "--command", metavar="TEXT", help="Execute a text. May be repeated.")
    ] = None,
    view: Annotated[
        str | None, typer.Option(metavar="VIEW", help="How to show answers: history (the default), changes, events.")
    ] = None,
    allow_root: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Statements may use files there, and nowhere else. May be repeated."),
    ] = None,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="Statements go to a server; files are of this machine.")
    ] = None,
    token: Annotated[str | None, typer.Option(envvar="HEADRACE_TOKEN", help="A token of the server.")] = None,
) -> None:
    r"""Type Headrace SQL statements and see their answers.

    A statement ends with a semicolon and may have several lines; Tab completes keywords, streams, columns and
    functions, and the arrow keys recall earlier input. Queries run in this process; after SET host = spark
    they run on Spark. SET view (or \view) chooses between history (what holds when), changes (what each batch added
    and corrected) and events (inserts, retractions, CTIs); SET batch_rows = 1 takes rows one by one, so that
    corrections show. \watch follows the last query, \help lists the rest.

    With -f or -c, or from a pipe, statements are executed until the first error, which gives exit status 1. Files are
    executed before texts.
    """
    # Imported here, since `headrace --help` does not need it.
    from headrace.cli.sql.shell import ExitShell, Shell
    from headrace.cli.sql.show import screen
    from headrace.sql.session import SqlSession

    shell: Shell | RemoteShell
    if server is not None:
        from headrace.cli.sql.remote import RemoteShell
        from headrace.server.client import connect

        shell = RemoteShell(connect(server, token), screen(), screen(stderr=True))
    else:
        shell = Shell(SqlSession(roots=allow_root), screen(), screen(stderr=True))
    try:
        if view is not None and isinstance(shell, Shell):
            shell.set_view(view)
        if file or text:
            _execute(shell, file or [], text or [])
        elif not sys.stdin.isatty():
            shell.execute(sys.stdin.read())
        else:
            _run_prompt(shell)
    except ExitShell:
        pass
    finally:
        shell.close()


def _execute(shell: Shell | RemoteShell, files: list[Path], texts: list[str]) -> None:
    for file in files:
        shell.include(file)
    for text in texts:
        shell.execute(text)


def _run_prompt(shell: Shell | RemoteShell) -> None:
    from headrace.cli.sql.prompt import converse

    converse(shell)
