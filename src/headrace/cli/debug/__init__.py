"""`headrace debug FILE[:name]`: a query step by step, in the terminal."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.loading import Target, find_stream, read_text

__all__ = ["command"]


def command(
    target: Target,
    *,
    batch_rows: Annotated[
        int | None, typer.Option(min=1, help="The rows of a batch. Default: as the query reads its input.")
    ] = None,
    script: Annotated[Path | None, typer.Option(help="Read the commands from this file.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="The most rows of a table to print.")] = 20,
) -> None:
    """Run a query step by step, in this process, and stop at breakpoints.

    Commands are read from the terminal, from standard input or from a file; `help` lists them. Without a terminal, the
    exit status is 1 if a command failed.
    """
    # Imported here, since `headrace --help` does not need it.
    from headrace.cli.debug.terminal import Terminal

    commands = None if script is None else StringIO(read_text(script))
    name, stream = find_stream(target)
    with stream.debug(batch_rows=batch_rows) as session:
        terminal = Terminal(name, session, rows, commands)
        terminal.cmdloop()
    if terminal.failed and not terminal.interactive:
        raise typer.Exit(1)
