"""The log of each query: when it was started, stopped and altered, what it lost, and why it failed.

Two kinds of lines are in it: what the server does with a query (`note`), and what the engine logs while it runs the
query, which this handler of `logging.getLogger("headrace")` takes. The log is in the catalog's database: after a
crash it says what was before; `JsonLines` shows the query of a line, too.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.errors import without_secrets
from headrace.server.access.database import AccessDatabase

__all__ = ["QueryLog", "QueryLogLine", "query_of"]

#: Lines of a query that are kept, and by how many more there may be until the oldest are removed.
_KEPT, _SPARE = 1_000, 100
#: Characters of a message that are kept.
_LONGEST = 10_000
_TABLE = """
CREATE TABLE IF NOT EXISTS query_log (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, query TEXT NOT NULL, level TEXT NOT NULL,
    message TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS query_log_of ON query_log (query, number);
"""
_ENGINE = "headrace"
_THREAD = "headrace-"
_log = logging.getLogger("headrace.server")


class QueryLogLine(NamedTuple):
    """A line of the log of a query."""

    query: str
    at: datetime
    level: str
    message: str


def query_of(record: logging.LogRecord) -> str | None:
    """The query that a record of the log is about: the one it names, or the one whose thread has written it."""
    named = getattr(record, "fields", {}).get("query")
    if named is not None:
        return str(named)
    thread = record.threadName or ""
    return thread.removeprefix(_THREAD) if record.name == _ENGINE and thread.startswith(_THREAD) else None


class QueryLog(logging.Handler):
    """The lines of all queries of a server."""

    def __init__(self, database: AccessDatabase) -> None:
        super().__init__()
        self._database = database
        database.script(_TABLE)

    def attach(self) -> None:
        """Take what the engine logs from now on."""
        logging.getLogger(_ENGINE).addHandler(self)

    def detach(self) -> None:
        """Take no more."""
        logging.getLogger(_ENGINE).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        query = query_of(record)
        if query is not None and record.name == _ENGINE:  # what the server logs, `note` has stored
            try:
                self._add(query, record.created, record.levelname, record.getMessage())
            except Exception:  # noqa: BLE001 - of any kind: what cannot be noted stops no query
                self.handleError(record)

    def note(self, query: str, message: str, level: int = logging.INFO) -> None:
        """Note what the server does with a query, here and in the server's own log."""
        fields = {"fields": {"query": query}}
        record = _log.makeRecord(_log.name, level, "", 0, message, (), None, extra=fields)
        if _log.isEnabledFor(level):
            _log.handle(record)
        self._add(query, record.created, record.levelname, message)

    def _add(self, query: str, at: float, level: str, message: str) -> None:
        row = at, query.lower(), level.lower(), without_secrets(message)[:_LONGEST]
        with self._database.changing() as database:
            added = database.execute("INSERT INTO query_log (at, query, level, message) VALUES (?, ?, ?, ?)", row)
            number = added.lastrowid or 0
            if number % _SPARE == 0:
                database.execute(
                    "DELETE FROM query_log WHERE query = ? AND number <= (SELECT number FROM query_log WHERE query = ? "
                    "ORDER BY number DESC LIMIT 1 OFFSET ?)",
                    (query.lower(), query.lower(), _KEPT),
                )

    def lines(self, query: str | None, most: int) -> list[QueryLogLine]:
        """The newest lines, of one query or of all, the oldest of them first."""
        where, values = ("WHERE query = ?", [query.lower()]) if query is not None else ("", [])
        rows = self._database.rows(
            f"SELECT query, at, level, message FROM query_log {where} ORDER BY number DESC LIMIT ?",  # noqa: S608
            [*values, most],
        )
        return [
            QueryLogLine(name, datetime.fromtimestamp(at, UTC), level, text) for name, at, level, text in reversed(rows)
        ]

    def forget(self, query: str) -> None:
        """Remove the lines of a query that was dropped."""
        self._database.write("DELETE FROM query_log WHERE query = ?", [(query.lower(),)])
