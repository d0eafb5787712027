"""Reading the rows of sources: of a file, of a range of a partition, of a table in memory.

All give decoded blocks with the columns that a source reads, and the stamps of its rows, if it has them
(`origins.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.border import fill_infinity
from headrace.errors import PlanError, SourceError, without_secrets
from headrace.expr import predicate_mask
from headrace.expr.pushdown import to_arrow_filter
from headrace.io.adapter import ReadRange
from headrace.io.decoded import DecodedBlock, refused_table
from headrace.io.drift import DriftRules
from headrace.io.files import FileState, ListedFile, local_path
from headrace.io.formats import read_file
from headrace.io.origins import AdapterRead, Files
from headrace.meter import Work
from headrace.plan.nodes import Source
from headrace.plan.policies import Advance, Changed, Edge, Interval, Physical, Point
from headrace.schema import ARRIVAL, POSITION, RESERVED, STAMPS, Schema

__all__ = [
    "drift_rules", "in_memory", "read_columns", "read_counted", "read_listed", "read_range", "shown_path", "whole_rows",
]  # fmt: skip

_log = logging.getLogger("headrace")


def read_columns(source: Source) -> list[str]:
    """The columns that a reader reads: those of the payload, and those that the lifetime and the progress use."""
    wanted = _event_columns(source)
    return [name for name in source.columns.names if name in wanted or name in source.schema]


def _event_columns(source: Source) -> set[str]:
    """The columns that the lifetime and the progress use."""
    lifetime = source.lifetime
    if isinstance(lifetime, Physical):
        wanted = set(RESERVED)
    elif isinstance(lifetime, Interval):
        wanted = set(lifetime.start.columns() | lifetime.end.columns())
    else:
        assert isinstance(lifetime, (Point, Edge))
        wanted = set(lifetime.columns() if isinstance(lifetime, Changed) else lifetime.at.columns())
    if isinstance(source.policy, Advance) and source.policy.per is not None:
        wanted = {*wanted, source.policy.per}
    return wanted


def drift_rules(source: Source) -> DriftRules | None:
    """How a source reads files with other columns; None if its files are written by Headrace."""
    origin = source.origin
    if not isinstance(origin, Files) or origin.label:
        return None
    how, optional = origin.format, origin.format.sparse
    if how.name == "json" and isinstance(source.lifetime, Physical):  # a promise has no end, an insert no new end
        optional = (*optional, *RESERVED)
    needed = _event_columns(source)
    if isinstance(source.lifetime, Edge):
        closes = source.lifetime.closes
        needed |= {*source.lifetime.key, *(closes.columns() if closes is not None else ())}
    return DriftRules(how.on_drift, how.whole, frozenset(needed), optional, str(origin))


def read_listed(source: Source, file: ListedFile) -> Iterator[DecodedBlock]:
    """The blocks of one file of a source, with stamps if the source has them.

    A missing file has no rows, and a changed file is read as it is; the last block reports both. Files that Headrace
    has written into a checkpoint stay as they are, and have other times where the checkpoint was copied.
    """
    timed = not (isinstance(source.origin, Files) and source.origin.label)
    state = file.state(timed=timed)
    if state != "missing":
        yield from _read(source, file)
        state = file.state(timed=timed) if state == "same" else state
    if state != "same":
        yield _notice(source, file, state)


def read_counted(source: Source, file: ListedFile, work: Work) -> Iterator[DecodedBlock]:
    """The blocks of one file of a source, counted in `work`."""
    reading, blocks = work.file(file.size), read_listed(source, file)
    while True:
        with reading.here():
            block = next(blocks, None)
        if block is None:
            reading.add(file.size)
            return
        work.add(rows=block.table.num_rows + block.refused.num_rows)
        yield block


def _notice(source: Source, file: ListedFile, state: FileState) -> DecodedBlock:
    """The block that reports a missing or changed file; an error if the source raises on bad rows."""
    action = "removed" if state == "missing" else "changed"
    effect = "its rows are not in the answer" if state == "missing" else "its rows may be incomplete"
    text = f"the file {file.path!r} was {action} after it was listed"
    if source.bad_rows == "raise":
        raise SourceError(text, given=str(source.origin), instead="write files under another name, then rename them")
    _log.warning("%s: %s; %s", source.origin, text, effect)
    empty = source.columns.arrow.empty_table().select(read_columns(source))
    return DecodedBlock(empty, refused_table(), np.arange(0), file=state)


def _read(source: Source, file: ListedFile) -> Iterator[DecodedBlock]:
    assert isinstance(source.origin, Files)
    path = file.path
    stored, wanted = _stored_columns(source), read_columns(source)
    row_filter = to_arrow_filter(source.pushed, stored) if source.pushed is not None else None
    # A row of text is malformed if any of its columns is, even one that the query does not read: else another query
    # of the same script, or a history, would see other rows; the values of such columns are only checked. Of typed
    # files only wanted columns are read, at least one.
    typed = source.origin.format.name == "parquet"
    columns = [name for name in stored.names if name in wanted or not typed] or list(stored.names[:1])
    filtered = source.pushed.columns() if source.pushed is not None else set()
    judged = {name for name in columns if name not in wanted and name not in filtered}
    blocks = read_file(path, source.origin.format, stored, columns, row_filter, judged, drift_rules(source))
    if columns == wanted:
        yield from (_whole_times(source, block) for block in blocks)
    else:
        stamps = [name for name in wanted if name not in stored]
        for block in blocks:
            values = [_stamp(name, file, block) if name in stamps else block.table[name] for name in wanted]
            yield _whole_times(source, replace(block, table=pa.table(values, names=wanted)))


def _whole_times(source: Source, block: DecodedBlock) -> DecodedBlock:
    """Physical events whose times are dates, with infinity where null stands for it (rule 1.1)."""
    if not isinstance(source.lifetime, Physical) or not source.dates:
        return block
    return replace(block, table=fill_infinity(block.table))


def read_range(source: Source, part: ReadRange) -> Generator[DecodedBlock, None, int]:
    """The blocks of one range of a partition, with stamps if the source has them; returns where the next one starts."""
    assert isinstance(source.origin, AdapterRead)
    stored, wanted = _stored_columns(source), read_columns(source)
    filtered = source.pushed.columns() if source.pushed is not None else set()
    row_filter = to_arrow_filter(source.pushed, stored) if source.pushed is not None else None
    columns = [name for name in stored.names if name in wanted or name in filtered] or list(stored.names[:1])
    reader = source.origin.adapter.read(part.partition, part.start, part.end, columns)
    while True:
        try:
            block = next(reader)
        except StopIteration as ended:
            return part.end if ended.value is None else int(ended.value)
        block = block.where(row_filter, columns)
        if columns != wanted:
            values = [block.table[name] if name in stored else _offset_stamp(name, source, block) for name in wanted]
            block = replace(block, table=pa.table(values, names=wanted))
        yield _whole_times(source, block)


def _offset_stamp(name: str, source: Source, block: DecodedBlock) -> pa.Array:
    """The arrival or position of the rows of a block that an adapter has read."""
    if name == POSITION:
        return pa.array(block.rows)
    if block.arrived is None:
        raise PlanError(
            "the rows of this source cannot be stamped: their arrival is not kept",
            given=str(source.origin),
            allowed="sources that keep when a row arrived, such as files and Kafka",
            instead="a lifetime by a column: lifetime=hr.point('ts')",
        )
    return pa.array(block.arrived)


def _stamp(name: str, file: ListedFile, block: DecodedBlock) -> pa.Array:
    """The arrival or position of the rows of a block."""
    return pa.array(np.full(len(block.rows), file.modified // 1000, np.int64) if name == ARRIVAL else block.rows)


def _stored_columns(source: Source) -> Schema:
    """The columns of a source's files: all but the stamps, which the reader adds."""
    if not source.stamped or (isinstance(source.origin, Files) and source.origin.holds_stamps):
        return source.columns
    return Schema(tuple(field for field in source.columns if field.name not in STAMPS))


