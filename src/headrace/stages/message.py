"""Messages between levels: rows of an edge, reports of the sources, results, and statistics.

In process, messages are passed as objects. Between processes a message is four plain values, `(bucket, edge, seq,
chunk)`; the chunk is an Arrow IPC stream with the rest in its metadata. The cost is per row, so a row holds a chunk.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.columnar import Int64s, hash_rows
from headrace.compiled import INT, UINTS, compiled
from headrace.hashing import UInt64s
from headrace.pieces import Pieces, ipc_pieces
from headrace.progress import Progress
from headrace.stages.slim import full, slim

__all__ = [
    "FEEDBACK",
    "REPORTS",
    "RESULT",
    "STATE",
    "STATISTICS",
    "Message",
    "bucket_of",
    "pack",
    "split",
    "unpack",
]

#: Edge numbers of messages that are not rows of an edge. Results of output i have the number `RESULT - i`. The next
#: trip reads `FEEDBACK` of loops. `STATE` describes the saved state of a bucket of a stage.
REPORTS, STATISTICS, FEEDBACK, STATE, RESULT = -1, -2, -3, -4, -10
_META = b"headrace"
_MOST_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class Message:
    """Rows of an edge for one bucket, with the progress of the sender."""

    bucket: int
    edge: int
    table: pa.Table | None = None
    progress: Progress | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def bucket_of(table: pa.Table, route: tuple[str, ...] | None, buckets: int, sender: int) -> np.ndarray[Any, Any]:
    """The bucket of every row."""
    if route is None:
        return np.full(table.num_rows, sender % buckets, np.int64)
    if route == () or buckets == 1:
        return np.zeros(table.num_rows, np.int64)
    return (hash_rows(table.select(list(route))) % np.uint64(buckets)).astype(np.int64)


def split(table: pa.Table, route: tuple[str, ...] | None, buckets: int, sender: int) -> list[pa.Table | None]:
    """A table's rows by bucket; None for a bucket without rows."""
    if table.num_rows == 0:
        return [None] * buckets
    if not route or buckets == 1:  # all rows have one bucket
        place = bucket_of(table.slice(0, 1), route, buckets, sender)[0]
        return [table if b == place else None for b in range(buckets)]
    order, ends = _by_bucket(hash_rows(table.select(list(route))), buckets)
    ordered, starts = table.take(pa.array(order)), np.r_[0, ends[:-1]]
    return [ordered.slice(a, b - a) if b > a else None for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


@compiled(UINTS, INT)
def _by_bucket(hashes: UInt64s, buckets: int) -> tuple[Int64s, Int64s]:
    """The rows by bucket, otherwise in their order; and where those of each bucket end."""
    place = np.zeros(buckets + 1, np.int64)
    for i in range(len(hashes)):
        place[hashes[i] % np.uint64(buckets) + np.uint64(1)] += 1
    for b in range(buckets):
        place[b + 1] += place[b]
    order = np.empty(len(hashes), np.int64)
    for i in range(len(hashes)):
        b = hashes[i] % np.uint64(buckets)
        order[place[b]] = i
        place[b] += 1
    return order, place[:buckets]


def pack(message: Message) -> Iterator[tuple[int, int, Pieces]]:
    """The rows `(bucket, edge, chunk)` of a message; a large table has several."""
    progress = None if message.progress is None else [message.progress.cti, message.progress.high]
    table = message.table if message.table is not None else pa.table({})
    for start in range(0, max(table.num_rows, 1), _MOST_ROWS):
        part, left = slim(table.slice(start, _MOST_ROWS))
        meta = {"extra": message.extra, "progress": progress, "left": left}
        yield message.bucket, message.edge, ipc_pieces(part.replace_schema_metadata({_META: json.dumps(meta).encode()}))


def unpack(bucket: int, edge: int, chunk: bytes | pa.Buffer) -> Message:
    """The message of one row; its table uses the chunk without copying."""
    table = pa.ipc.open_stream(chunk).read_all()
    meta = json.loads(table.schema.metadata[_META])
    table = full(table.replace_schema_metadata(None), meta["left"])
    progress = None if meta["progress"] is None else Progress(*meta["progress"])
    return Message(bucket, edge, table if table.num_columns else None, progress, meta["extra"])
