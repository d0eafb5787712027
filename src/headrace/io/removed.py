"""Batches of an output that were removed on purpose, because they were old or many (`headrace.io.keep`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["REMOVED", "RemovedBatches", "StoredBatch"]

#: The folder that says which batches were removed.
REMOVED = "_removed"


@dataclass(frozen=True)
class StoredBatch:
    """A folder of an output: its last batch, the batches that it has files of, when it was written, and its size."""

    last: int
    batches: tuple[int, ...]
    written: float
    files: int
    bytes: int


@dataclass(frozen=True)
class RemovedBatches:
    """All batches up to `upto` are removed: how many these were, the sum of their numbers, their files and bytes."""

    upto: int = -1
    batches: int = 0
    sum: int = 0
    files: int = 0
    bytes: int = 0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RemovedBatches:
        return cls(**data)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def after(self, gone: Sequence[StoredBatch]) -> RemovedBatches:
        """What was removed after these, the next ones, are, too."""
        numbers = [batch for one in gone for batch in one.batches]
        return RemovedBatches(
            max([self.upto, *(one.last for one in gone)]),
            self.batches + len(numbers),
            self.sum + sum(numbers),
            self.files + sum(one.files for one in gone),
            self.bytes + sum(one.bytes for one in gone),
        )

    def since(self, before: RemovedBatches) -> RemovedBatches:
        """What was removed between two moments."""
        return RemovedBatches(
            self.upto, self.batches - before.batches, self.sum - before.sum,
            self.files - before.files, self.bytes - before.bytes,
        )  # fmt: skip
