"""`headrace trace FILE[:name]`: what every operator of a query did, batch by batch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.loading import Target, find_stream
from headrace.errors import PlanError

if TYPE_CHECKING:
    from headrace.api.stream import Stream
    from headrace.expr import Expr

__all__ = ["command"]

_TABLES = ("operators", "batches", "edges", "changes")


def command(
    target: Target,
    *,
    operator: Annotated[
        int | None, typer.Option(help="Print the changes that this operator gave, by its number.")
    ] = None,
    batches: Annotated[
        str | None, typer.Option(metavar="N|N..M", help="Only the changes of these batches, from 0.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="The most changes to print.")] = 20,
    batch_rows: Annotated[
        int | None, typer.Option(min=1, help="The rows of a batch. Default: as the query reads its input.")
    ] = None,
    why: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Print why the one answer with this condition is there: \"k = 'a'\"."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help=f"Write the tables {', '.join(_TABLES)} as Parquet files into this folder.")
    ] = None,
) -> None:
    """Show what every operator of a query did, batch by batch: its changes, its progress and its state.

    The query runs in process, as it is written, to the end of its inputs. Without options, print its operators with
    their numbers.
    """
    name, stream = find_stream(target)
    chosen = None if batches is None else _batches(batches)
    condition = None if why is None else _condition(stream, why)
    trace = stream.trace(batch_rows=batch_rows)
    if save is not None:
        # Imported here, since `headrace --help` does not need it.
        import pyarrow.parquet as pq

        save.mkdir(parents=True, exist_ok=True)
        for table in _TABLES:
            pq.write_table(getattr(trace, table), save / f"{table}.parquet")
    if condition is not None:
        typer.echo(trace.why(condition))
    elif operator is not None or chosen is not None:
        trace.show(operator, batches=chosen, n=rows)
    else:
        typer.echo(f"{name}: {trace}")


def _condition(stream: Stream, text: str) -> Expr:
    """A condition on answers, written in SQL."""
    # Imported here, since `headrace --help` does not need them.
    from headrace.plan.nodes import Where, walk
    from headrace.sql import sql

    chosen = sql(f"SELECT * FROM answers WHERE {text}", answers=stream).node  # noqa: S608 - the user's own condition
    for node in walk(chosen):
        if isinstance(node, Where) and node.input == stream.node:
            return node.predicate
    raise PlanError("this is not a condition on one answer", given=text, allowed="columns of the answer and values")


def _batches(text: str) -> range:
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    if found is None:
        raise PlanError("these are not numbers of batches", given=text, allowed="N, or N..M", instead="--batches 2..4")
    return range(int(found[1]), int(found[2] or found[1]) + 1)
