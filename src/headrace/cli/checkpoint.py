"""`headrace checkpoint show | verify | copy | rescale | gc`: inspect and manage checkpoints."""

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
    """Show which query a checkpoint belongs to, its last batch, and the size of its state."""
    _print(_saved(path).show(), as_json=as_json)


@app.command("verify")
def verify(path: Place, *, as_json: AsJson = False) -> None:
    """Check that every file that the commits name exists and is undamaged; the exit status is 1 if one is not."""
    report = _saved(path).verify()
    _print(report, as_json=as_json)
    if report["problems"]:
        raise typer.Exit(1)


@app.command("copy")
def copy(
    path: Place,
    to: Annotated[str, typer.Argument(metavar="TO", help="A directory that does not exist yet, or an empty URL.")],
) -> None:
    """Make a consistent copy, also while the query runs. Started with the copy, the query continues into new sinks."""
    copied = _saved(path).copy(to).show()
    typer.echo(
        f"copied batch {copied['batch']} to {copied['path']}: {copied['files']:,} files, {copied['bytes']:,} bytes"
    )


@app.command("rescale")
def rescale(
    path: Place,
    *,
    buckets: Annotated[int, typer.Option(min=1, help="The new number of buckets.")],
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="On an object store: the process that ran the query has died."),
    ] = False,
) -> None:
    """Divide the state of a stopped query among another number of buckets; its next start uses them."""
    _saved(path).rescale(buckets, take_over=take_over)
    typer.echo(f"the state is now in {buckets} buckets")


@app.command("gc")
def gc(
    path: Place,
    *,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Remove diverted rows and recorded batches of this age, such as 30d."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove what no kept commit names and what need not be kept; of a running query, only old batches of outputs."""
    _print(_saved(path).gc(older_than, dry_run=dry_run), as_json=as_json)


def _saved(path: str) -> SavedQuery:
    # Imported here, since `headrace --help` does not need it.
    from headrace.host.saved.query import SavedQuery

    return SavedQuery(path)


def _print(report: Mapping[str, Any], *, as_json: bool) -> None:
    typer.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else str(report))
