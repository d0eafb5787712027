"""`headrace version`: the versions of Headrace and its dependencies, which are not imported for it."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Annotated

import typer

from headrace.version import VERSION

__all__ = ["command", "installed", "option"]

_SHOWN = ("pyspark", "pyarrow", "pandas", "numpy")


def command() -> None:
    """Print the version of Headrace, and of Python and the packages it runs on."""
    typer.echo(f"headrace {VERSION}")
    for package in _SHOWN:
        typer.echo(f"{package} {installed(package) or '(not installed)'}")
    typer.echo(f"python {platform.python_version()}")


def _print_version(given: bool) -> None:
    if given:
        typer.echo(f"headrace {VERSION}")
        raise typer.Exit


def option(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Temporal streams on Spark: early answers that correct themselves."""


def installed(package: str) -> str | None:
    """The installed version of `package`, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
