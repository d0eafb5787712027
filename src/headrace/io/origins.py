"""Origins: where the rows of a source come from. An origin is a value; it is part of a plan, and of the plan's text.

An origin defines how its rows are stamped with arrival and position (rules 1.5 and 8.1), so that the stamps are the
same on every host, in histories, and after restarts:

- Rows of files arrive when their file was last modified, and their position is their number in it. A live query reads
  the oldest file first, unless the source has another order.
- Rows in memory have their number in the table as position. Their arrival is the latest time of the rows up to them: an
  invented time, but one that never decreases.
- Rows that an adapter reads have their offset as position, and arrive when they reached their place, if it keeps that.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from glob import has_magic
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.columnar import to_numpy
from headrace.errors import PlanError, SourceError
from headrace.expr import Expr, col, evaluate
from headrace.io.adapter import SourceAdapter
from headrace.io.files import ORDERS, FileOrder, ListedFile, listing, local_path
from headrace.io.formats import Format
from headrace.io.secrets import shown_options, shown_place
from headrace.plan.nodes import Node, Source, sources_of
from headrace.plan.policies import Explicit, Interval, Physical, arrives
from headrace.schema import ARRIVAL, POSITION, STAMPS, Schema
from headrace.time import INFINITY, NEG_INFINITY

__all__ = [
    "TABLE", "AdapterRead", "Events", "Files", "FrameRead", "HostRead", "Origin", "SparkRead", "check_frames",
    "total_bytes",
]  # fmt: skip

_log = logging.getLogger("headrace")

#: The format of a table in Spark's catalog; the path is its name.
TABLE = "table"
#: Readers whose input has an end: the rows that are stored now.
_BOUNDED = (TABLE, "avro", "binaryfile", "csv", "delta", "hudi", "iceberg", "json", "orc", "parquet", "text", "xml")
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_][A-Za-z_0-9]*){0,2}")
_PLACES = "a file, a directory, or a pattern such as 'ticks/*.csv'"


def total_bytes(sources: Iterable[Source]) -> int:
    """The size of the files that these sources read."""
    origins = [source.origin for source in sources if isinstance(source.origin, Files)]
    return sum(file.size for origin in origins for file in origin.files())


class _UnknownRows:
    """An origin whose rows are unknown when a plan is built."""

    #: The stamps that order rows of one key. Rows of a key may be in several files, and positions do not compare files.
    row_order: ClassVar[tuple[str, ...]] = (ARRIVAL, POSITION)

    def stamped(self, source: Source) -> Source:
        """`source`, which has this origin, with stamps on its rows."""
        if isinstance(source.lifetime, Physical):
            raise PlanError(
                "physical events that may be retracted cannot be stamped: a retraction has another row than its insert",
                given=str(self),
                allowed="rows with a lifetime, and events in memory that are never retracted",
            )
        return _with_stamps(source)

    def plain_rows(self, source: Source) -> Source:
        """Physical events as rows: refused, because they may be retracted."""
        raise PlanError(
            "physical events cannot be read as rows where they may be retracted",
            given=source.describe(),
            allowed="rows with a lifetime, and events in memory that are never retracted",
        )

    def starts_at(self, at: Expr) -> bool:  # noqa: ARG002 - as the others are called
        """Whether physical events start at this time: False, because it is unknown."""
        return False


@dataclass(frozen=True, repr=False)
class Files(_UnknownRows):
    """A file, a directory or a pattern; new files of a directory or pattern are new rows of the stream."""

    path: str
    format: Format
    #: The text in a plan, for paths that are arbitrary.
    label: str = ""
    #: Whether the files contain arrival and position: rows that were in memory keep theirs.
    holds_stamps: bool = False
    #: The order in which its files are read.
    order: FileOrder = "time"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise PlanError(
                "unknown order of files",
                given=self.order,
                allowed=", ".join(ORDERS),
                instead="order='name'",
            )

    def check(self) -> None:
        """Raise unless files exist or may come later: a directory may be empty, and a pattern may match nothing yet."""
        if not self.exists():
            raise SourceError(f"there is no file or directory {self.path!r}", given=self.path, allowed=_PLACES)

    def exists(self) -> bool:
        """Whether there is a file or a directory, or may be files later."""
        local = local_path(self.path)
        return local is None or has_magic(local) or Path(local).exists()

    def files(self) -> list[ListedFile]:
        """The files that exist now, in the order of reading."""
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
    """Rows in memory, in one or several batches: a physical stream, or rows of another lifetime."""

    row_order: ClassVar[tuple[str, ...]] = (POSITION,)
    table: pa.Table
    #: The number of rows of each batch; by default all rows are one batch.
    sizes: tuple[int, ...] = ()

    def batches(self) -> Iterator[pa.Table]:
        """The rows, batch by batch."""
        start = 0
        for size in self.sizes or (self.table.num_rows,):
            yield self.table.slice(start, size)
            start += size

    def stamped(self, source: Source) -> Source:
        """`source`, which has this origin, with stamps as columns of its rows."""
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
        return replace(_with_stamps(source), origin=Events(table, self.sizes), dated=_dated(source))

    def plain_rows(self, source: Source) -> Source:
        """Physical events without retractions as rows with intervals; they keep their stamps, and lose the CTIs."""
        stamped = self.stamped(source)
        assert isinstance(stamped.origin, Events)
        batches = [batch.filter(pc.equal(batch["kind"], "insert")) for batch in stamped.origin.batches()]
        origin = Events(pa.concat_tables(batches), tuple(batch.num_rows for batch in batches))
        life = Interval(col("le"), col("re"))
        return replace(
            stamped, origin=origin, lifetime=life, policy=Explicit(source.policy.late), read_columns=source.schema.names
        )

    def starts_at(self, at: Expr) -> bool:
        """Whether all physical events start at this time."""
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
class SparkRead(_UnknownRows):
    """The rows of a streaming reader of Spark, for sources that only Spark can read (Kafka, Delta, …)."""

    format: str
    options: tuple[tuple[str, str], ...] = ()
    path: str = ""
    #: Names of Spark's columns, and the names they get.
    rename: tuple[tuple[str, str], ...] = ()

    def stored(self, name: str) -> str:
        """Spark's name of a column."""
        return {new: old for old, new in self.rename}.get(name, name)

    @property
    def endless(self) -> bool:
        """Whether the input has no end."""
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
        """Refused: Spark does not record the order of rows."""
        raise PlanError(
            "rows that Spark reads cannot be stamped: Spark does not record their arrival and order",
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
    """The rows of a Spark data frame, which its name (the `path`) and its columns identify."""

    frame: Any = field(default=None, compare=False, repr=False)
    streaming: bool = False
    #: Whether a user gave the name; a generated name differs in every process.
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
        return {**self.__dict__, "frame": None}  # the frame belongs to its session, and workers do not need it

    def __str__(self) -> str:
        return f"spark dataframe {self.path}"


def endless_origins(*roots: Node) -> list[str]:
    """The inputs of these streams that have no end: hosts without a limit, and inputs that only Spark can read."""
    origins = [source.origin for source in sources_of(*roots)]
    unbounded = [o for o in origins if isinstance(o, SparkRead) or (isinstance(o, HostRead) and o.limit is None)]
    return list(dict.fromkeys(str(o) for o in unbounded if not (isinstance(o, FrameRead) and not o.streaming)))


def check_frames(*roots: Node, named: bool) -> None:
    """Raise if two frames have the same name, which identifies them in plans, or if `named` and one has no name."""
    seen: dict[int, Node] = {}
    frames: dict[str, FrameRead] = {}
    waiting = list(roots)
    while waiting:  # not by `walk`, which visits equal nodes once
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
            allowed="a different name for each",
            instead="read_spark(frame, name='trades', ...)",
        )
    if named and not origin.named:
        raise PlanError(
            "a checkpoint cannot identify a data frame without a name",
            given=str(origin),
            instead="read_spark(frame, name='trades', ...)",
        )


