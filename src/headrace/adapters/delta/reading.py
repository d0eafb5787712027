"""The rows of a table's files.

Partition columns are not in the files: the log has their values, as texts. A column that a file does not have is null
there: it was added to the table later.

**The difference of two sets of files.** Without a change data feed, a version that updates or deletes rows writes the
others again. Which rows it has changed follows from the rows of the files that it removes and of those that it adds:
equal rows cancel out, as often as they occur on both sides; what remains was deleted and inserted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.adapters.delta.log import DataFile, TableVersion
from headrace.adapters.delta.place import TableFolder
from headrace.columnar import concat, factorize
from headrace.errors import SourceError
from headrace.io.conversion import convert
from headrace.schema import Field, Schema, Type

__all__ = ["CHANGE_TYPE", "changes_of", "count_rows", "rows_of_files"]

CHANGE_TYPE = "_change_type"
_GONE = ("delete", "update_preimage")


def rows_of_files(place: TableFolder, files: Iterable[DataFile], columns: Schema, skip: int = 0) -> Iterator[pa.Table]:
    """The rows of files with these columns, in pieces, without the first ones."""
    for file in files:
        if skip and skip >= (rows := count_rows(place, file)):
            skip -= rows
            continue
        for piece in _pieces(place, file, columns):
            yield piece.slice(skip)
            skip = max(0, skip - piece.num_rows)


def count_rows(place: TableFolder, file: DataFile) -> int:
    """The number of rows of a file, by the log or by its own metadata."""
    if file.rows is not None:
        return file.rows
    with _opened(place, file) as parquet:
        return int(parquet.metadata.num_rows)


def changes_of(place: TableFolder, version: TableVersion, columns: Schema) -> pa.Table:
    """The rows that a version deletes, then those that it inserts, with `_change_type`."""
    if version.feed:
        rows = concat([_empty(columns, CHANGE_TYPE), *_feed(place, version.feed, columns)])
        gone = pc.is_in(rows[CHANGE_TYPE], pa.array(_GONE))
        return pa.concat_tables([rows.filter(gone), rows.filter(pc.invert(gone))])
    old = concat([_empty(columns), *rows_of_files(place, version.removed, columns)])
    new = concat([_empty(columns), *rows_of_files(place, version.added, columns)])
    old, new = _difference(old, new)
    kinds = pa.array(["delete"] * old.num_rows + ["insert"] * new.num_rows, pa.string())
    return pa.concat_tables([old, new]).append_column(CHANGE_TYPE, kinds)


def _difference(old: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What remains of two bags of rows when equal rows cancel out."""
    if not old.num_rows or not new.num_rows:
        return old, new
    codes = factorize(pa.concat_tables([old, new]))[0]
    before, after = codes[: old.num_rows], codes[old.num_rows :]
    size = int(codes.max()) + 1
    common = np.minimum(np.bincount(before, minlength=size), np.bincount(after, minlength=size))
    return _without(old, before, common), _without(new, after, common)


def _without(rows: pa.Table, codes: np.ndarray, common: np.ndarray) -> pa.Table:
    """The rows without the first ones of each code, as many as `common` says."""
    order = np.argsort(codes, kind="stable")
    first = np.r_[True, np.diff(codes[order]) != 0][: len(order)]
    place = np.arange(len(order)) - np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    kept = np.sort(order[place >= common[codes[order]]])
    return rows.take(pa.array(kept))


def _feed(place: TableFolder, files: Sequence[DataFile], columns: Schema) -> Iterator[pa.Table]:
    for file in files:
        yield from _pieces(place, file, columns, CHANGE_TYPE)


def _pieces(place: TableFolder, file: DataFile, columns: Schema, *more: str) -> Iterator[pa.Table]:
    names = [*columns.names, *more]
    with _opened(place, file) as parquet:
        stored = [name for name in names if name in parquet.schema_arrow.names]
        for group in range(parquet.num_row_groups):
            rows = parquet.read_row_group(group, columns=stored)
            yield _whole(rows, file, columns, names, parquet.metadata.row_group(group).num_rows)


def _whole(rows: pa.Table, file: DataFile, columns: Schema, names: Sequence[str], count: int) -> pa.Table:
    """The rows with all columns, of their types."""
    values = dict(file.values)
    found = []
    for name in names:
        field = columns[name] if name in columns else Field(name, Type.STRING)
        if name in rows.column_names:
            found.append(_typed(rows[name], field, file))
        elif values.get(name) in (None, ""):  # an empty text is a null, too
            found.append(pa.chunked_array([pa.nulls(count, field.type.arrow)]))
        else:
            value = _typed(pa.chunked_array([pa.array([values[name]])]), field, file)
            found.append(pa.chunked_array([pa.repeat(value[0], count)]))
    return pa.table(found, names=list(names))


def _typed(values: pa.ChunkedArray, field: Field, file: DataFile) -> pa.ChunkedArray:
    if values.type == field.type.arrow:
        return values
    converted = convert(values, field)
    if converted.bad is not None:
        raise SourceError(
            f"column {field.name!r} of the file {file.path!r} is {values.type}, and its values do not fit",
            given=str(values.filter(pa.array(converted.bad))[0]), allowed=field.type.value,
        )  # fmt: skip
    return pa.chunked_array(converted.values)


def _empty(columns: Schema, *more: str) -> pa.Table:
    kinds = [(field.name, field.type.arrow) for field in columns]
    return pa.schema([*kinds, *((name, pa.string()) for name in more)]).empty_table()


def _opened(place: TableFolder, file: DataFile) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(place.open(file.path))
    except FileNotFoundError as error:
        raise SourceError(
            f"the file {file.path!r} of {place.shown!r} is gone: VACUUM has removed what older versions need",
            given=file.path,
            instead="a longer delta.deletedFileRetentionDuration; a new checkpoint begins with the rows that are there",
        ) from error
