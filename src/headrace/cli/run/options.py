"""What may be asked of `headrace run`, and what of it goes together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.loading import LoadedQuery
from headrace.errors import PlanError

__all__ = [
    "AsAllowRoot", "AsCheckpoint", "AsEngine", "AsFollow", "AsHistory", "AsHost", "AsLate", "AsMaster", "AsName",
    "AsOutput", "AsSql", "AsTo", "Engine", "HostName", "Late", "Options", "PrintOptions",
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


class Late(StrEnum):
    """What becomes of rows that a live query would meet too late."""

    decide = "decide"
    include = "include"


# --- what each option is, as the command line shows it ----------------------------------------------------------------

AsHistory = Annotated[bool, typer.Option("--history", help="Run it as batch SQL over what is stored.")]
AsEngine = Annotated[Engine | None, typer.Option(help="What runs the batch SQL (spark, unless told).")]
AsLate = Annotated[
    Late | None, typer.Option(help="For --history: late rows by their input's policy (decide), or as if in time.")
]
AsOutput = Annotated[
    PrintOptions | None,
    typer.Option(
        help="The history (cht, unless told), the events as they left, only what is final, or events as JSON lines."
    ),
]
AsTo = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write the history there as Parquet, and print nothing; of several queries, each into a folder there.",
    ),
]
AsHost = Annotated[
    HostName | None,
    typer.Option(help="What runs the live query (by default local, or what the script sets; with --follow, spark)."),
]
AsMaster = Annotated[str | None, typer.Option(metavar="URL", help="A Spark master or Connect URL.")]
AsCheckpoint = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Keep the query's state in DIR/NAME, which may be s3://BUCKET/PREFIX. Started again, on any host, it goes "
        "on with what is new.",
    ),
]
AsName = Annotated[
    str | None, typer.Option(metavar="NAME", help="What the query is called (as its file, unless told).")
]
AsFollow = Annotated[
    bool,
    typer.Option("--follow", help="Go on with files that come later, until Ctrl-C; with --host local in this process."),
]
AsAllowRoot = Annotated[
    list[Path] | None,
    typer.Option(metavar="DIR", help="A script may use files there, and nowhere else. May be repeated."),
]
AsSql = Annotated[bool, typer.Option("--sql", help="Print the batch SQL, and run nothing.")]


@dataclass(frozen=True)
class Options:
    """What was asked for; None is what was not said."""

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

    def check(self) -> None:
        """Options that would have no effect are mistakes; what a script sets is not known yet."""
        if self.history:
            self._check_history()
        elif self.engine is not None or self.late is not None:
            given = f"--late {self.late}" if self.engine is None else f"--engine {self.engine}"
            instead = f"--history {given}"
            raise PlanError("this is about histories", given=given, allowed="with --history", instead=instead)
        self.check_output()

    def _check_history(self) -> None:
        if self.host is not None:
            raise PlanError(
                "a history is run by an engine, not by a host",
                given=f"--host {self.host}",
                allowed="--engine spark, --engine duckdb",
                instead=f"--history --engine {'spark' if self.host is HostName.spark else 'duckdb'}",
            )
        if self.master is not None and self.engine is Engine.duckdb:
            raise _only_spark("has a master", f"--master {self.master}", f"--history --master {self.master}")
        for given, flag in ((self.checkpoint, "--checkpoint"), (self.follow, "--follow")):
            if given:
                raise PlanError("a history ends", given=flag, allowed="without --history")

    def check_output(self) -> None:
        """What a query that goes on cannot show."""
        goes_on = "--follow" if self.follow else "--checkpoint" if self.checkpoint is not None else ""
        if goes_on and self.to is not None:
            raise PlanError(
                "a query that goes on has no whole history yet",
                given=f"{goes_on} --to {self.to}",
                allowed="INSERT INTO FILE in a script, or --to without it",
            )
        if goes_on and self.output is PrintOptions.cht:
            raise PlanError(
                "a query that goes on tells what is new, not its whole history",
                given=f"{goes_on} --output cht",
                allowed="--output events, final or jsonl",
                instead=f"{goes_on} --output events",
            )

    def settled(self, asked: LoadedQuery) -> Options:
        """With what the script sets where nothing was said; then what only Spark has can be refused."""
        catalog = asked.session.catalog if asked.session is not None else None
        settings: dict[str, Any] = catalog.settings if catalog is not None else {}
        host = self.host or (HostName.spark if self.follow else HostName(settings.get("host", "local")))
        checkpoint = self.checkpoint
        # A run in process to the end of its inputs has the whole answer.
        goes_on = host is HostName.spark or self.follow
        if checkpoint is None and catalog is not None and goes_on and settings["checkpoint"] is not None:
            checkpoint = catalog.place(settings["checkpoint"])
        if host is not HostName.spark and self.master:
            raise _only_spark("has a master", f"--master {self.master}", f"--host spark --master {self.master}")
        done = replace(self, host=host, checkpoint=checkpoint, name=self.name or asked.name)
        done.check_output()
        return done

    @property
    def shown(self) -> PrintOptions:
        """What is printed: where a query goes on, what is new."""
        return self.output or (PrintOptions.events if self.follow or self.checkpoint is not None else PrintOptions.cht)


def _only_spark(what: str, given: str, instead: str) -> PlanError:
    allowed = "with --host spark, or with --history on Spark"
    return PlanError(f"only Spark {what}", given=given, allowed=allowed, instead=instead)
