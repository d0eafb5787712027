"""Sinks: the public functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from headrace.adapters.registry import sink_adapter
from headrace.io.adapter import SinkAdapter
from headrace.io.files import local_path
from headrace.io.sinks import Console, Encoding, FileSink, Memory

__all__ = ["console", "files", "memory", "sink"]


def _key(key: str | Sequence[str]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


def console(*, encoding: Encoding = "events", key: str | Sequence[str] = (), rows: int = 20) -> Console:
    """A live table on the terminal. After a crash a batch may be shown again."""
    return Console(encoding, _key(key), rows)


def files(
    path: str,
    *,
    format: Literal["jsonl", "parquet"] = "jsonl",
    encoding: Encoding = "events",
    key: str | Sequence[str] = (),
) -> FileSink:
    """Files in a directory, a folder per batch, written atomically and once."""
    local = local_path(str(path))
    # Workers write the files and may have another working directory: a relative path is relative to this process.
    place = str(path) if local is None else str(Path(local).absolute())
    return FileSink(encoding, _key(key), place, format)


def memory(*, encoding: Encoding = "events", key: str | Sequence[str] = ()) -> Memory:
    """Keeps results in this process: `.events()` and `.cht()`. After a crash a batch may be added again."""
    return Memory(encoding, _key(key))


def sink(
    name: str, /, *, encoding: Encoding | None = None, key: str | Sequence[str] | None = None, **options: Any
) -> SinkAdapter:
    """The sink of an installed adapter, by its name, with its options; by default with the adapter's own encoding.

    Every batch is delivered once, if the adapter recognises what it has delivered.
    """
    given = {"encoding": encoding, "key": None if key is None else _key(key)}
    return sink_adapter(name, {name: value for name, value in given.items() if value is not None} | options)
