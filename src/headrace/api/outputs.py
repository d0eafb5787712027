"""Sinks, as people write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from headrace.io.sinks import Console, Encoding, FileSink, Memory

__all__ = ["console", "files", "memory"]


def _key(key: str | Sequence[str]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


def console(*, encoding: Encoding = "events", key: str | Sequence[str] = (), rows: int = 20) -> Console:
    """A live table on the terminal."""
    return Console(encoding, _key(key), rows)


def files(
    path: str,
    *,
    format: Literal["jsonl", "parquet"] = "jsonl",
    encoding: Encoding = "events",
    key: str | Sequence[str] = (),
) -> FileSink:
    """Files in a directory, a folder per batch, each written once and atomically."""
    return FileSink(encoding, _key(key), str(path), format)


def memory(*, encoding: Encoding = "events", key: str | Sequence[str] = ()) -> Memory:
    """Keeps results in this process: `.events()` and `.cht()`."""
    return Memory(encoding, _key(key))
