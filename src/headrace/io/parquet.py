"""Columnar files: Parquet and Arrow IPC, read in blocks of about a million rows.

Only the requested columns are read; those that a Parquet file does not have may be in the names of its folders. Types
are converted (other integer widths, timestamps of any unit and zone, dates, dictionaries, large strings); a row with a
value that does not fit is refused, and a column that could never fit is a `SchemaError`. Checksums of pages are
checked. The reader itself applies a row filter and may skip row groups; then only rows that pass have numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.errors import SchemaError, nearest
from headrace.io.conversion import check_convertible
from headrace.io.decoded import DecodedBlock, as_json, finish, numbered, refuse_all, reports_drift, unnumbered
from headrace.io.drift import DriftJudge, no_drift
from headrace.io.hive import folder_values
from headrace.schema import Field, Type

__all__ = ["BLOCK_ROWS", "arrow_schema", "parquet_schema", "read_arrow", "read_parquet"]

BLOCK_ROWS = 1 << 20
_SMALL = BLOCK_ROWS // 8
_LENGTH = 4  # bytes of the length of a text


def parquet_schema(file: Any) -> pa.Schema:
    """The columns of a Parquet file."""
    return pq.ParquetFile(file).schema_arrow


def arrow_schema(file: Any) -> pa.Schema:
    """The columns of an Arrow IPC file."""
    return pa.ipc.open_file(file).schema


def read_parquet(
    file: Any,
    path: str,
    fields: Sequence[Field],
    row_filter: pc.Expression | None,
    columns: Sequence[str],
    rename: Mapping[str, str],
    judge: DriftJudge = no_drift,
) -> Iterator[DecodedBlock]:
    """The decoded blocks of a Parquet file: `columns` of the rows that pass; the filter may use all of `fields`.

    `rename` renames columns of the file; all other arguments use the new names. `judge` judges all columns of the file.
    """
    reader = pq.ParquetFile(file, page_checksum_verification=True)
    stored = {new: old for old, new in rename.items()}
    folder_names = [rename.get(name, name) for name in folder_values(path)]
    # A file that has a column by its new name is read as it is.
    rename = {old: new for old, new in rename.items() if old in reader.schema_arrow.names}
    renamed = {new: old for old, new in rename.items()}
    names = [renamed.get(field.name, field.name) for field in fields]
    schema = _renamed(reader.schema_arrow, rename)
    verdict = judge(_types(schema), folder_names)
    if verdict.counts:
        yield reports_drift(verdict.counts)
    if verdict.refused:
        yield from _refused(reader.iter_batches(BLOCK_ROWS), verdict.refused)
        return
    folders = _folder_columns(path, [field.name for field in fields if field.name not in schema.names], stored)
    folders |= {field.name: None for field in fields if field.name in verdict.absent}
    _check(schema, [field for field in fields if field.name not in folders], path)
    if folders:
        inside = [renamed.get(field.name, field.name) for field in fields if field.name not in folders]
        pieces = (_renamed(piece, rename) for piece in _row_groups(reader, inside))
        whole = (_with_folders(piece, folders) for piece in pieces)
        yield from _decoded(whole, fields, columns, row_filter)
    elif rename:
        groups = _groups(reader, names) if _largest_group(reader) <= BLOCK_ROWS else reader.iter_batches(
            BLOCK_ROWS, columns=names
        )  # fmt: skip
        yield from _decoded((_renamed(piece, rename) for piece in groups), fields, columns, row_filter)
    elif row_filter is not None and _is_exact(reader.schema_arrow, fields):
        source = _fragment(reader, file).to_batches(columns=list(columns), filter=row_filter)
        for block in _decoded(source, [field for field in fields if field.name in columns], columns):
            yield unnumbered(block)
    elif _largest_group(reader) <= BLOCK_ROWS:
        yield from _decoded(_groups(_as_stored(reader, file, names), names), fields, columns, row_filter)
    else:
        yield from _decoded(reader.iter_batches(BLOCK_ROWS, columns=names), fields, columns, row_filter)


def _folder_columns(path: str, missing: Sequence[str], stored: Mapping[str, str]) -> dict[str, str | None]:
    """The values of columns that the file does not have and its folders do (`hive.py`)."""
    values = folder_values(path) if missing else {}
    names = {name: stored.get(name, name) for name in missing}
    return {name: values[old] for name, old in names.items() if old in values}


def _row_groups(reader: Any, names: list[str]) -> Iterator[pa.Table]:
    """The row groups of a file; a column of it in any case, to count rows."""
    for group in range(reader.num_row_groups):
        yield reader.read_row_group(group, columns=names or reader.schema_arrow.names[:1])


def _with_folders(rows: pa.Table, folders: Mapping[str, str | None]) -> pa.Table:
    for name, text in folders.items():
        values = pa.nulls(rows.num_rows) if text is None else pa.repeat(pa.scalar(text), rows.num_rows)
        rows = rows.append_column(name, values)
    return rows


def read_arrow(
    file: Any,
    path: str,
    fields: Sequence[Field],
    row_filter: pc.Expression | None,
    columns: Sequence[str],
    rename: Mapping[str, str],
    judge: DriftJudge = no_drift,
) -> Iterator[DecodedBlock]:
    """The decoded blocks of an Arrow IPC file; `judge` judges all its columns."""
    schema = _renamed(arrow_schema(file), rename)
    verdict = judge(_types(schema), ())
    if verdict.counts:
        yield reports_drift(verdict.counts)
    file.seek(0)
    if verdict.refused:
        reader = pa.ipc.open_file(file)
        yield from _refused((reader.get_batch(i) for i in range(reader.num_record_batches)), verdict.refused)
        return
    absent = {field.name: None for field in fields if field.name in verdict.absent}
    inside = [field for field in fields if field.name not in absent]
    _check(schema, inside, path)
    # At least one column, to count rows.
    options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(field.name) for field in inside] or [0])
    reader = pa.ipc.open_file(file, options=options)
    batches = (_renamed(reader.get_batch(i), rename) for i in range(reader.num_record_batches))
    whole = (_with_folders(pa.Table.from_batches([batch]), absent) for batch in batches) if absent else batches
    yield from _decoded(whole, fields, columns, row_filter)


def _types(schema: pa.Schema) -> dict[str, pa.DataType | None]:
    return dict(zip(schema.names, schema.types, strict=True))


def _refused(pieces: Iterable[pa.RecordBatch], reason: str) -> Iterator[DecodedBlock]:
    """All rows of a file, refused for one reason."""
    row = 0
    for table in _gathered(pieces):
        numbers = np.arange(table.num_rows)
        yield refuse_all(reason, row, as_json(table)(numbers), numbers + row + 1)
        row += table.num_rows


def _renamed(columns: Any, rename: Mapping[str, str]) -> Any:
    """A table, a batch or a schema with the new names."""
    if not rename:
        return columns
    schema = columns if isinstance(columns, pa.Schema) else columns.schema
    names = [rename.get(name, name) for name in schema.names]
    if isinstance(columns, pa.Schema):
        return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    return columns.rename_columns(names)


def _check(schema: pa.Schema, fields: Sequence[Field], path: str) -> None:
    for field in fields:
        if schema.names.count(field.name) > 1:
            raise SchemaError(
                f"column {field.name!r} appears twice in {path!r}", given=field.name, allowed=", ".join(schema.names)
            )
        if schema.get_field_index(field.name) < 0:
            close = nearest(field.name, schema.names)
            raise SchemaError(
                f"column {field.name!r} is missing in {path!r}",
                given=field.name,
                allowed=", ".join(schema.names),
                instead=f"{close} {field.type.value}" if close else "",
            )
    check_convertible(schema, list(fields), path)


def _is_exact(schema: pa.Schema, fields: Sequence[Field]) -> bool:
    """Whether a filter gives the same on the file's values as on the converted ones."""
    return all(schema.field(field.name).type == field.type.arrow and field.type is not Type.CHAR for field in fields)


