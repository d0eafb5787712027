"""The log of a table that changes: rows that only grow, numbered from 0 on."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.schema import Schema
from headrace.time import BEGINNING

__all__ = ["LoggedElsewhere", "MemoryLog", "Places", "RowLog"]

_PROMISES_KEPT = 1000  # the latest ones: a batch that runs again reads the same
Places = NDArray[np.int64]


class LoggedElsewhere(Protocol):
    """A table's log in another process, which reads it."""

    @property
    def log_schema(self) -> Schema:
        """The columns of the log."""

    def numbered_log(self, start: int, end: int) -> tuple[Places, pa.Table]:
        """Rows of the log, with their numbers."""


class RowLog(Protocol):
    """The log of a table: in memory, or on disk."""

    schema: Schema
    #: The latest promise, in ticks.
    promised: int

    def __len__(self) -> int: ...

    def append(self, rows: pa.Table, **about: int) -> None:
        """Append rows; `about` says what the table must know when it is opened again."""

    def promise(self, row: pa.Table, time: int) -> None:
        """Append a promise."""

    @property
    def about(self) -> Mapping[str, int]:
        """What the latest rows said about the table."""

    def rows(self, start: int, end: int) -> tuple[Places, pa.Table]:
        """The rows from a number up to another that are there, and their numbers."""

    def elsewhere(self, name: str) -> LoggedElsewhere:
        """The log as another process reads it."""


class MemoryLog:
    """Rows that only grow, in memory, and in files once another process reads them; statements and queries share it.

    In memory, old promises are left out: a later one says more. All rows keep their numbers.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.promised = BEGINNING
        self._table: pa.Table = schema.arrow.empty_table()
        self._numbers: Places = np.empty(0, np.int64)
        self._parts: list[tuple[int, pa.Table]] = []
        self._count = self._promises = 0
        self._folder: TemporaryDirectory[str] | None = None
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return self._count

    def append(self, rows: pa.Table, **about: int) -> None:  # noqa: ARG002 - the table itself knows what they are
        with self._lock:
            if self._folder is not None:
                _write(Path(self._folder.name), self._count, rows)
            self._parts.append((self._count, rows))
            self._count += rows.num_rows

    def promise(self, row: pa.Table, time: int) -> None:
        """Append a promise."""
        with self._lock:
            self.append(row)
            self.promised = time
            self._promises += 1
            if self._promises > 2 * _PROMISES_KEPT:
                self._thin()

    def _thin(self) -> None:
        self._gather()
        promises = np.flatnonzero(np.asarray(pc.equal(self._table["kind"], "cti")))
        kept = np.ones(self._table.num_rows, bool)
        kept[promises[:-_PROMISES_KEPT]] = False
        self._table, self._numbers = self._table.filter(pa.array(kept)).combine_chunks(), self._numbers[kept]
        self._promises = _PROMISES_KEPT

    def _gather(self) -> None:
        if self._parts:
            numbers = [np.arange(start, start + rows.num_rows) for start, rows in self._parts]
            self._numbers = np.concatenate([self._numbers, *numbers])
            self._table = pa.concat_tables([self._table, *(rows for _, rows in self._parts)])
            self._parts = []

    def rows(self, start: int, end: int) -> tuple[Places, pa.Table]:
        """The rows from a number up to another that are there, and their numbers."""
        with self._lock:
            self._gather()
            first, last = np.searchsorted(self._numbers, (start, end))
            return self._numbers[first:last], self._table.slice(first, last - first)

    @property
    def about(self) -> Mapping[str, int]:
        return {}

    def elsewhere(self, name: str) -> LoggedElsewhere:
        return _StoredTable(name, self.schema, str(self._stored()))

    def _stored(self) -> Path:
        """The folder with all rows; rows that come later are written there, too."""
        with self._lock:
            if self._folder is None:
                self._folder = TemporaryDirectory(prefix="headrace-table-")
                _write(Path(self._folder.name), 0, self._whole())
            return Path(self._folder.name)

    def _whole(self) -> pa.Table:
        """All rows; what was left out is the promise of the beginning, which says nothing."""
        numbers, rows = self.rows(0, len(self))
        said_nothing = pa.Table.from_pylist([{"kind": "cti", "le": BEGINNING}], schema=self.schema.arrow)
        every = np.zeros(len(self), np.int64)
        every[numbers] = np.arange(1, len(numbers) + 1)
        return pa.concat_tables([said_nothing, rows]).take(pa.array(every))


def _write(folder: Path, start: int, rows: pa.Table) -> None:
    part = folder / f"{start:015}.part"
    with pa.ipc.new_file(str(part), rows.schema) as writer:
        writer.write_table(rows)
    part.rename(part.with_suffix(".arrow"))


@dataclass(frozen=True)
class _StoredTable:
    """The log of a table in another process."""

    name: str
    log_schema: Schema
    folder: str

    def __str__(self) -> str:
        return f"table {self.name}"

    def numbered_log(self, start: int, end: int) -> tuple[Places, pa.Table]:
        """Rows of the log, with their numbers."""
        files = sorted(Path(self.folder).glob("*.arrow"))
        starts = [int(file.stem) for file in files]
        wanted = [
            file
            for file, first, last in zip(files, starts, [*starts[1:], end], strict=True)
            if first < end and last > start
        ]
        rows = pa.concat_tables([self.log_schema.arrow.empty_table(), *(_read(file) for file in wanted)])
        return np.arange(start, end), rows.slice(start - (int(wanted[0].stem) if wanted else start), end - start)


def _read(file: Path) -> pa.Table:
    with pa.ipc.open_file(str(file)) as reader:
        return reader.read_all()
