"""Where rows come from. An origin is a value: it is part of a plan, and its text is what a plan says of it.

An origin knows how its rows are stamped with arrival and position (rules 1.5 and 8.1), so that the stamps are the same
on every host, in histories, and after restarts:

- Rows of files arrive when their file was last modified, and their position is their number in it. Files are taken
  oldest first, unless their source says otherwise, so that is the order in which a live query meets them.
- Rows in memory have their number in the table as position. They arrive at the latest time that they or rows before
  them speak of: a time that is made up, but never goes back.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from glob import has_magic
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.columnar import to_numpy
from headrace.errors import PlanError, SourceError, without_secrets
from headrace.expr import Expr, col, evaluate, predicate_mask
from headrace.expr.pushdown import to_arrow_filter
from headrace.io.decoded import Decoded, refused_table
from headrace.io.files import ORDERS, FileOrder, FileState, Listed, listing, local_path
from headrace.io.formats import Format, read_file
from headrace.io.secrets import shown_options, shown_place
from headrace.plan.nodes import Node, Source
from headrace.plan.policies import Arrival, Edge, Explicit, Interval, Physical, Point
from headrace.schema import ARRIVAL, POSITION, STAMPS, Schema
from headrace.time import INFINITY, NEG_INFINITY

__all__ = [
    "TABLE", "Events", "Files", "FrameRead", "HostRead", "Origin", "SparkRead", "check_frames", "read_columns",
    "read_listed", "shown_path", "whole_rows",
]  # fmt: skip

_log = logging.getLogger("headrace")

#: The format of a table in Spark's catalog; the path is its name.
TABLE = "table"
#: Of what these readers give there is an end: what is stored now.
_BOUNDED = (TABLE, "avro", "binaryfile", "csv", "delta", "hudi", "iceberg", "json", "orc", "parquet", "text", "xml")
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_][A-Za-z_0-9]*){0,2}")
_PLACES = "a file, a directory, or a pattern such as 'ticks/*.csv'"


class _Unread:
    """Rows that nobody has seen when a plan is made, and so may be anything."""

    def stamped(self, source: Source) -> Source:
        """`source`, which reads from here, with stamps on its rows."""
        if isinstance(source.lifetime, Physical):
            raise PlanError(
                "physical events that may be retracted cannot be stamped: a retraction has another row than its insert",
                given=str(self),
                allowed="rows with a lifetime, and events in memory that are never retracted",
            )
        return _with_stamps(source)

    def plain_rows(self, source: Source) -> Source:
        """Physical events as rows: refused, since they may be retracted."""
        raise PlanError(
            "physical events cannot be read as rows where they may be retracted",
            given=source.describe(),
            allowed="rows with a lifetime, and events in memory that are never retracted",
        )

    def starts_at(self, at: Expr) -> bool:  # noqa: ARG002 - as the others are called
        """Whether physical events start at this time: nobody knows."""
        return False


@dataclass(frozen=True, repr=False)
class Files(_Unread):
    """A file, a directory or a pattern; new files of a directory or pattern are new rows of the stream."""

    path: str
    format: Format
    #: What a plan says of it, when the path is an accident.
    label: str = ""
    #: Whether the files hold arrival and position themselves: rows that were in memory bring theirs along.
    holds_stamps: bool = False
    #: Which of its files is read first.
    order: FileOrder = "time"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise PlanError(
                "files are not read in such an order",
                given=self.order,
                allowed=", ".join(ORDERS),
                instead="order='name'",
            )

    def check(self) -> None:
        """Raise unless files are there or may come: a directory may be empty, a pattern may fit nothing yet."""
        local = local_path(self.path)
        if local is not None and not has_magic(local) and not Path(local).exists():
            raise SourceError(f"there is no file or directory {self.path!r}", given=self.path, allowed=_PLACES)

    def files(self) -> list[Listed]:
        """The files that are there now, in the order of reading."""
        found = listing(self.path, self.order)
        if not found:
            raise SourceError(
                f"no file is at {self.path}",
                given=self.path,
                allowed=_PLACES,
            )
        return found

    def __str__(self) -> str:
        by_name = ", files by name" if self.order == "name" else ""
        return self.label or f"{self.format} {shown_place(self.path)}{by_name}"

    def __repr__(self) -> str:
        return f"Files({self})"


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

    def stamped(self, source: Source) -> Source:
        """`source`, which reads from here, with stamps on its rows: from now on they are part of the rows."""
        if source.stamped:
            return _with_stamps(source)
        if isinstance(source.lifetime, Physical) and (retracted := _retraction(self.table)) is not None:
            raise PlanError(
                "events that are retracted cannot be stamped: a retraction has another row than its insert",
                given=retracted,
                allowed="events that are only inserted",
            )
        arrivals = pa.array(_arrivals(source, self.table))
        table = self.table.append_column(ARRIVAL, arrivals)
        table = table.append_column(POSITION, pa.array(np.arange(table.num_rows, dtype=np.int64)))
        return replace(_with_stamps(source), origin=Events(table, self.sizes))

    def plain_rows(self, source: Source) -> Source:
        """Physical events that are only inserted, as rows with intervals; they keep their stamps, but bring no CTIs."""
        stamped = self.stamped(source)
        assert isinstance(stamped.origin, Events)
        batches = [batch.filter(pc.equal(batch["kind"], "insert")) for batch in stamped.origin.batches()]
        origin = Events(pa.concat_tables(batches), tuple(batch.num_rows for batch in batches))
        life = Interval(col("le"), col("re"))
        return replace(
            stamped, origin=origin, lifetime=life, policy=Explicit(source.policy.late), read_columns=source.schema.names
        )

    def starts_at(self, at: Expr) -> bool:
        """Whether physical events start at this time, all of them."""
        events = self.table.filter(pc.not_equal(self.table["kind"], "cti"))
        times = pc.cast(evaluate(at, events), pa.int64())
        return bool(pc.all(pc.fill_null(pc.equal(times, events["le"]), False), min_count=0).as_py())

    @cached_property
    def _digest(self) -> str:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table.combine_chunks())
        return hashlib.sha256(sink.getvalue()).hexdigest()[:8]

    def __str__(self) -> str:
        return f"{self.table.num_rows} events #{self._digest}"


@dataclass(frozen=True, repr=False)
class SparkRead(_Unread):
    """Whatever one of Spark's own streaming readers gives: for what only Spark can read (Kafka, Delta, …)."""

    format: str
    options: tuple[tuple[str, str], ...] = ()
    path: str = ""
    #: Names of Spark's columns, and the names they get.
    rename: tuple[tuple[str, str], ...] = ()

    def stored(self, name: str) -> str:
        """What Spark calls a column."""
        return {new: old for old, new in self.rename}.get(name, name)

    @property
    def endless(self) -> bool:
        """Whether more may keep coming, so that there is no end to run to."""
        return self.format.lower() not in _BOUNDED

    def __post_init__(self) -> None:
        if self.format == TABLE and not _TABLE_NAME.fullmatch(self.path):
            raise PlanError(
                "this is not the name of a table of Spark's",
                given=self.path,
                allowed="letters, digits and _, with its database before a dot",
                instead="trades, or market.trades",
            )

    def stamped(self, source: Source) -> Source:  # noqa: ARG002 - as the others are called
        """Refused: what Spark reads has no order that is kept."""
        raise PlanError(
            "what only Spark can read cannot be stamped: Spark does not say when a row came, and in which order",
            given=str(self),
            allowed="files, hosts and events in memory",
            instead="the reader's own columns, such as Kafka's timestamp and offset",
        )

    def __str__(self) -> str:
        place = [shown_place(self.path)] if self.path else []
        names = [f"{old!r} as {new!r}" for old, new in self.rename]
        return " ".join([f"spark {self.format}", *place, *shown_options(self.options), *names])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"


