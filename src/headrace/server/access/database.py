"""The tables of tokens, secrets and the audit log, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from headrace.errors import ServerError

__all__ = ["AccessDatabase"]

_TABLES = """
CREATE TABLE IF NOT EXISTS tokens (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, salt BLOB NOT NULL, hash BLOB NOT NULL,
    created TEXT NOT NULL, last_used TEXT, revoked TEXT
);
CREATE UNIQUE INDEX IF NOT EXISTS tokens_in_use ON tokens (name) WHERE revoked IS NULL;
CREATE TABLE IF NOT EXISTS secrets (
    name TEXT PRIMARY KEY, encrypted BLOB, variable TEXT, owner TEXT NOT NULL, created TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, who TEXT NOT NULL, role TEXT NOT NULL,
    origin TEXT NOT NULL, statement TEXT NOT NULL, outcome TEXT NOT NULL
);
"""


class AccessDatabase:
    """A connection for all threads of a process; other connections, also of other processes, may write, too.

    The log of SQLite is written ahead: what was written is there after the process was killed. Unless it is `durable`,
    nothing waits for the disk, and the last writes may be lost when the machine fails.
    """

    def __init__(self, path: Path, tables: str = _TABLES, *, durable: bool = False) -> None:
        self._lock = RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self._connection = sqlite3.connect(path, timeout=30, check_same_thread=False, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._connection.executescript(tables)
        except (OSError, sqlite3.Error) as error:
            raise ServerError(f"the catalog cannot be opened: {error}", given=str(path)) from error

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """A transaction, of one thread at a time."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a SELECT."""
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def write(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        """Execute a statement for each of the rows, in one transaction; the number of rows that it changed."""
        with self.changing() as connection:
            return connection.executemany(statement, rows).rowcount

    def script(self, tables: str) -> None:
        """Create tables that are not there yet."""
        with self._lock:
            self._connection.executescript(tables)

    def close(self) -> None:
        with self._lock:
            self._connection.close()
