"""A log of rows on disk: what clients insert, the changes of a table, the answers of a query.

Rows are numbered by *offsets* from 0 on, and only appended. An append is a *frame*: a header, a *mark* that says whose
rows they are, and the rows as an Arrow record batch. `append` returns when the frame is on disk; appends of several
threads share one sync. Readers see frames that are on disk, and no others.

**Exactly once.** A mark has a name and a number: the delivery of a batch of a query, or the key of a client's insert.
It stands in the same frame as the rows, so both are there or neither is. `marked` finds it after a crash.

**Files.** Frames are in *segments*, files named after the offset of their first row, each with the columns in front. A
process that dies leaves at most torn frames at the end of the last segment; opening the log cuts them off. Frames have
a checksum, and say up to where the log was on disk when they were written: what is damaged before that is an error.

**Retention.** `forget` replaces all segments before one of them by a *base*, a file with the rows that are still needed
from then on, whose offsets are the last ones before that segment. The base is whole before anything is removed, and
opening a log removes what its base has replaced. Readers that begin get the base first; cursors before it are gone.

**Promises** without rows have offsets, too, but no frames: the last ones are in a file of their own (`promises.py`).

Another process (a worker of Spark) reads the files of a log that this process has open; it never writes them.
"""

from __future__ import annotations

import json
import os
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from headrace.errors import ServerError, StoreError
from headrace.io.locks import hold
from headrace.pieces import flush_to_disk
from headrace.schema import Schema
from headrace.server.log_files import (
    BEGIN,
    HEADER,
    MAGIC,
    SEGMENT_MAGIC,
    LogFolder,
    LogFrame,
    Offsets,
    frames_of,
    has_base,
    promise_frame,
    segments_of,
    serialized,
)
from headrace.server.promises import PromiseSlots

__all__ = ["Appended", "EventLog", "Mark"]

_SEGMENT_BYTES = 64 << 20
#: Names of marks that a log remembers; the oldest are forgotten. A query has one for each of its buckets.
_MARKS = 1_000_000
_MARKS_OF_A_BASE = 10_000
#: The latest promises, for batches that run again.
_PROMISES_KEPT = 1_000


class Mark(NamedTuple):
    """Whose rows a frame has: a name, and a number that grows."""

    name: str
    number: int


