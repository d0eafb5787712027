"""The audit log: who did what, when, from where, and with which outcome.

Statements are noted without secrets: those of URLs, and the values of `CREATE SECRET`. Entries about what was refused
are written at once; others within a second, many at a time, since a server may take thousands of inserts a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from threading import Event, Lock, Thread

from headrace.errors import HeadraceError, without_secrets
from headrace.server.access.database import AccessDatabase
from headrace.server.interface import Who

__all__ = ["AuditEntry", "AuditLog", "unparsed"]

#: Characters of a statement that are kept.
_LONGEST = 10_000
#: Characters of a statement whose form without secrets is remembered.
_SHORT = 200
#: Entries that may wait.
_MANY = 1_000
_SECRET = re.compile(r"(\bSECRET\b[^;]*?\bAS\b\s*)'(?:[^']|'')*(?:'|$)", re.IGNORECASE)
#: Arguments of sources and sinks such as `password => 'x'`.
_PASSWORD = re.compile(
    r"((?:password|secret|token|credential|passphrase|\bkey)[\w.\"]*\s*=>\s*)'(?:[^']|'')*(?:'|$)", re.IGNORECASE
)

_SECRET_WORD = re.compile(r"secret|password|token|credential|passphrase|key", re.IGNORECASE)
_TEXT = re.compile(r"'(?:[^']|'')*(?:'|$)")


@dataclass(frozen=True)
class AuditEntry:
    """One line of the log; `origin` is the address of the client, `outcome` is `done` or the code of an error."""

    at: datetime
    who: str
    role: str
    origin: str
    statement: str
    outcome: str


def safe_statement(text: str) -> str:
    """A statement without secrets.

    >>> safe_statement("CREATE SECRET s AS 'it''s'; CREATE STREAM t SOURCE POSTGRES ('postgresql://u:p@h/d')")
    "CREATE SECRET s AS '***'; CREATE STREAM t SOURCE POSTGRES ('postgresql://***@h/d')"
    """
    return _safe_again(text) if len(text) <= _SHORT else _safe(text)


def _safe(text: str) -> str:
    hidden = _PASSWORD.sub(r"\1'***'", _SECRET.sub(r"\1'***'", text))
    return without_secrets(hidden)[:_LONGEST]


#: Clients repeat short statements: `INSERT INTO s`.
_safe_again = lru_cache(1_000)(_safe)


def unparsed(text: str) -> str:
    """A text that is no statement, without what may be a secret: it has no parts by which secrets are known.

    >>> unparsed("SELEC a FROM s WHERE b = 'x'"), unparsed("CREATE SECRETT s AS hunter2")
    ("SELEC a FROM s WHERE b = '***'", 'CREATE SECRETT …')
    """
    if _SECRET_WORD.search(text):
        return " ".join([*text.split()[:2], "…"])
    return _TEXT.sub("'***'", text)


class AuditLog:
    """The log in the database. `keep` is the number of entries that it holds at most."""

    def __init__(
        self, database: AccessDatabase, *, clock: Callable[[], datetime], keep: int = 1_000_000, seconds: float = 1.0
    ) -> None:
        self._database = database
        self._clock = clock
        self._keep = keep
        self._seconds = seconds
        self._lock = Lock()
        self._waiting: list[tuple[str, ...]] = []
        self._closed = Event()
        self._writer: Thread | None = None

    def note(self, who: Who, origin: str, statement: str, error: BaseException | None = None) -> None:
        """Note what a client did, or what it was refused."""
        outcome = "done" if error is None else error.code if isinstance(error, HeadraceError) else type(error).__name__
        row = (self._clock().isoformat(), who.name, who.role, origin, safe_statement(statement), outcome)
        with self._lock:
            self._waiting.append(row)
            at_once = error is not None or len(self._waiting) >= _MANY
            if not at_once and self._writer is None:
                self._writer = Thread(target=self._write_often, name="headrace-audit", daemon=True)
                self._writer.start()
        if at_once:
            self.flush()

    def flush(self) -> None:
        """Write the entries that wait."""
        with self._lock:
            rows, self._waiting = self._waiting, []
            if not rows:
                return
            with self._database.changing() as connection:
                added = connection.executemany(
                    "INSERT INTO audit (at, who, role, origin, statement, outcome) VALUES (?, ?, ?, ?, ?, ?)", rows
                )
                last = added.connection.execute("SELECT max(number) FROM audit").fetchone()[0]
                connection.execute("DELETE FROM audit WHERE number <= ?", (last - self._keep,))

    def entries(self, most: int = 1_000) -> list[AuditEntry]:
        """The newest entries, the newest first."""
        self.flush()
        rows = self._database.rows(
            "SELECT at, who, role, origin, statement, outcome FROM audit ORDER BY number DESC LIMIT ?", [most]
        )
        return [AuditEntry(datetime.fromisoformat(at), *rest) for at, *rest in rows]

    def close(self) -> None:
        """Write the entries that wait, and stop."""
        self._closed.set()
        if self._writer is not None:
            self._writer.join()
        self.flush()

    def _write_often(self) -> None:
        while not self._closed.wait(self._seconds):
            self.flush()
