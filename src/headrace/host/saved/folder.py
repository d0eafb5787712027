"""The directory of a checkpoint, or its prefix on an object store, opened without its query."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError
from headrace.host.driving.checkpoint import Checkpoint, checked_place, read_about
from headrace.host.driving.versions import readable
from headrace.io.files import local_path
from headrace.store.cleanup import pinned
from headrace.store.log import EPOCHS, Commit, Log, has_ended
from headrace.store.objects import ObjectStorage
from headrace.store.storage import LocalStorage, Storage

__all__ = ["SavedCheckpoint", "storage_at"]


class SavedCheckpoint:
    """A checkpoint that exists: its description and its store."""

    def __init__(self, place: str | Path, *, keep: bool = False) -> None:
        """`keep`: files of a remote store are kept on this machine while they are used."""
        local = local_path(checked_place(place))
        #: None on an object store.
        self.path = None if local is None else Path(local).absolute()
        self.place = str(place).rstrip("/") if self.path is None else str(self.path)
        self.root, self.storage = storage_at(self.place), storage_at(f"{self.place}/store", keep=keep)
        self.log = Log(self.storage)
        if read_about(self.root) is None:
            raise CheckpointError(
                "there is no checkpoint at this path",
                given=str(place),
                allowed="a directory or URL that was given to start(..., checkpoint=...), with its headrace.json",
                instead=" or ".join(self._inside()),
            )

    def _inside(self) -> list[str]:
        """The checkpoints in a directory: `headrace run --checkpoint DIR` keeps that of a query in DIR/NAME."""
        return [] if self.path is None else sorted(str(about.parent) for about in self.path.glob("*/headrace.json"))

    def about(self) -> dict[str, Any]:
        """The content of headrace.json; `CheckpointError` if this version cannot read the checkpoint."""
        return readable(self.place, read_about(self.root) or {})

    @contextmanager
    def last(self) -> Iterator[Commit]:
        """The newest commit, pinned while it is read; `CheckpointError` if there is none."""
        with pinned(self.log) as commit:
            if commit is None:
                raise CheckpointError("the query of this checkpoint has not committed a batch yet", given=self.place)
            yield commit

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the checkpoint as a running query does; False if a query runs.

        On an object store there is no lock: False unless the last process that started the query is known to have ended
        it. Operations that change the checkpoint claim an epoch there, so a query that still runs stops.
        """
        place = None if self.path is None else Checkpoint(self.place)
        try:
            if place is not None:
                place.lock()
        except CheckpointError as error:
            if error.__cause__ is not None:  # the lock itself cannot be written
                raise
            yield False
            return
        try:
            yield place is not None or bool(self.driver().get("ended", True))
        finally:
            if place is not None:
                place.close()
            else:
                self.log.release()

    @contextmanager
    def locked(self, operation: str, *, take_over: bool = False) -> Iterator[None]:
        """`held`, or a `CheckpointError` if a query runs; `take_over` asserts that none runs, where that is unknown."""
        with self.held() as free:
            if not free and not (take_over and self.path is None):
                raise self._running(operation)
            yield

    def _running(self, operation: str) -> CheckpointError:
        if self.path is not None:
            return CheckpointError(
                f"a running query uses this checkpoint: {operation} must wait until it is stopped",
                given=self.place,
                instead="stop() the query first",
            )
        driver = self.driver()
        return CheckpointError(
            f"the query of this checkpoint may be running: {operation} must wait until it is stopped",
            given=f"{self.place}, started by process {driver['process']} of {driver['host']}, which has not ended it",
            instead="stop() the query first; if its process is gone, take over: take_over=True, --take-over",
        )

    def driver(self) -> dict[str, Any]:
        """The machine, process and Headrace of the last start, and whether the process is known to have ended."""
        for key in reversed(self.storage.keys(EPOCHS)):
            with suppress(FileNotFoundError):  # a newer driver has just removed it
                mark = self.storage.read(key).to_pybytes()
                about = json.loads(mark)
                driver = {"host": about["host"], "process": about["process"], "ended": has_ended(mark)}
                return driver | ({"headrace": about["headrace"]} if "headrace" in about else {})  # from 0.2.0 on
        return {}


def storage_at(place: str, *, keep: bool = False) -> Storage:
    """The files of a directory, or of a prefix on an object store."""
    local = local_path(place)
    return ObjectStorage(place, keep=keep) if local is None else LocalStorage(local)
