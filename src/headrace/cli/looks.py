"""`headrace queries | batches | rates | logs | state | diverted`: a look at what runs on a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["batches", "diverted", "logs", "queries", "rates", "state"]

_Query = Annotated[str | None, typer.Argument(metavar="QUERY", help="The name of a query. Default: all.")]
_Server = Annotated[str, typer.Option("--server", metavar="URL", help="The address of the server.")]
_Token = Annotated[str | None, typer.Option("--token", envvar="HEADRACE_TOKEN", help="A token of the server.")]
_Rows = Annotated[int, typer.Option("--rows", min=0, help="The most rows of a query, the newest ones.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]


def queries(*, server: _Server, token: _Token = None, as_json: _AsJson = False) -> None:
    """Show the queries of a server: whether they run, their last batch, who created them."""
    _show("SHOW QUERIES", server, token, as_json=as_json)


def batches(
    query: _Query = None, *, server: _Server, token: _Token = None, rows: _Rows = 20, as_json: _AsJson = False
) -> None:
    """Show the latest batches of a query: their rows, changes and corrections, their CTI, and where their time was
    spent.
    """
    _show(_of("SHOW BATCHES", query, rows), server, token, as_json=as_json)


def rates(
    query: _Query = None, *, server: _Server, token: _Token = None, rows: _Rows = 20, as_json: _AsJson = False
) -> None:
    """Show the latest seconds of a query that had batches: rows, changes, corrections, the CTI and the state."""
    _show(_of("SHOW RATES", query, rows), server, token, as_json=as_json)


def logs(
    query: _Query = None, *, server: _Server, token: _Token = None, rows: _Rows = 1_000, as_json: _AsJson = False
) -> None:
    """Show the log of a query: when it was started, stopped and altered, why it failed, and what it lost so far."""
    _show(_of("SHOW LOG", query, rows), server, token, as_json=as_json)


def state(query: _Query = None, *, server: _Server, token: _Token = None, as_json: _AsJson = False) -> None:
    """Show the state of each operator of a query: its rows, its bytes, and what holds it."""
    _show(_of("SHOW STATE", query), server, token, as_json=as_json)


def diverted(
    query: _Query = None, *, server: _Server, token: _Token = None, rows: _Rows = 1_000, as_json: _AsJson = False
) -> None:
    """Show the rows that a query has not used, with the reasons."""
    _show(_of("SHOW DIVERTED", query, rows), server, token, as_json=as_json)


def _of(statement: str, query: str | None, rows: int | None = None) -> str:
    from headrace.sql.printer import to_sql
    from headrace.sql.syntax import Name

    about = "" if query is None else f" FOR {to_sql(Name(query, quoted=True))}"
    return f"{statement}{about}{'' if rows is None else f' LIMIT {rows}'}"


def _show(statement: str, server: str, token: str | None, *, as_json: bool) -> None:
    from headrace.server.client import connect
    from headrace.server.interface import RowsReply

    with connect(server, token) as client:
        (reply,) = client.replies(statement)
    assert isinstance(reply, RowsReply)
    if as_json:
        typer.echo(json.dumps(reply.table.to_pylist(), indent=2, ensure_ascii=False, default=str))
    else:
        _print(reply.table)
    for note in reply.notes:
        typer.echo(note, err=True)


def _print(table: pa.Table) -> None:
    from headrace.cli.sql.show import plain_table, screen
    from headrace.literals import sql_text

    rows = ([sql_text(value) if value is not None else "" for value in row.values()] for row in table.to_pylist())
    screen().print(plain_table(table.column_names, rows))