class Appended(NamedTuple):
    """The offsets of rows that were appended: from `start` to before `end`."""

    start: int
    end: int


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
        self._marks: OrderedDict[str, int] = OrderedDict()
        self._open_file: BinaryIO | None = None
        try:
            self._recover(folder, schema)
            super().__init__(folder, schema)
        except BaseException:
            held.close()
            raise
        files, self._slots = segments_of(folder), PromiseSlots(folder, durable=durable)
        self._first, self._kept = (self._frames[0].start, int(files[0].stem)) if has_base(folder) else (0, 0)
        last = self._frames[-1].start + self._frames[-1].count if self._frames else 0
        #: The end of what was written, and of what is on disk and readers see.
        self._written = self._end = max(last, self._slots.reserved, *(int(file.stem) for file in files[-1:]))
        #: How often frames were left out, twice; odd while they are. And how many promises the frames have at most.
        self._forgets = self._promised = 0
        self._unsynced: list[tuple[LogFrame, pa.RecordBatch]] = []
        self._write_lock, self._sync_lock = threading.RLock(), threading.Lock()
        self._grown = threading.Condition()
        self._listeners: set[Callable[[], None]] = set()
        self._failed: BaseException | None = None
        self._divided = False
        #: When the segment that is written was begun, in seconds.
        self.began = time.time()
        self.closed = False

    def _recover(self, folder: Path, schema: Schema) -> None:
        """Remove what a base has replaced, cut off torn frames at the end, and read the marks."""
        files = segments_of(folder)
        for file in {*folder.glob("*.log"), *folder.glob("*.base"), *folder.glob("*.draft")} - {*files}:
            file.unlink()
        for number, file in enumerate(files):
            with file.open("r+b") as opened:
                head = opened.read(BEGIN.size)
                begun = len(head) == BEGIN.size and head[:4] == SEGMENT_MAGIC
                columns = opened.read(BEGIN.unpack(head)[1]) if begun else b""
                if begun and columns == serialized(schema):
                    opened.seek(0)
                    last = number == len(files) - 1
                    whole = self._recover_frames(file, opened, last=last)
                    if not last and whole < file.stat().st_size:
                        raise StoreError(
                            f"{file} is damaged at byte {whole}", given=str(file),
                            instead="a copy of the data directory from before",
                        )  # fmt: skip
                    opened.truncate(whole)
                elif number == len(files) - 1 and len(columns) < len(serialized(schema)):
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
        whole = opened.seek(0) + BEGIN.size + len(self._columns_of(opened))
        opened.seek(0)
        found = list(frames_of(file, opened))
        synced = max((frame.synced for frame, _ in found), default=0)
        for frame, mark in found:
            if last and frame.start >= synced:
                opened.seek(frame.place)
                if zlib.crc32(opened.read(frame.size)) != frame.checksum:
                    break  # the machine failed before it was on disk
            if mark:
                for name, value in json.loads(mark).items():
                    self._remember(Mark(name, value))
            whole = frame.place + frame.size
        return whole

    @staticmethod
    def _columns_of(opened: BinaryIO) -> bytes:
        head = opened.read(BEGIN.size)
        return opened.read(BEGIN.unpack(head)[1])

    def _remember(self, mark: Mark) -> None:
        self._marks[mark.name] = mark.number
        self._marks.move_to_end(mark.name)
        while len(self._marks) > _MARKS:
            self._marks.popitem(last=False)

    # --- what is there -----------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """The offset of the first row that readers get: of the base, if there is one."""
        return self._first

    @property
    def kept(self) -> int:
        """The first offset from which a reader can go on: rows before it were replaced by the base."""
        return self._kept

    @property
    def end(self) -> int:
        """The offset after the last row."""
        return self._end

    def __len__(self) -> int:
        return self._end

    def marked(self, name: str) -> int | None:
        """The number of the latest mark of this name."""
        with self._write_lock:
            if self._failed is not None:  # nobody knows whether the frame is on disk
                raise self._broken(self._failed) from self._failed
            return self._marks.get(name)

    @property
    def failed(self) -> bool:
        """Whether it cannot be written any more: a new start reads what is there."""
        return self._failed is not None

    @property
    def size(self) -> int:
        """Its bytes on disk."""
        with suppress(FileNotFoundError):  # rows are being forgotten
            return sum(file.stat().st_size for file in segments_of(self.folder))
        return 0

    def wait(self, offset: int, timeout: float | None = None) -> bool:
        """Wait until there are rows from an offset on; False if there are none in time, or the log was closed."""
        with self._grown:
            self._grown.wait_for(lambda: self._end > offset or self.closed, timeout)
            return self._end > offset

    def listen(self, wake: Callable[[], None]) -> None:
        """Call a function, which must be quick, whenever there are more rows, and when the log is closed."""
        with self._grown:
            self._listeners.add(wake)

    def unlisten(self, wake: Callable[[], None]) -> None:
        """Call it no more."""
        with self._grown:
            self._listeners.discard(wake)

    def _notify(self, end: int) -> None:
        """Let readers see the rows before an offset."""
        with self._grown:
            self._end = end
            self._grown.notify_all()
            listeners = tuple(self._listeners)
        for wake in listeners:
            wake()

    # --- writing -----------------------------------------------------------------------------------------------------

    def rows(self, start: int, end: int) -> tuple[Offsets, pa.Table]:
        while True:
            before = self._forgets
            if before % 2:
                with self._write_lock:  # rows are being forgotten
                    continue
            try:
                found = super().rows(start, end)
            except StoreError:
                if self._forgets == before:
                    raise
                continue
            if self._forgets == before:
                return found

    def append(self, rows: pa.Table, marks: Mapping[str, int] | None = None) -> Appended:
        """Append rows, and return their offsets when they are on disk."""
        batch = _one_batch(rows.cast(self.schema.arrow))
        with self._write_lock:
            self._check()
            appended = self._write(batch, json.dumps(dict(marks)).encode() if marks else b"")
            for name, number in (marks or {}).items():
                self._remember(Mark(name, number))
        self._sync(appended.end)
        return appended

    def promise(self, time: int) -> None:
        """Append a promise of a time, in ticks. If the machine fails, a later one takes its place."""
        with self._write_lock:
            self._check()
            frame = promise_frame(self.folder, self._written, time)
            try:
                self._slots.write(frame.start, time)
            except OSError as error:
                self._failed = error
                raise self._broken(error) from error
            self._unsynced.append((frame, self._read(frame)))
            self._written += 1
            self._promised += 1
        self._sync(frame.start + 1)
        if self._promised > 2 * _PROMISES_KEPT:
            with self._sync_lock, self._write_lock:
                starts = [one.start for one in self._frames if not one.size]
                self._reindex([one for one in self._frames if one.size or one.start >= starts[-_PROMISES_KEPT]])
                self._promised = _PROMISES_KEPT

    def _reindex(self, frames: list[LogFrame]) -> None:
        """Take other frames in the place of those that are there; readers begin again."""
        self._forgets += 1
        self._frames, self._starts = frames, [one.start for one in frames]
        self._forgets += 1

    def _write(self, batch: pa.RecordBatch, mark: bytes) -> Appended:
        data = batch.serialize()
        start, end = self._written, self._written + batch.num_rows
        checksum = zlib.crc32(data)
        head = HEADER.pack(MAGIC, data.size, checksum, start, batch.num_rows, len(mark), self._end)
        try:
            file = self._file(start)
            place = file.tell() + HEADER.size + len(mark)
            file.write(head + mark)
            file.write(data)
            file.flush()
        except OSError as error:
            self._failed = error
            raise self._broken(error) from error
        frame = LogFrame(start, batch.num_rows, Path(file.name), place, data.size, checksum, self._end)
        self._unsynced.append((frame, batch))
        self._written = end
        return Appended(start, end)

    def _file(self, start: int) -> BinaryIO:
        """The segment to write to."""
        if self._open_file is not None and self._open_file.tell() < self._segment_bytes:
            return self._open_file
        if self._open_file is None and self._frames and not self._divided:
            last = self._frames[-1].file
            if last.suffix == ".log" and last.stat().st_size < self._segment_bytes:
                self._open_file = last.open("ab")
                return self._open_file
        if self._open_file is not None:
            self._flush(self._open_file.fileno())
            self._open_file.close()
        columns = serialized(self.schema)
        self._open_file = (self.folder / f"{start:020d}.log").open("wb")
        self._open_file.write(BEGIN.pack(SEGMENT_MAGIC, len(columns)) + columns)
        self._divided, self.began = False, time.time()
        if self._durable:
            flush_to_disk(self.folder)
        return self._open_file

    def divide(self) -> None:
        """Let the next rows begin a segment, so that those before can be forgotten."""
        with self._sync_lock, self._write_lock:
            if self._unsynced:
                return
            if self._open_file is not None:
                self._open_file.close()
                self._open_file = None
            self._divided = True

    def _sync(self, end: int) -> None:
        """Make everything up to an offset durable and visible; one thread does it for all that wait."""
        with self._sync_lock:
            if self._end >= end:
                return
            with self._write_lock:
                self._check()
                frames, upto = self._unsynced, self._written
                opened = self._open_file if any(frame.size for frame, _ in frames) else None
                file = (
                    None if opened is None else os.dup(opened.fileno())
                )  # a writer may begin another segment meanwhile
                self._unsynced = []
            if file is not None:
                try:
                    self._flush(file)
                finally:
                    os.close(file)
            for frame, batch in frames:
                self._keep(frame, batch)
                self._frames.append(frame)
                self._starts.append(frame.start)
            self._notify(upto)

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

    def segments(self) -> list[tuple[int, float]]:
        """The first offsets of the segments, and when they were last written, in seconds."""
        return [(int(file.stem), file.stat().st_mtime) for file in segments_of(self.folder) if file.suffix == ".log"]

    def sizes(self) -> list[int]:
        """The bytes of the segments."""
        return [file.stat().st_size for file in segments_of(self.folder) if file.suffix == ".log"]

    def forget(self, before: int, needed: pa.Table | None = None) -> int:
        """Replace the rows before a segment by those of them that are needed; return the first offset that is kept.

        `before` is the first offset of a segment; `needed` are at most as many rows as are replaced.
        """
        rows = _one_batch((self.schema.arrow.empty_table() if needed is None else needed).cast(self.schema.arrow))
        with self._sync_lock, self._write_lock:
            self._check()
            old = [file for file in segments_of(self.folder) if file.suffix == ".base" or int(file.stem) < before]
            if not old or before not in [start for start, _ in self.segments()]:
                return self._kept
            base = self.folder / f"{before:020d}.base"
            frame = self._write_base(base, before, rows)
            kept = [one for one in self._frames if one.start >= before]
            self._first, self._kept = frame.start, before
            self._reindex([frame, *kept])
            for file in old:
                if file != base:
                    file.unlink()
        return self._kept

    def _write_base(self, base: Path, before: int, rows: pa.RecordBatch) -> LogFrame:
        columns, data = serialized(self.schema), rows.serialize()
        start, checksum = before - rows.num_rows, zlib.crc32(data)
        begin = BEGIN.pack(SEGMENT_MAGIC, len(columns)) + columns
        marks = json.dumps(dict(list(self._marks.items())[-_MARKS_OF_A_BASE:])).encode()
        head = HEADER.pack(MAGIC, data.size, checksum, start, rows.num_rows, len(marks), self._end)
        draft = base.with_suffix(".draft")
        with draft.open("wb") as file:
            file.write(begin + head + marks)
            file.write(data)
            file.flush()
            self._flush(file.fileno())
        draft.rename(base)
        if self._durable:
            flush_to_disk(self.folder)
        place = len(begin) + len(head) + len(marks)
        return LogFrame(start, rows.num_rows, base, place, data.size, checksum, self._end)

    def close(self) -> None:
        """End waiting readers, and release the files."""
        with self._sync_lock, self._write_lock:
            self.closed = True
            if self._open_file is not None:
                self._open_file.close()
            self._slots.close()
            self._held.close()
        self._notify(self._end)


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)
