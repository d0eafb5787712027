"""Where rows come from. An origin is a value: it is part of a plan, and its text is what a plan says of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from glob import has_magic
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import SourceError
from headrace.expr import predicate_mask
from headrace.expr.pushdown import to_arrow_filter
from headrace.io.decoded import Decoded, refused_table
from headrace.io.files import local_path
from headrace.io.formats import Format, list_files, read_file
from headrace.plan.nodes import Source
from headrace.plan.policies import Edge, Interval, Physical, Point

__all__ = ["Events", "Files", "Origin", "SparkRead", "read_columns", "read_path", "whole_rows"]


_PLACES = "a file, a directory, or a pattern such as 'ticks/*.csv'"


@dataclass(frozen=True)
class Files:
    """A file, a directory or a pattern; new files of a directory or pattern are new rows of the stream."""

    path: str
    format: Format
    #: What a plan says of it, when the path is an accident.
    label: str = ""

    def check(self) -> None:
        """Raise unless files are there or may come: a directory may be empty, a pattern may fit nothing yet."""
        local = local_path(self.path)
        if local is not None and not has_magic(local) and not Path(local).exists():
            raise SourceError(f"there is no file or directory {self.path!r}", given=self.path, allowed=_PLACES)

    def files(self) -> list[str]:
        """The files that are there now, oldest first."""
        found = list_files(self.path)
        if not found:
            raise SourceError(
                f"no file is at {self.path}",
                given=self.path,
                allowed=_PLACES,
            )
        return found

    def __str__(self) -> str:
        return self.label or f"{self.format} {self.path}"


@dataclass(frozen=True, eq=False)
class Events:
    """A physical stream held in memory, given in one or several batches."""

    table: pa.Table
    #: How many rows each batch has; by default all rows are one batch.
    sizes: tuple[int, ...] = ()

    def batches(self) -> Iterator[pa.Table]:
        """The rows, batch by batch."""
        start = 0
        for size in self.sizes or (self.table.num_rows,):
            yield self.table.slice(start, size)
            start += size

    @cached_property
    def _digest(self) -> str:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table.combine_chunks())
        return hashlib.sha256(sink.getvalue()).hexdigest()[:8]

    def __str__(self) -> str:
        return f"{self.table.num_rows} events #{self._digest}"


@dataclass(frozen=True)
class SparkRead:
    """Whatever one of Spark's own streaming readers gives: for what only Spark can read (Kafka, Delta, …)."""

    format: str
    options: tuple[tuple[str, str], ...] = ()
    path: str = ""

    def __str__(self) -> str:
        return " ".join(
            [f"spark {self.format}", self.path, *(f"{name}={value}" for name, value in self.options)]
        ).strip()


Origin = Files | Events | SparkRead


def read_columns(source: Source) -> list[str]:
    """The columns a reader has to read: the payload kept, and what the lifetime is made of."""
    lifetime = source.lifetime
    if isinstance(lifetime, Physical):
        wanted = {"kind", "le", "re", "re_new"}
    elif isinstance(lifetime, Interval):
        wanted = set(lifetime.start.columns() | lifetime.end.columns())
    else:
        assert isinstance(lifetime, (Point, Edge))
        wanted = set(lifetime.at.columns())
    return [name for name in source.columns.names if name in wanted or name in source.schema]


def read_path(source: Source, path: str) -> Iterator[Decoded]:
    """The blocks of one file of a source."""
    assert isinstance(source.origin, Files)
    row_filter = to_arrow_filter(source.pushed, source.columns) if source.pushed is not None else None
    yield from read_file(path, source.origin.format, source.columns, read_columns(source), row_filter)


def whole_rows(source: Source, path: str, block: Decoded) -> Callable[[NDArray[np.int64]], pa.Table] | None:
    """How to get rows of a block with all their columns: by reading the file again, which only bad rows are worth.

    None when the block has all columns already, or its row numbers may be off (a filtered Parquet file).
    """
    origin = source.origin
    if source.read_columns is None or not isinstance(origin, Files) or source.pushed is not None:
        return None

    def rows(places: NDArray[np.int64]) -> pa.Table:
        numbers = block.rows[places]
        found = [
            part.table.append_column("__row", pa.array(part.rows)).filter(pa.array(np.isin(part.rows, numbers)))
            for part in read_file(path, origin.format, source.columns)
        ]
        table = pa.concat_tables(found).sort_by("__row").drop_columns(["__row"])
        # A row that is broken in a column nobody asked for is refused when read whole: then its known part must do.
        return table if table.num_rows == len(places) else block.table.take(pa.array(places))

    return rows


def in_memory(table: pa.Table, source: Source) -> Decoded:
    """A block of a source that is held in memory."""
    if source.pushed is not None:
        table = table.filter(predicate_mask(source.pushed, table))
    return Decoded(table.select(read_columns(source)), refused_table(), np.arange(table.num_rows))
