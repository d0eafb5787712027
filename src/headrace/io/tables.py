"""Tables for stream–table joins: rows held in memory, and files that are read when a query starts.

The rows travel to the workers with the query, so that all workers see the same table even if the file changes. The text
of a query includes a digest of the table's content, so a restart notices another content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.columnar import hash_rows
from headrace.errors import BadRow, PlanError, SchemaError, SourceError, UnknownColumn
from headrace.frames import frame_kind, frame_table
from headrace.io.decoded import DecodedBlock, as_json, finish
from headrace.io.files import list_files
from headrace.io.formats import Format, infer_schema, read_file
from headrace.io.secrets import shown_place
from headrace.schema import Schema, SchemaLike

__all__ = ["TableFiles", "TableRows", "fitted", "is_table", "table_of"]

#: A query sends its tables to every worker; a larger table is better joined as a stream.
MOST_BYTES = 100_000_000


@dataclass(frozen=True, eq=False)
class TableRows:
    """The rows of a table; tables with equal digests are equal."""

    digest: str
    #: The text of the table in a plan.
    label: str
    columns: Schema
    table: pa.Table

    @classmethod
    def of(cls, blocks: Iterable[DecodedBlock], columns: Schema, label: str) -> TableRows:
        """The rows of decoded blocks; a row that cannot be read is an error."""
        tables = [columns.arrow.empty_table()]
        for block in blocks:
            if block.refused.num_rows:
                row = block.refused.slice(0, 1).to_pylist()[0]
                raise BadRow(
                    f"{label}: {row['reason']}", given=row["raw"], instead="a table whose every row can be read"
                )
            tables.append(block.table)
        table = pa.concat_tables(tables).combine_chunks()
        if table.nbytes > MOST_BYTES:
            raise PlanError(
                f"{label} is too large to be sent with a query",
                given=f"{table.nbytes:,} bytes",
                allowed=f"up to {MOST_BYTES:,}",
                instead="leave out columns, or join it as a stream: hr.read_parquet(..., lifetime=hr.edge(...))",
            )
        content = hashlib.sha256(str(columns).encode())
        content.update(hash_rows(table).tobytes())
        return cls(content.hexdigest()[:16], label, columns, table)

    @classmethod
    def now(cls, rows: pa.Table, columns: Schema) -> TableRows:
        """The rows that a table has now."""
        return cls.of([fitted(rows, columns, "the table")], columns, "a table")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableRows) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __str__(self) -> str:
        return f"{self.label} of {self.table.num_rows} rows #{self.digest}"


@dataclass(frozen=True, repr=False)
class TableFiles:
    """A file, a directory or a pattern that holds a table."""

    path: str
    format: Format
    columns: Schema

    def read(self) -> TableRows:
        """Read the table as it is now."""
        blocks = (block for path in list_files(self.path) for block in read_file(path, self.format, self.columns))
        return TableRows.of(blocks, self.columns, str(self))

    def __str__(self) -> str:
        return f"{self.format} {shown_place(self.path)}"

    def __repr__(self) -> str:
        return f"TableFiles({self})"


def is_table(value: Any) -> bool:
    """Whether a value is an Arrow table, or a data frame of pandas or Polars."""
    return frame_kind(value) in ("arrow", "pandas", "polars")


def table_of(table: Any, schema: SchemaLike | None = None) -> TableRows | TableFiles:
    """A table from an Arrow table, a frame of pandas or Polars, or a path to files that are read at the start."""
    if isinstance(table, (str, Path)):
        return _files(str(table), None if schema is None else Schema.of(schema))
    if not is_table(table):
        raise PlanError(
            "this is not a table",
            given=type(table).__name__,
            allowed="an Arrow table, a data frame of pandas or Polars, a path to Parquet or CSV files",
            instead="join(other, on='key')" if hasattr(table, "node") else "join_table('countries.parquet', on='code')",
        )
    wanted = None if schema is None else Schema.of(schema)
    table = frame_table(table, None if wanted is None else wanted.names)
    columns = wanted or Schema.of(table.schema)
    return TableRows.now(table, columns)


def fitted(table: pa.Table, columns: Schema, owner: str) -> DecodedBlock:
    """The columns of a table that a schema names, in its types; rows in which a value does not fit are refused."""
    for name in columns.names:
        if name not in table.column_names:
            raise UnknownColumn.of(name, table.column_names, owner)
    wanted = table.select(list(columns.names))
    try:
        return finish(wanted, np.arange(len(wanted)), columns.fields, as_json(wanted))
    except pa.ArrowNotImplementedError as error:  # a type that never becomes the declared one
        raise SchemaError(
            f"a column of {owner} cannot be read as its type: {error}",
            given=", ".join(f"{column.name} {column.type}" for column in wanted.schema),
            allowed=str(columns),
            instead="a schema without the column",
        ) from error


def _files(path: str, columns: Schema | None) -> TableFiles:
    files = list_files(path)
    if not files:
        raise SourceError(f"no file is at {path}", given=path, allowed="a file, a directory, or a pattern of files")
    format = Format.of_path(files[0])
    return TableFiles(path, format, columns or infer_schema(files[0], format, path))
