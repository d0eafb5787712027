"""`headrace run FILE[:name]`: run a query or a whole script, live or as batch SQL over history."""

from __future__ import annotations

from headrace.cli.loading import Target, find
from headrace.cli.run.options import (
    AsAllowRoot,
    AsCheckpoint,
    AsEngine,
    AsFollow,
    AsHistory,
    AsHost,
    AsLate,
    AsMaster,
    AsName,
    AsOutput,
    AsSql,
    AsTo,
    Options,
)

__all__ = ["command"]


def command(
    target: Target,
    *,
    history: AsHistory = False,
    engine: AsEngine = None,
    late: AsLate = None,
    output: AsOutput = None,
    to: AsTo = None,
    host: AsHost = None,
    master: AsMaster = None,
    checkpoint: AsCheckpoint = None,
    name: AsName = None,
    follow: AsFollow = False,
    allow_root: AsAllowRoot = None,
    sql: AsSql = False,
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
