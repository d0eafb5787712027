"""Positions of a source of files: which files were read.

The files that were read are a trace, which the commit saves like all state: their paths and modification times. A file
may appear late with an older time, or with a name before those that were read; it is still read if it was modified less
than the *horizon* before the newest file that was read; a file from the future counts as one of now, so a wrong clock
elsewhere makes no other file old. This holds for both orders of reading: files that wait hold back the horizon. Older
files are not read, and reported once; older entries of the trace are forgotten, which bounds it. A file that changes
after it was read is not read again, and reported.

On an object store a listing may have only the files whose names come after most of those that were listed before
(`io/new_names.py`). What it does not have is as it was: files wait, and are neither changed nor gone.

With each file the trace has the number of the batch that read it, because the files that are read together decide which
rows are late. A backfill is *held* at the files that another query has read, and reads them in the batches of that one.

Paths of files in the checkpoint itself are kept relative to it, so that a checkpoint may be moved or copied, which may
also change their times.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.columnar import hash_rows, to_numpy
from headrace.errors import SourceError
from headrace.io.commit import is_merged
from headrace.io.files import ListedFile, in_order, listing, local_path
from headrace.io.new_names import Listed, NewNames
from headrace.io.origins import Files
from headrace.plan.nodes import Source
from headrace.plan.policies import Arrival, Changed
from headrace.time import NEG_INFINITY
from headrace.trace import Segment, Trace

__all__ = ["HORIZON", "FilePositions"]

#: A file that is older than the newest one that was read by more than this is not read: seven days, in nanoseconds.
HORIZON = 7 * 24 * 3600 * 10**9
#: With more segments than this, up to so many names are merged into one.
_MANY_SEGMENTS, _FEW_NAMES = 16, 20_000
#: The batch of a file that an earlier Headrace has read, or that is forgotten.
_UNKNOWN = -1
_log = logging.getLogger("headrace")


class FilePositions:
    """The files of one source: those that were read, and the next ones."""

    def __init__(self, source: Source, most: int | None = None, clock: Callable[[], int] = time.time_ns) -> None:
        assert isinstance(source.origin, Files)
        self.source, self.origin, self._clock = source, source.origin, clock
        # Tasks may have another working directory, so relative paths are resolved here.
        local = local_path(source.origin.path)
        self.path = source.origin.path if local is None else str(Path(local).absolute())
        self._names = NewNames(self.path, self.origin.order)
        #: The prefix that saved paths leave out.
        self._base = f"{self.path}/" if source.origin.label else ""
        # Rows timed by arrival are in order across files, too.
        lifetime = source.lifetime
        by_arrival = isinstance(lifetime, Arrival) or (isinstance(lifetime, Changed) and lifetime.in_log_order)
        self.most = 1 if by_arrival else most
        self.seen = Trace(lambda rows: rows)
        #: Whether files are removed once they are read, and each has a later time than those before it: then their
        #: names need not be remembered.
        self.passing = False
        #: The number of files read; and since the last commit, the numbers of old, changed and missing files.
        self.read = 0
        self.news = {"old_files": 0, "changed_files": 0, "missing_files": 0}
        self._taken: dict[str, ListedFile] = {}
        #: The modification time of the newest of them.
        self._newest = NEG_INFINITY
        self._reported: set[ListedFile] = set()
        #: The batches of another query in which files are read, as `batches` says; None: all files are read.
        self.hold: Callable[[ListedFile], int | None] | None = None
        #: The files that were listed and are to be read; None before the first listing.
        self._waiting: list[ListedFile] | None = None

    def pending(self, most_bytes: int | None = None, *, thorough: bool = False) -> list[ListedFile]:
        """The files to read with the next batch: at most so many bytes, but at least one file; if held, all of a batch.

        `thorough` says that an empty answer must mean that there is no file to read. Otherwise a file on an object
        store may be found later, if its name comes before others.
        """
        listed = self._names.files()
        ready = self._ready(listed)
        if not ready and thorough and listed.after:
            ready = self._ready(self._names.files(whole=True))
        if self.hold is not None and ready:
            batches = [(self.hold(file), file) for file in ready]
            first = min(batch for batch, _ in batches if batch is not None)
            ready = [file for batch, file in batches if batch == first]
            if first != _UNKNOWN:
                return ready
        ready = ready if self.most is None else ready[: self.most]
        if most_bytes is None or sum(file.size for file in ready) <= most_bytes:
            return ready
        ends = np.cumsum([file.size for file in ready])
        return ready[: max(1, int(np.searchsorted(ends, most_bytes, "right")))]

    def _ready(self, listed: Listed) -> list[ListedFile]:
        """All files that are to be read, in order: those of a listing, and those that wait and are not in it."""
        if not listed.after and len(self._reported) > 2 * len(listed.files) + 1000:  # forget files that no longer exist
            self._reported.intersection_update(listed.files)
        # Most programs create a file before they write to it, so a file without a byte is not read yet.
        fresh = [file for file in listed.files if file.size and file.path not in self._taken]
        fresh = fresh if self.hold is None else [file for file in fresh if self.hold(file) is not None]
        self._refuse_merged(fresh)
        known = {file.path for file in self._waiting or ()}
        self._names.learn(listed, (f.path for f in fresh if f.path not in known and f not in self._reported))
        self._report_changed(listed.files)
        self._report_gone(listed)
        late = [file for file in fresh if file.modified <= self.seen.floor]
        self._report("old_files", late, "is too old to be read: it is older than the horizon")
        ready = [file for file in fresh if file.modified > self.seen.floor]
        if listed.after:
            waiting = [f for f in self._waiting or () if not listed.covers(f.path) and f.path not in self._taken]
            ready = in_order([*waiting, *ready], self.origin.order) if waiting else ready
        self._waiting = ready
        return ready

    def _refuse_merged(self, fresh: Sequence[ListedFile]) -> None:
        """Merged batches of a sink have rows that were read already, under other names."""
        if self.read and (merged := [file.path for file in fresh if is_merged(file.path)]):
            raise SourceError(
                f"{merged[0]!r} has rows of several files, some of which were read before: its directory is compacted",
                given=str(self.origin), allowed="directories whose files stay as they are",
                instead="hr.files(...) without compact=, or hr.delta_lake(..., compact=100) and hr.read_delta",
            )  # fmt: skip

    @property
    def waiting(self) -> int:
        """The number of files that were listed and wait."""
        return sum(file.path not in self._taken for file in self._waiting or ())

    def _report_changed(self, listed: Sequence[ListedFile]) -> None:
        changed = [file for file in listed if file.path in self._taken and self._differs(file)]
        self._report("changed_files", changed, "changed after it was read: it is not read again")

    def _differs(self, file: ListedFile) -> bool:
        """Whether a file has changed; files in the checkpoint itself may have been copied since."""
        known = self._taken[file.path]
        return file.size != known.size if self._base else file != known

    def _report_gone(self, listed: Listed) -> None:
        """Report files that disappeared before they were read."""
        there = {file.path for file in listed.files}
        waiting = [file for file in self._waiting or () if file.path not in self._taken]
        gone = [file for file in waiting if file.path not in there and listed.covers(file.path)]
        self._report("missing_files", gone, "was removed before it was read")

    def _report(self, counter: str, files: Sequence[ListedFile], what: str) -> None:
        for file in files:
            if file not in self._reported:
                self._reported.add(file)
                self.news[counter] += 1
                _log.warning("%s: the file %r %s", self.origin, file.path, what)

    def has_read(self, file: ListedFile) -> bool:
        """Whether a file was read; those that were forgotten are known by their time."""
        return file.path in self._taken or file.modified <= self.seen.floor

    def altered(self, other: FilePositions) -> list[str]:
        """The paths of files that are not the same where another one has read them."""
        return [path for path, file in other._taken.items() if path in self._taken and self._differs(file)]

    def batches(self) -> Callable[[ListedFile], int | None]:
        """Which batch has read a file: None if it was not read, `_UNKNOWN` if that is not known."""
        rows = self.seen.scan("path", "batch")
        known = {} if rows is None else {self._placed(row["path"]): row["batch"] for row in rows.to_pylist()}
        return lambda file: known.get(file.path, _UNKNOWN) if self.has_read(file) else None

    def take(self, files: Sequence[ListedFile], batch: int = _UNKNOWN) -> None:
        """Record that these files have been read with a batch; if held, with that of the other query."""
        if not files:
            return
        names = [file.path.removeprefix(self._base) for file in files]
        paths = pa.table({"path": names, "size": pa.array([f.size for f in files], pa.int64())})
        times = np.array([file.modified for file in files], np.int64)
        batches = pa.array([batch if self.hold is None else self.hold(file) for file in files], pa.int64())
        rows = paths.append_column("modified", pa.array(times)).append_column("batch", batches.fill_null(_UNKNOWN))
        self.seen.append(rows, hash_rows(paths.select(["path"])), times)
        self._taken |= {file.path: file for file in files}
        self._newest = max(self._newest, int(times.max()))
        self.read += len(files)
        self._forget()
        self._merge()

    def _forget(self) -> None:
        if self._waiting is None:  # an earlier driver made the plan: other files are not known yet
            return
        waiting = [file.modified - 1 for file in self._waiting if file.path not in self._taken]
        horizon = self._newest if self.passing else min(self._newest, self._clock()) - HORIZON
        floor = min([horizon, *waiting])
        if floor > self.seen.floor:
            gone = [file for file in self._taken.values() if file.modified <= floor]
            self._reported.update(gone)  # they were read, and still exist
            self._taken = {path: file for path, file in self._taken.items() if file.modified > floor}
            self.seen.drop(floor)

    def _merge(self) -> None:
        """Merge names at once where that costs little: each segment takes room in every commit."""
        if len(self.seen.segments) > _MANY_SEGMENTS and self.seen.rows <= _FEW_NAMES:
            rows = self.seen.scan()
            assert rows is not None
            self._replace(rows)

    def _replace(self, rows: pa.Table) -> None:
        self.seen.replace(rows, hash_rows(rows.select(["path"])), to_numpy(rows["modified"]))

    @property
    def newest(self) -> int:
        """The modification time of the newest file that was read, in nanoseconds."""
        return max(self._newest, self.seen.floor)

    def _placed(self, name: str) -> str:
        """The path of a file from its saved name."""
        return name if name.startswith("/") or "://" in name else self._base + name

    def saved(self) -> dict[str, Any]:
        """Everything but the rows of the segments, as JSON values."""
        return {"scalars": {"read": self.read}, "traces": {"seen": self.seen.saved()}}

    def restore(self, saved: Mapping[str, Any], held: Mapping[str, Segment]) -> None:
        """Restore a saved value, with its segments."""
        self.read = int(saved["scalars"]["read"])
        self.seen.restore(saved["traces"]["seen"], held)
        rows = self.seen.scan()
        if rows is not None and "batch" not in rows.column_names:  # by an earlier Headrace
            rows = rows.append_column("batch", pa.array(np.full(len(rows), _UNKNOWN)))
            self._replace(rows)
        rows_read = rows.to_pylist() if rows is not None else []
        files = [ListedFile(row["modified"], self._placed(row["path"]), row["size"]) for row in rows_read]
        self._taken = {file.path: file for file in files}
        self._newest = max((file.modified for file in self._taken.values()), default=NEG_INFINITY)
        if self.seen.floor > NEG_INFINITY:  # forgotten files may still exist; new old files cannot be distinguished
            self._reported.update(f for f in listing(self.path) if f.modified <= self.seen.floor)
