"""A table read by a column whose values only grow: an id from a sequence, or the time of the last change.

Offsets are the values of this *cursor* column: integers, or ticks for times. A range has the rows whose values lie in
it. Every row is read once, if rows are not changed in a way that gives them a value that was read before.

**What a cursor cannot see.** Rows appear when their transaction commits, and a sequence or a clock gave them their
values earlier. If a transaction runs longer than the time between two reads, its rows appear below values that were
read already, and are never read. `lag` keeps a distance from the end: a duration for times (by the server's clock), a
number of values for integers; it must exceed the longest transaction. Deleted rows are not seen, and of a row that is
updated several times between two reads, only the last version. `PostgresChanges` has none of these limits.

A range is repeatable as long as its rows do not change. A row that is updated in between has a new time, and is read
with a later range instead.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from headrace.adapters.postgres.catalog import ColumnInfo, described, identifier, name_parts
from headrace.adapters.postgres.connection import Connection, check_dsn, close_idle, connected
from headrace.adapters.postgres.copying import copy_out
from headrace.adapters.postgres.tables import typed_block
from headrace.adapters.postgres.types import check_declared, derived, free_of_reserved
from headrace.columnar import to_numpy
from headrace.errors import PlanError, SourceError
from headrace.io.adapter import Offsets, SourceAdapter
from headrace.io.decoded import DecodedBlock
from headrace.schema import Field, Schema, Type
from headrace.time import DurationLike, duration, ticks

__all__ = ["PostgresPolled"]

_INTEGERS = ("int2", "int4", "int8")
_TIMES = ("timestamptz", "timestamp")
_CURSOR = "__cursor"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
P = TypeVar("P", bound="PostgresPolled")


@dataclass(frozen=True)
class PostgresPolled(SourceAdapter):
    """A table with a cursor column, which must be declared NOT NULL and should have an index.

    `lag` is the distance from the end that is not read yet: a duration for times, a number for integers.
    """

    dsn: str = field(repr=False)
    table: str
    columns: Schema
    cursor: str
    lag: DurationLike = 0

    def __post_init__(self) -> None:
        check_dsn(self.dsn)
        name_parts(self.table)
        if duration(self.lag) < 0:
            raise PlanError("a lag is not negative", given=self.lag, instead="'10 s'")

    @classmethod
    def of(
        cls, dsn: str, table: str, cursor: str, columns: Schema | str | None = None, lag: DurationLike = 0
    ) -> PostgresPolled:
        """The source, with columns from the table if they are not given."""
        return _completed(cls(dsn, table, Schema(()) if columns is None else Schema.of(columns), cursor, lag))

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """The source, with columns from the table if they are not given."""
        return _completed(super().from_options({"columns": Schema(()), **options}))

    def __str__(self) -> str:
        return f"postgres polled({self.table} by {self.cursor})"

    @property
    def schema(self) -> Schema:
        """The table's columns."""
        return self.columns

    @property
    def _what(self) -> str:
        return f"the table {self.table}"

    def offsets(self, positions: Mapping[str, int]) -> Mapping[str, Offsets]:
        """The least value of the cursor, and the end after the greatest one that the lag allows."""
        with connected(self.dsn, SourceError, self._what) as connection:
            column = self._checked(connection)
            found = self._one(connection, "SELECT min({0}), max({0}), clock_timestamp() FROM {1}")
            position = positions.get(self.table)
            if found[0] is None:
                return {self.table: Offsets(position or 0, position or 0)} if position is not None else {}
            first, last = (_offset(value) for value in found[:2])
        end = last + 1 - duration(self.lag)
        if column.type in _TIMES:
            end = min(last + 1, _offset(found[2]) - duration(self.lag))
        reached = first if position is None else position  # rows that were read may have been deleted since
        return {self.table: Offsets(min(first, reached), max(end, reached))}

    def limit(self, partition: str, start: int, end: int, rows: int) -> int:  # noqa: ARG002 - there is one partition
        """The value of the row after so many rows; rows with the same value stay together."""
        with connected(self.dsn, SourceError, self._what) as connection:
            column = self._checked(connection)
            low, high = (_literal(column, value) for value in (start, end))
            form = "SELECT {0} FROM {1} WHERE {0} >= {2} AND {0} < {3} ORDER BY {0} OFFSET {4} LIMIT 1"
            found = self._one(connection, form, low, high, sql.Literal(rows))
        if found is None:
            return end
        following = _offset(found[0])
        return min(end, following if following > start else start + 1)

    def read(
        self,
        partition: str,  # noqa: ARG002 - there is one partition
        start: int,
        end: int,
        columns: Sequence[str],
    ) -> Generator[DecodedBlock, None, int | None]:
        """The rows whose cursor lies in the range, in its order."""
        with connected(self.dsn, SourceError, self._what) as connection:
            column = self._checked(connection)
            chosen = Schema(tuple(self.columns[name] for name in dict.fromkeys(columns)))
            kind = Type.DATETIME if column.type in _TIMES else Type.LONG
            fields = Schema((*chosen, Field(_CURSOR, kind)))
            names = [*(sql.Identifier(name) for name in chosen.names), sql.Identifier(self.cursor)]
            query = sql.SQL("SELECT {0} FROM {1} WHERE {2} >= {3} AND {2} < {4} ORDER BY {2}").format(
                sql.SQL(", ").join(names), identifier(self.table), sql.Identifier(self.cursor),
                _literal(column, start), _literal(column, end),
            )  # fmt: skip
            for texts in copy_out(connection, query, fields.names):
                yield _numbered(texts, fields).where(None, columns)
        return None

    def close(self) -> None:
        """Close this process's connections to the database."""
        close_idle(self.dsn)

    def _one(self, connection: Connection, form: str, *rest: sql.Composable) -> Any:
        query = sql.SQL(form).format(sql.Identifier(self.cursor), identifier(self.table), *rest)
        return connection.execute(query).fetchone()

    def _checked(self, connection: Connection) -> ColumnInfo:
        """The cursor column, if the table can be read by it."""
        info = described(connection, self.table)
        if info is None:
            raise SourceError(f"there is no table {self.table}", given=self.table, instead="the name of a table")
        check_declared(self.columns, info.columns, self._what)
        free_of_reserved(self.columns, (_CURSOR,), self._what)
        column = info.column(self.cursor)
        if column is None or column.type not in (*_INTEGERS, *_TIMES):
            given = f"{self.cursor} {column.declared}" if column else self.cursor
            raise SourceError(
                f"{self._what} cannot be read by the column {self.cursor!r}",
                given=given, allowed="a column of integers or of times that exists and only grows",
                instead="cursor='id' or cursor='updated_at'",
            )  # fmt: skip
        if column.type in _INTEGERS and not isinstance(self.lag, int):
            raise SourceError(
                f"{self.cursor!r} of {self._what} has numbers, and a distance from the last one is a number",
                given=f"lag={self.lag!r}",
                allowed="a number of values; a duration if the cursor is a column of times",
                instead="lag=1000",
            )
        if info.kind in "rp" and not column.not_null:
            raise SourceError(
                f"rows of {self._what} without a value of {self.cursor!r} would never be read",
                given=f"{self.cursor} {column.declared}",
                instead=f"ALTER TABLE {self.table} ALTER COLUMN {self.cursor} SET NOT NULL",
            )
        return column


