"""The files of a log: frames in segments, the base, the promises; `log.py` says what they are. Here they are read."""

from __future__ import annotations

import os
import struct
import threading
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import StoreError
from headrace.schema import Schema
from headrace.server.promises import promises_in

__all__ = [
    "BEGIN",
    "HEADER",
    "MAGIC",
    "SEGMENT_MAGIC",
    "LogFolder",
    "LogFrame",
    "Offsets",
    "frames_of",
    "has_base",
    "promise_frame",
    "segments_of",
    "serialized",
]  # fmt: skip

#: Of a frame: magic, bytes of the rows, their checksum, the first offset, the number of rows, bytes of the marks, and
#: the offset up to which the log was on disk.
HEADER = struct.Struct("<4sIIQIIQ")
#: Of a segment: magic, bytes of the columns.
BEGIN = struct.Struct("<4sI")
MAGIC, SEGMENT_MAGIC = b"HRF1", b"HRL1"
#: Bytes of decoded rows that readers find in memory.
_CACHED_BYTES = 32 << 20
#: What a batch of a few columns takes beside its values: most of it, if it has one row.
_BATCH_BYTES = 4_000
Offsets = NDArray[np.int64]


@dataclass(frozen=True)
class LogFrame:
    """Where a frame is: its rows, its file, and the bytes of its rows in it. A promise has no bytes; its place is its
    time.
    """

    start: int
    count: int
    file: Path
    place: int
    size: int
    checksum: int
    #: Up to where the log was on disk when it was written.
    synced: int


def serialized(schema: Schema) -> bytes:
    """The columns, as they stand in front of a segment."""
    return bytes(schema.arrow.serialize())


def segments_of(folder: Path) -> list[Path]:
    """The files of a log in the order of their rows: the base, if there is one, and what it has not replaced."""
    bases = sorted(folder.glob("*.base"))
    begin = int(bases[-1].stem) if bases else 0
    return [*bases[-1:], *sorted(file for file in folder.glob("*.log") if int(file.stem) >= begin)]


def has_base(folder: Path) -> bool:
    """Whether rows of a log were forgotten."""
    return any(file.suffix == ".base" for file in segments_of(folder))


def promise_frame(folder: Path, offset: int, time: int) -> LogFrame:
    """A promise as a frame."""
    return LogFrame(offset, 1, folder, time, 0, 0, 0)


def frames_of(file: Path, opened: BinaryIO) -> Iterator[tuple[LogFrame, bytes]]:
    """The whole frames of a segment, with their marks; ends at a torn one."""
    size = os.fstat(opened.fileno()).st_size
    head = opened.read(BEGIN.size)
    if len(head) < BEGIN.size or head[:4] != SEGMENT_MAGIC:
        return
    place = BEGIN.size + BEGIN.unpack(head)[1]
    while place + HEADER.size <= size:
        opened.seek(place)
        magic, length, checksum, start, count, marked, synced = HEADER.unpack(opened.read(HEADER.size))
        body = place + HEADER.size + marked
        if magic != MAGIC or body + length > size:
            return
        yield LogFrame(start, count, file, body, length, checksum, synced), opened.read(marked)
        place = body + length


class LogFolder:
    """The frames of a log, as its files have them; enough for a process that only reads."""

    def __init__(self, folder: Path, schema: Schema) -> None:
        self.folder, self.schema = folder, schema
        self._frames: list[LogFrame] = []
        self._starts: list[int] = []
        self._cache: OrderedDict[LogFrame, pa.RecordBatch] = OrderedDict()
        self._cached = 0
        self._cache_lock = threading.Lock()
        files = segments_of(folder)
        #: The offset before which rows are those of a base; 0 if there is none.
        self.base = int(files[0].stem) if files and files[0].suffix == ".base" else 0
        for file in files:
            try:
                with file.open("rb") as opened:
                    self._frames += [frame for frame, _ in frames_of(file, opened)]
            except FileNotFoundError as error:  # the process that writes the log has forgotten its rows
                raise StoreError("rows of a log are no longer kept", given=str(file)) from error
        if promises := promises_in(folder)[0]:
            kept = self._frames[0].start + self._frames[0].count if has_base(folder) else 0
            self._frames += [promise_frame(folder, *one) for one in promises if one[0] >= kept]
            self._frames.sort(key=lambda frame: frame.start)
        self._starts = [frame.start for frame in self._frames]

    def rows(self, start: int, end: int) -> tuple[Offsets, pa.Table]:
        """The rows from an offset up to another that are kept, and their offsets."""
        found, offsets = [self.schema.arrow.empty_table()], [np.empty(0, np.int64)]
        first = max(0, bisect_right(self._starts, start) - 1)
        for frame in self._frames[first : bisect_right(self._starts, end - 1)]:
            low, high = max(start, frame.start), min(end, frame.start + frame.count)
            if low < high:
                rows = pa.Table.from_batches([self._read(frame)]).slice(low - frame.start, high - low)
                found.append(rows)
                offsets.append(np.arange(low, high))
        return np.concatenate(offsets), pa.concat_tables(found)

    def _read(self, frame: LogFrame) -> pa.RecordBatch:
        with self._cache_lock:
            batch = self._cache.get(frame)
            if batch is not None:
                self._cache.move_to_end(frame)
                return batch
        if not frame.size:
            row = {"kind": "cti", "le": frame.place}
            return pa.RecordBatch.from_pylist([row], schema=self.schema.arrow)
        try:
            with frame.file.open("rb") as opened:
                opened.seek(frame.place)
                data = opened.read(frame.size)
        except FileNotFoundError as error:
            raise StoreError("rows of a log are no longer kept", given=f"offset {frame.start}") from error
        if zlib.crc32(data) != frame.checksum:
            raise StoreError(
                f"{frame.file} is damaged at offset {frame.start}", given=f"byte {frame.place}",
                instead="a copy of the data directory from before",
            )  # fmt: skip
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), self.schema.arrow)
        self._keep(frame, batch)
        return batch

    def _keep(self, frame: LogFrame, batch: pa.RecordBatch) -> None:
        with self._cache_lock:
            if frame not in self._cache:
                self._cache[frame] = batch
                self._cached += batch.nbytes + _BATCH_BYTES
            while self._cached > _CACHED_BYTES and len(self._cache) > 1:
                self._cached -= self._cache.popitem(last=False)[1].nbytes + _BATCH_BYTES