@dataclass(frozen=True)
class HostRead(_UnknownRows):
    """Lines that a TCP server sends. A receiver writes them to files of a *spool*, and the query reads these files."""

    host: str
    port: int
    format: Format
    #: The directory of the lines; by default in the query's checkpoint.
    spool: str = ""
    #: How many lines may wait for the query before the receiver stops reading.
    buffer_rows: int = 100_000
    #: The number of lines after which nothing more is read.
    limit: int | None = None

    def files(self, default: Path) -> Files:
        """The files of the spool, which is by default a folder in `default`."""
        mark = hashlib.sha256(str(self).encode()).hexdigest()[:8]
        folder = Path(self.spool) if self.spool else default / f"host-{self.port}-{mark}"
        return Files(str(folder.absolute()), self.format, label=str(self))

    def __str__(self) -> str:
        return f"{self.format} host {self.host}:{self.port}"


@dataclass(frozen=True)
class AdapterRead(_UnknownRows):
    """The rows of a place that an adapter reads."""

    row_order: ClassVar[tuple[str, ...]] = (POSITION,)
    adapter: SourceAdapter

    def __str__(self) -> str:
        return str(self.adapter)


Origin = Files | Events | SparkRead | HostRead | AdapterRead


def _with_stamps(source: Source) -> Source:
    if source.stamped:
        return replace(source, read_columns=None)
    return replace(source, columns=Schema((*source.columns, *STAMPS)), read_columns=None, stamped=True)


def _retraction(events: pa.Table) -> dict[str, object] | None:
    """The first retraction of physical events."""
    retractions = events.filter(pc.equal(events["kind"], "retract"))
    return dict(retractions.slice(0, 1).to_pylist()[0]) if retractions.num_rows else None


def _dated(source: Source) -> bool:
    """Whether the arrivals of rows in memory are dates: if they are taken from dates."""
    return source.dates and not (source.dated is None and arrives(source.lifetime))


def _arrivals(source: Source, table: pa.Table) -> NDArray[np.int64]:
    """For each row in memory, the latest time of the rows up to it; its number if none has a time."""
    lifetime = source.lifetime
    if arrives(lifetime):
        return np.arange(table.num_rows, dtype=np.int64)
    if isinstance(lifetime, Physical):
        starts = table["le"]
    else:
        starts = evaluate(lifetime.start if isinstance(lifetime, Interval) else lifetime.at, table)
    times = to_numpy(pc.fill_null(pc.cast(starts, pa.int64()), NEG_INFINITY))
    times = np.where(times == INFINITY, NEG_INFINITY, times)  # the end of time is no arrival
    reached = np.maximum.accumulate(times)
    known = reached[reached != NEG_INFINITY]
    return np.maximum(reached, known[0]) if len(known) else np.arange(len(reached), dtype=np.int64)
