"""The command line: one file per command, registered below, one line each.

`headrace --help` must stay quick, so a command module imports heavy packages (pyspark, pandas) when it is called and
not when it is loaded. Errors that Headrace raises on purpose are shown in red without a traceback; any other exception
is a bug in Headrace and shows its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer
from rich.console import Console

from headrace.cli import (
    apply,
    checkpoint,
    debug,
    demo,
    doctor,
    explain,
    looks,
    module,
    plot,
    run,
    serve,
    sql,
    trace,
    ui,
    verify,
    version,
)
from headrace.errors import HeadraceError
from headrace_command import INTERRUPTED

__all__ = ["app", "main"]

app = typer.Typer(
    help="Temporal streams on Spark: early answers that correct themselves.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.callback()(version.option)
app.command("apply")(apply.command)
app.command("batches")(looks.batches)
app.add_typer(checkpoint.app, name="checkpoint")
app.command("debug")(debug.command)
app.command("demo")(demo.command)
app.command("diverted")(looks.diverted)
app.command("doctor")(doctor.command)
app.command("explain")(explain.command)
app.command("logs")(looks.logs)
app.add_typer(module.app, name="module")
app.command("plot")(plot.command)
app.command("queries")(looks.queries)
app.command("rates")(looks.rates)
app.command("run")(run.command)
app.command("serve")(serve.command)
app.command("sql")(sql.command)
app.command("state")(looks.state)
app.add_typer(serve.tokens, name="token")
app.command("trace")(trace.command)
app.command("ui")(ui.command)
app.command("verify")(verify.command)
app.command("version")(version.command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line with `arguments` (those of the process by default) and exit."""
    try:
        app(args=arguments, prog_name="headrace")
    except HeadraceError as error:
        Console(stderr=True).print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
