"""Adapters: the two base classes of everything that reads events from a place or writes answers to one.

A **source adapter** describes a place that holds rows in *partitions*, numbered by *offsets* that only grow: a topic, a
table's log of changes. The driver asks how far the partitions reach (`offsets`), and decides what a batch reads: a
range of offsets of each partition. The plan of a batch is stored before it runs, so every attempt reads the same
ranges. Tasks read them (`read`), on Spark in the workers: rows never visit the driver. After the commit, the place may
forget what was read (`acknowledge`).

A **sink adapter** describes a place for answers. Tasks write the rows of a batch to the store, and the commit names
them. After it they are delivered, in *parts*: one for each bucket that has rows. `deliver` may be called again for the
same part of the same batch, by this process or another one, after a crash at any moment. So it records the batch number
at the place, in one step with the rows, and a part that is recorded is not delivered again.

Both are values: they are pickled, sent to workers, and may be called by any thread. Connections belong to the process
that opened them, and are not part of the value. `str(adapter)` is part of the plan's text, by which a checkpoint knows
its query: it names what is read, and neither addresses, which may change, nor passwords. Their fields are options that
SQL and `hr.read_source("name", ...)` set by name (`configured.py`).

An adapter raises `Unavailable` where the place does not answer and may answer later: the call is repeated, for
`PATIENCE` seconds. `SourceError` and `SinkError` end the query; started again, it continues.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

import pyarrow as pa

from headrace.errors import PlanError, Unavailable
from headrace.io.configured import Configured
from headrace.io.decoded import DecodedBlock
from headrace.io.keyed_changes import ChangeEncodingName
from headrace.io.sinks import Sink
from headrace.schema import Schema

__all__ = ["DeliveryId", "Offsets", "ReadRange", "SinkAdapter", "SourceAdapter", "TableLog", "patiently"]

#: How long calls to a place that does not answer are repeated, in seconds.
PATIENCE = 60.0
_PAUSES = (0.05, 2.0)
_log = logging.getLogger("headrace")
T = TypeVar("T")


@dataclass(frozen=True)
class Offsets:
    """How far a partition reaches: the offset of its first row that is still stored, and the end after its last row."""

    first: int
    end: int


@dataclass(frozen=True)
class ReadRange:
    """A range of one partition: from `start` to before `end`."""

    partition: str
    start: int
    end: int


@dataclass(frozen=True)
class TableLog:
    """A table whose changes a source reads: its columns and its key, and the column with the operation."""

    columns: Schema
    key: tuple[str, ...]
    op: str


class SourceAdapter(Configured):
    """A place to read rows from. Subclasses are frozen dataclasses.

    Only `schema`, `offsets` and `read` must be written.
    """

    #: What a range does whose first rows are no longer stored: an error, or reading on, with the lost offsets counted.
    on_gap: Literal["raise", "continue"] = "raise"
    #: Whether rows stay there after they were acknowledged, so that a history can read them again.
    keeps_rows: ClassVar[bool] = True
    #: Whether the place knows its columns, so that they need not be declared.
    knows_columns: ClassVar[bool] = False
    #: How its changes of tables are written (`keyed_changes.py`).
    change_encoding: ClassVar[ChangeEncodingName] = "rows"

    @property
    def schema(self) -> Schema:
        """The columns that `read` can return."""
        raise NotImplementedError

    @property
    def table_log(self) -> TableLog | None:
        """The table, if the rows are always changes of one."""
        return None

    @property
    def read_place(self) -> str:
        """What is read, however its rows are read: offsets of the same place go on after an upgrade."""
        return str(self)

    def as_log(self, encoding: str) -> SourceAdapter:  # noqa: ARG002 - for places whose rows depend on it
        """The source that reads the changes of a table in this encoding (`keyed_changes.py`)."""
        return self

    def offsets(self, positions: Mapping[str, int]) -> Mapping[str, Offsets]:
        """How far every partition reaches now; new ones may appear.

        `positions` has the next offset of each partition that was read before. Called by the driver, often.
        """
        raise NotImplementedError

    def begin(self, partition: str, available: Offsets) -> int:  # noqa: ARG002 - for places that can start elsewhere
        """The offset from which a partition is read that was never read before."""
        return available.first

    def limit(self, partition: str, start: int, end: int, rows: int) -> int:  # noqa: ARG002 - offsets may not be rows
        """The end of a range of about this many rows, at least one."""
        return min(end, start + rows)

    def read(
        self, partition: str, start: int, end: int, columns: Sequence[str]
    ) -> Generator[DecodedBlock, None, int | None]:
        """The rows of a range, in order, with these columns; `rows` and `lines` of a block have their offsets.

        Called again for the same range, it returns the same rows, until the range is acknowledged. A generator: it may
        `return` the offset at which the next range starts, if that is not `end`. Only then may another call return
        other rows, such as a newer snapshot of a table: the offset of the call that is committed counts.

        If the first rows are no longer stored, it raises a `SourceError`, or under `on_gap="continue"` reports in a
        block's `lost` how many are missing.
        """
        raise NotImplementedError

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        """Everything before these offsets is committed, and will not be read again. Called by the driver."""

    def exists(self) -> bool:
        """Whether the place has what the source creates there for a query, such as a slot; True if it needs nothing."""
        return True

    def drop(self) -> None:
        """Remove what the source has created at the place, after a query that does not continue."""

    def close(self) -> None:
        """Release what this process holds for the source, when the query ends."""


@dataclass(frozen=True)
class DeliveryId:
    """The identity of one part of a batch of an output: the same for every attempt to deliver it.

    `query` is the mark of the checkpoint, `output` the number of the output, `part` the number of the part. Batches of
    a part come in order, not every batch has rows for every part.
    """

    query: str
    output: int
    part: int
    batch: int


@dataclass(frozen=True)
class SinkAdapter(Sink, Configured):
    """A place to write answers to. Subclasses are frozen dataclasses; `deliver` must be written.

    An upsert writes the latest row of each key. `ended` says what becomes of it when its lifetime has ended: the answer
    of a window is kept; with `"delete"` the place has only rows that still hold, as a copy of a table must.
    """

    ended: Literal["keep", "delete"] = "keep"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ended not in ("keep", "delete") or (self.ended == "delete" and self.encoding != "upsert"):
            raise PlanError(
                "ended= says what becomes of upsert rows whose lifetime has ended",
                given=f"ended={self.ended!r}, encoding={self.encoding!r}",
                allowed="ended='keep', or 'delete' with encoding='upsert'",
            )

    @property
    def written_place(self) -> str:
        """What it writes to, without the form of the rows: no two streams of a query ever write to one place."""
        return str(self)

    #: Whether `deliver` recognises what it has delivered. If not, a batch may be delivered twice after a crash.
    exactly_once: ClassVar[bool] = True
    #: Whether only the driver can deliver: the place belongs to its process.
    in_driver: ClassVar[bool] = False

    def open(self, query: str, output: int, columns: Schema, batch: int) -> None:
        """Prepare the place for payloads with these columns, before the query runs. Called by the driver.

        `batch` is the number of the last committed batch, -1 if there is none; it may not have been delivered yet.
        """

    def deliver(self, delivery: DeliveryId, rows: pa.Table) -> None:
        """Write the rows, in the sink's encoding, and record the delivery in the same step; nothing if it is recorded.

        Called in a worker, or in the driver for few rows.
        """
        raise NotImplementedError

    def interrupt(self) -> None:
        """The query is being stopped: calls of `deliver` that wait for the place raise `Unavailable` soon.

        Called from another thread, perhaps several times; after it comes `close`.
        """

    def close(self) -> None:
        """Release what this process holds for the sink, when the query ends."""


def patiently(call: Callable[[], T], what: str, stopped: Callable[[], bool] = lambda: False) -> T:
    """The result of a call, repeated while the place is unavailable; after `PATIENCE` seconds its error is raised."""
    deadline, pause = time.monotonic() + PATIENCE, _PAUSES[0]
    while True:
        try:
            return call()
        except Unavailable as error:
            if stopped() or time.monotonic() > deadline:
                raise
            if pause == _PAUSES[0]:
                _log.warning("%s: %s; trying again for %d seconds", what, error.message, PATIENCE)
        time.sleep(pause)
        pause = min(2 * pause, _PAUSES[1])
