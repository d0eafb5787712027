"""The directory of a checkpoint, opened without its query."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError
from headrace.host.driving.checkpoint import FORMAT, Checkpoint, read_about
from headrace.io.files import local_path
from headrace.store.cleanup import pinned
from headrace.store.log import EPOCHS, Commit, Log, has_ended
from headrace.store.storage import LocalStorage

__all__ = ["Folder", "directory"]


class Folder:
    """A checkpoint that exists: its description and its store."""

    def __init__(self, path: str | Path) -> None:
        self.path = directory(path)
        if not (self.path / "headrace.json").exists():
            raise CheckpointError(
                "there is no checkpoint at this path",
                given=str(path),
                allowed="a directory that was given to start(..., checkpoint=...), with its headrace.json",
            )
        self.storage = LocalStorage(self.path / "store")
        self.log = Log(self.storage)

    def about(self) -> dict[str, Any]:
        """What headrace.json says; `CheckpointError` if this version cannot read the checkpoint."""
        about = read_about(LocalStorage(self.path)) or {}
        if about.get("format") != FORMAT:
            raise CheckpointError(
                "the checkpoint was written by another version of Headrace",
                given=f"{self.path}: format {about.get('format')}", allowed=f"format {FORMAT}",
            )  # fmt: skip
        return about

    @contextmanager
    def last(self) -> Iterator[Commit]:
        """The newest commit, kept while it is read; `CheckpointError` if there is none."""
        with pinned(self.log) as commit:
            if commit is None:
                raise CheckpointError(
                    "the query of this checkpoint has not committed a batch yet", given=str(self.path)
                )
            yield commit

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the checkpoint as a running query does; false if one runs."""
        place = Checkpoint(str(self.path))
        try:
            place.lock()
        except CheckpointError as error:
            if error.__cause__ is not None:  # the lock itself cannot be written
                raise
            yield False
            return
        try:
            yield True
        finally:
            place.close()

    @contextmanager
    def locked(self, doing: str) -> Iterator[None]:
        """The same; `CheckpointError` if a query runs."""
        with self.held() as free:
            if not free:
                raise CheckpointError(
                    f"a running query uses this checkpoint: {doing} must wait until it is stopped",
                    given=str(self.path),
                    instead="stop() the query first",
                )
            yield

    def driver(self) -> dict[str, Any]:
        """The machine and the process that started the query last, and whether it is known to have ended."""
        for key in reversed(self.storage.keys(EPOCHS)):
            with suppress(FileNotFoundError):  # a newer driver has just removed it
                mark = self.storage.read(key).to_pybytes()
                about = json.loads(mark)
                return {"host": about["host"], "process": about["process"], "ended": has_ended(mark)}
        return {}


def directory(path: str | Path) -> Path:
    """A path; `CheckpointError` if it is on an object store: there is no lock that says whether a query runs."""
    local = local_path(str(path))
    if local is None:
        raise CheckpointError(
            "checkpoints on object stores cannot be shown, checked, copied, rescaled or tidied up",
            given=str(path),
            allowed="a directory",
            instead="a checkpoint in a directory; elsewhere query.progress() says how far the query came",
        )
    return Path(local).absolute()
