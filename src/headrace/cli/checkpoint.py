"""`headrace checkpoint show | verify | copy | rescale | gc`: looking at checkpoints, and handling them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from headrace.host.saved.query import SavedQuery

__all__ = ["app"]

app = typer.Typer(help="Checkpoints: look at one, check it, copy it, tidy it up.", no_args_is_help=True)
Place = Annotated[str, typer.Argument(metavar="PATH", help="The directory or URL that a query was started with.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]


@app.command("show")
def show(path: Place, *, as_json: AsJson = False) -> None:
    """Say whose checkpoint it is, how far the query has come, and how much it remembers."""
    _print(_saved(path).show(), as_json=as_json)


@app.command("verify")
def verify(path: Place, *, as_json: AsJson = False) -> None:
    """Check that every file that the commits name is there and whole; the exit status is 1 if something is wrong."""
    found = _saved(path).verify()
    _print(found, as_json=as_json)
    if found["problems"]:
        raise typer.Exit(1)


@app.command("copy")
def copy(
    path: Place,
    to: Annotated[str, typer.Argument(metavar="TO", help="A directory that does not exist yet, or an empty URL.")],
) -> None:
    """Make a consistent copy, also while the query runs; started with the copy, it goes on into new sinks."""
    made = _saved(path).copy(to).show()
    typer.echo(f"copied batch {made['batch']} to {made['path']}: {made['files']:,} files, {made['bytes']:,} bytes")


@app.command("rescale")
def rescale(
    path: Place,
    *,
    buckets: Annotated[int, typer.Option(min=1, help="How many buckets the query is to have.")],
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="On an object store: the process that ran the query is gone without a word."),
    ] = False,
) -> None:
    """Divide the state of a stopped query among another number of buckets, which its next start then has."""
    _saved(path).rescale(buckets, take_over=take_over)
    typer.echo(f"the state is in {buckets} buckets now")


@app.command("gc")
def gc(path: Place, *, as_json: AsJson = False) -> None:
    """Remove what no kept commit names, and the pins of readers that have died; of a running query only the latter."""
    _print(_saved(path).gc(), as_json=as_json)


def _saved(path: str) -> SavedQuery:
    # Here, and not above: `headrace --help` needs none of it.
    from headrace.host.saved.query import SavedQuery

    return SavedQuery(path)


def _print(found: Mapping[str, Any], *, as_json: bool) -> None:
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False) if as_json else str(found))
