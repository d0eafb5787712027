"""The options of `headrace run`, and which of them can be combined."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.loading import LoadedQuery
from headrace.errors import PlanError

__all__ = [
    "AsAllowRoot", "AsCheckpoint", "AsEngine", "AsFollow", "AsHistory", "AsHost", "AsLate", "AsMaster",
    "AsMetricsPort", "AsName", "AsOutput", "AsRecord", "AsSql", "AsTo", "AsUpgrade", "Engine", "HostName", "Late",
    "Options", "PrintOptions", "UpgradeWay",
]  # fmt: skip


class PrintOptions(StrEnum):
    """What is printed."""

    cht = "cht"
    events = "events"
    final = "final"
    jsonl = "jsonl"


class HostName(StrEnum):
    """Where a live query runs."""

    local = "local"
    spark = "spark"


class Engine(StrEnum):
    """Where a history runs."""

    spark = "spark"
    duckdb = "duckdb"


class UpgradeWay(StrEnum):
    """How a changed query continues its checkpoint."""

    keep = "keep"
    backfill = "backfill"
    side_by_side = "side-by-side"


class Late(StrEnum):
    """What happens to rows that a live query would find late."""

    decide = "decide"
    include = "include"


# --- the options, as the command line shows them ----------------------------------------------------------------------

AsHistory = Annotated[bool, typer.Option("--history", help="Run the query as batch SQL over stored rows.")]
AsEngine = Annotated[Engine | None, typer.Option(help="What runs the batch SQL. Default: spark.")]
AsLate = Annotated[
    Late | None,
    typer.Option(help="For --history: treat late rows by their input's policy (decide), or as if in time (include)."),
]
AsOutput = Annotated[
    PrintOptions | None,
    typer.Option(
        help="The history (cht, the default), all events of the output, only final ones, or events as JSON lines."
    ),
]
AsTo = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write the history there as Parquet and print nothing; several queries get a folder each.",
    ),
]
AsHost = Annotated[
    HostName | None,
    typer.Option(help="What runs the live query. Default: the script's SET host, else local; with --follow, spark."),
]
AsMaster = Annotated[str | None, typer.Option(metavar="URL", help="A Spark master or Connect URL.")]
AsCheckpoint = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Keep the query's state in DIR/NAME; DIR may be s3://BUCKET/PREFIX. The next run, on any host, "
        "continues with new rows.",
    ),
]
AsRecord = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Keep batches in the checkpoint for so long, such as '1 h', so that `headrace trace` can run them again.",
    ),
]
AsMetricsPort = Annotated[
    str | None,
    typer.Option(
        metavar="PORT",
        help="Show the metrics of the query to Prometheus at this port of this machine, or at HOST:PORT.",
    ),
]
AsUpgrade = Annotated[
    UpgradeWay | None,
    typer.Option(
        help="If the checkpoint is that of an earlier version of the query: keep continues with the state of the "
        "operators that both have, backfill computes the new query over the input so far, side-by-side does so while "
        "the old one runs.",
    ),
]
AsName = Annotated[
    str | None, typer.Option(metavar="NAME", help="The name of the query. Default: the name of its file.")
]
AsFollow = Annotated[
    bool,
    typer.Option(
        "--follow", help="Wait for new files and read them, until Ctrl-C; with --host local, in this process."
    ),
]
AsAllowRoot = Annotated[
    list[Path] | None,
    typer.Option(metavar="DIR", help="A script may use files there, and nowhere else. May be repeated."),
]
AsSql = Annotated[bool, typer.Option("--sql", help="Print the batch SQL, and run nothing.")]


@dataclass(frozen=True)
class Options:
    """The options of a run; None means not given."""

    history: bool
    engine: Engine | None
    late: Late | None
    output: PrintOptions | None
    to: Path | None
    host: HostName | None
    master: str | None
    checkpoint: str | None
    name: str | None
    follow: bool
    only_sql: bool
    record: str | None = None
    metrics_port: str | None = None
    upgrade: UpgradeWay | None = None

    def check(self) -> None:
        """Refuse options that would have no effect. The script's settings are not known yet."""
        if self.history:
            self._check_history()
        elif self.engine is not None or self.late is not None:
            given = f"--late {self.late}" if self.engine is None else f"--engine {self.engine}"
            instead = f"--history {given}"
            raise PlanError(
                "this option applies to histories only", given=given, allowed="with --history", instead=instead
            )
        self.check_output()

    def _check_history(self) -> None:
        if self.host is not None:
            raise PlanError(
                "an engine runs a history, not a host",
                given=f"--host {self.host}",
                allowed="--engine spark, --engine duckdb",
                instead=f"--history --engine {'spark' if self.host is HostName.spark else 'duckdb'}",
            )
        if self.master is not None and self.engine is Engine.duckdb:
            raise _only_spark("has a master", f"--master {self.master}", f"--history --master {self.master}")
        for given, flag in (
            (self.checkpoint, "--checkpoint"), (self.record, "--record"), (self.follow, "--follow"),
            (self.metrics_port, "--metrics-port"),
            (self.upgrade, "--upgrade"),
        ):  # fmt: skip
            if given:
                raise PlanError("a history ends", given=flag, allowed="without --history")

    def check_output(self) -> None:
        """Refuse outputs that a query without an end cannot have."""
        continues = "--follow" if self.follow else "--checkpoint" if self.checkpoint is not None else ""
        if continues and self.to is not None:
            raise PlanError(
                "a query that continues has no complete history yet",
                given=f"{continues} --to {self.to}",
                allowed="INSERT INTO FILE in a script, or --to without it",
            )
        if continues and self.output is PrintOptions.cht:
            raise PlanError(
                "a query that continues prints new answers, not its complete history",
                given=f"{continues} --output cht",
                allowed="--output events, final or jsonl",
                instead=f"{continues} --output events",
            )

    def with_script_settings(self, loaded: LoadedQuery) -> Options:
        """Fill in the script's settings, and refuse options that only Spark supports."""
        catalog = loaded.session.catalog if loaded.session is not None else None
        settings: dict[str, Any] = catalog.settings if catalog is not None else {}
        host = self.host or (HostName.spark if self.follow else HostName(settings.get("host", "local")))
        checkpoint = self.checkpoint
        # A run in process to the end of its inputs needs no checkpoint: it has the complete answer.
        continues = host is HostName.spark or self.follow
        if checkpoint is None and catalog is not None and continues and settings["checkpoint"] is not None:
            checkpoint = catalog.place(settings["checkpoint"])
        if host is not HostName.spark and self.master:
            raise _only_spark("has a master", f"--master {self.master}", f"--host spark --master {self.master}")
        record = self.record if self.record is not None or checkpoint is None else settings.get("record")
        if record is not None and checkpoint is None:
            raise PlanError(
                "a recording is kept in a checkpoint",
                given=f"--record {record!r}",
                instead=f"--checkpoint DIR --record {record!r}",
            )
        if self.metrics_port is not None and not continues and checkpoint is None:
            raise PlanError(
                "a run in process to the end of its inputs shows no metrics: it ends with its answer",
                given=f"--metrics-port {self.metrics_port}",
                allowed="with --follow, --checkpoint or --host spark",
                instead=f"--follow --host local --metrics-port {self.metrics_port}",
            )
        if self.upgrade is not None and checkpoint is None:
            raise PlanError(
                "an upgrade continues a checkpoint",
                given=f"--upgrade {self.upgrade}",
                instead=f"--checkpoint DIR --upgrade {self.upgrade}",
            )
        filled = replace(self, host=host, checkpoint=checkpoint, record=record, name=self.name or loaded.name)
        filled.check_output()
        return filled

    @property
    def shown(self) -> PrintOptions:
        """What to print: of a query that continues, the new events."""
        return self.output or (PrintOptions.events if self.follow or self.checkpoint is not None else PrintOptions.cht)


def _only_spark(what: str, given: str, instead: str) -> PlanError:
    allowed = "with --host spark, or with --history on Spark"
    return PlanError(f"only Spark {what}", given=given, allowed=allowed, instead=instead)
