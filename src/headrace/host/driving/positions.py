"""How far a source of files has come: which files were read.

Files that were read are a trace, in the commit like all state: their paths, and when they were modified. A file may
appear late with an older time, or with a name before those that were read; it is still read, as long as it was modified
less than the *horizon* before the newest file that was read. That holds for both orders of reading: what waits for its
turn holds the horizon back. Older files are not read, and reported once; older entries of the trace are forgotten, so
that it does not grow for ever. A file that changes after it was read is not read again, and reported.

Where the place of the files is an accident, because they are the checkpoint's own, their paths are kept relative to it:
so a checkpoint may be moved or copied, which may also give them other times.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.columnar import hash_rows
from headrace.io.files import ListedFile, listing, local_path
from headrace.io.origins import Files
from headrace.plan.nodes import Source
from headrace.plan.policies import Arrival
from headrace.time import NEG_INFINITY
from headrace.trace import Segment, Trace

__all__ = ["HORIZON", "FilePositions"]

#: A file modified longer before the newest one that was read is not read any more: seven days, in nanoseconds.
HORIZON = 7 * 24 * 3600 * 10**9
_log = logging.getLogger("headrace")


class FilePositions:
    """The files of one source: those that were read, and those that are next."""

    def __init__(self, source: Source, most: int | None = None) -> None:
        assert isinstance(source.origin, Files)
        self.source, self.origin = source, source.origin
        # Tasks run elsewhere: where a relative path begins is known only here.
        local = local_path(source.origin.path)
        self.path = source.origin.path if local is None else str(Path(local).absolute())
        #: What is left out of the paths that are kept.
        self._base = f"{self.path}/" if source.origin.label else ""
        # Rows that arrive one after the other do so across files, too.
        self.most = 1 if isinstance(source.lifetime, Arrival) else most
        self.seen = Trace(lambda rows: rows)
        #: How many files were read; and since the last commit, how many were found too old, changed, or gone.
        self.read = 0
        self.news = {"old_files": 0, "changed_files": 0, "missing_files": 0}
        self._taken: dict[str, ListedFile] = {}
        #: When the newest of them was modified.
        self._newest = NEG_INFINITY
        self._reported: set[ListedFile] = set()
        #: The files that the latest listing found to be read; None before the first.
        self._waiting: list[ListedFile] | None = None

    def pending(self) -> list[ListedFile]:
        """The files to read with the next batch."""
        found = listing(self.path, self.origin.order)
        if len(self._reported) > 2 * len(found) + 1000:  # those that are not there any more need no remembering
            self._reported.intersection_update(found)
        fresh = [file for file in found if file.path not in self._taken]
        self._report_changed(found)
        self._report_gone(found)
        late = [file for file in fresh if file.modified <= self.seen.floor]
        self._report("old_files", late, "is too old to be read: it is older than the horizon")
        ready = [file for file in fresh if file.modified > self.seen.floor]
        self._waiting = ready
        return ready if self.most is None else ready[: self.most]

    def _report_changed(self, found: Sequence[ListedFile]) -> None:
        changed = [file for file in found if file.path in self._taken and self._differs(file)]
        self._report("changed_files", changed, "changed after it was read: it is not read again")

    def _differs(self, file: ListedFile) -> bool:
        """Whether a file is another than it was; those of the checkpoint itself may have been copied since."""
        known = self._taken[file.path]
        return file.size != known.size if self._base else file != known

    def _report_gone(self, found: Sequence[ListedFile]) -> None:
        """Files that were to be read, and are not there any more."""
        there = {file.path for file in found}
        gone = [file for file in self._waiting or () if file.path not in there and file.path not in self._taken]
        self._report("missing_files", gone, "was removed before it was read")

    def _report(self, counter: str, files: Sequence[ListedFile], what: str) -> None:
        for file in files:
            if file not in self._reported:
                self._reported.add(file)
                self.news[counter] += 1
                _log.warning("%s: the file %r %s", self.origin, file.path, what)

    def take(self, files: Sequence[ListedFile]) -> None:
        """These files have been read."""
        if not files:
            return
        names = [file.path.removeprefix(self._base) for file in files]
        paths = pa.table({"path": names, "size": pa.array([f.size for f in files], pa.int64())})
        times = np.array([file.modified for file in files], np.int64)
        self.seen.append(paths.append_column("modified", pa.array(times)), hash_rows(paths.select(["path"])), times)
        self._taken |= {file.path: file for file in files}
        self._newest = max(self._newest, int(times.max()))
        self.read += len(files)
        self._forget()

    def _forget(self) -> None:
        if self._waiting is None:  # the plan is an earlier driver's: what else is there is not known yet
            return
        waiting = [file.modified - 1 for file in self._waiting if file.path not in self._taken]
        floor = min([self._newest - HORIZON, *waiting])
        if floor > self.seen.floor:
            gone = [file for file in self._taken.values() if file.modified <= floor]
            self._reported.update(gone)  # they are read, and still there
            self._taken = {path: file for path, file in self._taken.items() if file.modified > floor}
            self.seen.drop(floor)

    def _placed(self, name: str) -> str:
        """The path of a file that was kept under this name."""
        return name if name.startswith("/") or "://" in name else self._base + name

    def saved(self) -> dict[str, Any]:
        """Everything but the rows of the segments, as JSON can hold it."""
        return {"scalars": {"read": self.read}, "traces": {"seen": self.seen.saved()}}

    def restore(self, saved: Mapping[str, Any], held: Mapping[str, Segment]) -> None:
        """Become what was saved, given its segments."""
        self.read = int(saved["scalars"]["read"])
        self.seen.restore(saved["traces"]["seen"], held)
        rows = self.seen.scan()
        found = rows.to_pylist() if rows is not None else []
        files = [ListedFile(row["modified"], self._placed(row["path"]), row["size"]) for row in found]
        self._taken = {file.path: file for file in files}
        self._newest = max((file.modified for file in self._taken.values()), default=NEG_INFINITY)
        if self.seen.floor > NEG_INFINITY:  # what was forgotten may still be there; what is new since cannot be told
            self._reported.update(f for f in listing(self.path) if f.modified <= self.seen.floor)
