"""`headrace plot FILE[:name]`: a timeline of a query's answers, as an SVG picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.loading import Target, find_stream, folder_of

__all__ = ["command"]


def command(
    target: Target,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write. Default: the query's name, with .svg.")
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option(help="A column that divides the picture into groups. May be repeated.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="The first time to draw: 2024-05-01T12:00:00Z, or a number.")
    ] = None,
    end: Annotated[str | None, typer.Option(help="Where the picture ends.")] = None,
    rows: Annotated[int, typer.Option(help="The most rows of events.")] = 40,
    width: Annotated[int, typer.Option(help="The width in pixels.")] = 900,
    batch_rows: Annotated[
        int | None,
        typer.Option(min=1, help="The rows of a batch. Default: up to 200 batches, so that corrections show."),
    ] = None,
) -> None:
    """Draw a timeline of a query: the lifetimes of its answers, and their corrections.

    The query runs in process, to the end of its inputs. What a correction has made untrue is dashed or struck out.
    """
    name, stream = find_stream(target)
    file = output if output is not None else Path(f"{folder_of(name)}.svg")
    options: dict[str, Any] = {} if batch_rows is None else {"batch_rows": batch_rows}
    look: dict[str, Any] = {"start": start, "end": end, "rows": rows, "width": width, "title": name}
    timeline = stream.plot(by or (), **look, **options)
    timeline.save(file)
    typer.echo(f"{file}: {timeline.summary}")
