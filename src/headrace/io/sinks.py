"""Where results go, and in which form.

A sink is a value that says what to do with an output. *Encodings*: `events` are physical events (insert, retract, cti);
`final` gives rows once nothing can change them any more; `upsert` gives, per key, the latest value (the row with the
greatest LE), and `delete` when a key has none left. Files are written by whoever has the rows and appear batch by
batch, whole, once.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.changes import Changes
from headrace.columnar import factorize
from headrace.errors import PlanError
from headrace.events import cti_row, history, to_physical
from headrace.io.commit import BatchDirectory
from headrace.io.encode import jsonl_to_physical, physical_to_jsonl, rows_to_jsonl
from headrace.plan.nodes import EdgeLifetimes, Final, Node, PointAtStart
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["Call", "Console", "FileSink", "Memory", "Sink", "encode", "prepared", "read_events_output"]

Encoding = Literal["events", "final", "upsert"]
ENCODINGS = ("events", "final", "upsert")


@dataclass(frozen=True)
class _Encoded:
    """The form in which rows leave; `key` names the columns that upsert rows are told apart by."""

    encoding: Encoding = "events"
    key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.encoding not in ENCODINGS:
            raise PlanError("unknown encoding", given=self.encoding, allowed=", ".join(ENCODINGS))
        if (self.encoding == "upsert") != bool(self.key):
            raise PlanError(
                "upsert rows need a key, other encodings have none",
                given=self.key,
                instead="encoding='upsert', key='symbol'",
            )


@dataclass(frozen=True)
class FileSink(_Encoded):
    """A directory with a folder of files per batch."""

    path: str = ""
    format: Literal["jsonl", "parquet"] = "jsonl"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format not in ("jsonl", "parquet"):
            raise PlanError("unknown file format", given=self.format, allowed="jsonl, parquet")


@dataclass(frozen=True)
class Console(_Encoded):
    """A table on the terminal."""

    rows: int = 20


@dataclass(frozen=True, eq=False)
class Memory(_Encoded):
    """Keeps everything in the driver, for tests and notebooks."""

    schema: Schema | None = None
    batches: list[tuple[Changes, Progress]] = field(default_factory=list)

    def add(self, changes: Changes, progress: Progress) -> None:
        self.batches.append((changes, progress))

    def events(self) -> pa.Table:
        """The physical events so far."""
        tables, cti = [], NEG_INFINITY
        for changes, progress in self.batches:
            tables.append(to_physical(changes, progress.cti if progress.cti > cti else None))
            cti = max(cti, progress.cti)
        return pa.concat_tables(tables) if tables else pa.table({})

    def cht(self) -> pa.Table:
        """The history so far; without columns of its own before the first batch."""
        if not self.batches:
            return pa.table({"le": pa.array([], pa.int64()), "re": pa.array([], pa.int64())})
        return history(Changes.concat([changes for changes, _ in self.batches]))


@dataclass(frozen=True, eq=False)
class Call(_Encoded):
    """Calls a function in the driver with every batch: `function(batch_id, changes, progress)`."""

    function: Callable[[int, Changes, Progress], None] = lambda *_: None


Sink = FileSink | Console | Memory | Call


def prepared(node: Node, sink: Sink) -> Node:
    """The stream a sink really writes."""
    if sink.encoding == "final":
        return Final(node)
    if sink.encoding == "upsert":
        for name in sink.key:
            node.schema[name]
        return EdgeLifetimes(PointAtStart(node), sink.key)
    return node


def rows_of(changes: Changes, sink: _Encoded) -> pa.Table:
    """The rows of one batch in the sink's encoding."""
    if sink.encoding == "events":
        return to_physical(changes)
    if sink.encoding == "final":
        return history(changes)
    return _upserts(changes, sink.key)


def _upserts(changes: Changes, key: Sequence[str]) -> pa.Table:
    """Of the signal per key only the part that never ends is the latest value."""
    current = changes.filter(changes.re == INFINITY)
    codes, first = factorize(current.payload.select(list(key)))
    order = np.lexsort(
        (current.le, current.weight > 0, codes)
    )  # of each key the newest addition, else a removal, is last
    last = order[np.r_[np.flatnonzero(np.diff(codes[order])), len(order) - 1]] if len(order) else order
    best = current.take(last)
    table = (
        pa.table({"op": np.where(best.weight > 0, "upsert", "delete"), "le": best.le})
        if len(first)
        else pa.table({"op": pa.array([], pa.string()), "le": pa.array([], pa.int64())})
    )
    gone = pa.array(best.weight < 0)
    for name, column in zip(best.payload.column_names, best.payload.columns, strict=True):
        value = column if name in key else pc.if_else(gone, pa.scalar(None, column.type), column)
        table = table.append_column(name, value)
    return table


def encode(changes: Changes, sink: FileSink) -> bytes:
    """One file of a batch."""
    table = rows_of(changes, sink)
    if sink.format == "parquet":
        return _parquet(table)
    return physical_to_jsonl(table) if sink.encoding == "events" else rows_to_jsonl(table)


def encode_cti(cti: int, schema: Schema, sink: FileSink) -> dict[str, bytes]:
    """The file that says how far a batch came; only physical events have one."""
    if sink.encoding != "events":
        return {}
    row = cti_row(cti, schema)
    data = _parquet(row) if sink.format == "parquet" else physical_to_jsonl(row)
    return {f"progress.{sink.format}": data}


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def read_events_output(path: str, schema: Schema | str) -> pa.Table:
    """The physical events that a file sink has written so far, batch by batch."""
    files = [f for f in BatchDirectory(path).files() if f.endswith((".jsonl", ".parquet"))]
    payload = Schema.of(schema)
    tables = [pq.read_table(f) if f.endswith(".parquet") else jsonl_to_physical([f], payload) for f in files]
    return pa.concat_tables(tables) if tables else to_physical(Changes.empty(payload))