def _completed(source: P) -> P:
    """The source with the columns of the table if it has none."""
    if len(source.columns):
        return source
    with connected(source.dsn, SourceError, f"the table {source.table}") as connection:
        info = described(connection, source.table)
    return replace(source, columns=derived(info.columns if info is not None else (), f"the table {source.table}"))


def _numbered(texts: pa.Table, fields: Schema) -> DecodedBlock:
    """A block whose rows are numbered by the cursor."""
    block = typed_block(texts, fields)
    cursor = typed_block(texts.select([_CURSOR]), Schema((fields[_CURSOR],))).table[_CURSOR]
    values = to_numpy(pc.cast(cursor, pa.int64()))
    refused = block.refused
    if refused.num_rows:
        refused = refused.set_column(0, "row", pa.array(values[refused["row"].to_numpy()]))
    return replace(block, rows=values[block.rows], refused=refused)


def _offset(value: int | datetime) -> int:
    return value if isinstance(value, int) else ticks(value)


def _literal(column: ColumnInfo, value: int) -> sql.Composable:
    if column.type in _INTEGERS:
        return sql.SQL("{}::bigint").format(sql.Literal(value))
    time = _EPOCH + timedelta(microseconds=value)
    return sql.SQL("{}::{}").format(
        sql.Literal(time.isoformat()), sql.SQL("timestamptz" if column.type == "timestamptz" else "timestamp")
    )
