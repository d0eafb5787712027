"""Logs as queries see them: tables and published answers to read, streams that clients feed, and the sink of a query.

A published stream is a `ChangingTable` like a table and a materialized view in process are, so that statements, runs to
the end and started queries treat all of them alike; only its log is on disk.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.columnar import to_numpy
from headrace.errors import SinkError
from headrace.events import history, to_changes
from headrace.io.adapter import DeliveryId, Offsets, SinkAdapter, SourceAdapter
from headrace.io.decoded import DecodedBlock, decoded
from headrace.io.live_table import ChangingTable, LiveTableRead
from headrace.io.table_log import Places
from headrace.plan.nodes import Node
from headrace.schema import Field, Schema, Type
from headrace.server.log import EventLog
from headrace.server.log_files import LogFolder
from headrace.time import BEGINNING, INFINITY

__all__ = ["ARRIVED", "ClientRows", "DiskLog", "LogSink", "PublishedStream", "client_columns", "without_arrival"]

_PARTITION = "rows"
ARRIVED = "_arrived"


@dataclass(frozen=True)
class _FilesElsewhere:
    """The log of a table in another process."""

    log_schema: Schema
    folder: str
    text: str

    def __str__(self) -> str:
        return self.text

    @cached_property
    def _log(self) -> LogFolder:
        return LogFolder(Path(self.folder), self.log_schema)

    def numbered_log(self, start: int, end: int) -> tuple[Places, pa.Table]:
        """Rows of the log, with their numbers."""
        return self._log.rows(start, end)


class DiskLog:
    """The log of a table on disk."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.schema = log.schema
        self.promised = BEGINNING
        self._marks = threading.local()

    @contextmanager
    def marking(self, key: str | None) -> Iterator[None]:
        """The rows that this thread appends have the key of a client's insert."""
        self._marks.key = key
        try:
            yield
        finally:
            self._marks.key = None

    def __len__(self) -> int:
        return self.log.end

    def append(self, rows: pa.Table, **about: int) -> None:
        """Append rows; they are on disk when it returns."""
        key = getattr(self._marks, "key", None)
        marks = {} if key is None else {f"key {key}": rows.num_rows}
        self.log.append(rows, marks | {name: int(value) for name, value in about.items()})

    def promise(self, row: pa.Table, time: int) -> None:
        """Append a promise."""
        del row  # it says no more than its time
        self.log.promise(time)
        self.promised = time

    @property
    def about(self) -> Mapping[str, int]:
        """What the latest rows said about the table."""
        found = {name: self.log.marked(name) for name in ("clocked", "numbers")}
        return {name: mark for name, mark in found.items() if mark is not None}

    def rows(self, start: int, end: int) -> tuple[Places, pa.Table]:
        """The rows from a number up to another that are kept, and their numbers."""
        return self.log.rows(start, end)

    def elsewhere(self, name: str) -> _FilesElsewhere:
        """The log as a worker reads it."""
        return _FilesElsewhere(self.schema, str(self.log.folder), f"table {name}")


class PublishedStream(ChangingTable):
    """The answers of a running query, in a log on disk."""

    def __init__(self, name: str, schema: Schema, log: EventLog, *, dates: bool) -> None:
        super().__init__(name, schema, DiskLog(log))
        self.event_log, self.dated, self.numbers = log, dates, not dates

    def __str__(self) -> str:
        return f"stream {self.name}"

    @property
    def dates(self) -> bool:
        return self.dated

    def follow(self) -> int:
        return len(self._log)

    @property
    def node(self) -> Node:
        """The stream of its answers."""
        return LiveTableRead(self, promises=False).source

    @property
    def rows(self) -> pa.Table:
        """The rows that hold now."""
        events = self.log(0, len(self._log))
        answer = history(to_changes(events, self.schema))
        return answer.filter(pc.equal(answer["re"], INFINITY)).drop_columns(["le", "re"])


def client_columns(columns: Schema) -> Schema:
    """The columns of the log of a stream that clients feed: also when each row arrived, in ticks."""
    return Schema((*columns, Field(ARRIVED, Type.LONG)))


def without_arrival(log: Schema) -> Schema:
    """The columns of a stream that clients feed, from those of its log."""
    return Schema(tuple(column for column in log if column.name != ARRIVED))


@dataclass(frozen=True)
class ClientRows(SourceAdapter):
    """The rows that clients insert into a stream. `log` is None in a worker, which reads the files of its folder.

    `kept` are the offsets that a run of another process reads to the end.
    """

    name: str
    columns: Schema
    folder: str
    log: EventLog | None = field(default=None, compare=False, repr=False)
    kept: Offsets | None = field(default=None, compare=False, repr=False)
    paths: ClassVar[tuple[str, ...] | None] = ("folder",)

    def __str__(self) -> str:
        return f"clients of {self.name}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "log": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @property
    def schema(self) -> Schema:
        return self.columns

    def offsets(self, positions: Mapping[str, int]) -> Mapping[str, Offsets]:  # noqa: ARG002 - one partition
        kept = self.kept if self.log is None else Offsets(self.log.first, self.log.end)
        assert kept is not None
        return {_PARTITION: kept}

    def read(
        self,
        partition: str,  # noqa: ARG002 - there is one
        start: int,
        end: int,
        columns: Sequence[str],
    ) -> Generator[DecodedBlock, None, int | None]:
        log = LogFolder(Path(self.folder), client_columns(self.columns)) if self.log is None else self.log
        offsets, rows = log.rows(start, end)
        if rows.num_rows:
            block = decoded(rows.select(list(columns)), np.asarray(offsets), self.columns)
            yield replace(block, arrived=to_numpy(rows[ARRIVED]))
        return None


@dataclass(frozen=True)
class LogSink(SinkAdapter):
    """Writes the answers of a query into a log, as physical events with times in ticks."""

    in_driver: ClassVar[bool] = True
    name: str = ""
    log: EventLog | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"log of {self.name}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "log": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def showing(self, *, dates: bool) -> Self:  # noqa: ARG002 - the log has ticks
        return self

    def open(self, query: str, output: int, columns: Schema, batch: int) -> None:  # noqa: ARG002 - the log has columns
        """Check that the log has no batch that the checkpoint does not know."""
        assert self.log is not None
        latest = self.log.marked(f"{query}/{output}")
        if latest is not None and latest > batch:
            raise SinkError(
                f"the log of {self.name} has batch {latest} of its query, and the checkpoint ends with {batch}",
                instead="the log and the checkpoint of the same moment: copy a data directory as a whole",
            )

    def deliver(self, delivery: DeliveryId, rows: pa.Table) -> None:
        """Append the rows, unless the log has this delivery; one that only promises is a promise of the log."""
        assert self.log is not None
        part, whole = f"{delivery.query}/{delivery.output}/{delivery.part}", f"{delivery.query}/{delivery.output}"
        latest = self.log.marked(part)
        if latest is not None and latest >= delivery.batch:
            return
        if rows.num_rows and pc.all(pc.equal(rows["kind"], "cti")).as_py():
            self.log.promise(pc.max(rows["le"]).as_py())  # made again, it says the same
        else:
            self.log.append(rows, {part: delivery.batch, whole: delivery.batch})