def _as_stored(reader: Any, file: Any, names: Sequence[str]) -> Any:
    """A reader that reads texts as dictionaries where the file keeps them so: making texts of these is quicker."""
    if reader.metadata.num_columns != len(reader.schema_arrow) or reader.metadata.num_rows < _SMALL:
        return reader  # with nested columns, the places of columns differ
    repeated = [name for name in names if _repeats(reader, name)]
    options = {"page_checksum_verification": True, "read_dictionary": repeated}
    return pq.ParquetFile(file, metadata=reader.metadata, **options) if repeated else reader


def _repeats(reader: Any, name: str) -> bool:
    """Whether a column is a dictionary of texts throughout: a value takes fewer bytes than the length of a text."""
    place = reader.schema_arrow.get_field_index(name)
    if not pa.types.is_string(reader.schema_arrow.field(place).type):
        return False
    parts = [reader.metadata.row_group(i).column(place) for i in range(reader.num_row_groups)]
    size = sum(part.total_uncompressed_size for part in parts)
    return all(part.has_dictionary_page for part in parts) and size < _LENGTH * int(reader.metadata.num_rows)


def _fragment(reader: Any, file: Any) -> Any:
    # Imported here because it loads pandas, which takes longer than the rest of a start.
    import pyarrow.dataset as pads

    format = pads.ParquetFileFormat(page_checksum_verification=True)
    return pads.FileSystemDataset([format.make_fragment(file)], reader.schema_arrow, format)


def _largest_group(reader: Any) -> int:
    metadata = reader.metadata
    return max((metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)), default=0)


def _groups(reader: Any, names: list[str]) -> Iterator[pa.Table]:
    """Blocks of complete row groups: much faster than batches of an arbitrary size."""
    together: list[int] = []
    rows = 0
    for group in range(reader.num_row_groups):
        size = reader.metadata.row_group(group).num_rows
        if together and rows + size > BLOCK_ROWS:
            yield reader.read_row_groups(together, columns=names, use_threads=rows > _SMALL)
            together, rows = [], 0
        together.append(group)
        rows += size
    if together:
        yield reader.read_row_groups(together, columns=names, use_threads=rows > _SMALL)


def _gathered(pieces: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.Table]:
    """Blocks of a useful size: small pieces are joined, large ones cut."""
    waiting: list[pa.Table] = []
    rows = 0
    for piece in pieces:
        table = pa.Table.from_batches([piece]) if isinstance(piece, pa.RecordBatch) else piece
        waiting, rows = [*waiting, table], rows + len(table)
        if rows >= _SMALL:
            yield from _cut(pa.concat_tables(waiting))
            waiting, rows = [], 0
    if rows:
        yield pa.concat_tables(waiting)


def _cut(table: pa.Table) -> Iterator[pa.Table]:
    return (table.slice(start, BLOCK_ROWS) for start in range(0, len(table), BLOCK_ROWS))


def _decoded(
    pieces: Iterable[pa.RecordBatch | pa.Table],
    fields: Sequence[Field],
    columns: Sequence[str],
    row_filter: pc.Expression | None = None,
) -> Iterator[DecodedBlock]:
    row = 0
    for table in _gathered(pieces):
        rows = np.arange(row, row + len(table), dtype=np.int64)
        block = numbered(finish(table, rows, fields, as_json(table)), lambda numbers: numbers + 1)
        yield block.where(row_filter, columns)
        row += len(table)
