"""Sinks: the public functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from headrace.adapters.registry import sink_adapter
from headrace.border import LIFETIME, TimeColumns
from headrace.frames import FrameKind
from headrace.io.adapter import SinkAdapter
from headrace.io.files import local_path
from headrace.io.keep import Keep, KeepLike
from headrace.io.sinks import BatchFunction, Console, Encoding, FileSink, Memory

__all__ = ["console", "files", "foreach_batch", "memory", "sink"]


def _key(key: str | Sequence[str]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


def console(
    *,
    encoding: Encoding = "events",
    key: str | Sequence[str] = (),
    rows: int = 20,
    time_columns: TimeColumns = LIFETIME,
) -> Console:
    """A live table on the terminal. After a crash a batch may be shown again.

    `time_columns=("start", "end")` are the titles of the columns of times.
    """
    return Console(encoding, _key(key), rows, time_columns=time_columns)


def files(
    path: str,
    *,
    format: Literal["jsonl", "parquet"] = "jsonl",
    encoding: Encoding = "events",
    key: str | Sequence[str] = (),
    partition_by: str | Sequence[str] = (),
    sort_by: str | Sequence[str] = (),
    compact: int | None = None,
    keep: KeepLike | None = None,
    time_columns: TimeColumns = LIFETIME,
) -> FileSink:
    """Files in a directory, a folder per batch, written atomically and once.

    Times that are dates are timestamps (in JSON, ISO texts), with null for an event without an end; numbers are
    numbers. `time_columns=("start", "end")` gives their columns other names than `le` and `re`.

    `partition_by` divides the files of a batch into folders, `day=2024-05-01/symbol=A/`, by the values of columns,
    which also stay in the files. `sort_by` sorts the rows of every file.

    `compact=10` merges the files of ten batches into larger ones, and ten of those again, in a local directory:
    `batch-00000000-00000009` stands for the folders of these batches, which are removed. A query that follows the
    directory refuses merged files, whose rows it has read already; a Delta table can be followed (`hr.delta_lake`).

    `keep="90 days"` removes older batches, `keep="10 GB"` the oldest beyond that size, `keep="90 days, 10 GB"` both;
    the newest batch stays. Default: everything is kept.
    """
    local = local_path(str(path))
    # Workers write the files and may have another working directory: a relative path is relative to this process.
    place = str(path) if local is None else str(Path(local).absolute())
    divided, ordered = _key(partition_by), _key(sort_by)
    kept = None if keep is None else Keep.of(keep)
    return FileSink(encoding, _key(key), place, format, divided, ordered, compact, kept, time_columns=time_columns)


def memory(
    *, encoding: Encoding = "events", key: str | Sequence[str] = (), time_columns: TimeColumns = LIFETIME
) -> Memory:
    """Keeps results in this process: `.events()` and `.cht()`. After a crash a batch may be added again.

    `time_columns=("start", "end")` gives the columns of times other names.
    """
    return Memory(encoding, _key(key), time_columns=time_columns)


def foreach_batch(
    function: Callable[[Any, int], object],
    *,
    frame: FrameKind = "arrow",
    encoding: Encoding = "changes",
    key: str | Sequence[str] = (),
    spark: Any = None,
    time_columns: TimeColumns = LIFETIME,
) -> BatchFunction:
    """Calls `function(rows, batch)` with the rows of every batch that has some, and the number of the batch.

    The rows are an Arrow table, or a data frame: `frame="pandas"`, `"polars"`, or `"spark"` in the session `spark`, by
    default the one that is there. By default they are changes: `insert` or `delete` in `_change_type`, `le`, `re` and
    the columns of the stream. `time_columns=("start", "end")` gives the columns of times other names.

    The function runs in the driver, after the commit of the batch. After a crash it may be called again, with the same
    rows and the same number, so that it can tell what it has done. An error that it raises ends the query; the next
    start calls it with that batch again.
    """
    return BatchFunction(encoding, _key(key), function, frame, spark, time_columns=time_columns)


def sink(
    name: str, /, *, encoding: Encoding | None = None, key: str | Sequence[str] | None = None, **options: Any
) -> SinkAdapter:
    """The sink of an installed adapter, by its name, with its options; by default with the adapter's own encoding.

    Every batch is delivered once, if the adapter recognises what it has delivered.
    """
    given = {"encoding": encoding, "key": None if key is None else _key(key)}
    return sink_adapter(name, {name: value for name, value in given.items() if value is not None} | options)
