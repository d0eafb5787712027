"""The stored rows of a source with their position: the file (or batch in memory), and the place in it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.errors import BadRow, HistoryError
from headrace.history.inputs import FILE, ROW
from headrace.io.adapter import ReadRange
from headrace.io.decoded import DecodedBlock
from headrace.io.files import ListedFile
from headrace.io.origins import AdapterRead, Events, Files, FrameRead, HostRead
from headrace.io.reading import read_columns, read_counted, read_range
from headrace.meter import current
from headrace.plan.nodes import Source

__all__ = ["at_rest", "file_rows", "range_rows", "stored_ranges", "stored_rows"]


def at_rest(source: Source) -> Source:
    """The source over its stored rows: for a host, the received lines, if they are kept."""
    origin = source.origin
    if not isinstance(origin, HostRead):
        return source
    if not origin.spool:
        raise HistoryError(
            "the lines that this host sent are not stored",
            given=str(origin),
            allowed="hosts whose lines are kept in a directory",
            instead="read_host(..., spool='a directory')",
        )
    return replace(source, origin=origin.files(Path()))


def stored_rows(source: Source) -> pa.Table:
    """All rows of a source in memory or in files, in the order of a live query."""
    origin = source.origin
    if isinstance(origin, Events):
        batches = [table.select(list(source.columns.names)) for table in origin.batches()]
        return pa.concat_tables([_placed(table, i, np.arange(table.num_rows)) for i, table in enumerate(batches)])
    if isinstance(origin, FrameRead) and not origin.streaming:
        table = origin.rows(source.columns)
        return _placed(table, 0, np.arange(table.num_rows))
    if isinstance(origin, Files):
        empty = source.columns.arrow.empty_table().select(read_columns(source))
        blocks = [rows for number, file in enumerate(origin.files()) for rows in file_rows(source, number, file)]
        return pa.concat_tables([_placed(empty, 0, np.arange(0)), *blocks])
    if isinstance(origin, AdapterRead):
        empty = source.columns.arrow.empty_table().select(read_columns(source))
        parts = stored_ranges(source)
        blocks = [rows for number, part in enumerate(parts) for rows in range_rows(source, number, part)]
        return pa.concat_tables([_placed(empty, 0, np.arange(0)), *blocks])
    if isinstance(origin, FrameRead):
        raise HistoryError(
            "a streaming data frame has no history: its rows are not stored",
            given=str(origin),
            instead="read_spark(frame, ...) with a batch data frame, spark.read instead of spark.readStream",
        )
    raise HistoryError(
        "only Spark can read this", given=str(origin), allowed="events in memory, and files", instead="engine='spark'"
    )


def file_rows(source: Source, number: int, file: ListedFile) -> Iterator[pa.Table]:
    """The rows of one file; unreadable ones are skipped, or raise an error if the source's policy says so."""
    start = 0
    for block in read_counted(source, file, current()):
        _check(source, block)
        yield _placed(block.table, number, np.arange(start, start + block.table.num_rows))
        start += block.table.num_rows


def stored_ranges(source: Source) -> list[ReadRange]:
    """The ranges of all partitions of an adapter's source, from where a query begins to their present ends."""
    assert isinstance(source.origin, AdapterRead)
    adapter = source.origin.adapter
    if not adapter.keeps_rows:
        raise HistoryError(
            "this source has no history: its rows are not stored after they were read",
            given=str(source.origin),
            allowed="files, topics, and other sources that keep their rows",
            instead="the output of a query that copies it to files: stream.start(hr.files(...))",
        )
    reached = sorted(adapter.offsets({}).items())
    return [ReadRange(name, adapter.begin(name, offsets), offsets.end) for name, offsets in reached]


def range_rows(source: Source, number: int, part: ReadRange) -> Iterator[pa.Table]:
    """The rows of one partition, numbered by their offsets; unreadable ones are skipped, or an error, as in files."""
    while part.start < part.end:
        part = replace(part, start=(yield from _one_range(source, number, part)))  # it may end before the part


def _one_range(source: Source, number: int, part: ReadRange) -> Generator[pa.Table, None, int]:
    reader = read_range(source, part)
    while True:
        try:
            block = next(reader)
        except StopIteration as ended:
            return int(ended.value)
        _check(source, block)
        yield _placed(block.table, number, block.rows)


def _check(source: Source, block: DecodedBlock) -> None:
    if block.refused.num_rows and source.bad_rows == "raise":
        row = block.refused.slice(0, 1).to_pylist()[0]
        raise BadRow(f"{source.origin}: {row['reason']}", given=row["raw"], instead="bad_rows='divert'")


def _placed(table: pa.Table, number: int, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
    files = pa.array(np.full(table.num_rows, number, np.int64))
    return table.append_column(FILE, files).append_column(ROW, pa.array(rows, pa.int64()))
