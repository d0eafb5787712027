"""Retention: what is removed from logs, and when.

`ALTER QUERY | STREAM | TABLE x SET retention = '7 days'` keeps the rows of the last seven days, '10 GB' the newest ones
of that size, '7 days, 10 GB' what both allow (`io/keep.py`). Others are removed, in whole segments, unless they still
matter. What matters stays as the *base* of the log, with which readers begin:

- Of answers: events that the promise of the log has not passed, which may still be corrected; and the promise itself.
- Of a table: the rows that it has. Statements never go back in time, so their latest time is a promise, too.
- Of a stream that clients feed: nothing.

Nothing is removed that a query of the server has still to read. Of a query that is stopped it may not be known how far
it has read: then everything stays.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ServerError
from headrace.events import cti_row, history, physical_schema, to_changes
from headrace.host.driving.query import Query
from headrace.io.keep import Keep
from headrace.io.live_table import LiveTableRead
from headrace.io.origins import AdapterRead
from headrace.plan.nodes import Source, sources_of
from headrace.schema import Schema
from headrace.server.published import ClientRows, DiskLog
from headrace.time import BEGINNING, duration

if TYPE_CHECKING:
    from headrace.server.core import ServedObject
    from headrace.server.log import EventLog
    from headrace.server.queries import ServedQuery

__all__ = ["RETENTION", "LogRetention", "kept_of", "needed_rows", "needed_rows_of_a_table"]

#: The name of the setting.
RETENTION = "retention"
_EVERY = 60.0  # seconds between two looks
#: A segment has at most this part of the time that is kept, so that little more is kept than was asked for.
_PART = 8
_log = logging.getLogger("headrace.server")


def kept_of(value: Any) -> Keep:
    """What a setting keeps: a text, or a duration."""
    if isinstance(value, str):
        return Keep.of(value)
    if duration(value) <= 0:
        raise ServerError("a retention is longer than nothing", given=value, instead="'7 days', or NULL")
    return Keep(seconds=duration(value) / 1_000_000)


def needed_rows_of_a_table(events: pa.Table, payload: Schema) -> pa.Table:
    """Of the rows of a table's log those that are still needed after all of them: the rows that the table has.

    Without times (`io/live_table.py`) they have none here either.
    """
    times = [pc.max(events[name]).as_py() for name in ("le", "re_new")]
    latest = max((time for time in times if time is not None), default=BEGINNING)
    return needed_rows(events, payload, promised=latest if latest > BEGINNING else None)


def needed_rows(events: pa.Table, payload: Schema, promised: int | None = None) -> pa.Table:
    """Of the rows of a log those that are still needed after all of them: open events, and the promise.

    `promised` is a promise that is not among the rows.
    """
    shape = physical_schema(payload)
    found = pc.max(events.filter(pc.equal(events["kind"], "cti"))["le"]).as_py()
    promise = max((time for time in (found, promised) if time is not None), default=None)
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
            kept = served.settings.get(RETENTION)
            if kept is not None and served.log is not None:
                readers = [other.query for other in objects if other.query is not None]
                read = min([served.log.end, *(_read_upto(query, served.log) for query in readers)])
                self._forget(served, served.log, kept_of(kept), read)

    def _forget(self, served: ServedObject, log: EventLog, keep: Keep, read: int) -> None:
        now, segments, sizes = self._clock(), log.segments(), log.sizes()
        if segments and log.end > segments[-1][0]:
            old = keep.seconds is not None and now - log.began > keep.seconds / _PART
            if old or (keep.bytes is not None and sizes[-1] > keep.bytes / _PART):
                log.divide()
        starts = [start for start, _ in segments]
        written = [time for _, time in segments]
        gone = keep.removable(list(zip(written, sizes, strict=False)), now)
        forgotten = [start for start in starts[1 : gone + 1] if start <= read]
        if forgotten and forgotten[-1] > log.kept:
            kept = log.forget(forgotten[-1], _needed(served, log, forgotten[-1]))
            _log.info("%s %s: rows before offset %d were removed", served.stored.kind, served.stored.name, kept)


def _needed(served: ServedObject, log: EventLog, before: int) -> pa.Table | None:
    """What is needed of the rows before an offset."""
    if served.published is None and served.stored.kind == "stream":
        return None
    events, payload = log.rows(log.first, before)[1], Schema(log.schema.fields[4:])
    return (needed_rows if served.published is not None else needed_rows_of_a_table)(events, payload)


def _read_upto(query: ServedQuery, log: EventLog) -> int:
    """The offset up to which a query has read a log: its end, if it does not read it; 0, if that is not known."""
    reads = [source for source in sources_of(query.node) if _log_of(source) is log]
    if not reads:
        return log.end
    running = query.running
    if running is None:
        return min(query.reached(_name_of(source)) for source in reads)
    return _delivered(running, log)


def _delivered(running: Query, log: EventLog) -> int:
    found = {source.fingerprint for source in running.line.sources if _log_of(source) is log}
    read = {source: offset for (source, _), offset in running.driver.delivered.items() if source in found}
    return min(read.values()) if found and set(read) == found else 0


def _log_of(source: Source) -> EventLog | None:
    """The log of this server that a source reads."""
    adapter = source.origin.adapter if isinstance(source.origin, AdapterRead) else None
    if isinstance(adapter, ClientRows):
        return adapter.log
    rows = adapter.table.row_log if isinstance(adapter, LiveTableRead) else None
    return rows.log if isinstance(rows, DiskLog) else None


def _name_of(source: Source) -> str:
    adapter = source.origin.adapter if isinstance(source.origin, AdapterRead) else None
    return adapter.table.name if isinstance(adapter, LiveTableRead) else getattr(adapter, "name", "")
