"""The changes of a table, by logical decoding over plain SQL.

**Offsets** are places in the server's log (LSN), as integers. A transaction is at the place of its commit record; a
range `[start, end)` has the transactions whose commits begin in it, in the order of commits. The slot keeps the log
from the last acknowledged offset on, so a range can be read again. All rows of a transaction have its offset.

**The snapshot.** Offset 0 means that nothing was read. A range from 0 has the rows of the table, as inserts. One
session locks the table against writers for a moment, notes the place S where the log ends, and exports its snapshot; a
second session takes the snapshot over, the lock is released, and the rows are read. All transactions before S are in
the snapshot, and none after it, so the next range starts at S. The lock needs the right to change the table.

**Idle tables.** The log of a server grows with all its tables. `offsets` looks whether there is a change of ours, and
leaves the end where it was if not; only after `IDLE_LOG` bytes it moves on, so that the slot can.

**Gaps.** If the slot was dropped, was advanced by somebody else, or has lost its log, changes are missing: an error.
With `on_gap="continue"` the table is read again as inserts, so that all rows that exist are right; rows that were
deleted in the gap stay, and the number of lost bytes of the log is counted as lost offsets.

A column `_commit_time` is the time of the commit on the server; for rows of a snapshot, the time of the lock. Times of
different keys may be out of order by a little, as servers take the time just before they write the commit.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from psycopg import sql

from headrace.adapters.postgres import slots
from headrace.adapters.postgres.catalog import TableInfo, described, name_parts
from headrace.adapters.postgres.connection import Connection, check_dsn, close_idle, connected
from headrace.adapters.postgres.copying import copy_out
from headrace.adapters.postgres.pgoutput import ADDED, CHANGE_TYPE, LogDecoder, text_block, whole_transactions
from headrace.adapters.postgres.polled import PostgresPolled
from headrace.adapters.postgres.types import check_declared, derived, free_of_reserved
from headrace.errors import PlanError, SourceError
from headrace.io.adapter import Offsets, SourceAdapter, TableLog
from headrace.io.decoded import DecodedBlock
from headrace.schema import Schema
from headrace.time import ticks

__all__ = ["IDLE_LOG", "PostgresChanges"]

#: Bytes of the log without a change of the table, after which the offset moves on.
IDLE_LOG = 16 << 20
_MESSAGES = 1 << 16
_BYTES_A_ROW = 256
_LEAST_BYTES_A_ROW = 100  # a shorter log has few enough rows, and is not decoded only to count them


@dataclass(frozen=True)
class _Seen:
    """Whether the log has changes between a position and an end: asked often, and the server decodes the log for it."""

    position: int
    end: int
    has_news: bool


_seen_lock = threading.Lock()
_seen: dict[tuple[str, str], _Seen] = {}


@dataclass(frozen=True)
class PostgresChanges(SourceAdapter):
    """A table and its changes.

    `columns` and `key` come from the table unless they are given (`PostgresChanges.of`). `name` distinguishes queries
    that read the same table: each needs a slot of its own. `create` lets the source create its slot and publication.
    """

    keeps_rows: ClassVar[bool] = False
    knows_columns: ClassVar[bool] = True
    more_options: ClassVar[tuple[str, ...]] = ("cursor", "lag")
    dsn: str = field(repr=False)
    table: str
    columns: Schema
    key: tuple[str, ...]
    name: str = ""
    slot: str = ""
    publication: str = ""
    snapshot: bool = True
    create: bool = True
    on_gap: Literal["raise", "continue"] = "raise"

    def __post_init__(self) -> None:
        check_dsn(self.dsn)
        parts = [*name_parts(self.table), *([self.name] if self.name else [])]
        default = "headrace_" + re.sub(r"[^a-z0-9_]", "_", "_".join(parts).lower())
        for setting in ("slot", "publication"):
            if not getattr(self, setting):
                object.__setattr__(self, setting, default[:63])
        if not re.fullmatch(r"[a-z0-9_]{1,63}", self.slot):
            raise PlanError("this cannot be the name of a slot", given=self.slot, allowed="a-z, 0-9, _; 63 at most")
        if self.on_gap not in ("raise", "continue"):
            raise PlanError("unknown on_gap", given=self.on_gap, allowed="raise, continue")

    @classmethod
    def of(
        cls, dsn: str, table: str, columns: Schema | str | None = None, key: Sequence[str] = (), **rest: Any
    ) -> PostgresChanges:
        """The source, with columns and key from the table where they are not given."""
        return _completed(cls(dsn, table, Schema(()) if columns is None else Schema.of(columns), tuple(key), **rest))

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> SourceAdapter:  # type: ignore[override] # see below
        """The source, with columns and key as `of` has them; with a `cursor` it is a `PostgresPolled`.

        `columns` may have those that the source adds, as streams of SQL have them.
        """
        if options.keys() & set(cls.more_options):
            return PostgresPolled.from_options(options)
        columns = Schema.of(options.get("columns", Schema(())))
        own = Schema(tuple(column for column in columns if column.name not in Schema(ADDED)))
        return _completed(super().from_options({"key": (), **options, "columns": own}))

    def __str__(self) -> str:
        name = f", {self.name}" if self.name else ""
        return f"postgres changes({self.table}{name} by {', '.join(self.key)})"

    @property
    def schema(self) -> Schema:
        """The table's columns, and `_change_type`, `_commit_time`, `_lsn`."""
        return Schema((*self.columns, *ADDED))

    @property
    def table_log(self) -> TableLog:
        return TableLog(self.columns, self.key, CHANGE_TYPE)

    @property
    def _what(self) -> str:
        return f"changes of the table {self.table}"

    def offsets(self, positions: Mapping[str, int]) -> Mapping[str, Offsets]:
        """The end of the log, if it has changes of the table; creates slot and publication before the first range."""
        position = positions.get(self.slot, 0)
        with connected(self.dsn, SourceError, self._what) as connection:
            slot = self._ready_slot(connection, position)
            end = slots.end_of_log(connection)
            self._check_end(position, end)
            if position <= 0:
                return {self.slot: Offsets(0 if self.snapshot else slot.confirmed, end)}
            self._lost(slot, position)  # an error, unless `on_gap` lets `read` take a new snapshot
            if not self._has_news(connection, slot, position, end):
                end = position
            return {self.slot: Offsets(min(slot.confirmed, position), max(position, end))}

    def limit(self, partition: str, start: int, end: int, rows: int) -> int:  # noqa: ARG002 - there is one partition
        """The end of the transaction that has the last of so many rows; a snapshot is not divided."""
        if start <= 0 or end - start <= rows * _LEAST_BYTES_A_ROW:
            return end
        query = sql.SQL(
            "SELECT count(*), max(lsn) FILTER (WHERE get_byte(data, 0) = ascii('C')) - '0/0'::pg_lsn FROM {}"
        ).format(self._peek(end, rows))
        with connected(self.dsn, SourceError, self._what) as connection:
            found = slots.in_turn(lambda: connection.execute(query)).fetchone()
        if found is None or found[0] < rows:
            return end
        last = int(found[1] or 0)  # before the start, if what was read is not acknowledged yet
        return min(end, last if last > start else start + rows * _BYTES_A_ROW)

    def read(
        self, partition: str, start: int, end: int, columns: Sequence[str]
    ) -> Generator[DecodedBlock, None, int | None]:
        """The changes of a range; a range from 0 is a snapshot, and the next one starts where that was taken."""
        with connected(self.dsn, SourceError, self._what) as connection:
            table = self._published(connection)
            slot = self._found_slot(connection, partition)
            lost = self._lost(slot, start)
            if (start <= 0 and self.snapshot) or lost:
                return (yield from self._snapshot(connection, table, columns, lost))
            self._check_end(end, slots.end_of_log(connection))
            known = frozenset(column.name for column in table.columns)
            decoder = LogDecoder(table.oid, self.columns, self.key, start, end, known)
            for messages in self._messages(connection, end):
                block = decoder.decode(messages).where(None, columns)
                if block.table.num_rows or block.refused.num_rows:
                    yield block
        return None

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        """Let the server forget the log before the position."""
        position = positions.get(self.slot, 0)
        if position > 0:
            with connected(self.dsn, SourceError, self._what) as connection:
                slot = slots.find_slot(connection, self.slot)
                if slot is not None:
                    slots.advance(connection, slot, position)

    def exists(self) -> bool:
        """Whether the slot exists."""
        with connected(self.dsn, SourceError, self._what) as connection:
            return slots.find_slot(connection, self.slot) is not None

    def drop(self) -> None:
        """Remove the slot and the publication from the server, when no query needs them any more."""
        with connected(self.dsn, SourceError, self._what) as connection:
            slots.drop(connection, self.slot, self.publication)

    def close(self) -> None:
        """Close this process's connections to the database."""
        close_idle(self.dsn)

    # The slot.

    def _ready_slot(self, connection: Connection, position: int) -> slots.ReplicationSlot:
        """The slot, created if that is allowed; an error if it should exist and does not."""
        slot = slots.find_slot(connection, self.slot)
        if slot is not None and not slot.is_lost:
            self._published(connection)
            return slot
        if position > 0 and self.on_gap == "raise":
            raise self._gap(position, "was dropped" if slot is None else "has lost its log (max_slot_wal_keep_size)")
        if not self.create:
            raise SourceError(
                f"there is no replication slot {self.slot!r}", given=f"slot={self.slot!r}, create=False",
                instead=f"create=True, or SELECT pg_create_logical_replication_slot('{self.slot}', 'pgoutput') after "
                f"CREATE PUBLICATION {self.publication} FOR TABLE {self.table}",
            )  # fmt: skip
        if slot is not None:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [self.slot])
        # The publication first: the log before it was created cannot be decoded with it.
        slots.create_publication(connection, self.publication, self._checked(connection))
        self._published(connection)
        slots.create_slot(connection, self.slot)
        return self._found_slot(connection, self.slot)

    def _found_slot(self, connection: Connection, name: str) -> slots.ReplicationSlot:
        slot = slots.find_slot(connection, name)
        if slot is None or slot.is_lost:
            raise self._gap(0, "was dropped" if slot is None else "has lost its log (max_slot_wal_keep_size)")
        return slot

    def _lost(self, slot: slots.ReplicationSlot, start: int) -> int:
        """How many bytes of the log are missing before what the slot still has."""
        lost = max(0, slot.confirmed - start) if start > 0 else 0
        if lost and self.on_gap == "raise":
            raise self._gap(start, f"was advanced to {slots.lsn(slot.confirmed)} by another reader")
        return lost

    def _check_end(self, position: int, end: int) -> None:
        """Raise if the log ends before a position that it once had."""
        if position > end:
            raise SourceError(
                f"the log of the server ends at {slots.lsn(end)}, before {slots.lsn(position)}, up to which changes of "
                f"{self.table} are known: this is another server, or one that was restored from an older copy",
                given=f"slot {self.slot!r}", instead="the server from before, or a new checkpoint",
            )  # fmt: skip

    def _gap(self, position: int, event: str) -> SourceError:
        return SourceError(
            f"the replication slot {self.slot!r} {event}: the changes of {self.table} since {slots.lsn(position)} are "
            "lost",
            given=f"slot {self.slot!r}",
            instead="on_gap='continue', which reads the table again (rows deleted since then stay), or a new "
            "checkpoint; if another query uses the slot, name= for each",
        )

    def _has_news(self, connection: Connection, slot: slots.ReplicationSlot, position: int, end: int) -> bool:
        """Whether a range from the position should be read now."""
        if end <= position:
            return False
        if slot.confirmed > position or end - position >= IDLE_LOG:
            return True
        place = (self.dsn, self.slot)
        with _seen_lock:
            seen = _seen.get(place)
        if seen is not None and seen.position == position and (seen.has_news or seen.end == end):
            return seen.has_news
        # Before version 15, transactions of other tables are in the log as empty ones, and the first may be such a one.
        found = self._changes_after(connection, position, end, 1 if connection.info.server_version >= 150_000 else None)
        if found == "earlier":  # what is read but not acknowledged comes first
            found = self._changes_after(connection, position, end, None)
        with _seen_lock:
            _seen[place] = _Seen(position, end, found == "some")
        return found == "some"

    def _changes_after(
        self, connection: Connection, position: int, end: int, count: int | None
    ) -> Literal["some", "earlier", "none"]:
        query = sql.SQL(
            "SELECT max(lsn) FILTER (WHERE get_byte(data, 0) = ascii('C')) > {}::pg_lsn FROM {} "
            "HAVING bool_or(chr(get_byte(data, 0)) IN ('I', 'U', 'D', 'T'))"
        ).format(sql.Literal(slots.lsn(position)), self._peek(end, count))
        found = slots.in_turn(lambda: connection.execute(query)).fetchone()
        if found is None:
            return "none"
        return "some" if found[0] else "earlier"

    def _peek(self, upto: int, count: int | None) -> sql.Composed:
        return slots.PEEK.format(
            slot=sql.Literal(self.slot), upto=sql.Literal(slots.lsn(upto)), count=sql.Literal(count),
            publication=sql.Literal(self.publication),
        )  # fmt: skip

    # The table.

    def _checked(self, connection: Connection) -> TableInfo:
        """The table, if its changes can be read with these columns."""
        table = _existing(connection, self.table)
        place = f"the table {self.table}"
        check_declared(self.columns, table.columns, place)
        free_of_reserved(self.columns, (field.name for field in ADDED), place)
        identity = table.identity_columns
        if not self.key or not set(self.key) <= set(identity):
            columns = ", ".join(table.primary_key or self.key) or "…"
            raise SourceError(
                f"the log has no key for deleted rows of {place}",
                given=f"key {', '.join(self.key) or '(none)'}",
                allowed=f"a part of the replica identity: {', '.join(identity) or '(none)'}",
                instead=f"ALTER TABLE {self.table} ADD PRIMARY KEY ({columns}), or REPLICA IDENTITY FULL and key=",
            )
        return table

    def _published(self, connection: Connection) -> TableInfo:
        """The table, if the publication has its changes."""
        table = self._checked(connection)
        slots.check_publication(connection, self.publication, table, {*self.columns.names, *self.key})
        return table

    def _messages(self, connection: Connection, end: int) -> Iterator[list[bytes]]:
        """The log up to a place, in blocks of whole transactions."""
        rows = slots.in_turn(lambda: self._first_messages(connection, end))
        pending: list[bytes] = []
        try:
            while rows:
                messages = [row[0] for row in rows]
                whole = whole_transactions(messages)
                if whole:
                    yield pending + messages[:whole]
                    pending = []
                pending += messages[whole:]
                rows = _next_messages(connection)
        finally:
            _end_transaction(connection)

    def _first_messages(self, connection: Connection, end: int) -> list[tuple[bytes]]:
        """Begin to read the log: the server decodes it all for the first block, and then the slot is free again."""
        connection.execute("BEGIN READ ONLY")
        try:
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")  # who reads may pause
            declare = sql.SQL("DECLARE headrace_log NO SCROLL CURSOR FOR SELECT data FROM {}")
            connection.execute(declare.format(self._peek(end, None)))
            return _next_messages(connection)
        except BaseException:
            _end_transaction(connection)
            raise

    def _snapshot(
        self, connection: Connection, table: TableInfo, columns: Sequence[str], lost: int
    ) -> Generator[DecodedBlock, None, int]:
        with connected(self.dsn, SourceError, self._what) as locker:
            place, time = _share_snapshot(locker, connection, table)
        try:
            number, query = 0, _select(table, [field.name for field in self.columns])
            for texts in copy_out(connection, query, self.columns.names):
                rows = np.minimum(np.arange(number, number + texts.num_rows), place - 1)
                same = [np.full(texts.num_rows, value, np.int64) for value in (time, place)]
                kinds = pa.repeat(pa.scalar("insert"), texts.num_rows)
                block = replace(text_block(texts, self.columns, rows, kinds, *same), lost=lost)
                yield block.where(None, columns)
                number, lost = number + texts.num_rows, 0
            if lost:  # an empty table
                none = np.zeros(0, np.int64)
                empty = text_block(_texts(self.columns), self.columns, none, pa.array([], pa.string()), none, none)
                yield replace(empty, lost=lost).where(None, columns)
        finally:
            _end_transaction(connection)
        return place


