"""Tables of a SQLite database as sinks.

A delivery is one transaction: it writes the rows, and the number of the batch into the table `headrace_deliveries`. A
batch that is recorded there is not written again, so every row is in the table once, whatever crashes.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.adapters import DeliveryId, SinkAdapter
from headrace.errors import PlanError, SinkError, Unavailable
from headrace.schema import Schema
from headrace_sqlite.source import connect, quoted

__all__ = ["SqliteSink"]

_RECORD = (
    "CREATE TABLE IF NOT EXISTS headrace_deliveries (query, output, part, batch, PRIMARY KEY (query, output, part))"
)
_TYPES = {"STRING": "TEXT", "CHAR": "TEXT", "DOUBLE": "REAL", "FLOAT": "REAL"}


@dataclass(frozen=True)
class SqliteSink(SinkAdapter):
    """A table: physical events, changes and final rows are appended, upserts replace the row of their key."""

    database: str = ""
    table: str = ""
    paths: ClassVar[tuple[str, ...] | None] = ("database",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.database or not self.table:
            raise PlanError("a sink of SQLite needs a database and a table", given=f"{self.database!r}, {self.table!r}")

    def __str__(self) -> str:
        return f"sqlite {self.table}, {self.encoding}{' by ' if self.key else ''}{', '.join(self.key)}"

    @property
    def written_place(self) -> str:
        return f"sqlite {self.table}"

    def open(self, query: str, output: int, columns: Schema, batch: int) -> None:  # noqa: ARG002 - the same for all
        names = [f"{quoted(name)} {kind}" for name, kind in self._columns(columns)]
        keys = f", PRIMARY KEY ({', '.join(map(quoted, self.key))})" if self.key else ""
        with closing(connect(self.database)) as connection, connection:
            connection.execute(_RECORD)
            connection.execute(f"CREATE TABLE IF NOT EXISTS {quoted(self.table)} ({', '.join(names)}{keys})")

    def _columns(self, columns: Schema) -> list[tuple[str, str]]:
        own = {"events": ["kind", "le", "re", "re_new"], "changes": ["_change_type", "le", "re"]}
        first = own.get(self.encoding, ["le", "re"] if self.encoding == "final" else ["le"])
        start, end = self.time_columns
        names = {"le": start, "re": end, "re_new": f"{end}_new"}
        payload = [(field.name, _TYPES.get(field.type.value, "INTEGER")) for field in columns]
        kinds = {"kind": "TEXT", "_change_type": "TEXT"}
        return [*((names.get(name, name), kinds.get(name, "INTEGER")) for name in first), *payload]

    def deliver(self, delivery: DeliveryId, rows: pa.Table) -> None:
        part = (delivery.query, delivery.output, delivery.part)
        try:
            with closing(connect(self.database)) as connection, connection:
                connection.execute("BEGIN IMMEDIATE")
                found = connection.execute(
                    "SELECT batch FROM headrace_deliveries WHERE query = ? AND output = ? AND part = ?", part
                ).fetchone()
                if found is None or found[0] < delivery.batch:
                    self._write(connection, rows)
                    connection.execute("REPLACE INTO headrace_deliveries VALUES (?, ?, ?, ?)", (*part, delivery.batch))
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise SinkError(f"{self} cannot be written: {error}", given=self.database) from error
            raise Unavailable(f"the database is busy: {error}", given=self.database) from error
        except sqlite3.Error as error:
            raise SinkError(f"{self} cannot be written: {error}", given=self.database) from error

    def _write(self, connection: sqlite3.Connection, rows: pa.Table) -> None:
        if self.encoding != "upsert":
            self._insert(connection, rows)
            return
        # Not by REPLACE: for SQLite, two keys with a null differ; for a query they are the same.
        where = " AND ".join(f"{quoted(name)} IS ?" for name in self.key)
        keys = _tuples(rows.select(list(self.key)))
        connection.executemany(f"DELETE FROM {quoted(self.table)} WHERE {where}", keys)  # noqa: S608
        self._insert(connection, rows.filter(pc.equal(rows["op"], "upsert")).drop_columns(["op", "_batch"]))

    def _insert(self, connection: sqlite3.Connection, rows: pa.Table) -> None:
        names = ", ".join(quoted(name) for name in rows.column_names)
        places = ", ".join("?" * rows.num_columns)
        statement = f"INSERT INTO {quoted(self.table)} ({names}) VALUES ({places})"  # noqa: S608 - quoted names
        connection.executemany(statement, _tuples(rows))


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    """The rows as tuples; times as numbers of microseconds."""
    times = [pa.types.is_timestamp(kind) for kind in rows.schema.types]
    columns = [column.cast(pa.int64()) if time else column for column, time in zip(rows.columns, times, strict=True)]
    return list(zip(*(column.to_pylist() for column in columns), strict=True)) if rows.num_rows else []
