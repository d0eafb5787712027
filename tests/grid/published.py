"""Rows of the grid as a server runs them: from a stream that clients feed to a published one that clients subscribe to.

The logs are those of a server; the query runs without one, so that all disruptions of queries fit. One process owns the
logs of a server: two of them at once make no sense. Whole servers are killed in `tests/recovery/test_server.py`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.grid.features import Feature, Pairs
from tests.grid.inputs import SCHEMA, Row, points
from tests.grid.sinks import NO_FILES
from tests.grid.sources import ROWS, counted
from tests.grid.world import Wrong

import headrace as hr
from headrace.errors import HeadraceError
from headrace.events import history, physical_schema, to_changes
from headrace.io.adapter import Offsets
from headrace.io.live_table import log_columns
from headrace.schema import Schema
from headrace.server.interface import SubscribedRows
from headrace.server.log import EventLog
from headrace.server.published import ClientRows, LogSink, client_columns
from headrace.server.subscription import LogSubscription

__all__ = ["PUBLISHED"]

COLUMNS = Schema.of(ROWS)
#: Rows of a piece that a subscriber pulls before it begins again from its cursor.
PIECE = 7


def write(folder: Path) -> None:
    """The log of a stream, as clients have fed it: an insert for each batch."""
    _open_logs.forget()
    log = EventLog(folder / "in" / "1-rows", client_columns(COLUMNS), durable=False)
    with closing(log):
        for number, rows in enumerate(points(1)):
            arrived = pa.array([number] * len(rows), pa.int64())
            log.append(pa.Table.from_pylist(rows, SCHEMA).append_column("_arrived", arrived), {f"key {number}": 1})


class _OpenLogs:
    """The logs of answers that this process has open, with the number of queries that write each."""

    def __init__(self) -> None:
        self._logs: dict[str, EventLog] = {}
        self._users: Counter[str] = Counter()
        self._lock = threading.Lock()

    def open(self, folder: str, columns: Schema) -> EventLog:
        with self._lock:
            if not self._users[folder]:
                self._logs[folder] = EventLog(Path(folder), log_columns(columns), durable=False)
            self._users[folder] += 1
            return self._logs[folder]

    def close(self, folder: str) -> None:
        with self._lock:
            self._users[folder] -= 1
            if not self._users[folder] and folder in self._logs:
                self._logs.pop(folder).close()

    @contextmanager
    def read(self, folder: str, columns: Schema) -> Iterator[EventLog]:
        """The log, also while queries write it."""
        log = self.open(folder, columns)
        try:
            yield log
        finally:
            self.close(folder)

    def forget(self) -> None:
        """Close all, as the end of the process would."""
        with self._lock:
            self._users.clear()
            while self._logs:
                self._logs.popitem()[1].close()


_open_logs = _OpenLogs()


@dataclass(frozen=True)
class PublishedLog(LogSink):
    """A log that is open while a query writes it."""

    folder: str = ""
    columns: Schema = Schema(())  # noqa: RUF009 - it is a value

    def open(self, query: str, output: int, columns: Schema, batch: int) -> None:
        object.__setattr__(self, "log", _open_logs.open(self.folder, self.columns))
        try:
            super().open(query, output, columns, batch)
        except HeadraceError:
            self.close()
            raise

    def close(self) -> None:
        if self.log is not None:
            object.__setattr__(self, "log", None)
            _open_logs.close(self.folder)


def pairs(folder: Path) -> Pairs:
    rows = ClientRows("rows", COLUMNS, str(folder / "in" / "1-rows"), None, Offsets(0, sum(map(len, points(1)))))
    answers = counted(hr.read_source(rows, lifetime=hr.point("t"), progress=hr.advance(10), bad_rows="raise"))
    sink = PublishedLog("events", name="answers", folder=str(folder / "out" / "2-answers"), columns=answers.schema)
    return [(answers, sink)]


def subscribed(folder: Path, stream: hr.Stream, sink: Any) -> list[Row]:  # noqa: ARG001 - as others
    """What a client has that subscribes from the first row on, and again from its cursor after each piece."""
    with _open_logs.read(sink.folder, stream.schema) as log:
        pieces, cursor = [], "2.0"
        while (piece := _next(log, stream.schema, cursor)) is not None:
            pieces.append(piece.rows)
            cursor = piece.cursor
        found = history(to_changes(_joined(pieces, stream.schema), stream.schema))
        snapshot = LogSubscription("answers", log, stream.schema)
        begun = []
        while (piece := snapshot.next(timeout=0)) is not None:
            begun.append(piece.rows)
        if different := hr.history_diff(found, history(to_changes(_joined(begun, stream.schema), stream.schema))):
            raise Wrong(f"the snapshot of a subscription is not what the others add up to: {different}")
        return found.to_pylist()


def _next(log: EventLog, schema: Schema, cursor: str) -> SubscribedRows | None:
    subscription = LogSubscription("answers", log, schema, cursor=cursor)
    try:
        return subscription.next(timeout=0, rows=PIECE)
    finally:
        subscription.close()


def _joined(pieces: list[pa.Table], schema: Schema) -> pa.Table:
    return pa.concat_tables([physical_schema(schema).empty_table(), *pieces])


ONE_OWNER = "one process owns the logs of a server"
PUBLISHED = [
    Feature(
        "published and subscribed", "service", write, pairs,
        lacks=NO_FILES | {
            "files": "the input is in a log", "clock": "the input has no files", "two processes": ONE_OWNER,
        },
        options={"rows_per_batch": 10}, anew=True, adapters=True, rows=subscribed,
    )
]  # fmt: skip
