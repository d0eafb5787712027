"""Clean-up: removes files that no kept commit names, while readers use older commits.

The driver keeps the newest commits, and those that readers have pinned. First it announces which commits it will remove
(`floors/<batch>`), then it looks for pins, then it removes. A reader pins first and then looks at the floor: if its
commit is below, it takes a newer one. So of a concurrent reader and driver, one sees the other.

Files of batches up to the last commit that no kept commit names are removed. The driver does this only after its own
commit: from then on, no other driver can commit any of those batches (see the package's docstring).

A query that is *recorded* keeps its commits for some time, which may be many. Reading all of them would take long, and
is not needed: a commit names files of its own batch, and files that the commit before it names. So of the files that
are older than all kept commits, those are needed that the oldest of them names; and a file of the time between is
named by the commit of its own batch, or was left by an attempt that failed, and is removed with that commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.errors import StoreError
from headrace.failpoints import reach
from headrace.store.log import (
    COMMITS,
    DATA,
    FLOORS,
    PLANS,
    Commit,
    Log,
    epoch_of,
    has_ended,
    is_interim,
    number_of,
    process_mark,
)
from headrace.store.storage import Storage

__all__ = ["KEPT", "Cleaner", "pinned", "remove_dead_pins"]

#: The number of commits that are kept. At least two: while the driver's tasks read commit n - 1, an older driver may
#: still commit batch n and clean up. The others are for users and readers.
KEPT = 10
PINS = "pins"
#: After so many batches there is a clean-up; with many commits, which must be listed, after an eighth of them.
_EVERY, _SHARE = 4, 8


class Cleaner:
    """Bounds the number of files; each driver has one."""

    def __init__(self, log: Log, kept: int = KEPT) -> None:
        self._log, self._kept = log, kept
        #: For how long commits are kept besides, by the clock; and how many of those were removed so far.
        self.seconds: float | None = None
        self.removed = 0
        #: The files that each kept commit names, as far as it was read.
        self._named: dict[int, frozenset[str]] = {}
        self._cleaned, self._count = -1, 0

    @property
    def recording(self) -> dict[str, Any] | None:
        """What commits say of the recording: for how long batches are kept, and how many were removed; None: none."""
        return None if self.seconds is None else {"seconds": self.seconds, "removed": self.removed}

    def resume(self, last: Commit) -> None:
        """Go on with the recording that a commit describes."""
        found = last.record.get("recording") or {"seconds": None, "removed": 0}
        self.seconds, self.removed = found["seconds"], found["removed"]

    def is_due(self, last: Commit) -> bool:
        """Whether there should be a clean-up after this commit."""
        return last.batch % _EVERY == 0 and last.batch - self._cleaned >= self._count // _SHARE

    def clean_up(self, last: Commit) -> None:
        """Remove old commits, and the files up to `last` that no commit names any more.

        `last` is a commit of this driver, or the newest one while no driver runs.
        """
        reach("clean", last.batch)
        recent = last.batch - self._kept + 1
        floor = self._floor(last, recent)
        self._named[last.batch] = frozenset(last.files)
        self._remove_commits(floor)
        storage = self._log.storage
        for key in storage.keys(PLANS):
            if number_of(key) < floor:
                storage.remove(key)
        batches = self._log.batches()
        read = [batch for batch in batches if batch <= floor or batch >= recent]
        named = frozenset(last.files).union(*map(self._files, read))
        self._named = {batch: files for batch, files in self._named.items() if batch in read}
        for key in storage.keys(DATA):
            if key in named or number_of(key) > last.batch or epoch_of(key) > self._log.epoch:
                continue
            if not floor <= number_of(key) < recent or is_interim(key):
                storage.remove(key)
        self._cleaned, self._count = last.batch, len(batches)
        reach("cleaned", last.batch)

    def _floor(self, last: Commit, recent: int) -> int:
        """The number of the oldest commit to keep. One that is later than `last` was made while the clock was ahead,
        and is as old as the next one.
        """
        if self.seconds is None:
            return recent
        least, newest = self._log.floor(), last.record["time"]
        ahead: int | None = None
        for batch in [batch for batch in self._log.batches() if batch >= least]:
            made = newest if batch >= recent else self._log.read(batch).record["time"]
            if made > newest:
                ahead = batch if ahead is None else ahead
            elif made >= newest - self.seconds:
                return min(batch if ahead is None else ahead, recent)
            else:
                ahead = None
        return recent

    def _remove_commits(self, floor: int) -> None:
        storage = self._log.storage
        old = [batch for batch in self._log.batches() if batch < floor]
        if not old:
            return
        storage.create(f"{FLOORS}/{floor:012d}", b"")
        for key in storage.keys(FLOORS):
            if number_of(key) < floor:
                storage.remove(key)
        pins = {number_of(key) for key in storage.keys(PINS)}
        for batch in old:
            if batch not in pins:
                storage.remove(f"{COMMITS}/{batch:012d}")
                self._named.pop(batch, None)
                self.removed += self.seconds is not None

    def _files(self, batch: int) -> frozenset[str]:
        if batch not in self._named:
            try:
                self._named[batch] = frozenset(self._log.read(batch).files)
            except StoreError:
                if batch in self._log.batches():
                    raise
                return frozenset()  # another driver has removed it since it was listed
        return self._named[batch]


@contextmanager
def pinned(log: Log, batch: int | None = None) -> Iterator[Commit | None]:
    """A commit, by default the newest, pinned until the reader is done; None if there is none."""
    while True:
        batches = log.batches() if batch is None else [batch]
        if not batches:
            yield None
            return
        pin = f"{PINS}/{batches[-1]:012d}-{uuid.uuid4().hex}"
        log.storage.create(pin, process_mark())
        try:
            commit = _read_pinned(log, batches[-1])
            if commit is not None or batch is not None:
                yield commit
                return
        finally:
            log.storage.remove(pin)


def remove_dead_pins(storage: Storage) -> tuple[list[str], list[str]]:
    """Remove the pins of readers that have ended; return these, and the others.

    Pins of readers on other machines stay, because their end cannot be seen here.
    """
    removed: list[str] = []
    left: list[str] = []
    for key in storage.keys(PINS):
        try:
            mark = storage.read(key).to_pybytes()
        except FileNotFoundError:  # its reader is done
            continue
        ended = has_ended(mark)
        (removed if ended else left).append(key)
        if ended:
            storage.remove(key)
    return removed, left


def _read_pinned(log: Log, batch: int) -> Commit | None:
    """A pinned commit; None if it is being removed."""
    if batch < log.floor():
        return None
    try:
        return log.read(batch)
    except StoreError:
        if batch < log.floor():
            return None
        raise
