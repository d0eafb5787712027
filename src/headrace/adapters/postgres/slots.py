"""Replication slots and publications: the server's side of a source of changes.

A *publication* names the table whose changes are decoded. A *slot* keeps the log from a place on: the server removes
nothing after `confirmed` until the slot is advanced. A slot that nobody advances keeps the log for ever, and fills the
disk; `PostgresChanges.drop()` removes it.

Only one session may use a slot at a time. Reading, looking and advancing take turns: a call that finds the slot in use
tries again for a few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from psycopg import errors, sql

from headrace.adapters.postgres.catalog import TableInfo
from headrace.adapters.postgres.connection import Connection
from headrace.errors import SourceError, Unavailable

__all__ = [
    "PEEK",
    "ReplicationSlot",
    "advance",
    "create_publication",
    "create_slot",
    "end_of_log",
    "find_slot",
    "in_turn",
]

_TURN_SECONDS, _PAUSE = 5.0, 0.01
T = TypeVar("T")

#: The messages of a publication that a slot keeps, up to a place and a number of messages.
PEEK = sql.SQL(
    "pg_logical_slot_peek_binary_changes({slot}, {upto}::pg_lsn, {count}::integer, "
    "'proto_version', '1', 'publication_names', {publication})"
)
_RESTART_LOG = 8 << 20
_NOTE = """
    SELECT CASE WHEN has_function_privilege('pg_log_standby_snapshot()', 'execute') THEN pg_log_standby_snapshot() END
"""
_SLOT = """
    SELECT s.confirmed_flush_lsn - '0/0'::pg_lsn, coalesce(s.wal_status, 'lost') = 'lost', s.plugin,
           s.database = current_database(), s.restart_lsn - '0/0'::pg_lsn, s.active_pid IS NOT NULL
    FROM pg_replication_slots s WHERE s.slot_name = %s
"""


@dataclass(frozen=True)
class ReplicationSlot:
    """A slot: the place in the log up to which it is confirmed, and whether the server has removed its log.

    The server decodes from `restart`, which follows `confirmed` only where it has noted which transactions run.
    """

    name: str
    confirmed: int
    is_lost: bool
    restart: int = 0


def lsn(place: int) -> str:
    """A place in the log as PostgreSQL writes it."""
    return f"{place >> 32:X}/{place & 0xFFFFFFFF:X}"


def in_turn(call: Callable[[], T]) -> T:
    """The result of a call that uses a slot; tried again while another session uses it."""
    deadline = time.monotonic() + _TURN_SECONDS
    while True:
        try:
            return call()
        except errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE)


def find_slot(connection: Connection, name: str) -> ReplicationSlot | None:
    """The slot of this name, or None; an error if it is not of our kind."""
    found = connection.execute(_SLOT, [name]).fetchone()
    if found is None:
        return None
    confirmed, is_lost, plugin, is_here, restart, is_used = found
    if plugin != "pgoutput" or not is_here:
        raise SourceError(
            f"the replication slot {name!r} is of another kind or database",
            given=f"plugin {plugin}", allowed="a logical slot of this database with the plugin pgoutput",
            instead="slot= with another name",
        )  # fmt: skip
    if confirmed is None and is_used:
        raise Unavailable(
            f"the replication slot {name!r} is being created by another session, which waits for the transactions that "
            "run now",
            instead="name= for each query; if this stays so, look for transactions that do not end (pg_stat_activity)",
        )
    return ReplicationSlot(name, int(confirmed or 0), bool(is_lost) or confirmed is None, int(restart or 0))


def end_of_log(connection: Connection) -> int:
    """The place in the log up to which it is on disk."""
    found = connection.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn").fetchone()
    assert found is not None
    return int(found[0])


def create_publication(connection: Connection, name: str, table: TableInfo) -> None:
    """Create the publication if it is missing; with one, a table without a replica identity refuses updates."""
    if connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [name]).fetchone():
        return
    target = sql.Identifier(table.schema, table.name)
    form = "CREATE PUBLICATION {} FOR TABLE ONLY {}"
    if table.kind == "p":
        form = "CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)"
    try:
        connection.execute(sql.SQL(form).format(sql.Identifier(name), target))
    except (errors.DuplicateObject, errors.UniqueViolation):
        return  # another process has created it


_PUBLISHED = """
    SELECT p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate,
           to_jsonb(t) ->> 'rowfilter', to_jsonb(t) -> 'attnames'
    FROM pg_publication p JOIN pg_publication_tables t USING (pubname)
    WHERE p.pubname = %s AND t.schemaname = %s AND t.tablename = %s
"""


def check_publication(connection: Connection, name: str, table: TableInfo, columns: Iterable[str]) -> None:
    """Raise unless the publication has all changes of these columns; a table that is created anew is not in it."""
    found = connection.execute(_PUBLISHED, [name, table.schema, table.name]).fetchone()
    fault = "does not have the table (was it created anew?)"
    if found is not None:
        lacking = [] if found[2] is None else [column for column in columns if column not in found[2]]
        fault = "" if found[0] else "leaves out some kinds of changes"
        fault = fault or ("leaves out some rows" if found[1] else "")
        fault = fault or (f"leaves out columns: {', '.join(lacking)}" if lacking else "")
    if fault:
        raise SourceError(
            f"the publication {name!r} {fault}, so changes of {table.schema}.{table.name} would be missing",
            given=f"publication {name!r}", allowed="a publication of the whole table, with all kinds of changes",
            instead="another name= (with a new checkpoint if the table is a new one), or ALTER PUBLICATION …",
        )  # fmt: skip


def create_slot(connection: Connection, name: str) -> None:
    """Create a slot; this waits for the transactions that run now."""
    level = connection.execute("SELECT current_setting('wal_level')").fetchone()
    if level != ("logical",):
        raise SourceError(
            "the server does not write what logical decoding needs",
            given=f"wal_level = {level[0] if level else '?'}", allowed="wal_level = logical",
            instead="ALTER SYSTEM SET wal_level = logical, and a restart of the server",
        )  # fmt: skip
    try:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
    except errors.DuplicateObject:
        return


def advance(connection: Connection, slot: ReplicationSlot, place: int) -> None:
    """Let the server forget the log before a place."""
    if place <= slot.confirmed or slot.is_lost:
        return
    in_turn(lambda: connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [slot.name, lsn(place)]))
    if place - slot.restart > _RESTART_LOG and connection.info.server_version >= 160_000:
        # By itself the server notes the running transactions every 15 seconds, and each look at the log begins there.
        connection.execute(_NOTE)


def drop(connection: Connection, slot: str, publication: str) -> None:
    """Remove a slot and its publication, if they exist."""
    if connection.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", [slot]).fetchone():
        in_turn(lambda: connection.execute("SELECT pg_drop_replication_slot(%s)", [slot]))
    connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(publication)))
