"""`headrace run FILE[:name]`: run a query or a script, live or as batch SQL over the history."""

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
    AsMetricsPort,
    AsName,
    AsOutput,
    AsRecord,
    AsSql,
    AsTo,
    AsUpgrade,
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
    record: AsRecord = None,
    metrics_port: AsMetricsPort = None,
    upgrade: AsUpgrade = None,
    name: AsName = None,
    follow: AsFollow = False,
    allow_root: AsAllowRoot = None,
    sql: AsSql = False,
) -> None:
    """Run a query to the end of its inputs and print its answers.

    A SQL script runs as one query with several outputs. The answers of its queries are printed, each under its name if
    there are several; INSERT INTO FILE writes one folder per batch. Relative paths in a script start from its own
    directory. FILE.sql:NAME runs one query or stream of it.

    With --history the same queries run as batch SQL over all stored rows, on Spark or in process by DuckDB. The answers
    are the same, in whatever order the rows arrived.
    """
    # Imported here, since `headrace --help` does not need it.
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
        record=record,
        metrics_port=metrics_port,
        upgrade=upgrade,
        name=name,
        follow=follow,
        only_sql=sql,
    )
    options.check()
    loaded = find(target, allow_root, absolute=checkpoint is not None)
    if options.history:
        run_history(loaded, options)
        return
    options = options.with_script_settings(loaded)
    if options.checkpoint is not None and checkpoint is None:  # the script has set one
        loaded = find(target, allow_root, absolute=True)
    run_live(loaded, options)
