"""A reader of changes: what a driver does with a source, and a table that follows from what it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.adapters.postgres import PostgresChanges
from headrace.io.decoded import DecodedBlock

__all__ = ["COLUMNS", "NewTable", "Reader", "Run", "Sources", "kinds"]

NewTable = Callable[..., str]
Run = Callable[..., list[tuple[Any, ...]]]
COLUMNS = "id bigint PRIMARY KEY, name text, price float8"


class Reader:
    """Reads a source as a driver does, and folds its changes into rows by key."""

    def __init__(self, source: PostgresChanges) -> None:
        self.source = source
        self.position: dict[str, int] = {}
        self.rows: dict[Any, dict[str, Any]] = {}
        self.ranges: list[tuple[int, int, list[dict[str, Any]]]] = []
        self.refused: list[dict[str, Any]] = []
        self.lost = 0

    def range(self, rows: int = 1000) -> tuple[int, int] | None:
        """The next range, if there is one."""
        ((partition, available),) = self.source.offsets(self.position).items()
        start = self.position.get(partition, self.source.begin(partition, available))
        if available.end <= start:
            return None
        return start, self.source.limit(partition, start, available.end, rows)

    def read(self, start: int, end: int) -> tuple[list[DecodedBlock], int]:
        blocks, generator = [], self.source.read(self.source.slot, start, end, self.source.schema.names)
        while True:
            try:
                blocks.append(next(generator))
            except StopIteration as done:
                return blocks, end if done.value is None else int(done.value)

    def batch(self, rows: int = 1000, *, acknowledge: bool = True) -> int | None:
        """Read a range and commit it; the number of its rows, or None if there is no range."""
        found = self.range(rows)
        if found is None:
            return None
        blocks, position = self.read(*found)
        new = [row for block in blocks for row in block.table.to_pylist()]
        self.refused += [row for block in blocks for row in block.refused.to_pylist()]
        self.lost += sum(block.lost for block in blocks)
        for row in new:
            key = tuple(row[name] for name in self.source.key)
            if row["_change_type"] == "delete":
                self.rows.pop(key, None)
            else:
                self.rows[key] = {name: row[name] for name in self.source.columns.names}
        self.ranges.append((*found, new))
        self.position = {self.source.slot: position}
        if acknowledge:
            self.source.acknowledge(self.position)
        return len(new)

    def all(self, rows: int = 1000) -> list[dict[str, Any]]:
        """Everything that there is now."""
        before = len(self.ranges)
        while self.batch(rows) is not None:
            pass
        return [row for _, _, new in self.ranges[before:] for row in new]


Sources = Callable[..., Reader]


def kinds(rows: list[dict[str, Any]]) -> list[tuple[str, Any, Any]]:
    return [(row["_change_type"], row["id"], row["name"]) for row in rows]
