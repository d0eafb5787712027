"""What the server knows about a table: its columns, its unique indexes, its replica identity."""

from __future__ import annotations

import re
from dataclasses import dataclass

from psycopg import sql

from headrace.adapters.postgres.connection import Connection
from headrace.errors import PlanError

__all__ = ["ColumnInfo", "TableInfo", "UniqueIndex", "described", "identifier", "quoted"]

_NAME = re.compile(r'(?:"((?:[^"]|"")+)"|([^".]+))(?:\.|$)')


@dataclass(frozen=True)
class ColumnInfo:
    """A column: `type` is the name of its base type (`int8`, `text`), `declared` how SQL writes it."""

    name: str
    type: str
    declared: str
    not_null: bool = False
    has_default: bool = False
    is_generated: bool = False
    is_enum: bool = False


@dataclass(frozen=True)
class UniqueIndex:
    """A unique index that `ON CONFLICT` can use."""

    columns: tuple[str, ...]
    is_primary: bool
    is_identity: bool
    nulls_equal: bool


@dataclass(frozen=True)
class TableInfo:
    """A table. `kind` is `r` (plain) or `p` (partitioned); `identity` is `d`, `n`, `f` or `i` (replica identity)."""

    oid: int
    schema: str
    name: str
    kind: str
    identity: str
    columns: tuple[ColumnInfo, ...]
    indexes: tuple[UniqueIndex, ...]

    def column(self, name: str) -> ColumnInfo | None:
        return next((column for column in self.columns if column.name == name), None)

    def unique(self, key: tuple[str, ...]) -> UniqueIndex | None:
        """The unique index over exactly these columns."""
        return next((index for index in self.indexes if set(index.columns) == set(key)), None)

    @property
    def primary_key(self) -> tuple[str, ...]:
        return next((index.columns for index in self.indexes if index.is_primary), ())

    @property
    def identity_columns(self) -> tuple[str, ...]:
        """The columns that the log has of a deleted row."""
        if self.identity == "f":
            return tuple(column.name for column in self.columns)
        if self.identity == "i":
            return next((index.columns for index in self.indexes if index.is_identity), ())
        return self.primary_key if self.identity == "d" else ()


def name_parts(table: str) -> tuple[str, ...]:
    """A name as SQL writes it, in parts; other than in SQL, letters keep their case without quotes.

    >>> name_parts('sales."Daily totals"')
    ('sales', 'Daily totals')
    """
    parts, position = [], 0
    while position < len(table):
        found = _NAME.match(table, position)
        if found is None:
            break
        parts.append(found[1].replace('""', '"') if found[1] else found[2].strip())
        position = found.end()
    if position < len(table) or table.endswith(".") or not 1 <= len(parts) <= 2:
        raise PlanError("this is not the name of a table", given=table, instead="'ticks' or 'schema.ticks'")
    return tuple(parts)


def identifier(table: str) -> sql.Identifier:
    """The name of a table, quoted where it is used."""
    return sql.Identifier(*name_parts(table))


def quoted(name: str) -> str:
    """A name as it stands in a statement: words of SQL and capital letters need the quotes."""
    return '"' + name.replace('"', '""') + '"'


_TABLE = """
    SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relreplident::text
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
    SELECT a.attname, coalesce(b.typname, t.typname), format_type(a.atttypid, a.atttypmod), a.attnotnull,
           a.atthasdef OR a.attidentity <> '', a.attgenerated <> '' OR a.attidentity = 'a',
           coalesce(b.typtype, t.typtype) = 'e'
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
         LEFT JOIN pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
# The row as JSON: `indnullsnotdistinct` exists since version 15.
_INDEXES = """
    SELECT array_agg(a.attname::text ORDER BY a.attnum), i.indisprimary, i.indisreplident,
           coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false)
    FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
    WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
          AND i.indexprs IS NULL
    GROUP BY i.indexrelid, i.* ORDER BY i.indisprimary DESC, i.indexrelid
"""


def described(connection: Connection, table: str) -> TableInfo | None:
    """The table of this name, or None."""
    found = connection.execute(_TABLE, [identifier(table).as_string(connection)]).fetchone()
    if found is None:
        return None
    oid, schema, name, kind, identity = found
    columns = tuple(ColumnInfo(*row) for row in connection.execute(_COLUMNS, [oid]))
    indexes = tuple(UniqueIndex(tuple(row[0]), *row[1:]) for row in connection.execute(_INDEXES, [oid]))
    return TableInfo(oid, schema, name, kind, identity, columns, indexes)
