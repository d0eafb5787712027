"""Retention: what is removed from the logs of published streams, and when.

`ALTER QUERY q SET retention = '7 days'` keeps the answers of the last seven days. Older ones are removed, in whole
segments, unless they still matter: events that the promise of the log has not passed may still be corrected, and stay,
with the promise itself (the *base* of the log). So a query that begins later starts with them, and goes on from there.
Nothing is removed that a query of the server has still to read, also if that query is stopped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.events import cti_row, history, physical_schema, to_changes
from headrace.host.live_tables import table_reads
from headrace.schema import Schema
from headrace.time import duration

if TYPE_CHECKING:
    from headrace.server.core import ServedObject
    from headrace.server.log import EventLog

__all__ = ["LogRetention", "needed_rows"]

_EVERY = 60.0  # seconds between two looks
#: A segment has at most this part of the time that is kept, so that little more is kept than was asked for.
_PART = 8
_log = logging.getLogger("headrace.server")


def needed_rows(events: pa.Table, payload: Schema) -> pa.Table:
    """Of the rows of a log those that are still needed after all of them: open events, and the promise."""
    shape = physical_schema(payload)
    promise = pc.max(events.filter(pc.equal(events["kind"], "cti"))["le"]).as_py()
    held = history(to_changes(events, payload))
    if promise is not None:
        held = held.filter(pa.array(np.asarray(held["re"]) > promise))
    kinds = pa.array(["insert"] * held.num_rows, pa.string())
    rows = held.add_column(0, "kind", kinds).add_column(3, "re_new", pa.nulls(held.num_rows, pa.int64())).cast(shape)
    return rows if promise is None else pa.concat_tables([rows, cti_row(promise, payload)])


class LogRetention:
    """A thread that looks after the logs of a server."""

    def __init__(self, objects: Callable[[], Sequence[ServedObject]], clock: Callable[[], float] = time.time) -> None:
        self._objects, self._clock = objects, clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="headrace-retention", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _loop(self) -> None:
        while not self._stop.wait(_EVERY):
            try:
                self.look()
            except Exception:  # noqa: BLE001 - it is tried again
                _log.exception("old rows could not be removed")

    def look(self) -> None:
        """Remove what need not be kept any more."""
        objects = list(self._objects())
        for served in objects:
            kept = None if served.query is None else served.query.settings.get("retention")
            if kept is None or served.log is None or served.published is None:
                continue
            seconds = duration(kept) / 1_000_000
            self._forget(served, served.log, seconds, _least_read(served, objects))

    def _forget(self, served: ServedObject, log: EventLog, seconds: float, read: int) -> None:
        now, segments = self._clock(), log.segments()
        if segments and log.end > segments[-1][0] and now - log.began > seconds / _PART:
            log.divide()
        starts = [start for start, _ in segments]
        old = [written < now - seconds for _, written in segments]
        forgotten = [start for start, before in zip(starts[1:], old, strict=False) if before and start <= read]
        if forgotten and forgotten[-1] > log.kept:
            assert served.published is not None
            events = log.rows(log.first, forgotten[-1])[1]
            kept = log.forget(forgotten[-1], needed_rows(events, served.published.schema))
            _log.info("stream %s: rows before offset %d were removed", served.stored.name, kept)


def _least_read(served: ServedObject, objects: Sequence[ServedObject]) -> int:
    """The offset up to which every query of the server has read a stream."""
    assert served.log is not None
    readers = [
        other.query for other in objects
        if other.query is not None and any(read.table is served.published for read in table_reads(other.query.node))
    ]  # fmt: skip
    return min([served.log.end, *(query.reached(served.stored.name) for query in readers)])
