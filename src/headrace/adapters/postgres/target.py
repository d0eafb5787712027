"""The table of a sink: which of its columns get what, whether it fits, and the statement that creates it.

Every column of the payload needs a column of the table, by its name or by the name that `columns` gives it. The
columns that an encoding adds are written where the table has columns for them: `le`, `re`, `_batch`; a log also needs
its `kind` or `_change_type`, without which its rows mean nothing.

Times of lifetimes are counts of ticks in a `bigint` column and times in a `timestamptz` column, where the ends of time
are `infinity` and `-infinity`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from headrace.adapters.postgres.catalog import ColumnInfo, TableInfo, quoted
from headrace.adapters.postgres.copying import time_texts
from headrace.adapters.postgres.types import TIMES, created, writable
from headrace.errors import SinkError
from headrace.io.sinks import Encoding
from headrace.schema import Field, Schema, Type

__all__ = ["Target", "Times", "create_statement", "matched"]

Times = Literal["ticks", "timestamp"]
#: The columns that each encoding adds, in the order of a created table, and those that a log cannot do without.
_ADDED: dict[Encoding, tuple[str, ...]] = {
    "final": ("le", "re"),
    "upsert": ("le",),
    "events": ("_batch", "kind", "le", "re", "re_new"),
    "changes": ("_batch", "_change_type", "le", "re"),
}
_NEEDED = ("kind", "_change_type")
_TICKS = ("le", "re", "re_new")
_BATCH = "_batch"
_FILL = 70  # per cent of a page: the rest is for new versions of its rows, which then need no new index entries


@dataclass(frozen=True)
class Target:
    """The columns of a table that are written: the name in the rows, and the column."""

    written: tuple[tuple[str, ColumnInfo], ...]
    key: tuple[str, ...]
    nulls_equal: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for _, column in self.written)

    def rows(self, rows: pa.Table, batch: int) -> pa.Table:
        """The rows with the table's columns, times in the form that each column takes."""
        values = []
        for name, column in self.written:
            if name == _BATCH and name not in rows.column_names:
                values.append(pa.chunked_array([np.full(rows.num_rows, batch, np.int64)]))
            elif name in _TICKS and column.type in TIMES:
                values.append(time_texts(rows[name]))
            elif pa.types.is_timestamp(rows[name].type) and column.type == "int8":
                values.append(rows[name].cast(pa.int64()))
            else:
                values.append(rows[name])
        return pa.table(values, names=list(self.columns))


def _fields(columns: Schema, encoding: Encoding) -> list[Field]:
    texts = {name: Field(name, Type.STRING) for name in _NEEDED}
    added = [texts.get(name, Field(name, Type.LONG)) for name in _ADDED[encoding] if name not in columns.payload]
    return [*added, *columns.payload]


def create_statement(
    table: str, columns: Schema, encoding: Encoding, key: tuple[str, ...], names: Mapping[str, str], times: Times
) -> str:
    """The statement that creates a table for a sink."""
    lines = []
    for field in _fields(columns, encoding):
        is_time = field.name in _TICKS and times == "timestamp"
        lines.append(f"{quoted(names.get(field.name, field.name))} {'timestamptz' if is_time else created(field.type)}")
    if not key:
        return f"CREATE TABLE {table} ({', '.join(lines)})"
    lines.append(f"PRIMARY KEY ({', '.join(quoted(names.get(name, name)) for name in key)})")
    return f"CREATE TABLE {table} ({', '.join(lines)}) WITH (fillfactor = {_FILL})"


def matched(
    table: TableInfo, columns: Schema, encoding: Encoding, key: tuple[str, ...], names: Mapping[str, str], create: str
) -> Target:
    """How the rows of a sink fit into a table that exists; an error shows the statement that would create one."""
    place = f"{table.schema}.{table.name}"
    written = []
    for field in _fields(columns, encoding):
        name = names.get(field.name, field.name)
        column = table.column(name)
        if column is not None:
            _check_type(field, column, place, create)
            written.append((field.name, column))
        elif field.name not in _ADDED[encoding] or field.name in _NEEDED:
            raise SinkError(
                f"the table {place} has no column {name!r}",
                given=str(columns), allowed=", ".join(c.name for c in table.columns),
                instead=f"columns={{{field.name!r}: 'a column of the table'}}, or {create}",
            )  # fmt: skip
    _check_rest(table, {column.name for _, column in written}, place)
    index = _check_key(table, tuple(names.get(name, name) for name in key), place, create) if key else None
    return Target(tuple(written), index[0] if index else (), bool(index and index[1]))


def _check_type(field: Field, column: ColumnInfo, place: str, create: str) -> None:
    fits = writable(field.type, column) or (field.name in _TICKS and column.type in TIMES)
    if column.is_generated or not fits:
        reason = "computes its values by itself" if column.is_generated else f"is {column.declared}"
        raise SinkError(
            f"column {column.name!r} of the table {place} {reason}, and cannot get {field.type.value}",
            given=str(field), allowed=created(field.type),
            instead=f"another column by columns={{{field.name!r}: …}}, or {create}",
        )  # fmt: skip


def _check_rest(table: TableInfo, written: set[str], place: str) -> None:
    lacking = [c.name for c in table.columns if c.not_null and not c.has_default and c.name not in written]
    if lacking:
        raise SinkError(
            f"columns of the table {place} must not be null, and the rows have no values for them: "
            + ", ".join(lacking),
            instead=f"ALTER TABLE {place} ALTER COLUMN {quoted(lacking[0])} DROP NOT NULL, or SET DEFAULT …",
        )


def _check_key(table: TableInfo, key: tuple[str, ...], place: str, create: str) -> tuple[tuple[str, ...], bool]:
    index = table.unique(key)
    if index is None:
        columns = ", ".join(map(quoted, key))
        unique = "; ".join(", ".join(index.columns) for index in table.indexes)
        raise SinkError(
            f"upserts need a unique constraint on exactly the key of the table {place}",
            given=f"key {', '.join(key)}", allowed=unique or "(the table has no unique constraint)",
            instead=f"ALTER TABLE {place} ADD UNIQUE ({columns}), or {create}",
        )  # fmt: skip
    return key, index.nulls_equal
