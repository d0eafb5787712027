"""The progress log: how far every source and output had come after each batch.

Lateness is decided where rows are read, before they are combined, so the intake must know the promises of the batches
before. The driver writes them after every batch, one small file named by the batch; a repeated batch reads the same
file as its first attempt did and so decides the same. Under Spark Connect workers do not know the batch's number but
do know its time, which is the same on every attempt: there the newest entry before that time is taken.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError
from headrace.io.commit import RESTORE
from headrace.progress import Progress

__all__ = ["ProgressLog"]

_KEPT = 20


class ProgressLog:
    """The files under `<checkpoint>/progress`."""

    def __init__(self, checkpoint: str) -> None:
        self._folder = Path(checkpoint, "progress")

    def write(self, batch_id: int, entry: dict[str, Any]) -> None:
        """Record a batch; the file appears whole or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        target = self._folder / f"{batch_id:012d}.json"
        draft = target.with_suffix(f".{os.getpid()}.tmp")
        with draft.open("w") as file:
            file.write(json.dumps(entry))
            file.flush()
            os.fsync(file.fileno())  # Spark's own log of the batch, which is written next, must not outlive it
        draft.replace(target)
        old = self._folder / f"{batch_id - _KEPT:012d}.json"
        old.unlink(missing_ok=True)

    def read(self, batch_id: int) -> dict[str, Any]:
        """The entry of a batch; empty before the first."""
        return self._entry(self._folder / f"{batch_id:012d}.json") if batch_id >= 0 else {}

    def _entry(self, path: Path) -> dict[str, Any]:
        try:
            entry: dict[str, Any] = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"the progress log has no entry for batch {int(path.stem)}: how far its sources were is not known",
                given=str(path),
                instead=RESTORE,
            ) from error
        return entry

    def last(self) -> tuple[int, dict[str, Any]]:
        """The newest entry and its batch; -1 if there is none."""
        names = self._names()
        return (int(names[-1].stem), self._entry(names[-1])) if names else (-1, {})

    def check_whole(self) -> None:
        """Raise `CheckpointError` if an entry is missing among those that are kept."""
        last, _ = self.last()
        for batch in range(max(0, last - _KEPT + 1), last):
            self.read(batch)

    def before(self, batch_id: int | None, time: datetime) -> dict[str, Progress]:
        """The sources' progress that binds the rows of a batch."""
        entry = self.read(batch_id - 1) if batch_id is not None else self._before_time(time.timestamp())
        return {source: Progress(*p) for source, p in entry.get("sources", {}).items()}

    def _before_time(self, time: float) -> dict[str, Any]:
        for path in reversed(self._names()):
            entry = self._entry(path)
            if entry["batch_time"] < time:
                return entry
        return {}

    def _names(self) -> list[Path]:
        return sorted(self._folder.glob("*.json")) if self._folder.exists() else []
