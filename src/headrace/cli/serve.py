"""`headrace serve` and `headrace token`: a server, and who may use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from headrace.server.access import Access

__all__ = ["command", "tokens"]

tokens = typer.Typer(help="The tokens of a server: who may use it, and for what.", no_args_is_help=True)
_Data = Annotated[Path, typer.Option(metavar="DIR", help="The data directory of the server.")]
_DATA = Path("headrace-data")


def command(
    *,
    data: _Data = _DATA,
    host: Annotated[Literal["local", "spark"], typer.Option(help="Where queries run.")] = "local",
    master: Annotated[str | None, typer.Option(metavar="URL", help="A Spark master, with --host spark.")] = None,
    address: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port for HTTP; 0 takes a free one.")] = 8080,
    postgres_port: Annotated[int, typer.Option(help="The port for PostgreSQL's protocol; 0 takes a free one.")] = 5433,
    postgres: Annotated[bool, typer.Option(help="Whether PostgreSQL's clients may connect.")] = True,
    root: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Statements may use files there, and nowhere else. May be repeated."),
    ] = None,
    require_tokens: Annotated[
        bool, typer.Option("--require-tokens", help="Clients of this machine need one, too.")
    ] = False,
    certificate: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate for TLS, as PEM.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key, as PEM.")] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name by which clients reach it, * for any. May be repeated."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="SITE", help="A site, such as https://a.example, whose pages may use it."),
    ] = None,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Other machines need no TLS: for a proxy that has it.")
    ] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="What one client may take, such as statement_seconds=10."),
    ] = None,
    log: Annotated[Literal["text", "json"], typer.Option(help="How the log is written, to stderr.")] = "text",
) -> None:
    """Serve a catalog of streams, tables and running queries to many clients.

    Everything is in the data directory. After a stop, or a crash, every query goes on where it was.
    """
    try:
        from headrace.server.access import Limits
        from headrace.server.core import HeadraceServer
        from headrace.server.http import HttpSettings
        from headrace.server.metrics import log_to_stderr
        from headrace.server.process import ServerProcess, run_until_stopped
    except ImportError as error:
        typer.echo(f"{error}: pip install 'headrace[server]'", err=True)
        raise typer.Exit(1) from error
    log_to_stderr(as_json=log == "json")
    settings = HttpSettings(hosts=tuple(allow_host or ()), origins=tuple(allow_origin or ()), plain=plain_http)
    server = HeadraceServer(
        data, host=host, master=master, roots=[str(path) for path in root or []], tokens_required=require_tokens,
        limits=Limits.of(limit or []),
    )  # fmt: skip
    process = ServerProcess(
        server, address=address, port=port, postgres_port=postgres_port if postgres else None,
        certificate=certificate, key=key, settings=settings,
    )  # fmt: skip
    run_until_stopped(process)


@tokens.command("create")
def create(
    name: Annotated[str, typer.Argument(help="A name for the client, for the audit log.")],
    *,
    role: Annotated[Literal["reader", "writer", "admin"], typer.Option(help="What the client may do.")] = "reader",
    data: _Data = _DATA,
) -> None:
    """Create a token and print it; it cannot be shown again."""
    with _access(data) as access:
        typer.echo(access.tokens.create(name, role))


@tokens.command("list")
def show(*, data: _Data = _DATA) -> None:
    """List the tokens, without their values."""
    with _access(data) as access:
        for line in access.tokens.lines():
            used = "never used" if line.last_used is None else f"used {line.last_used:%Y-%m-%d %H:%M}"
            typer.echo(f"{line.name}  {line.role}  {used}{'  revoked' if line.revoked else ''}")


@tokens.command("revoke")
def revoke(name: Annotated[str, typer.Argument(help="The name of the token.")], *, data: _Data = _DATA) -> None:
    """Revoke a token: it is refused from now on, also by a server that runs."""
    with _access(data) as access:
        access.tokens.revoke(name)


@contextmanager
def _access(data: Path) -> Iterator[Access]:
    from headrace.server.access import Access

    data.mkdir(parents=True, exist_ok=True)
    access = Access(data)
    try:
        yield access
    finally:
        access.close()
