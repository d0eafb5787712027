"""`headrace run FILE.py[:name]`: run a query to the end of its inputs, live or as batch SQL over history."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from headrace.cli.explain import find_stream
from headrace.errors import PlanError

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.api.history import History
    from headrace.api.stream import Stream

__all__ = ["command"]

_REAL_DATE = 10**12  # ticks beyond this are shown as dates, the small ones of drawn tables as they are


class Output(StrEnum):
    """What is printed."""

    cht = "cht"
    events = "events"
    final = "final"
    jsonl = "jsonl"


class Host(StrEnum):
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


def command(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py[:NAME]", help="A Python file, and the name of a stream in it.")
    ],
    *,
    history: Annotated[bool, typer.Option("--history", help="Run it as batch SQL over what is stored.")] = False,
    engine: Annotated[Engine | None, typer.Option(help="What runs the batch SQL (spark, unless told).")] = None,
    late: Annotated[
        Late | None, typer.Option(help="For --history: late rows by their input's policy (decide), or as if in time.")
    ] = None,
    output: Annotated[
        Output,
        typer.Option(help="The history, the events as they left, only what is final, or events as JSON lines."),
    ] = Output.cht,
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the history there as Parquet, and print nothing.")
    ] = None,
    host: Annotated[Host | None, typer.Option(help="What runs the live query (local, unless told).")] = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="A Spark master or Connect URL.")] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print the batch SQL, and run nothing.")] = False,
) -> None:
    """Run a query to the end of its inputs and print what it gives.

    With --history the same query runs as batch SQL over everything that is stored, on Spark or in process by DuckDB:
    the answer is the same, whatever the order in which the rows once arrived.
    """
    _check(history=history or sql, engine=engine, late=late, host=host, master=master)
    name, stream = find_stream(target)
    if history or sql:
        query = stream.history((engine or Engine.spark).value, late=(late or Late.decide).value, master=master)
        if sql:
            typer.echo(query.sql(), nl=False)
        else:
            _history(name, query, output, to)
        return
    _live(name, stream, output, to, (host or Host.local).value, master)


def _check(*, history: bool, engine: Engine | None, late: Late | None, host: Host | None, master: str | None) -> None:
    """Options that would have no effect are mistakes."""
    if not history and (engine is not None or late is not None):
        given = f"--engine {engine.value}" if engine is not None else f"--late {late.value}"  # type: ignore[union-attr]
        raise PlanError("this is about histories", given=given, allowed="with --history", instead=f"--history {given}")
    if history and host is not None:
        raise PlanError(
            "a history is run by an engine, not by a host",
            given=f"--host {host.value}",
            allowed="--engine spark, --engine duckdb",
            instead="--history --engine spark" if host is Host.spark else "--history --engine duckdb",
        )
    if master is not None and (engine is Engine.duckdb or (not history and host is not Host.spark)):
        raise PlanError(
            "only Spark has a master",
            given=f"--master {master}",
            allowed="with --host spark, or with --history on Spark",
            instead=f"--history --master {master}" if history else f"--host spark --master {master}",
        )


def _history(name: str, query: History, output: Output, to: Path | None) -> None:
    if to is not None:
        with _busy(f"{name}: history on {query.engine}"):
            query.write(to)
        _say(f"the history of {name} is in {to}")
        return
    with _busy(f"{name}: history on {query.engine}"):
        found = _sorted(query.cht())  # an engine gives rows in any order
    if output is Output.cht:
        _print_table(found)
    else:
        _print_events(_as_events(found), output)


def _live(name: str, stream: Stream, output: Output, to: Path | None, host: str, master: str | None) -> None:
    # Here, and not above: `headrace --help` needs none of it.
    from headrace.api.history import check_new, write_parquet

    if to is not None:
        check_new(to)
    options: dict[str, Any] = {"master": master} if host == "spark" else {}
    consistency = "final" if output is Output.final else "speculative"
    with _busy(f"{name}: live on {host}"):
        done = stream.run(host=host, consistency=consistency, **options)
    set_aside = done.diverted().num_rows
    if set_aside:
        _say(f"{set_aside} rows were set aside as late or malformed")
    if to is not None:
        write_parquet(done.cht(), to)
        _say(f"the history of {name} is in {to}")
    elif output is Output.cht:
        _print_table(_sorted(done.cht()))
    else:
        _print_events(done.events(), output)


# --- printing ---------------------------------------------------------------------------------------------------------


def _busy(what: str) -> AbstractContextManager[Any]:
    """Something that moves on the terminal while we wait; on standard error, where it disturbs no answer."""
    return Console(stderr=True).status(what)


def _say(words: str) -> None:
    Console(stderr=True).print(words, style="dim", markup=False, highlight=False, soft_wrap=True)


def _as_events(history: pa.Table) -> pa.Table:
    """A whole history as physical events: every event once, and the end of time."""
    # Here, and not above: `headrace --help` needs none of it.
    from headrace.changes import Changes
    from headrace.columnar import to_numpy
    from headrace.events import to_physical
    from headrace.time import INFINITY

    le, re = to_numpy(history.column("le")), to_numpy(history.column("re"))
    return to_physical(Changes.inserts(le, re, history.drop_columns(["le", "re"])), INFINITY)


def _print_events(events: pa.Table, output: Output) -> None:
    from headrace.io.encode import physical_to_jsonl

    if output is Output.jsonl:
        sys.stdout.buffer.write(physical_to_jsonl(events))
        sys.stdout.buffer.flush()
    else:
        _print_table(events)


def _sorted(history: pa.Table) -> pa.Table:
    """By time, then by everything that has an order, which lists do not."""
    names = [field.name for field in history.schema if "list" not in str(field.type)]
    return history.sort_by([(name, "ascending") for name in names])


def _print_table(table: pa.Table) -> None:
    """Columns under each other, as drawn tables are written."""
    columns = [[name, *(_cell(name, value) for value in table.column(name).to_pylist())] for name in table.column_names]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo(" | ".join(cells).rstrip())


def _cell(name: str, value: object) -> str:
    from headrace.time import format_ticks

    if value is None:
        return ""
    if name in ("le", "re", "re_new") and isinstance(value, int):
        return format_ticks(value, as_datetime=abs(value) > _REAL_DATE)
    return str(value)
