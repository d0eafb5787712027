"""The sink: answers as rows of a table, each batch exactly once.

A delivery is one transaction. It first records its batch number in the table of deliveries, which has a row for each
part: that takes the row's lock, so that two attempts at the same part follow each other, and the second one finds the
number and does nothing. Then come the rows. A crash at any moment leaves both or neither.

`final`, `events` and `changes` append rows with COPY. `upsert` copies them to a temporary table of the session, which
is emptied by each commit, and applies them with one DELETE and one INSERT … ON CONFLICT DO UPDATE; parts have
different keys, so they run at the same time without waiting for each other.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from headrace.adapters.postgres.catalog import described, identifier, name_parts, quoted
from headrace.adapters.postgres.connection import Connection, check_dsn, close_idle, connected
from headrace.adapters.postgres.copying import copy_in
from headrace.adapters.postgres.target import Target, Times, create_statement, matched
from headrace.border import LIFETIME, as_ticks
from headrace.errors import PlanError, SinkError
from headrace.io.adapter import DeliveryId, SinkAdapter
from headrace.io.sinks import CHANGE_TYPE, Encoding
from headrace.io.upserts import BATCH, OP
from headrace.schema import Schema

__all__ = ["PostgresSink"]

_DELIVERIES = """
    CREATE TABLE {} (query text, output integer, part integer, batch bigint NOT NULL,
                     delivered_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (query, output, part))
"""
_RECORD = """
    INSERT INTO {0} AS d (query, output, part, batch, delivered_at) VALUES (%s, %s, %s, %s, clock_timestamp())
    ON CONFLICT (query, output, part) DO UPDATE SET batch = EXCLUDED.batch, delivered_at = EXCLUDED.delivered_at
    WHERE d.batch < EXCLUDED.batch
