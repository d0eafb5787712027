"""`headrace run FILE[:name]`: run a query or a whole script, live or as batch SQL over history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.loading import find
from headrace.cli.run.options import Engine, Host, Late, Options, Output

__all__ = ["command"]


def command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE[:NAME]",
            help="A Python file or a script of SQL (FILE.py, FILE.sql), and the name of a stream or a query in it.",
        ),
    ],
    *,
    history: Annotated[bool, typer.Option("--history", help="Run it as batch SQL over what is stored.")] = False,
    engine: Annotated[Engine | None, typer.Option(help="What runs the batch SQL (spark, unless told).")] = None,
    late: Annotated[
        Late | None, typer.Option(help="For --history: late rows by their input's policy (decide), or as if in time.")
    ] = None,
    output: Annotated[
        Output | None,
        typer.Option(
            help="The history (cht, unless told), the events as they left, only what is final, or events as JSON lines."
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the history there as Parquet, and print nothing; of several queries, each into a folder there.",
        ),
    ] = None,
    host: Annotated[
        Host | None, typer.Option(help="What runs the live query (local, or what the script sets, unless told).")
    ] = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="A Spark master or Connect URL.")] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="On Spark: keep the query's state in DIR/NAME. Started again, it goes on from there with what is new.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the query is called (as its file, unless told).")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="On Spark: go on with files that come later, until Ctrl-C.")
    ] = False,
    allow_root: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="A script may use files there, and nowhere else. May be repeated."),
    ] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print the batch SQL, and run nothing.")] = False,
) -> None:
    """Run a query to the end of its inputs and print what it gives.

    A script of SQL runs as one query with several outputs: its queries are printed, each under its name if there are
    several, and what it inserts into files is written there, a folder per batch. Relative paths in it are meant from
    its own directory. FILE.sql:NAME runs one query or stream of it.

    With --history the same queries run as batch SQL over everything that is stored, on Spark or in process by DuckDB:
    the answers are the same, whatever the order in which the rows once arrived.
    """
    # Here, and not above: `headrace --help` needs none of it.
    from headrace.cli.run.history import run_history
    from headrace.cli.run.live import run_live

    options = Options(
        history=history or sql,
        engine=engine,
        late=late,
        output=output,
        to=to,
        host=host,
        master=master,
        checkpoint=checkpoint,
        name=name,
        follow=follow,
        only_sql=sql,
    )
    options.check()
    asked = find(target, allow_root, absolute=checkpoint is not None)
    if options.history:
        run_history(asked, options)
        return
    options = options.settled(asked)
    if options.checkpoint is not None and checkpoint is None:  # the script has set one
        asked = find(target, allow_root, absolute=True)
    run_live(asked, options)