@dataclass(frozen=True)
class FrameRead(SparkRead):
    """The rows of a data frame of Spark's. It is told apart by its name, which is its `path`, and its columns."""

    frame: Any = field(default=None, compare=False, repr=False)
    streaming: bool = False
    #: Whether a user gave the name; one that was made up is another in every process.
    named: bool = False

    @property
    def endless(self) -> bool:
        return self.streaming

    def selected(self, columns: Schema) -> Any:
        """The frame with these columns only."""
        return self.frame.select(*(self.frame[f"`{name.replace('`', '``')}`"] for name in columns.names))

    def rows(self, columns: Schema) -> pa.Table:
        """All rows of a batch frame, brought to this process."""
        return self.selected(columns).toArrow().cast(columns.arrow)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "frame": None}  # it belongs to its session, and workers do without

    def __str__(self) -> str:
        return f"spark dataframe {self.path}"


def check_frames(*roots: Node, named: bool) -> None:
    """Raise if two frames have one name: plans tell frames apart by it; or if one has none, and it must be `named`."""
    seen: dict[int, Node] = {}
    frames: dict[str, FrameRead] = {}
    waiting = list(roots)
    while waiting:  # node by node, not by `walk`, for which nodes with equal names are one
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen[id(node)] = node
        waiting += node.inputs
        origin = node.origin if isinstance(node, Source) else None
        if isinstance(origin, FrameRead):
            _check_frame(origin, frames.setdefault(origin.path, origin), named=named)


