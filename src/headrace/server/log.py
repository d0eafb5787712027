"""A log of rows on disk: what clients insert, the changes of a table, the answers of a query.

Rows are numbered by *offsets* from 0 on, and only appended. An append is a *frame*: a header, a *mark* that says whose
rows they are, and the rows as an Arrow record batch. `append` returns when the frame is on disk; appends of several
threads share one sync. Readers see frames that are on disk, and no others.

**Exactly once.** A mark has a name and a number: the delivery of a batch of a query, or the key of a client's insert.
It stands in the same frame as the rows, so both are there or neither is. `marked` finds it after a crash.

**Files.** Frames are in *segments*, files named after the offset of their first row, each with the columns in front. A
process that dies leaves at most a torn frame at the end of the last segment; opening the log cuts it off. Frames have a
checksum. `forget` removes whole segments from the beginning: the log then starts at a later offset.

Another process (a worker of Spark) reads the files of a log that this process has open; it never writes them.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import ServerError, StoreError
from headrace.io.locks import hold
from headrace.schema import Schema

__all__ = ["Appended", "EventLog", "LogFolder", "Mark"]

_HEADER = struct.Struct(
    "<4sIIQIH"
)  # magic, bytes of the rows, checksum, first offset, number of rows, bytes of the mark
_MAGIC, _BEGIN = b"HRF1", struct.Struct("<4sI")  # the first bytes of a frame and of a segment
_SEGMENT_MAGIC = b"HRL1"
_SEGMENT_BYTES = 64 << 20
#: Bytes of decoded rows that readers find in memory.
_CACHED_BYTES = 32 << 20
#: Names of marks that a log remembers; the oldest are forgotten. A query has one for each of its buckets.
_MARKS = 1_000_000
Offsets = NDArray[np.int64]


class Mark(NamedTuple):
    """Whose rows a frame has: a name, and a number that grows."""

    name: str
    number: int


class Appended(NamedTuple):
    """The offsets of rows that were appended: from `start` to before `end`."""

    start: int
    end: int


@dataclass(frozen=True)
class _Frame:
    """Where a frame is: its rows, its file, and the bytes of its rows in it."""

    start: int
    count: int
    file: Path
    place: int
    size: int
    checksum: int


def _columns(schema: Schema) -> bytes:
    return bytes(schema.arrow.serialize())


def _segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def _frames(file: Path, opened: BinaryIO) -> Iterator[tuple[_Frame, bytes]]:
    """The whole frames of a segment, with their marks; ends at a torn one."""
    size = os.fstat(opened.fileno()).st_size
    head = opened.read(_BEGIN.size)
    if len(head) < _BEGIN.size or head[:4] != _SEGMENT_MAGIC:
        return
    place = _BEGIN.size + _BEGIN.unpack(head)[1]
    while place + _HEADER.size <= size:
        opened.seek(place)
        magic, length, checksum, start, count, marked = _HEADER.unpack(opened.read(_HEADER.size))
        body = place + _HEADER.size + marked
        if magic != _MAGIC or body + length > size:
            return
        yield _Frame(start, count, file, body, length, checksum), opened.read(marked)
        place = body + length


class LogFolder:
    """The frames of a log, as its files have them; enough for a process that only reads."""

    def __init__(self, folder: Path, schema: Schema) -> None:
        self.folder, self.schema = folder, schema
        self._frames: list[_Frame] = []
        self._starts: list[int] = []
        self._cache: OrderedDict[_Frame, pa.RecordBatch] = OrderedDict()
        self._cached = 0
        self._cache_lock = threading.Lock()
        for file in _segments(folder):
            with file.open("rb") as opened:
                self._add(frame for frame, _ in _frames(file, opened))

    def _add(self, frames: Iterator[_Frame]) -> None:
        for frame in frames:
            self._frames.append(frame)
            self._starts.append(frame.start)

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

    def _read(self, frame: _Frame) -> pa.RecordBatch:
        with self._cache_lock:
            batch = self._cache.get(frame)
            if batch is not None:
                self._cache.move_to_end(frame)
                return batch
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

    def _keep(self, frame: _Frame, batch: pa.RecordBatch) -> None:
        with self._cache_lock:
            if frame not in self._cache:
                self._cache[frame] = batch
                self._cached += batch.nbytes
            while self._cached > _CACHED_BYTES and len(self._cache) > 1:
                self._cached -= self._cache.popitem(last=False)[1].nbytes


class EventLog(LogFolder):
    """A log that this process writes; `durable=False` leaves out syncs."""

    def __init__(
        self, folder: Path, schema: Schema, *, durable: bool = True, segment_bytes: int = _SEGMENT_BYTES
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        held = hold(folder / "lock")
        if held is None:
            raise ServerError("another process writes this log", given=str(folder))
        self._held = held
        self._durable, self._segment_bytes = durable, segment_bytes
        self._marks: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._open_file: BinaryIO | None = None
        try:
            self._recover(folder, schema)
            super().__init__(folder, schema)
        except BaseException:
            held.close()
            raise
        self._first = self._frames[0].start if self._frames else self._named_first(folder)
        #: The end of what was written, and of what is on disk and readers see.
        self._written = self._end = self._frames[-1].start + self._frames[-1].count if self._frames else self._first
        self._unsynced: list[tuple[_Frame, pa.RecordBatch]] = []
        self._write_lock, self._sync_lock = threading.RLock(), threading.Lock()
        self._grown = threading.Condition()
        self._failed: BaseException | None = None
        self.closed = False

    @staticmethod
    def _named_first(folder: Path) -> int:
        files = _segments(folder)
        return int(files[-1].stem) if files else 0

    def _recover(self, folder: Path, schema: Schema) -> None:
        """Cut off a torn frame at the end, and read the marks."""
        files = _segments(folder)
        for number, file in enumerate(files):
            with file.open("r+b") as opened:
                head = opened.read(_BEGIN.size)
                begun = len(head) == _BEGIN.size and head[:4] == _SEGMENT_MAGIC
                columns = opened.read(_BEGIN.unpack(head)[1]) if begun else b""
                if begun and columns == _columns(schema):
                    opened.seek(0)
                    whole = self._recover_frames(file, opened, last=number == len(files) - 1)
                    opened.truncate(whole)
                elif number == len(files) - 1 and len(columns) < len(_columns(schema)):
                    opened.truncate(0)  # the process died while it began the segment
                else:
                    raise ServerError(
                        f"{file} has other columns", given=str(Schema.of(pa.ipc.read_schema(pa.py_buffer(columns)))),
                        allowed=str(schema),
                    )  # fmt: skip
            if not file.stat().st_size:
                file.unlink()

    def _recover_frames(self, file: Path, opened: BinaryIO, *, last: bool) -> int:
        """The bytes of whole frames."""
        whole = opened.seek(0) + _BEGIN.size + len(self._columns_of(opened))
        opened.seek(0)
        found = list(_frames(file, opened))
        for number, (frame, mark) in enumerate(found):
            if last and number == len(found) - 1:
                opened.seek(frame.place)
                if zlib.crc32(opened.read(frame.size)) != frame.checksum:
                    break  # written in another order than it stands in the file
            if mark:
                for name, value in json.loads(mark).items():
                    self._remember(Mark(name, value), frame.count)
            whole = frame.place + frame.size
        return whole

    @staticmethod
    def _columns_of(opened: BinaryIO) -> bytes:
        head = opened.read(_BEGIN.size)
        return opened.read(_BEGIN.unpack(head)[1])

    def _remember(self, mark: Mark, count: int) -> None:
        self._marks[mark.name] = (mark.number, count)
        self._marks.move_to_end(mark.name)
        while len(self._marks) > _MARKS:
            self._marks.popitem(last=False)

    # --- what is there -----------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """The offset of the first row that is kept."""
        return self._first

    @property
    def end(self) -> int:
        """The offset after the last row."""
        return self._end

    def __len__(self) -> int:
        return self._end

    def marked(self, name: str) -> tuple[int, int] | None:
        """The number of the latest frame of this name, and how many rows it has."""
        with self._write_lock:
            if self._failed is not None:  # nobody knows whether the frame is on disk
                raise self._broken(self._failed) from self._failed
            return self._marks.get(name)

    @property
    def size(self) -> int:
        """Its bytes on disk."""
        return sum(file.stat().st_size for file in _segments(self.folder))

    def wait(self, offset: int, timeout: float | None = None) -> bool:
        """Wait until there are rows from an offset on; False if there are none in time, or the log was closed."""
        with self._grown:
            self._grown.wait_for(lambda: self._end > offset or self.closed, timeout)
            return self._end > offset

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, rows: pa.Table, marks: Mapping[str, int] | None = None, *, sync: bool = True) -> Appended:
        """Append rows, and return their offsets when they are on disk.

        `sync=False`: they may be lost if the machine fails, until the next append with a sync.
        """
        batch = _one_batch(rows.cast(self.schema.arrow))
        with self._write_lock:
            self._check()
            appended = self._write(batch, json.dumps(dict(marks)).encode() if marks else b"")
            for name, number in (marks or {}).items():
                self._remember(Mark(name, number), batch.num_rows)
        self._sync(appended.end, sync=sync)
        return appended

    def _write(self, batch: pa.RecordBatch, mark: bytes) -> Appended:
        data = batch.serialize()
        start, end = self._written, self._written + batch.num_rows
        checksum = zlib.crc32(data)
        head = _HEADER.pack(_MAGIC, data.size, checksum, start, batch.num_rows, len(mark))
        try:
            file = self._file(start)
            place = file.tell() + _HEADER.size + len(mark)
            file.write(head + mark)
            file.write(data)
            file.flush()
        except OSError as error:
            self._failed = error
            raise self._broken(error) from error
        self._unsynced.append((_Frame(start, batch.num_rows, Path(file.name), place, data.size, checksum), batch))
        self._written = end
        return Appended(start, end)

    def _file(self, start: int) -> BinaryIO:
        """The segment to write to."""
        if self._open_file is not None and self._open_file.tell() < self._segment_bytes:
            return self._open_file
        if self._open_file is None and self._frames:
            last = self._frames[-1].file
            if last.stat().st_size < self._segment_bytes:
                self._open_file = last.open("ab")
                return self._open_file
        if self._open_file is not None:
            self._flush(self._open_file.fileno())
            self._open_file.close()
        columns = _columns(self.schema)
        self._open_file = (self.folder / f"{start:020d}.log").open("wb")
        self._open_file.write(_BEGIN.pack(_SEGMENT_MAGIC, len(columns)) + columns)
        if self._durable:
            _sync_folder(self.folder)
        return self._open_file

    def _sync(self, end: int, *, sync: bool) -> None:
        """Make everything up to an offset durable and visible; one thread does it for all that wait."""
        with self._sync_lock:
            if self._end >= end:
                return
            with self._write_lock:
                self._check()
                assert self._open_file is not None
                file = os.dup(self._open_file.fileno())  # a writer may begin another segment meanwhile
                frames, upto = self._unsynced, self._written
                self._unsynced = []
            try:
                if sync:
                    self._flush(file)
            finally:
                os.close(file)
            for frame, batch in frames:
                self._keep(frame, batch)
                self._frames.append(frame)
                self._starts.append(frame.start)
            with self._grown:
                self._end = upto
                self._grown.notify_all()

    def _flush(self, file: int) -> None:
        if self._durable:
            try:
                os.fdatasync(file)
            except OSError as error:
                self._failed = error
                raise self._broken(error) from error

    def _check(self) -> None:
        if self.closed:
            raise ServerError("the log was closed", given=str(self.folder))
        if self._failed is not None:
            raise self._broken(self._failed) from self._failed

    def _broken(self, error: BaseException) -> StoreError:
        return StoreError(
            f"the log cannot be written: {error}", given=str(self.folder),
            instead="space on the disk, and a new start of the server, which reads what is there",
        )  # fmt: skip

    def forget(self, before: int) -> int:
        """Remove whole segments whose rows are all before an offset; return the first offset that is kept."""
        with self._sync_lock, self._write_lock:
            files = _segments(self.folder)
            for file, following in pairwise(files):
                if int(following.stem) > before:
                    break
                file.unlink()
                kept = [frame for frame in self._frames if frame.file != file]
                self._frames, self._starts = kept, [frame.start for frame in kept]
                self._first = int(following.stem)
        return self._first

    def close(self) -> None:
        """End waiting readers, and release the files."""
        with self._sync_lock, self._write_lock:
            self.closed = True
            if self._open_file is not None:
                self._open_file.close()
            self._held.close()
        with self._grown:
            self._grown.notify_all()


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
