"""Tables and queries that are read once, in one transaction."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from psycopg import sql

from headrace.adapters.postgres.catalog import ColumnInfo, described, identifier
from headrace.adapters.postgres.connection import Connection, check_dsn, connected
from headrace.adapters.postgres.copying import copy_out
from headrace.adapters.postgres.pgoutput import booleans, raw_texts
from headrace.adapters.postgres.types import check_declared, derived
from headrace.errors import BadRow, PlanError, SourceError
from headrace.io.decoded import DecodedBlock, finish
from headrace.schema import Schema, Type

__all__ = ["columns_of_query", "read_table", "typed_block"]

_TYPES = """
    SELECT coalesce(b.typname, t.typname), format_type(t.oid, NULL), coalesce(b.typtype, t.typtype) = 'e'
    FROM pg_type t LEFT JOIN pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype WHERE t.oid = %s
"""


def read_table(
    dsn: str, table: str = "", *, query: str = "", columns: Schema | str | None = None
) -> tuple[pa.Table, Schema]:
    """All rows of a table or of a query, and their columns; a value that does not fit its column is an error."""
    check_dsn(dsn)
    if bool(table) == bool(query):
        raise PlanError(
            "either a table or a query is read", given=table or None, instead="postgres_table(dsn, 'products')"
        )
    place = f"the table {table}" if table else "the query"
    with connected(dsn, SourceError, place) as connection:
        source = sql.SQL("({}) AS q").format(_inner(query)) if query else identifier(table)
        known = columns_of_query(connection, source) if query else _columns_of_table(connection, table)
        schema = derived(known, place) if columns is None else Schema.of(columns)
        check_declared(schema, known, place)
        names = sql.SQL(", ").join(map(sql.Identifier, schema.names))
        select = sql.SQL("SELECT {} FROM {}").format(names, source)
        tables = [schema.arrow.empty_table()]
        tables += [_all_rows(texts, schema, place) for texts in copy_out(connection, select, schema.names)]
    return pa.concat_tables(tables), schema


def _inner(query: str) -> sql.SQL:
    return sql.SQL(query.strip().rstrip(";"))


def _columns_of_table(connection: Connection, table: str) -> tuple[ColumnInfo, ...]:
    info = described(connection, table)
    if info is None:
        raise SourceError(f"there is no table {table}", given=table, instead="the name of a table or a view")
    return info.columns


def columns_of_query(connection: Connection, source: sql.Composable) -> list[ColumnInfo]:
    """The columns of a query, as the server describes them without running it."""
    cursor = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(source))
    columns = []
    for column in cursor.description or ():
        found = connection.execute(_TYPES, [column.type_code]).fetchone()
        assert found is not None
        columns.append(ColumnInfo(column.name, found[0], found[1], is_enum=found[2]))
    return columns


def typed_block(texts: pa.Table, schema: Schema) -> DecodedBlock:
    """Texts of PostgreSQL as columns of their types; rows are numbered by their places."""
    for i, column in enumerate(schema):
        if column.type is Type.BOOLEAN:
            texts = texts.set_column(i, column.name, booleans(texts[column.name]))
    return finish(texts, np.arange(texts.num_rows), list(schema), lambda places: raw_texts(texts, places))


def _all_rows(texts: pa.Table, schema: Schema, place: str) -> pa.Table:
    block = typed_block(texts, schema)
    if block.refused.num_rows:
        first = block.refused.slice(0, 1).to_pylist()[0]
        raise BadRow(f"a row of {place} cannot be read: {first['reason']}", given=first["raw"])
    return block.table