"""
_LOCK = 0x68656164  # processes that open at the same time must not create a table twice

_targets_lock = threading.Lock()
#: Deliveries of this process that run, by the connections that they use.
_delivering: dict[int, tuple[str, str, Connection]] = {}
_CANCEL = 1.0  # seconds that the server may take to answer
_targets: dict[tuple[str, str, pa.Schema], Target] = {}


@dataclass(frozen=True)
class PostgresSink(SinkAdapter):
    """A table of PostgreSQL.

    `create` creates the table if it is missing. `columns` names the table's columns where they differ from those of
    the rows. `times` is the form of lifetimes in a created table: `timestamp` (timestamptz) or `ticks` (bigint), by
    default that of the stream's times; in a table that exists, the column's type decides. `deliveries` is the table
    with the batch numbers.
    """

    dsn: str = field(default="", repr=False)
    table: str = ""
    create: bool = False
    times: Times | None = None
    columns: Mapping[str, str] | tuple[tuple[str, str], ...] = ()
    deliveries: str = "headrace_deliveries"

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """The sink, by default for final rows; new names of columns may be a text: `total AS sum, …`."""
        given = {"encoding": "final", **options}
        if isinstance(given.get("columns"), str):
            given["columns"] = _new_names(given["columns"])
        return super().from_options(given)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dsn(self.dsn)
        name_parts(self.table)
        name_parts(self.deliveries)
        if self.times not in ("timestamp", "ticks", None):
            raise PlanError("unknown form of times", given=self.times, allowed="timestamp, ticks")
        if isinstance(self.columns, Mapping):
            object.__setattr__(self, "columns", tuple(self.columns.items()))

    def __str__(self) -> str:
        key = f" by {', '.join(self.key)}" if self.key else ""
        names = "".join(f", {old} as {new}" for old, new in dict(self.columns).items())
        return f"postgres({self.table}, {self.encoding}{key}{names})"

    @property
    def written_place(self) -> str:
        return f"postgres({self.table})"

    @property
    def _what(self) -> str:
        return f"the table {self.table}"

    def open(self, query: str, output: int, columns: Schema, batch: int) -> None:
        """Create what is missing, and check that rows with these columns fit into the table."""
        with connected(self.dsn, SinkError, self._what) as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            self._check_deliveries(connection, query, output, batch)
            statement = self._create_statement(columns)
            if self.create and described(connection, self.table) is None:
                if batch >= 0:
                    raise SinkError(
                        f"{self._what} was dropped, with the rows of batches up to {batch}",
                        given=self.table, instead="the table from before, or a new checkpoint, which reads everything",
                    )  # fmt: skip
                connection.execute(statement.encode())
            self._matched(connection, columns)

    def deliver(self, delivery: DeliveryId, rows: pa.Table) -> None:
        """Write the rows and the batch number in one transaction."""
        with connected(self.dsn, SinkError, self._what) as connection, self._busy(connection), connection.transaction():
            record = sql.SQL(_RECORD).format(identifier(self.deliveries))
            values = [delivery.query, delivery.output, delivery.part, delivery.batch]
            if not connection.execute(record, values).rowcount or not rows.num_rows:
                return
            rows = as_ticks(rows, self.time_columns)
            target = self._target(connection, rows)
            try:
                self._write(connection, target, rows, delivery.batch)
            except Exception:
                with _targets_lock:
                    _targets.pop((self.dsn, str(self), rows.schema), None)  # the table may have other columns now
                raise

    @contextmanager
    def _busy(self, connection: Connection) -> Iterator[None]:
        _delivering[id(connection)] = (self.dsn, self.table, connection)
        try:
            yield
        finally:
            del _delivering[id(connection)]

    def interrupt(self) -> None:
        """Cancel what deliveries wait for, such as a lock of another session."""
        for dsn, table, connection in list(_delivering.values()):
            if (dsn, table) == (self.dsn, self.table):
                with suppress(psycopg.Error):  # the server is away, and the delivery finds out by itself
                    connection.cancel_safe(timeout=_CANCEL)

    def close(self) -> None:
        """Close this process's connections to the database."""
        close_idle(self.dsn)

    # The table.

    def _create_statement(self, columns: Schema) -> str:
        table = ".".join(map(quoted, name_parts(self.table)))
        times: Times = self.times or ("timestamp" if self.dates else "ticks")
        return create_statement(table, columns, self.encoding, self.key, self._names, times)

    @property
    def _names(self) -> dict[str, str]:
        """The names of the table's columns where they differ from those of the rows."""
        start, end = self.time_columns
        new = {"le": start, "re": end, "re_new": f"{end}_new"} if self.time_columns != LIFETIME else {}
        return new | dict(self.columns)

    def _matched(self, connection: Connection, columns: Schema) -> Target:
        statement = self._create_statement(columns)
        table = described(connection, self.table)
        if table is None or table.kind not in "rp":
            reason = "there is no table" if table is None else "only tables can be written, and this is none:"
            raise SinkError(f"{reason} {self.table}", given=self.table, instead=f"create=True, or {statement}")
        return matched(table, columns, self.encoding, self.key, self._names, statement)

    def _target(self, connection: Connection, rows: pa.Table) -> Target:
        """The table's columns, asked for once in each process."""
        name = (self.dsn, str(self), rows.schema)
        with _targets_lock:
            target = _targets.get(name)
        if target is None:
            payload = [column for column in rows.schema if column.name not in _PARTS[self.encoding]]
            target = self._matched(connection, Schema.of(pa.schema(payload)))
            with _targets_lock:
                _targets[name] = target
        return target

    def _check_deliveries(self, connection: Connection, query: str, output: int, batch: int) -> None:
        name = identifier(self.deliveries)
        if described(connection, self.deliveries) is None:
            connection.execute(sql.SQL(_DELIVERIES).format(name))
            return
        recorded = sql.SQL("SELECT max(batch) FROM {} WHERE query = %s AND output = %s").format(name)
        found = connection.execute(recorded, [query, output]).fetchone()
        if found and found[0] is not None and found[0] > batch:
            raise SinkError(
                f"{self._what} has the rows of batch {found[0]} of this query, but its checkpoint ends with batch "
                f"{batch}: one of them was restored from an older copy",
                given=f"query {query}, output {output}",
                instead="a copy of both from the same time, or a new checkpoint and an empty table",
            )

    # The rows.

    def _write(self, connection: Connection, target: Target, rows: pa.Table, batch: int) -> None:
        if not self.key:
            copy_in(connection, identifier(self.table), target.columns, target.rows(rows, batch))
            return
        has_nulls = any(rows[name].null_count for name in self.key)
        if has_nulls and not target.nulls_equal:
            raise SinkError(
                f"a key of {self._what} is null, and its unique constraint takes each null for another key",
                given=f"key {', '.join(self.key)}",
                instead=f"where(col({self.key[0]!r}).is_not_null()), or ALTER TABLE {self.table} ADD UNIQUE NULLS NOT "
                f"DISTINCT ({', '.join(map(quoted, target.key))})",
            )
        deleted = pc.equal(rows[OP], "delete")
        staged = target.rows(rows, batch).append_column(_DELETED, deleted)
        staging = _staging(connection, self.table, target)
        copy_in(connection, staging, staged.column_names, staged)
        deletes = pc.sum(deleted).as_py()
        if deletes:
            connection.execute(_delete(identifier(self.table), staging, target, has_nulls))
        if deletes < rows.num_rows:
            connection.execute(_upsert(identifier(self.table), staging, target))


