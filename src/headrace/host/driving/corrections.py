"""Corrections: what an output lacks of the history of an upgraded query.

A backfill computes the whole history of every output anew. A place that has the history of the old query gets the
difference as corrections, in one batch, and no second copy. For that its content is read back. This is possible for
directories of Parquet files, for physical events as JSON lines, and for memories of this process.

The corrections must keep the promises of the place. Physical events include CTIs: no correction may change anything
before the last one (rule 3.1), and the new query must promise as much as the old one. Final rows are never taken back.
Rows of the encoding `changes` promise nothing. Otherwise the place is refused, and never gets a broken stream.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.border import LIFETIME, as_ticks
from headrace.changes import Changes
from headrace.columnar import to_numpy
from headrace.errors import CheckpointError
from headrace.events import to_changes
from headrace.io.files import local_path
from headrace.io.object_batches import batches_at
from headrace.io.sinks import (
    CHANGE_TYPE,
    BatchFunction,
    Console,
    FileSink,
    Memory,
    Sink,
    columns_of_rows,
    read_events_output,
)
from headrace.schema import Schema
from headrace.store.objects import ObjectStorage
from headrace.time import INFINITY, NEG_INFINITY, format_ticks
from headrace.types import nearest_type

__all__ = ["check_form", "content", "correction", "is_readable", "promised", "rows_of_files", "shown_place"]

#: The names of sinks of the driver's process.
_IN_PROCESS = ((Memory, "the memory"), (Console, "the console"), (BatchFunction, "the function"))
_ELSEWHERE = "another directory, topic or table for this output, which then gets the whole history"


def is_readable(sink: Sink) -> bool:
    """Whether the content of a sink can be read back."""
    if isinstance(sink, Memory):
        return sink.encoding != "upsert"
    if not isinstance(sink, FileSink) or sink.encoding == "upsert" or sink.partition_by:
        return False
    plain = sink.time_columns == LIFETIME and local_path(sink.path) is not None
    read = plain and (sink.format == "parquet" or sink.encoding == "events")
    return read and not batches_at(sink.path).removed().batches  # what `keep=` has removed was not taken back


def promised(sink: FileSink, schema: Schema) -> int:
    """The last CTI in a directory with the output of an earlier query."""
    check_form(sink, schema)
    if sink.encoding != "events":
        return NEG_INFINITY
    rows = read_events_output(sink.path, schema)
    return max(rows.filter(pc.equal(rows["kind"], "cti"))["le"].to_pylist(), default=NEG_INFINITY)


def content(sink: Sink, schema: Schema) -> Changes:
    """What a sink has, as changes; `CheckpointError` if its rows have another form, or other columns."""
    if isinstance(sink, Memory):
        parts = [changes for changes, _ in sink.batches]
        _check_columns(sink, parts[0].payload.schema if parts else schema.arrow, schema.arrow)
        return Changes.concat([Changes.empty(schema), *parts])
    assert isinstance(sink, FileSink)
    check_form(sink, schema)
    if sink.encoding == "events":
        return to_changes(read_events_output(sink.path, schema), schema)
    return rows_of_files(sink.path, schema)


def rows_of_files(path: str, schema: Schema) -> Changes:
    """The rows of a directory of Parquet files, of the encoding `changes` or `final`, as changes."""
    parts = [Changes.empty(schema)]
    for file in batches_at(path).files():
        table = as_ticks(_parquet(file))
        weight = np.ones(table.num_rows, np.int64)
        if CHANGE_TYPE in table.column_names:
            weight = np.where(np.asarray(table[CHANGE_TYPE]) == "insert", 1, -1).astype(np.int64)
        payload = table.select(list(schema.names)).cast(schema.arrow)
        parts.append(Changes(to_numpy(table["le"]), to_numpy(table["re"]), weight, payload))
    return Changes.concat(parts)


def _files(sink: FileSink) -> list[str]:
    return [file for file in batches_at(sink.path).files() if file.endswith((".jsonl", ".parquet"))]


def _parquet(file: str) -> pa.Table:
    return _opened(file).read()


def _opened(file: str) -> pq.ParquetFile:
    local = local_path(file)
    if local is not None:
        return pq.ParquetFile(local)
    folder, _, name = file.rpartition("/")
    return pq.ParquetFile(pa.BufferReader(ObjectStorage(folder).read(name)))


def check_form(sink: FileSink, schema: Schema) -> None:
    """`CheckpointError` unless the files of a directory are like those that the sink writes: readers take the columns
    and types of one file for those of all.
    """
    files = _files(sink)
    other = [file for file in files if not file.endswith(f".{sink.format}")]
    if other:
        raise CheckpointError(
            f"the files in {shown_place(sink)} have another format", given=other[0], allowed=sink.format,
            instead=_ELSEWHERE,
        )  # fmt: skip
    if sink.format == "parquet":
        if files:
            _check_columns(sink, _opened(files[0]).schema_arrow, columns_of_rows(schema, sink))
        return
    names = _names_in_json(files)  # their types are judged when the rows are read
    if names is not None and set(names) != set(schema.names):
        raise _other_columns(sink, ", ".join(names), ", ".join(schema.names))


def _names_in_json(files: Sequence[str]) -> list[str] | None:
    """The columns of physical events as JSON lines; None if there is no event but CTIs, which have no payload."""
    for file in files:
        with Path(file).open() as lines:
            for line in lines:
                event = json.loads(line)
                if event["kind"] != "cti":
                    return list(event["payload"])
    return None


def _check_columns(sink: Sink, found: pa.Schema, own: pa.Schema) -> None:
    """The order of columns does not matter, nor how their values are encoded."""
    there, wanted = (sorted(f"{name} {_type(schema, name)}" for name in schema.names) for schema in (found, own))
    if there != wanted:
        raise _other_columns(sink, ", ".join(there), ", ".join(wanted))


def _type(schema: pa.Schema, name: str) -> str:
    kind = schema.field(name).type
    known = nearest_type(kind)
    return str(kind) if known is None else known.value


def _other_columns(sink: Sink, found: str, own: str) -> CheckpointError:
    return CheckpointError(
        f"the rows in {shown_place(sink)} have other columns than those of the new query",
        given=found, allowed=own, instead=_ELSEWHERE,
    )  # fmt: skip


def correction(sink: Sink, old: Changes, new: Changes, promised: int, cti: int, *, dates: bool) -> Changes:
    """The changes from one history to another; `CheckpointError` if the place has promised that they do not happen.

    `promised` is the CTI that the place has; `cti` is that of the new query.
    """
    found = Changes.concat([new, old.negated()]).consolidate()
    if sink.encoding == "final" and bool((found.weight < 0).any()):
        raise _refused(sink, "final rows are never taken back", found.filter(found.weight < 0), dates=dates)
    if sink.encoding != "events" or promised == NEG_INFINITY:
        return found
    shown = format_ticks(promised, dates=dates) if promised < INFINITY else "the end"
    pieces, sync = found.pieces()
    if (sync < promised).any():
        first = pieces.take(np.array([int(np.argmin(sync))]))
        raise _refused(sink, f"it has promised that nothing changes before {shown}", first, dates=dates)
    if cti < promised:
        raise CheckpointError(
            f"{shown_place(sink)} has promised that nothing changes before {shown}, and the new query promises less",
            given=f"upgrade='backfill', CTI {format_ticks(cti, dates=dates) if cti > NEG_INFINITY else 'none'}",
            instead=_ELSEWHERE,
        )
    return found


def _refused(sink: Sink, why: str, rows: Changes, *, dates: bool) -> CheckpointError:
    row = rows.take(np.array([int(np.argmin(rows.le))]))
    ends = [format_ticks(int(time), dates=dates) for time in (row.le[0], row.re[0])]
    what = "added" if row.weight[0] > 0 else "removed"
    return CheckpointError(
        f"{shown_place(sink)} cannot be corrected: {why}",
        given=f"the first correction: [{ends[0]}, {ends[1]}) {row.payload.to_pylist()[0]} {what}",
        allowed="the encoding changes, or corrections after the last CTI",
        instead=_ELSEWHERE,
    )


def shown_place(sink: Sink) -> str:
    """Where a sink writes, for messages."""
    for kind, name in _IN_PROCESS:
        if isinstance(sink, kind):
            return name
    return repr(sink.path) if isinstance(sink, FileSink) else str(sink)
