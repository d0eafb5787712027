"""Epochs, plans and commits: who drives a query, what a batch reads, and what it made.

The protocol and why it is safe stand in the package's docstring.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.errors import CheckpointError, StoreError, Superseded
from headrace.store.bundle import Bundle, pack_bundle
from headrace.store.storage import Storage

__all__ = ["COMMITS", "EPOCHS", "FLOORS", "PLANS", "Commit", "Log", "number_of"]

EPOCHS, PLANS, COMMITS, FLOORS = "epochs", "plans", "commits", "floors"


@dataclass(frozen=True, eq=False)
class Commit:
    """What a batch made: a record that JSON can hold, and the small blocks that live in the commit itself.

    `files` has the length and checksum of every file it names, `blocks` the file of every block that is in one.
    """

    batch: int
    epoch: int
    record: Mapping[str, Any]
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    blocks: Mapping[str, str] = field(default_factory=dict)
    inline: Mapping[str, bytes | pa.Buffer] = field(default_factory=dict)

    def packed(self) -> pa.Buffer:
        """The commit as a file."""
        meta = {"batch": self.batch, "epoch": self.epoch, "record": self.record}
        return pack_bundle(self.inline, {**meta, "files": self.files, "blocks": self.blocks})

    @classmethod
    def unpacked(cls, key: str, data: pa.Buffer) -> Commit:
        """The commit that a file holds."""
        bundle = Bundle.open(key, data)
        meta = bundle.meta
        if meta.get("batch") != number_of(key):
            raise StoreError(f"the file {key!r} holds the commit of another batch", given=meta.get("batch"))
        inline = {name: bundle.block(name) for name in bundle.blocks}
        return cls(meta["batch"], meta["epoch"], meta["record"], meta["files"], meta["blocks"], inline)


class Log:
    """The history of a query, as its driver sees it."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        #: The epoch that this driver has claimed; 0 before.
        self.epoch = 0

    # --- epochs ------------------------------------------------------------------------------------------------------

    def claim(self) -> int:
        """Take over the query: every driver before this one stops when it tries to commit."""
        about = json.dumps({"host": socket.gethostname(), "process": os.getpid()}).encode()
        epoch = self._newest_epoch() + 1
        while not self.storage.create(f"{EPOCHS}/{epoch:08d}", about):
            epoch += 1
        self.epoch = epoch
        for key in self.storage.keys(EPOCHS):
            if number_of(key) < epoch:
                self.storage.remove(key)
        return epoch

    def check_owner(self) -> None:
        """`Superseded` if another driver has taken over."""
        newest = self._newest_epoch()
        if newest != self.epoch:
            raise Superseded(
                f"another process has started the query in {self.storage.place!r}: it goes on there, and ends here",
                given=f"epoch {newest}, this one is {self.epoch}",
                instead="one start at a time for a checkpoint",
            )

    def _newest_epoch(self) -> int:
        return max(map(number_of, self.storage.keys(EPOCHS)), default=0)

    # --- plans and commits -------------------------------------------------------------------------------------------

    def plan(self, batch: int, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Fix what a batch reads: this, or what an earlier attempt at the batch has fixed."""
        key = f"{PLANS}/{batch:012d}"
        self.storage.create(key, pack_bundle({}, {"batch": batch, "plan": plan}))
        return self._plan(key)

    def planned(self, batch: int) -> dict[str, Any] | None:
        """What an earlier attempt has fixed, if there was one."""
        try:
            return self._plan(f"{PLANS}/{batch:012d}")
        except FileNotFoundError:
            return None

    def _plan(self, key: str) -> dict[str, Any]:
        return dict(Bundle.open(key, self.storage.read(key)).meta["plan"])

    def commit(self, commit: Commit) -> bool:
        """Make a batch exist; false if it does already, by another driver."""
        self.check_owner()
        return self.storage.create(f"{COMMITS}/{commit.batch:012d}", commit.packed())

    def read(self, batch: int) -> Commit:
        """The commit of a batch; `StoreError` if it is not there."""
        key = f"{COMMITS}/{batch:012d}"
        try:
            return Commit.unpacked(key, self.storage.read(key))
        except FileNotFoundError as error:
            raise StoreError(f"the commit of batch {batch} is missing", given=f"{self.storage.place}/{key}") from error

    def batches(self) -> list[int]:
        """The batches whose commits are kept, in order."""
        return [number_of(key) for key in self.storage.keys(COMMITS)]

    def floor(self) -> int:
        """Commits before this batch are removed, or are about to be."""
        return max(map(number_of, self.storage.keys(FLOORS)), default=0)

    def last(self) -> Commit | None:
        """The newest commit, after a check that none is missing before or behind it."""
        floor = self.floor()
        found = [batch for batch in self.batches() if batch >= floor]  # those before are pinned by readers
        newest = found[-1] if found else -1
        if found != list(range(floor, newest + 1)):
            lost = sorted(set(range(floor, max(newest, floor) + 1)) - set(found))
            raise self._gap(f"those of the batches {_listed(lost)} are missing")
        planned = max(map(number_of, self.storage.keys(PLANS)), default=-1)
        if planned > newest + 1:
            raise self._gap(f"batch {planned} was planned, and the last commit is that of batch {newest}")
        return self.read(newest) if found else None

    def _gap(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint lacks commits: {what}",
            given=self.storage.place,
            instead="a copy of the checkpoint, or a new checkpoint with new sinks, which reads all input again",
        )


def number_of(key: str) -> int:
    """The epoch or batch that the name of a file begins with.

    >>> number_of("commits/000000000012"), number_of("data/000000000012-00000003-1-0-5f")
    (12, 12)
    """
    return int(key.rpartition("/")[2].partition("-")[0])


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5} more"
