"""Rows to and from PostgreSQL with COPY, in columns.

Out: Arrow writes CSV, which puts texts in quotes and leaves nulls empty, and so does PostgreSQL read it: an empty text
and null stay apart, and quotes, line ends and backslashes need no care. Arrow is not used for times, which it formats
slowly, and for lists, which it does not write: they become texts first, column by column.

In: PostgreSQL writes CSV by the same rules, and Arrow reads all columns as texts; `finish` converts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from psycopg import sql

from headrace.adapters.postgres.connection import Connection
from headrace.columnar import Lists
from headrace.io.encode import iso_texts
from headrace.io.spans import span_texts
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["copy_in", "copy_out", "time_texts"]

_ROWS = 1 << 16
_CHUNK_BYTES = 1 << 20
_WRITE = pacsv.WriteOptions(include_header=False)
_UTC = pa.timestamp("us", tz="UTC")
_QUOTED = r'(["\\])'


def copy_in(connection: Connection, table: sql.Composable, columns: Sequence[str], rows: pa.Table) -> None:
    """Append rows to a table; the columns of both are in the same order."""
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(table, names)
    with connection.cursor().copy(statement) as copy:
        for batch in rows.combine_chunks().to_batches(max_chunksize=_ROWS):
            buffer = pa.BufferOutputStream()
            pacsv.write_csv(pa.RecordBatch.from_arrays([_plain(c) for c in batch.columns], batch.schema.names),
                            buffer, _WRITE)  # fmt: skip
            data = memoryview(buffer.getvalue())
            for start in range(0, len(data), _CHUNK_BYTES):
                copy.write(data[start : start + _CHUNK_BYTES])


def _plain(values: pa.Array) -> pa.Array:
    """A column that Arrow writes as PostgreSQL reads it."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_timestamp(values.type):
        return iso_texts(values)
    if pa.types.is_duration(values.type):
        return span_texts(values)
    return _array_texts(values) if pa.types.is_list(values.type) else values


def time_texts(ticks: pa.ChunkedArray) -> pa.Array:
    """Ticks as texts of times, the infinities included."""
    whole = ticks.combine_chunks() if isinstance(ticks, pa.ChunkedArray) else ticks
    whole = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
    above, below = pc.equal(whole, INFINITY), pc.equal(whole, NEG_INFINITY)
    finite = pc.if_else(pc.or_(above, below), pa.scalar(0, pa.int64()), whole)
    texts = iso_texts(finite.cast(_UTC))
    return pc.if_else(above, "infinity", pc.if_else(below, "-infinity", texts))


def _array_texts(values: pa.Array) -> pa.Array:
    """Lists as PostgreSQL writes arrays: `{1,NULL,"a b"}`."""
    lists = Lists.of(values)
    elements = _plain(lists.elements)
    if pa.types.is_string(elements.type):
        elements = pc.binary_join_element_wise('"', pc.replace_substring_regex(elements, _QUOTED, r"\\\1"), '"', "")
    texts = pc.fill_null(elements.cast(pa.string()), "NULL")
    return pc.binary_join_element_wise("{", pc.binary_join(lists.with_elements(texts), ","), "}", "")


def copy_out(
    connection: Connection, query: sql.Composable, names: Sequence[str], rows: int = _ROWS
) -> Iterator[pa.Table]:
    """The rows of a query, as tables of texts."""
    types: Mapping[str, pa.DataType] = dict.fromkeys(names, pa.string())
    convert = pacsv.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    parse = pacsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    with connection.cursor().copy(sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(query)) as copy:
        lines = iter(copy)
        while piece := list(islice(lines, rows)):  # the server sends each row as one message
            data = b"".join(piece)
            read = pacsv.ReadOptions(column_names=list(names), block_size=len(data) + 1)
            yield pacsv.read_csv(pa.py_buffer(data), read, parse, convert)
