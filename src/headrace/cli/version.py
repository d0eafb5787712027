"""`headrace version`: the versions of Headrace and its dependencies, read from package metadata without importing."""

from __future__ import annotations

import platform
from importlib import metadata

import typer

__all__ = ["command", "installed"]

_SHOWN = ("headrace", "pyspark", "pyarrow", "pandas", "numpy")


def command() -> None:
    """Print the version of Headrace, and of Python and the packages it runs on."""
    for package in _SHOWN:
        typer.echo(f"{package} {installed(package) or '(not installed)'}")
    typer.echo(f"python {platform.python_version()}")


def installed(package: str) -> str | None:
    """The installed version of `package`, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