def _check_frame(origin: FrameRead, other: FrameRead, *, named: bool) -> None:
    if origin.frame is not other.frame:
        raise PlanError(
            "two data frames of this query have the same name",
            given=origin.path,
            allowed="a name of its own for each",
            instead="read_spark(frame, name='trades', ...)",
        )
    if named and not origin.named:
        raise PlanError(
            "a data frame without a name cannot be found again by a checkpoint",
            given=str(origin),
            instead="read_spark(frame, name='trades', ...)",
        )


@dataclass(frozen=True)
class HostRead(_Unread):
    """Lines that a TCP server sends. A receiver writes them to files of a *spool*, and these are what is read."""

    host: str
    port: int
    format: Format
    #: The directory for the lines; without one, a query keeps them in its checkpoint.
    spool: str = ""
    #: How many lines may wait for the query before the receiver reads no more.
    buffer_rows: int = 100_000
    #: After so many lines nothing more is read.
    limit: int | None = None

    def files(self, otherwise: Path) -> Files:
        """The files of the spool: its own, or one below the folder `otherwise`."""
        mark = hashlib.sha256(str(self).encode()).hexdigest()[:8]
        folder = Path(self.spool) if self.spool else otherwise / f"host-{self.port}-{mark}"
        return Files(str(folder.absolute()), self.format, label=str(self))

    def __str__(self) -> str:
        return f"{self.format} host {self.host}:{self.port}"


Origin = Files | Events | SparkRead | HostRead


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


def read_listed(source: Source, file: Listed) -> Iterator[Decoded]:
    """The blocks of one file of a source, stamped if the source is.

    A file that is gone has no rows, and one that changed is read as it is; the last block says so.
    """
    found = file.state()
    if found != "missing":
        yield from _read(source, file)
        found = file.state() if found == "same" else found
    if found != "same":
        yield _notice(source, file, found)


def _notice(source: Source, file: Listed, state: FileState) -> Decoded:
    """The block that reports a file; an error if the source takes no bad rows."""
    what = "removed" if state == "missing" else "changed"
    effect = "its rows are not in the answer" if state == "missing" else "what was read may be half of it"
    text = f"the file {file.path!r} was {what} after it was listed"
    if source.bad_rows == "raise":
        raise SourceError(text, given=str(source.origin), instead="write files under another name, then rename them")
    _log.warning("%s: %s; %s", source.origin, text, effect)
    empty = source.columns.arrow.empty_table().select(read_columns(source))
    return Decoded(empty, refused_table(), np.arange(0), file=state)