def _next_messages(connection: Connection) -> list[tuple[bytes]]:
    return connection.execute(f"FETCH {_MESSAGES} FROM headrace_log".encode(), binary=True).fetchall()


def _texts(columns: Schema) -> pa.Table:
    """No rows, with texts in all columns."""
    return pa.schema([(column.name, pa.string()) for column in columns]).empty_table()


def _end_transaction(connection: Connection) -> None:
    if not connection.closed and not connection.broken:
        connection.rollback()


def _select(table: TableInfo, names: Sequence[str]) -> sql.Composed:
    only = sql.SQL("" if table.kind == "p" else "ONLY ")
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    return sql.SQL("SELECT {} FROM {}{}").format(columns, only, sql.Identifier(table.schema, table.name))


def _share_snapshot(locker: Connection, reader: Connection, table: TableInfo) -> tuple[int, int]:
    """Begin a transaction of the reader with a snapshot; the result is its place in the log and its time."""
    lock = sql.SQL("LOCK TABLE {}{} IN SHARE MODE").format(
        sql.SQL("" if table.kind == "p" else "ONLY "), sql.Identifier(table.schema, table.name)
    )
    locker.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    try:
        locker.execute("SET LOCAL lock_timeout = '5s'")  # writers wait behind this lock
        locker.execute(lock)
        found = locker.execute(
            "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_export_snapshot(), clock_timestamp()"
        ).fetchone()
        assert found is not None
        place, snapshot, time = found
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        reader.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        # A commit that writes to the log puts the log before it on disk: the place cannot be lost in a crash.
        locker.execute("SELECT pg_logical_emit_message(true, 'headrace', '')")
        locker.execute("COMMIT")
    except BaseException:
        _end_transaction(locker)
        _end_transaction(reader)
        raise
    return int(place), ticks(time)


def _completed(source: PostgresChanges) -> PostgresChanges:
    """The source with columns and key from the table where it has none."""
    with connected(source.dsn, SourceError, f"the table {source.table}") as connection:
        info = _existing(connection, source.table)
    columns = source.columns if len(source.columns) else derived(info.columns, f"the table {source.table}")
    return replace(source, columns=columns, key=source.key or info.primary_key or _identity(info))


def _existing(connection: Connection, table: str) -> TableInfo:
    info = described(connection, table)
    if info is None or info.kind not in "rp":
        raise SourceError(
            f"there is no table {table}" if info is None else f"{table} is not a table: it has no changes of its own",
            given=table, instead="the name of a table, with its schema if that is not in the search path",
        )  # fmt: skip
    return info


def _identity(table: TableInfo) -> tuple[str, ...]:
    return table.identity_columns if table.identity == "i" else ()
