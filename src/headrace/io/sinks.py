"""Sinks: where results go, and in which encoding.

A sink is a value that describes the destination of an output. *Encodings*: `events` are physical events (insert,
retract, cti); `changes` are rows with a `_change_type`, insert or delete; `final` are final rows; `upsert` has for each
key the latest row (with the greatest LE), and `delete` when rows of a key are deleted (`upserts.py`). `egress.py`
delivers rows to sinks; `adapter.py` has the base class of sinks that are services.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.border import LIFETIME, TimeColumns, as_ticks, checked_time_columns, fill_infinity, shown
from headrace.changes import Changes
from headrace.elsewhere import Hinting
from headrace.errors import EventError, HeadraceError, PlanError, nearest
from headrace.events import history, physical_stream, to_physical
from headrace.frames import FRAMES, FrameKind, frame_of
from headrace.io.encode import jsonl_to_physical
from headrace.io.files import local_path, source_errors
from headrace.io.formats import Format, starts_with_dates
from headrace.io.keep import Keep
from headrace.io.object_batches import batches_at
from headrace.io.upserts import fold, upserts
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.time import INFINITY

__all__ = [
    "BatchFunction", "Console", "Encoding", "FileSink", "FunctionSink", "Memory", "Nowhere", "Sink",
    "columns_of_rows", "read_events_output", "rows_of", "ticks_of",
]  # fmt: skip

Encoding = Literal["events", "changes", "final", "upsert"]
ENCODINGS = ("events", "changes", "final", "upsert")
#: The column of the encoding `changes`: `insert` or `delete`.
CHANGE_TYPE = "_change_type"


@dataclass(frozen=True)
class Sink:
    """The destination of an output, with an encoding; `key` names the columns that identify upsert rows."""

    encoding: Encoding = "events"
    key: tuple[str, ...] = ()
    #: The names of the columns with the start and the end of events.
    time_columns: TimeColumns = field(default=LIFETIME, kw_only=True)
    #: Whether it gets dates, not plain numbers: a property of the stream, set when a query starts.
    dates: bool = field(default=False, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "time_columns", checked_time_columns(self.time_columns))
        if self.encoding not in ENCODINGS:
            raise PlanError("unknown encoding", given=self.encoding, allowed=", ".join(ENCODINGS))
        if not all(isinstance(name, str) for name in self.key):
            raise PlanError(
                "a key is made of columns",
                given=", ".join(map(str, self.key)),
                allowed="names of columns",
                instead="select(..., start=hr.start()) before the sink, and key=('symbol', 'start')",
            )
        if (self.encoding == "upsert") != bool(self.key):
            raise PlanError(
                "upsert rows need a key, other encodings have none",
                given=self.key,
                instead="encoding='upsert', key='symbol'",
            )

    def showing(self, *, dates: bool) -> Self:
        """The sink of a stream whose times are dates, or plain numbers."""
        if dates == self.dates:
            return self
        other = copy(self)
        object.__setattr__(other, "dates", dates)
        return other


@dataclass(frozen=True)
class FileSink(Sink):
    """A directory with a folder of files per batch."""

    path: str = ""
    format: Literal["jsonl", "parquet"] = "jsonl"
    #: Columns after whose values the folders of files are named.
    partition_by: tuple[str, ...] = ()
    #: Columns by which the rows of a file are sorted.
    sort_by: tuple[str, ...] = ()
    #: How many small batches are merged into a larger one; None: they stay as they are.
    compact: int | None = None
    #: What is kept of old batches; None: everything.
    keep: Keep | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format not in ("jsonl", "parquet"):
            raise PlanError("unknown file format", given=self.format, allowed="jsonl, parquet")
        hidden = [name for name in self.partition_by if name.startswith(("_", "."))]
        if hidden:
            raise PlanError(
                f"a folder named after {hidden[0]!r} would be hidden, as all names that start with '_' or '.'",
                given=", ".join(self.partition_by),
                instead=f"select(..., {hidden[0].strip('_.')}=col({hidden[0]!r})) before the sink",
            )
        if self.compact is not None:
            self._check_compact()
        if self.sort_by and self.encoding == "events":
            raise PlanError(
                "physical events have an order of their own", given=f"sort_by={', '.join(self.sort_by)}",
                allowed="sort_by= with the encodings changes, final and upsert", instead="encoding='final'",
            )  # fmt: skip

    def _check_compact(self) -> None:
        if type(self.compact) is not int or self.compact < 2:
            raise PlanError("compact is a number of batches", given=self.compact, allowed="2 or more")
        if self.format != "parquet" and self.sort_by:
            raise PlanError("only Parquet is sorted and compacted", given=f"format={self.format!r}",
                            allowed="compact= without sort_by=", instead="format='parquet'")  # fmt: skip
        if local_path(self.path) is None:
            raise PlanError(
                "small files cannot be merged into others in one step on an object store: who lists them would see "
                "rows twice, or miss some", given=self.path,
                instead="hr.delta_lake(..., compact=100), a table whose log says which files count; or no compact=",
            )  # fmt: skip

    def check_columns(self, payload: Schema) -> None:
        """Raise unless rows of these payloads have the columns of folders and of the order."""
        there = columns_of_rows(payload, self).names
        for option in ("partition_by", "sort_by"):
            for name in getattr(self, option):
                if name not in there:
                    close = nearest(name, there)
                    raise PlanError(
                        f"the rows have no column {name!r}", given=f"{option}={name!r}", allowed=", ".join(there),
                        instead=f"{option}={close!r}" if close else "",
                    )  # fmt: skip


@dataclass(frozen=True)
class Console(Sink):
    """A table on the terminal; `sql` shows values as SQL writes them."""

    rows: int = 20
    sql: bool = False


@dataclass(frozen=True, eq=False)
class Memory(Sink, Hinting):
    """Keeps all batches since the start in the driver's memory, for tests and notebooks."""

    batches: list[tuple[Changes, Progress]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def __repr__(self) -> str:
        rows = sum(len(changes) for changes, _ in self.batches)
        return f"memory of {rows:,} changes in {len(self.batches):,} batches, {self.encoding}: .cht() has the answer"

    def showing(self, *, dates: bool) -> Self:
        """The same object, from which the user reads the results."""
        object.__setattr__(self, "dates", dates)
        return self

    def add(self, changes: Changes, progress: Progress, number: int = 0) -> None:
        """Keep a batch."""
        self.batches.append((changes, progress))
        self.numbers.append(number)

    def rows(self) -> pa.Table:
        """The rows so far in the sink's encoding, batch by batch."""
        tables = [rows_of(part, self, batch) for (part, _), batch in zip(self.batches, self.numbers, strict=True)]
        return pa.concat_tables(tables) if tables else pa.table({})

    def events(self) -> pa.Table:
        """The physical events so far."""
        return self._shown(pa.concat_tables(physical_stream(self.batches)) if self.batches else pa.table({}))

    def cht(self) -> pa.Table:
        """The history so far; for upsert rows, the latest row of each key. Before the first batch it has no columns."""
        return self._shown(self._history())

    def _shown(self, table: pa.Table) -> pa.Table:
        return shown(table, dates=self.dates, time_columns=self.time_columns)

    def _history(self) -> pa.Table:
        """The history in ticks."""
        if not self.batches:
            return pa.table({"le": pa.array([], pa.int64()), "re": pa.array([], pa.int64())})
        if self.encoding == "upsert":
            latest = fold(as_ticks(self.rows(), self.time_columns), self.key)
            return latest.add_column(1, "re", pa.array(np.full(latest.num_rows, INFINITY, np.int64)))
        try:
            return history(Changes.concat([changes for changes, _ in self.batches]), dates=self.dates)
        except EventError as error:
            if not self.numbers[0]:
                raise
            raise EventError(
                f"this memory began with batch {self.numbers[0]}, and a later batch corrects answers from before",
                instead="a files sink, which keeps all of the history, or a new checkpoint",
            ) from error


@dataclass(frozen=True, eq=False)
class FunctionSink(Sink):
    """Calls a function in the driver with every batch, at least once: `function(batch_id, changes, progress)`."""

    function: Callable[[int, Changes, Progress], None] = lambda *_: None


@dataclass(frozen=True, eq=False)
class BatchFunction(Sink):
    """Calls a user's function in the driver with the rows of every batch that has some: `function(rows, batch)`."""

    function: Callable[[Any, int], object] = lambda *_: None
    frame: FrameKind = "arrow"
    #: The session for frames of Spark; by default the one that is there.
    spark: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise PlanError(
                "foreach_batch calls a function of the rows and the number of their batch",
                given=type(self.function).__name__,
                instead="hr.foreach_batch(lambda rows, batch: ...)",
            )
        if self.frame not in FRAMES:
            close = nearest(str(self.frame), FRAMES) or "pandas"
            raise PlanError("unknown frame", given=self.frame, allowed=", ".join(FRAMES), instead=f"frame={close!r}")
        if self.spark is not None and self.frame != "spark":
            raise PlanError("a session is for frames of Spark", given=f"frame={self.frame!r}", instead="frame='spark'")

    def call(self, changes: Changes, batch: int) -> None:
        """Call the function, if the batch has rows."""
        rows = rows_of(changes, self, batch)
        if rows.num_rows:
            self.function(frame_of(rows, self.frame, self.spark), batch)


@dataclass(frozen=True)
class Nowhere(Sink):
    """Drops every row where it is computed, as Spark's `noop` does; for benchmarks."""


def rows_of(changes: Changes, sink: Sink, batch: int = 0) -> pa.Table:
    """The rows of one batch in the sink's encoding, with times as users see them."""
    return shown(ticks_of(changes, sink, batch), dates=sink.dates, time_columns=sink.time_columns)


def columns_of_rows(payload: Schema, sink: Sink) -> pa.Schema:
    """The columns of rows in the sink's encoding."""
    return rows_of(Changes.empty(payload), sink).schema


def ticks_of(changes: Changes, sink: Sink, batch: int = 0) -> pa.Table:
    """The rows of one batch in the sink's encoding, with times in ticks."""
    if sink.encoding == "events":
        return to_physical(changes)
    if sink.encoding == "changes":
        return change_rows(changes)
    if sink.encoding == "final":
        return history(changes)
    return upserts(changes, sink.key, batch)


def change_rows(changes: Changes) -> pa.Table:
    """The rows of a batch with their change: `delete` for each that no longer holds, then `insert` for each new one."""
    changes = changes.consolidate()
    order = np.argsort(changes.weight > 0, kind="stable")
    changes = changes.take(np.repeat(order, np.abs(changes.weight[order])))
    kinds = pa.array(np.where(changes.weight > 0, "insert", "delete"), pa.string())
    table = pa.table({CHANGE_TYPE: kinds, "le": pa.array(changes.le), "re": pa.array(changes.re)})
    for name in changes.payload.column_names:
        table = table.append_column(name, changes.payload.column(name))
    return table


def read_events_output(path: str, schema: Schema | str) -> pa.Table:
    """The physical events that a file sink has written so far, batch by batch, with times in ticks."""
    place = batches_at(path)
    files = place.files()
    while True:
        try:
            return _read_events([f for f in files if f.endswith((".jsonl", ".parquet"))], Schema.of(schema))
        except (OSError, HeadraceError):
            before, files = files, place.files()
            if files == before:  # else batches were merged meanwhile, and their files are gone
                raise


def _read_events(files: Sequence[str], payload: Schema) -> pa.Table:
    tables = [as_ticks(_read_parquet(f)) if f.endswith(".parquet") else jsonl_to_physical([f], payload) for f in files]
    events = pa.concat_tables([to_physical(Changes.empty(payload)), *tables])
    in_json = [f for f in files if f.endswith(".jsonl")]
    dates = any(starts_with_dates(f, Format("json")) for f in in_json)
    return fill_infinity(events) if dates else events


def _read_parquet(path: str) -> pa.Table:
    with source_errors(path):
        return pq.ParquetFile(path, page_checksum_verification=True).read()
