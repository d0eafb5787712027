"""A table of a SQLite database as a source: rows that are appended, in the order of their row ids.

The partitions are the tables; an offset is a row id. Rows of a range are the same each time, because the table is only
appended to: a row that is updated or deleted after it was read changes nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from headrace.adapters import DecodedBlock, Offsets, SourceAdapter, decoded
from headrace.errors import SourceError, Unavailable
from headrace.schema import Schema

__all__ = ["SqliteSource", "connect", "quoted"]

_BLOCK_ROWS = 50_000


@dataclass(frozen=True)
class SqliteSource(SourceAdapter):
    """The rows of one or several tables with equal columns.

    `tables` are their names, separated by commas, or patterns such as `orders_*`: tables that appear later are read,
    too.
    """

    database: str
    tables: str
    columns: Schema | str
    paths: ClassVar[tuple[str, ...] | None] = ("database",)

    @property
    def schema(self) -> Schema:
        return Schema.of(self.columns)

    def __str__(self) -> str:
        return f"sqlite {self.tables}"

    def offsets(self, positions: Mapping[str, int]) -> Mapping[str, Offsets]:  # noqa: ARG002 - it asks for all
        with closing(connect(self.database)) as connection, _explained(self):
            return {table: _reach(connection, table) for table in self._names(connection)}

    def read(
        self, partition: str, start: int, end: int, columns: Sequence[str]
    ) -> Generator[DecodedBlock, None, int | None]:
        names = ", ".join(quoted(name) for name in columns)
        query = f"SELECT rowid, {names} FROM {quoted(partition)} WHERE rowid >= ? AND rowid < ? ORDER BY rowid"  # noqa: S608
        with closing(connect(self.database)) as connection, _explained(self):
            cursor = connection.execute(query, (start, end))
            while rows := cursor.fetchmany(_BLOCK_ROWS):
                ids, *values = zip(*rows, strict=True)
                table = pa.table([_column(part) for part in values], names=list(columns))
                yield decoded(table, np.array(ids, np.int64), self.schema)
        return None

    def _names(self, connection: sqlite3.Connection) -> list[str]:
        """The tables; a pattern stands for those that match it now."""
        names: list[str] = []
        for name in (name.strip() for name in self.tables.split(",")):
            matching = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB ? ORDER BY name"
            names += [row[0] for row in connection.execute(matching, (name,))] if "*" in name else [name]
        return names


def _reach(connection: sqlite3.Connection, table: str) -> Offsets:
    """How far a table reaches. Row ids begin at 1, or where the first row says: so 0 is before all of them."""
    first, last = connection.execute(f"SELECT min(rowid), max(rowid) FROM {quoted(table)}").fetchone()  # noqa: S608
    return Offsets(0, 0) if last is None else Offsets(min(first, 0), last + 1)


def _column(values: Sequence[object]) -> pa.Array:
    """Values of one column; SQLite may hold values of several types in it, which are read as texts."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def connect(database: str) -> sqlite3.Connection:
    """A connection to a database that exists; `Unavailable` if it cannot be opened now."""
    try:
        return sqlite3.connect(f"{Path(database).absolute().as_uri()}?mode=rw", uri=True, timeout=5)
    except sqlite3.OperationalError as error:
        raise Unavailable(f"the database cannot be opened: {error}", given=database) from error


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


class _explained:  # noqa: N801 - used like a function
    """Turns errors of SQLite into those of Headrace: a busy database may answer later, other errors end the query."""

    def __init__(self, source: SqliteSource) -> None:
        self._source = source

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            raise Unavailable(f"the database is busy: {error}", given=self._source.database) from error
        if isinstance(error, sqlite3.Error):
            raise SourceError(f"{self._source} cannot be read: {error}", given=self._source.database) from error
