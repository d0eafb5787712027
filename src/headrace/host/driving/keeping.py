"""Retention: what a running query removes besides its state (`store/cleanup.py`), and when.

- Old batches of outputs of files: of the user's own only if the sink says so (`hr.files(..., keep="90 days")`), of
  diverted rows after `retention={"diverted": ...}`. The newest batch stays: a start may have to publish it again.
- Files of a *spool*, which a receiver writes and the query reads: once a committed batch has read them. A restart, a
  repeated batch and a recording do not need them any more: a plan names only files that are not read yet, and
  recordings have the rows themselves. In the checkpoint they are removed at once; a directory that the user has named
  (`read_host(..., spool=...)`) keeps them, unless `retention={"spool": ...}` says otherwise.

What is removed is logged, and counted in the report of the batch and in the commit. If removing fails, the query goes
on, and tries again later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError, PlanError, nearest
from headrace.host.driving.positions import FilePositions
from headrace.io.files import ListedFile, listing
from headrace.io.keep import Keep, KeepLike, shown_bytes
from headrace.io.object_batches import batches_at
from headrace.io.sinks import FileSink, Sink

__all__ = ["DIVERTED_DAYS", "KeptInput", "OutputKeeper", "RetentionLike", "SpoolKeeper"]

#: How long diverted rows are kept by default.
DIVERTED_DAYS = 30
RetentionLike = Mapping[str, KeepLike | None]
#: The longest time between two looks at the same output, in seconds; and the part of the age that is kept.
_EVERY, _PART = 60.0, 8
_DIVERTED, _AT_ONCE = Keep(seconds=DIVERTED_DAYS * 86_400.0), Keep(seconds=0.0)
_log = logging.getLogger("headrace")


@dataclass(frozen=True)
class KeptInput:
    """What is kept of diverted rows, of spools in the checkpoint, and of spools elsewhere; None: everything."""

    diverted: Keep | None = _DIVERTED
    own_spool: Keep | None = _AT_ONCE
    spool: Keep | None = None

    @classmethod
    def of(cls, given: RetentionLike | None) -> KeptInput:
        """From the option of a start: `{"diverted": "90 days", "spool": "1 GB"}`; None keeps everything."""
        if given is not None and not isinstance(given, Mapping):
            raise PlanError("retention is a dictionary", given=given, instead="retention={'diverted': '30 days'}")
        for name in given or {}:
            if name not in _KINDS:
                close = nearest(str(name), _KINDS)
                raise PlanError(
                    "there is no retention of this name", given=name,
                    allowed=f"{', '.join(_KINDS)}; of a sink: hr.files(..., keep='90 days'); of batches: record='1 h'",
                    instead=f"retention={{{close!r}: '30 days'}}" if close else "",
                )  # fmt: skip
        kept = {name: None if value is None else Keep.of(value) for name, value in (given or {}).items()}
        if "spool" in kept:
            kept["own_spool"] = kept["spool"]
        return cls(**kept)


_KINDS = ("diverted", "spool")


class OutputKeeper:
    """Removes old batches of a query's outputs."""

    def __init__(self, sinks: Sequence[Sink], clock: Callable[[], float] = time.time) -> None:
        self._sinks = [sink for sink in sinks if isinstance(sink, FileSink) and sink.keep is not None]
        self._clock, self._next = clock, 0.0
        #: What was removed from each output so far.
        self.removed: dict[str, dict[str, int]] = {}

    def entry(self, sink: FileSink) -> dict[str, Any]:
        """What a commit says of an output's retention."""
        if sink.keep is None:
            return {}
        return {"keep": sink.keep.to_json(), "removed": self.removed.get(sink.path, _NOTHING)}

    def look(self, newest: int) -> None:
        """Remove what need not be kept any more, if it is time for that; `newest` is the last published batch."""
        now = self._clock()
        if not self._sinks or _is_early(now, self._next):
            return
        self._next = now + min(_pause(sink.keep) for sink in self._sinks if sink.keep is not None)
        for sink in self._sinks:
            assert sink.keep is not None
            try:
                place = batches_at(sink.path)
                gone, total = place.expire(sink.keep, now, newest=newest), place.removed()
            except HeadraceError as error:
                _log.warning("old batches of %r stay for now: %s", sink.path, error.message)
                continue
            self.removed[sink.path] = {"batches": total.batches, "files": total.files, "bytes": total.bytes}
            if gone.batches:
                _log.info("%s: %d batches with %d files and %s were removed, kept are %s",
                          sink.path, gone.batches, gone.files, shown_bytes(gone.bytes), sink.keep)  # fmt: skip


_NOTHING = {"batches": 0, "files": 0, "bytes": 0}


def _is_early(now: float, following: float) -> bool:
    """Whether the next look is still to come; one that is far away was set before the clock jumped back."""
    return now < following <= now + _EVERY


def _pause(keep: Keep) -> float:
    return _EVERY if keep.seconds is None else min(_EVERY, max(1.0, keep.seconds / _PART))


@dataclass(eq=False)
class SpoolKeeper:
    """Removes files of spools that committed batches have read."""

    #: By directory: what is kept of the files that were read, and the positions of all sources that read them.
    spools: Mapping[str, tuple[Keep, Sequence[FilePositions]]] = field(default_factory=dict)
    clock: Callable[[], float] = time.time
    #: The files and bytes that this process has removed, by directory.
    removed: dict[str, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._next = dict.fromkeys(self.spools, 0.0)

    def forget(self, paths: Iterable[str]) -> None:
        """Remove files that need not be kept, after a batch that has read these."""
        read = {str(Path(path).parent) for path in paths}
        now = self.clock()
        for folder, (keep, positions) in self.spools.items():
            if _is_early(now, self._next[folder]) and not (folder in read and keep.seconds == 0):
                continue
            self._next[folder] = now + _pause(keep)
            try:
                done = [file for file in listing(folder) if all(one.has_read(file) for one in positions)]
                self._remove(folder, done[: keep.removable([*map(_about, done), (now, 0)], now)])
            except (HeadraceError, OSError) as error:
                _log.warning("files of the spool %r stay for now: %s", folder, error)

    def _remove(self, folder: str, files: Sequence[ListedFile]) -> None:
        for file in files:
            Path(file.path).unlink(missing_ok=True)
        total = self.removed.setdefault(folder, {"files": 0, "bytes": 0})
        total["files"] += len(files)
        total["bytes"] += sum(file.size for file in files)


def _about(file: ListedFile) -> tuple[float, int]:
    return file.modified / 1e9, file.size
