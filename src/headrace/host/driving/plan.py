"""What a batch reads. A plan is written down before the batch runs, so that every attempt reads the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.io.files import Listed
from headrace.io.sinks import FileSink, Nowhere
from headrace.progress import Progress
from headrace.stages.cut import Line
from headrace.store.storage import Storage

__all__ = ["Batch", "Executor", "Job", "Plan", "Share"]


@dataclass(frozen=True)
class Plan:
    """The files of every source, by fingerprint, the clock's reading, and whether the input ends with this batch."""

    files: Mapping[str, tuple[Listed, ...]] = field(default_factory=dict)
    clock: int | None = None
    ends: bool = False

    def to_json(self) -> dict[str, Any]:
        files = {source: [[f.modified, f.path, f.size] for f in found] for source, found in self.files.items()}
        return {"files": files, "clock": self.clock, "ends": self.ends}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        files = {source: tuple(Listed(*file) for file in found) for source, found in data["files"].items()}
        return cls(files, data["clock"], data["ends"])


@dataclass(frozen=True, eq=False)
class Job:
    """What tasks know of a query, the same for all batches."""

    token: str
    line: Line
    buckets: int
    storage: Storage
    #: The sink of every output that tasks write themselves; None for outputs that the driver takes.
    sinks: tuple[FileSink | Nowhere | None, ...]


@dataclass(frozen=True)
class Share:
    """What one intake task reads: files of sources, each with the number of its source, and blocks of feedback."""

    files: tuple[tuple[int, Listed], ...] = ()
    feedback: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Batch:
    """One batch, as its tasks see it."""

    number: int
    epoch: int
    plan: Plan
    shares: tuple[Share, ...]
    #: The progress of every source before the batch.
    start: Mapping[str, Progress]
    #: The batch whose commit holds the state to begin with, -1 for none; and what each (level, bucket) saved there.
    after: int
    tokens: Mapping[tuple[int, int], str]


class Executor:
    """Runs the tasks of a batch."""

    def run(self, batch: Batch) -> Sequence[Any]:
        """The messages that the tasks of the last level gave."""
        raise NotImplementedError
