"""Epochs, plans and commits: the driver of a query, the input of a batch, and its results.

The package's docstring describes the protocol and why it is safe.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import pyarrow as pa

from headrace.errors import CheckpointError, StoreError, Superseded
from headrace.failpoints import reach
from headrace.pieces import Pieces
from headrace.store.bundle import Bundle, pack_bundle
from headrace.store.storage import Storage
from headrace.version import VERSION

__all__ = [
    "COMMITS",
    "DATA",
    "EPOCHS",
    "FLOORS",
    "PLANS",
    "Commit",
    "Log",
    "epoch_of",
    "has_ended",
    "is_interim",
    "number_of",
    "process_mark",
]

EPOCHS, PLANS, DATA, COMMITS, FLOORS = "epochs", "plans", "data", "commits", "floors"


@dataclass(frozen=True, eq=False)
class Commit:
    """The results of a batch: a record of JSON values, and the small blocks that are in the commit itself.

    `files` has the length and checksum of every file that it names, `blocks` the file of every block in a file.
    """

    batch: int
    epoch: int
    record: Mapping[str, Any]
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    blocks: Mapping[str, str] = field(default_factory=dict)
    inline: Mapping[str, bytes | pa.Buffer] = field(default_factory=dict)

    def packed(self) -> Pieces:
        """The commit as a file."""
        meta = {"batch": self.batch, "epoch": self.epoch, "record": self.record}
        return pack_bundle(self.inline, {**meta, "files": self.files, "blocks": self.blocks}).data

    @classmethod
    def unpacked(cls, key: str, data: pa.Buffer) -> Commit:
        """The commit in a file."""
        bundle = Bundle.open(key, data)
        meta = bundle.meta
        if meta.get("batch") != number_of(key):
            raise StoreError(f"the file {key!r} holds the commit of another batch", given=meta.get("batch"))
        inline = {name: bundle.block(name) for name in bundle.blocks}
        return cls(meta["batch"], meta["epoch"], meta["record"], meta["files"], meta["blocks"], inline)


class Log:
    """The epochs, plans and commits of a query."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        #: The epoch that this driver has claimed; 0 before.
        self.epoch = 0

    # --- epochs ------------------------------------------------------------------------------------------------------

    def claim(self) -> int:
        """Take over the query: every earlier driver stops when it tries to commit."""
        # Names of data files contain epochs, too: a number is not used again even if `epochs/` is lost.
        epoch = max([self._newest_epoch(), *map(epoch_of, self.storage.keys(DATA))]) + 1
        while not self.storage.create(f"{EPOCHS}/{epoch:08d}", process_mark()):
            epoch += 1
        self.epoch = epoch
        for key in self.storage.keys(EPOCHS):
            if number_of(key) < epoch:
                self.storage.remove(key)
        self.storage.remove_drafts()
        return epoch

    def release(self) -> None:
        """Record that this driver has ended, for users who inspect the checkpoint; safety does not depend on it."""
        if self.epoch:
            self.storage.create(f"{EPOCHS}/{self.epoch:08d}-ended", process_mark(ended=True), lasting=False)

    def check_owner(self) -> None:
        """`Superseded` if another driver has taken over."""
        newest = self._newest_epoch()
        if newest != self.epoch:
            raise self._superseded(f"epoch {newest}, this one is {self.epoch}")

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Raise `Superseded` for failures after another driver has taken over."""
        try:
            yield
        except Exception:
            with suppress(StoreError):
                self.check_owner()
            raise

    def _superseded(self, given: str) -> Superseded:
        return Superseded(
            f"another process has started the query in {self.storage.place!r}: it continues there, and ends here",
            given=given,
            instead="one start at a time for a checkpoint",
        )

    def _newest_epoch(self) -> int:
        return max(map(number_of, self.storage.keys(EPOCHS)), default=0)

    # --- plans and commits -------------------------------------------------------------------------------------------

    def plan(self, batch: int, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Fix the plan of a batch: this one, or that of an earlier attempt at the batch.

        A plan whose content was lost with the power stays, and the next one gets another name. If it were removed, a
        slow driver could remove the plan that a newer one has written in its place, and whose tasks read it.
        """
        reach("plan", batch)
        packed = pack_bundle({}, {"batch": batch, "plan": plan}).data
        keys = _plan_keys(batch)
        while True:
            key = next(keys)
            self.storage.create(key, packed, lasting=False)
            try:
                stored = self._plan_in(key, batch)
            except FileNotFoundError as error:  # the batch was committed and cleaned up since, by another driver
                self.check_owner()
                place = f"{self.storage.place}/{key}"
                raise StoreError(f"the plan of batch {batch} is missing", given=place) from error
            if stored is not None:
                reach("planned", batch)
                return stored

    def planned(self, batch: int) -> dict[str, Any] | None:
        """The plan of an earlier attempt, if there is one."""
        with suppress(FileNotFoundError):
            return next(found for key in _plan_keys(batch) if (found := self._plan_in(key, batch)) is not None)
        return None

    def _plan_in(self, key: str, batch: int) -> dict[str, Any] | None:
        """The plan in a file; None if the content was lost with the power."""
        data = self.storage.read(key)
        if not any(data.to_pybytes()):
            return None
        meta = Bundle.open(key, data).meta
        if meta.get("batch") != batch:
            raise StoreError(f"the file {key!r} holds the plan of another batch", given=meta.get("batch"))
        return dict(meta["plan"])

    def commit(self, commit: Commit) -> bool:
        """Commit a batch; False if an older driver has committed it. `Superseded` if there is a newer driver."""
        reach("commit", commit.batch)
        self.check_owner()
        created = self.storage.create(f"{COMMITS}/{commit.batch:012d}", commit.packed())
        if not created:
            self.check_owner()
        elif commit.batch < self.floor():
            # Newer drivers have committed this batch and many more, and have removed its commit: commits below the
            # floor do not exist, so neither does this one.
            raise self._superseded(f"batch {commit.batch} was committed and cleaned up by another")
        reach("committed", commit.batch)
        return created

    def read(self, batch: int) -> Commit:
        """The commit of a batch; `StoreError` if it is missing."""
        key = f"{COMMITS}/{batch:012d}"
        try:
            return Commit.unpacked(key, self.storage.read(key))
        except FileNotFoundError as error:
            raise StoreError(f"the commit of batch {batch} is missing", given=f"{self.storage.place}/{key}") from error

    # --- trips -------------------------------------------------------------------------------------------------------

    def note_trip(self, interim: Commit, trip: int) -> None:
        """Write the interim record of a trip, for the tasks of the next one; it is not a commit."""
        key = _trip_key(interim.batch, interim.epoch, trip)
        if not self.storage.create(key, interim.packed(), lasting=False):
            raise StoreError("the same driver ran a trip of a batch twice", given=f"{self.storage.place}/{key}")

    def after_trip(self, batch: int, epoch: int, trip: int) -> Commit:
        """The interim record of a trip of a driver's batch."""
        key = _trip_key(batch, epoch, trip)
        try:
            return Commit.unpacked(key, self.storage.read(key))
        except FileNotFoundError as error:
            place = f"{self.storage.place}/{key}"
            raise StoreError(f"the record of trip {trip} of batch {batch} is missing", given=place) from error

    # --- existing commits --------------------------------------------------------------------------------------------

    def batches(self) -> list[int]:
        """The batches whose commits are kept, in order."""
        return [number_of(key) for key in self.storage.keys(COMMITS)]

    def floor(self) -> int:
        """The batch before which commits are removed, or will be."""
        return max(map(number_of, self.storage.keys(FLOORS)), default=0)

    def last(self) -> Commit | None:
        """The newest commit, after a check that none is missing before or after it."""
        seen = self._look()
        while True:
            try:
                return self._newest(*seen)
            except CheckpointError:  # other drivers may run: a missing file counts only after a second look
                before, seen = seen, self._look()
                if seen == before:
                    raise

    def _newest(self, planned: int, found: list[int], floor: int) -> Commit | None:
        if gap := _gap(planned, found, floor):
            raise CheckpointError(
                f"the checkpoint lacks commits: {gap}",
                given=self.storage.place,
                instead="a copy of the checkpoint, or a new checkpoint with new sinks, which reads all input again",
            )
        return self.read(found[-1]) if found else None

    def _look(self) -> tuple[int, list[int], int]:
        """The newest plan, the commits that count, and the floor.

        In this order, because a driver commits before it plans the next batch, and moves the floor before it removes.
        """
        planned = max(map(number_of, self.storage.keys(PLANS)), default=-1)
        batches, floor = self.batches(), self.floor()
        return planned, [batch for batch in batches if batch >= floor], floor  # those before are pinned by readers


