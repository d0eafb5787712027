"""Follow the answer files: the current answers, and what each batch added and corrected."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from headrace.cli.demo.trades import DemoFolder, vwap
from headrace.events import history, to_changes
from headrace.io.commit import BatchDirectory
from headrace.io.encode import jsonl_to_physical
from headrace.io.sinks import read_events_output
from headrace.schema import Schema

__all__ = ["AnswerFiles", "BatchUpdate", "Correction", "Key"]

Key = tuple[int, int, str]  # a window's start and end, a symbol


@dataclass(frozen=True)
class Correction:
    """An answer that replaces an earlier one."""

    key: Key
    old: float
    new: float


@dataclass(frozen=True)
class BatchUpdate:
    """What one batch changed."""

    fresh: tuple[Key, ...] = ()
    corrections: tuple[Correction, ...] = ()
    withdrawn: tuple[Key, ...] = ()


@dataclass
class AnswerFiles:
    """Reads the answer files; a batch counts once, even if it was retried."""

    place: DemoFolder
    current: dict[Key, float] = field(default_factory=dict)
    given: int = 0
    corrected: int = 0
    _read: set[str] = field(default_factory=set)

    @property
    def schema(self) -> Schema:
        found: Schema = vwap(str(self.place.input)).schema
        return found

    def follow(self) -> BatchUpdate:
        """Read the files that are new."""
        if not self.place.output.exists():
            return BatchUpdate()
        paths = [path for path in BatchDirectory(str(self.place.output)).files() if path not in self._read]
        self._read.update(paths)
        return self.take(jsonl_to_physical(paths, self.schema)) if paths else BatchUpdate()

    def take(self, events: pa.Table) -> BatchUpdate:
        """Apply the events of a batch: a deletion and an insert for the same window and symbol are a correction."""
        rows = [row for row in events.to_pylist() if row["kind"] != "cti"]
        old = {_key(row): row["vwap"] for row in rows if row["kind"] == "retract"}
        new = {_key(row): row["vwap"] for row in rows if row["kind"] == "insert"}
        for key in old.keys() - new.keys():
            self.current.pop(key, None)
        self.current.update(new)
        corrections = tuple(Correction(key, old[key], new[key]) for key in sorted(new.keys() & old.keys()))
        self.given += len(new.keys() - old.keys())
        self.corrected += len(corrections)
        return BatchUpdate(tuple(sorted(new.keys() - old.keys())), corrections, tuple(sorted(old.keys() - new.keys())))

    def history(self) -> pa.Table:
        """The history of all answer files, read again from the start."""
        return history(to_changes(read_events_output(str(self.place.output), self.schema), self.schema))


def _key(row: dict[str, object]) -> Key:
    return row["le"], row["re"], row["symbol"]  # type: ignore[return-value]  # the schema has these types