def whole_rows(source: Source, path: str | None, block: DecodedBlock) -> Callable[[NDArray[np.int64]], pa.Table] | None:
    """A function that looks up rows of a block with all their columns; it reads a file again, for bad rows only.

    None if the block has all columns, or if its row numbers are uncertain (a filtered Parquet file).
    """
    origin, whole = source.origin, block.whole
    if whole is not None:
        return lambda places: whole.take(pa.array(places))
    if path is None or source.read_columns is None or not isinstance(origin, Files) or source.pushed is not None:
        return None

    def rows(places: NDArray[np.int64]) -> pa.Table:
        numbers = block.rows[places]
        parts = [
            part.table.append_column("__row", pa.array(part.rows)).filter(pa.array(np.isin(part.rows, numbers)))
            for part in read_file(path, origin.format, _stored_columns(source), drift=drift_rules(source))
        ]
        table = pa.concat_tables(parts).sort_by("__row").drop_columns(["__row"])
        # A row with a bad value in another column is refused when all columns are read: then return the known columns.
        return table if table.num_rows == len(places) else block.table.take(pa.array(places))

    return rows


def shown_path(source: Source, path: str | None) -> str | None:
    """The path of a file to show to users, the same on every host; None for files that are not theirs."""
    if path is None or (isinstance(source.origin, Files) and source.origin.label):
        return None
    if isinstance(source.origin, AdapterRead):  # the name of a partition
        return path
    local = local_path(path)
    return without_secrets(path) if local is None else str(Path(local).absolute())


def in_memory(table: pa.Table, source: Source) -> DecodedBlock:
    """A block of a source in memory."""
    if source.pushed is not None:
        table = table.filter(predicate_mask(source.pushed, table))
    columns = read_columns(source)
    whole = table if len(columns) < table.num_columns else None
    return DecodedBlock(table.select(columns), refused_table(), np.arange(table.num_rows), whole=whole)
