"""`headrace apply`: make a server have what a script creates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headrace.server.client import Client
    from headrace.sql import syntax as s

__all__ = ["command"]


def command(
    script: Annotated[Path, typer.Argument(help="A script of CREATE and QUERY statements.")],
    *,
    server: Annotated[str, typer.Option(metavar="URL", help="The address of the server.")],
    token: Annotated[str | None, typer.Option(envvar="HEADRACE_TOKEN", help="A token of the server.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the difference, and change nothing.")] = False,
) -> None:
    """Create what a script names and the server does not have, as a whole or not at all.

    What the server has already in the same words stays as it is. What it has in other words is an error: a changed
    query would lose its state, so drop it first, or give the new one another name.
    """
    from headrace.cli.loading import read_text
    from headrace.errors import ServerError
    from headrace.server.client import connect
    from headrace.sql.parse import parse
    from headrace.sql.printer import to_sql

    with connect(server, token) as client:
        new, changed = [], []
        for part in parse(read_text(script)).statements:
            name, there = _created(part), None
            there = None if name is None else _there(client, name)
            same = there is not None and to_sql(part) == there
            typer.echo(f"{'=' if same else '+' if there is None else '~'} {to_sql(part).partition(chr(10))[0]}")
            if there is None:
                new.append(part)
            elif not same:
                changed.append(name)
        if changed:
            raise ServerError(
                f"the server has {', '.join(map(str, changed))} in other words", given=str(script),
                instead="DROP it first, or another name",
            )  # fmt: skip
        if new and not dry_run:
            for reply in client.replies(";\n".join(to_sql(part) for part in new)):
                typer.echo(getattr(reply, "message", reply.tag))


def _created(part: s.Statement) -> str | None:
    """The name of what a statement creates; None for a setting, which belongs to the script."""
    from headrace.errors import ServerError
    from headrace.sql import syntax as s
    from headrace.sql.printer import to_sql

    if isinstance(part, s.Set):
        return None
    creates = (s.CreateSchema, s.CreateStream, s.CreateTable, s.CreateView, s.CreateAggregate)
    if isinstance(part, creates) or (isinstance(part, s.Ask) and part.name is not None):
        assert part.name is not None
        return str(part.name.text)
    raise ServerError(
        "a script that is applied only creates: applied again, it must change nothing",
        given=to_sql(part).partition("\n")[0], allowed="CREATE …, QUERY q AS …, SET …",
        instead="headrace sql --server URL -f, for statements that change rows",
    )  # fmt: skip


def _there(client: Client, name: str) -> str | None:
    """The statement that created something on the server; None if there is nothing of this name."""
    from headrace.errors import SqlError
    from headrace.sql.parse import parse
    from headrace.sql.printer import to_sql

    quoted = name.replace('"', '""')
    try:
        text = "\n".join(map(str, client.sql(f'SHOW CREATE "{quoted}"').column(0).to_pylist()))
    except SqlError:
        return None
    return to_sql(parse(text).statements[0])