def _new_names(text: str) -> dict[str, str]:
    pairs = [re.split(r"\s+AS\s+", part.strip(), flags=re.IGNORECASE) for part in text.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise PlanError("these are no new names of columns", given=text, allowed="'total AS sum, item AS name'")
    return dict(pairs)


#: The columns of rows in each encoding that are not the payload's.
_PARTS: dict[Encoding, tuple[str, ...]] = {
    "final": ("le", "re"),
    "upsert": (OP, BATCH, "le"),
    "events": ("kind", "le", "re", "re_new"),
    "changes": (CHANGE_TYPE, "le", "re"),
}
_DELETED = "headrace_deleted"


def _names(names: tuple[str, ...], form: str = "{}") -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL(form).format(sql.Identifier(name)) for name in names)


def _staging(connection: Connection, table: str, target: Target) -> sql.Identifier:
    """The session's temporary table with the written columns, named by their types, and empty."""
    columns = ";".join(f"{column.name} {column.declared}" for _, column in target.written)
    digits = hashlib.sha256(f"{table};{columns}".encode()).hexdigest()[:24]
    staging = sql.Identifier("pg_temp", f"headrace_{digits}")
    connection.execute(
        sql.SQL(
            "CREATE TEMPORARY TABLE IF NOT EXISTS {} ON COMMIT DELETE ROWS AS "
            "SELECT {}, false AS {} FROM {} WITH NO DATA"
        ).format(staging, _names(target.columns), sql.Identifier(_DELETED), identifier(table))
    )
    return staging


def _delete(table: sql.Identifier, staging: sql.Identifier, target: Target, has_nulls: bool) -> sql.Composed:
    form = "(t.{0} = s.{0} OR (t.{0} IS NULL AND s.{0} IS NULL))" if has_nulls else "t.{0} = s.{0}"
    same = sql.SQL(" AND ").join(sql.SQL(form).format(sql.Identifier(name)) for name in target.key)
    return sql.SQL("DELETE FROM {} t USING {} s WHERE s.{} AND {}").format(
        table, staging, sql.Identifier(_DELETED), same
    )


def _upsert(table: sql.Identifier, staging: sql.Identifier, target: Target) -> sql.Composed:
    rest = tuple(name for name in target.columns if name not in target.key)
    action = sql.SQL("UPDATE SET {}").format(_names(rest, "{0} = EXCLUDED.{0}")) if rest else sql.SQL("NOTHING")
    columns = _names(target.columns)
    return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} WHERE NOT {} ON CONFLICT ({}) DO {}").format(
        table, columns, columns, staging, sql.Identifier(_DELETED), _names(target.key), action
    )
