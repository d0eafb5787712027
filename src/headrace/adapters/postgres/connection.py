"""Connections to PostgreSQL: kept by the process that opened them, with errors in Headrace's words.

An adapter is a value and holds no connection. Each process keeps its idle connections, by address; a call takes one, or
opens one, and gives it back if it still works. One that the server has ended meanwhile is closed: nobody waits for an
answer on an idle connection, so there is nothing to read on one that works. After a fork the child opens its own.

Which errors may pass: a server that is away, starts, stops or has too many clients; a deadlock, a lock or a slot that
another session holds; a server that only allows reading, as a standby does before it takes over. These are
`Unavailable`, and the call is repeated. All others end the query with a `SourceError` or `SinkError`.
"""

from __future__ import annotations

import atexit
import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import conninfo
from psycopg.pq import TransactionStatus

from headrace.errors import HeadraceError, PlanError, SinkError, SourceError, Unavailable

__all__ = ["Connection", "Failure", "check_dsn", "close_idle", "connected", "in_our_words"]

Connection = psycopg.Connection[tuple[Any, ...]]
Failure = type[SourceError] | type[SinkError]

_DEFAULTS = {
    "application_name": "headrace", "connect_timeout": "10", "client_encoding": "UTF8", "keepalives_idle": "30",
    "keepalives_interval": "10", "keepalives_count": "3", "tcp_user_timeout": "60000",
}  # fmt: skip
# Texts of values must not depend on the server's settings. Without a durable commit, a delivered batch could be lost
# with its record after Headrace has gone on. A session whose process was stopped must not keep its locks for ever.
_SETTINGS = """
    SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO, YMD', false),
           set_config('IntervalStyle', 'postgres', false), set_config('bytea_output', 'hex', false),
           set_config('extra_float_digits', '1', false), set_config('lock_timeout', '30s', false),
           set_config('idle_in_transaction_session_timeout', '60s', false),
           set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
                      ELSE current_setting('synchronous_commit') END, false)
"""
_PASSING_CLASSES = ("08", "53", "57P")
_LASTING = frozenset({"53400", "57P04"})  # all slots are in use; the database was dropped
_PASSING = frozenset({"40001", "40P01", "55P03", "55006", "57014", "25006", "25P03", "58030"})
_PASSING_TEXTS = (
    "starting up",
    "shutting down",
    "recovery mode",
    "not yet accepting",
    "too many",
    "remaining connection",
)
_ADVICE = {
    "22001": "a wider column: ALTER TABLE … ALTER COLUMN … TYPE text",
    "22003": "a wider column: ALTER TABLE … ALTER COLUMN … TYPE bigint or double precision",
    "22021": "texts without the character U+0000, which PostgreSQL cannot store",
    "23502": "rows without nulls in this column, or ALTER TABLE … ALTER COLUMN … DROP NOT NULL",
    "23505": "encoding='upsert' with the columns of this constraint as the key",
    "53400": "a free slot: drop those that nobody reads (pg_replication_slots), or raise max_replication_slots",
    "42501": "a role with the right: GRANT … TO …, for replication slots ALTER ROLE … REPLICATION",
    "42P01": "the name of a table that exists, or create=True",
    "42703": "the names of columns that exist",
}  # fmt: skip

_lock = threading.Lock()
_idle: dict[tuple[int, str], list[Connection]] = {}


def check_dsn(dsn: str) -> None:
    """Raise unless this is the address of a database; the error does not show it, as it may have a password."""
    try:
        known = conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        known = {}
    if not known:
        raise PlanError(
            "this is not the address of a PostgreSQL database (it is not shown here: it may have a password)",
            allowed="a URL or pairs of names and values, as libpq reads them",
            instead="'postgresql://user@host:5432/database' or 'host=… dbname=… user=…'",
        )


@contextmanager
def connected(dsn: str, failure: Failure, what: str) -> Iterator[Connection]:
    """A connection in autocommit mode, with this process's settings; errors of the server get their classes."""
    try:
        connection = _taken(dsn) or _opened(dsn)
        try:
            yield connection
        finally:
            _give_back(dsn, connection)
    except psycopg.OperationalError as error:
        if error.sqlstate is None or error.sqlstate.startswith(("08", "57P")):
            close_idle(dsn)  # the server was away, and has forgotten these, too
        raise in_our_words(error, failure, what) from error
    except psycopg.Error as error:
        raise in_our_words(error, failure, what) from error


def _taken(dsn: str) -> Connection | None:
    with _lock:
        idle = _idle.get((os.getpid(), dsn), [])
        while idle:
            connection = idle.pop()
            if not connection.closed and not _can_be_read(connection):
                return connection
            connection.close()
    return None


def _can_be_read(connection: Connection) -> bool:
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return bool(waiting.poll(0))


def _opened(dsn: str) -> Connection:
    given = conninfo.conninfo_to_dict(dsn)
    settings: dict[str, Any] = {**_DEFAULTS, **given}
    # Statements are not prepared: poolers between us and the server may give each transaction another session.
    connection = psycopg.connect("", autocommit=True, prepare_threshold=None, **settings)
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    connection.execute(_SETTINGS)
    return connection


def _give_back(dsn: str, connection: Connection) -> None:
    if connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
        connection.close()
        return
    with _lock:
        _idle.setdefault((os.getpid(), dsn), []).append(connection)


def close_idle(dsn: str | None = None) -> None:
    """Close this process's idle connections, to one address or to all."""
    with _lock:
        ours = [key for key in _idle if key[0] == os.getpid() and dsn in (None, key[1])]
        connections = [connection for key in ours for connection in _idle.pop(key)]
    for connection in connections:
        connection.close()


atexit.register(close_idle)


def in_our_words(error: psycopg.Error, failure: Failure, what: str) -> HeadraceError:
    """The error of a server or a connection as ours."""
    state = error.sqlstate or ""
    text = " ".join((error.diag.message_primary or str(error)).split())
    detail = error.diag.message_detail or ""
    where = error.diag.context.splitlines()[0] if error.diag.context else ""  # for COPY: the line and the column
    message = f"{what}: " + "; ".join(filter(None, [text, detail, where]))
    if _may_pass(error, state, text):
        return Unavailable(message, instead="PostgreSQL does not answer as it should; look at its log if it stays so")
    return failure(message, given=state or None, instead=_ADVICE.get(state, ""))


def _may_pass(error: psycopg.Error, state: str, text: str) -> bool:
    if state:
        return state in _PASSING or (state.startswith(_PASSING_CLASSES) and state not in _LASTING)
    if not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return False
    # libpq has no code for a refused connection. A server that says FATAL was there, and refuses for a reason.
    return "FATAL" not in text or any(passing in text for passing in _PASSING_TEXTS)