def _read(source: Source, file: Listed) -> Iterator[Decoded]:
    assert isinstance(source.origin, Files)
    path = file.path
    held, wanted = _held(source), read_columns(source)
    row_filter = to_arrow_filter(source.pushed, held) if source.pushed is not None else None
    # A row of text is malformed if any of its columns is, whoever reads them: else another query in the same script, or
    # a history, would see other rows. Where types are stored, only what is wanted is read, but at least one column.
    typed = source.origin.format.name == "parquet"
    columns = [name for name in held.names if name in wanted or not typed] or list(held.names[:1])
    blocks = read_file(path, source.origin.format, held, columns, row_filter)
    if columns == wanted:
        yield from blocks
    else:
        made = [name for name in wanted if name not in held]
        for block in blocks:
            values = [_stamp(name, file, block) if name in made else block.table[name] for name in wanted]
            yield replace(block, table=pa.table(values, names=wanted))


def _stamp(name: str, file: Listed, block: Decoded) -> pa.Array:
    """The arrival or position of the rows of a block."""
    return pa.array(np.full(len(block.rows), file.modified // 1000, np.int64) if name == ARRIVAL else block.rows)


def _held(source: Source) -> Schema:
    """The columns that a source's files hold: all but the stamps, which are made when a file is read."""
    if not source.stamped or (isinstance(source.origin, Files) and source.origin.holds_stamps):
        return source.columns
    return Schema(tuple(field for field in source.columns if field.name not in STAMPS))


def _with_stamps(source: Source) -> Source:
    if source.stamped:
        return replace(source, read_columns=None)
    return replace(source, columns=Schema((*source.columns, *STAMPS)), read_columns=None, stamped=True)


def _retraction(events: pa.Table) -> dict[str, object] | None:
    """The first retraction of physical events."""
    found = events.filter(pc.equal(events["kind"], "retract"))
    return dict(found.slice(0, 1).to_pylist()[0]) if found.num_rows else None


def _arrivals(source: Source, table: pa.Table) -> NDArray[np.int64]:
    """For each row in memory the latest time that it or a row before it speaks of; its number where none does."""
    lifetime = source.lifetime
    if isinstance(lifetime, Arrival):
        return np.arange(table.num_rows, dtype=np.int64)
    if isinstance(lifetime, Physical):
        starts = table["le"]
    else:
        starts = evaluate(lifetime.start if isinstance(lifetime, Interval) else lifetime.at, table)
    times = to_numpy(pc.fill_null(pc.cast(starts, pa.int64()), NEG_INFINITY))
    times = np.where(times == INFINITY, NEG_INFINITY, times)  # the end of time is no time to arrive at
    reached = np.maximum.accumulate(times)
    known = reached[reached != NEG_INFINITY]
    return np.maximum(reached, known[0]) if len(known) else np.arange(len(reached), dtype=np.int64)


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
            for part in read_file(path, origin.format, _held(source))
        ]
        table = pa.concat_tables(found).sort_by("__row").drop_columns(["__row"])
        # A row that is broken in a column nobody asked for is refused when read whole: then its known part must do.
        return table if table.num_rows == len(places) else block.table.take(pa.array(places))

    return rows


def shown_path(source: Source, path: str | None) -> str | None:
    """A file as people are shown it, the same on every host; None for files that are not the user's own."""
    if path is None or (isinstance(source.origin, Files) and source.origin.label):
        return None
    local = local_path(path)
    return without_secrets(path) if local is None else str(Path(local).absolute())


def in_memory(table: pa.Table, source: Source) -> Decoded:
    """A block of a source that is held in memory."""
    if source.pushed is not None:
        table = table.filter(predicate_mask(source.pushed, table))
    return Decoded(table.select(read_columns(source)), refused_table(), np.arange(table.num_rows))