def _plan_keys(batch: int) -> Iterator[str]:
    """The possible names of a batch's plan: it is in the first of these files that has content."""
    key = f"{PLANS}/{batch:012d}"
    return chain([key], (f"{key}-{lost}" for lost in count(1)))


def process_mark(*, ended: bool = False) -> bytes:
    """A mark of the process that writes a file: the machine, the process, its Headrace, whether it has ended its work.

    The token makes each mark unique: a store compares contents if an answer was lost.
    """
    about = {"host": socket.gethostname(), "process": os.getpid(), "headrace": VERSION, "ended": ended}
    return json.dumps(about | {"token": uuid.uuid4().hex}).encode()


def has_ended(mark: bytes) -> bool:
    """Whether a process has ended its work: by its mark, or because it no longer exists; False if that is unknown."""
    try:
        about = json.loads(mark)
        if about.get("ended"):
            return True
        if about["host"] != socket.gethostname():
            return False
        os.kill(about["process"], 0)
    except ProcessLookupError:
        return True
    except (ValueError, KeyError, OSError):  # no mark, or a process of another user
        return False
    return False


def number_of(key: str) -> int:
    """The epoch or batch at the start of a file's name.

    >>> number_of("commits/000000000012"), number_of("data/000000000012-00000003-5f")
    (12, 12)
    """
    return _part(key, 0)


def epoch_of(key: str) -> int:
    """The epoch in the name of a file of data.

    >>> epoch_of("data/000000000012-00000003-5f")
    3
    """
    return _part(key, 1)


def _trip_key(batch: int, epoch: int, trip: int) -> str:
    """The name of a data file that no commit names: clean-up removes it with the others."""
    return f"{DATA}/{batch:012d}-{epoch:08d}-trip-{trip:06d}"


def is_interim(key: str) -> bool:
    """Whether a file of data is the record of a trip, which no commit names."""
    return "-trip-" in key


def _part(key: str, place: int) -> int:
    parts = key.rpartition("/")[2].split("-")
    if len(parts) <= place or not (parts[place].isascii() and parts[place].isdecimal()):
        raise StoreError(f"{key!r} is not a file of the store", given=key, instead="remove it from the checkpoint")
    return int(parts[place])


def _gap(planned: int, found: list[int], floor: int) -> str:
    """The missing commits, as text; empty if there are none."""
    newest = max(found, default=-1)
    expected = range(floor, max(newest, floor) + 1) if found or floor else range(0)
    lost = sorted(set(expected) - set(found))
    if lost:
        return f"those of the batches {_listed(lost)} are missing"
    if planned > newest + 1:
        return f"batch {planned} was planned, and the last commit is that of batch {newest}"
    return ""


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5} more"
