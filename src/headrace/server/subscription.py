"""Subscriptions: a place in a log, from which a client pulls rows at its own pace.

A subscription begins with a snapshot, the history that the log has at that moment, and goes on with what follows. Its
*cursor* names the log and an offset; another subscription with that cursor continues there, without a snapshot. A log
keeps its rows on disk, so a client that reads slowly or comes back later costs the server nothing.

**Forms.** `events` are the rows of the log. `final` and `upsert` are computed from the history so far, which such a
subscription keeps in memory; with a cursor it first reads what is before it.

- `final`: an event is given when the promise of the log has reached its end, and never changes after that.
- `upsert`: for each key whose rows changed, the row that starts last (of an answer over tables: the row that holds
  now), or `delete`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.border import shown
from headrace.changes import Changes
from headrace.columnar import factorize
from headrace.errors import SubscriptionError, UnknownColumn
from headrace.events import cti_row, history, physical_schema, to_changes
from headrace.schema import Schema
from headrace.server.interface import Form, SubscribedRows
from headrace.server.log import EventLog
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["LogSubscription", "cursor_of"]

OP = "_op"
_ROWS = 10_000  # of a piece


def cursor_of(log: EventLog, offset: int) -> str:
    """The cursor of a place in a log."""
    return f"{log.folder.name.partition('-')[0]}.{offset}"


class LogSubscription:
    """A place in the log of a stream's answers."""

    def __init__(
        self, name: str, log: EventLog, payload: Schema, *, form: Form = "events", key: Sequence[str] = (),
        cursor: str | None = None, dates: bool = False, relation: bool = False, slot: ExitStack | None = None,
    ) -> None:  # fmt: skip
        self._slot = slot or ExitStack()
        try:
            self._open(name, log, payload, form, key, cursor, dates=dates, relation=relation)
        except BaseException:
            self._slot.close()
            raise

    def _open(
        self, name: str, log: EventLog, payload: Schema, form: Form, key: Sequence[str], cursor: str | None, *,
        dates: bool, relation: bool,
    ) -> None:  # fmt: skip
        key = [_column(payload, column, name) for column in key]
        if form == "upsert" and not key:
            raise SubscriptionError(
                "upsert rows need a key", given=f"SUBSCRIBE {name} WITH UPSERT",
                instead=f"SUBSCRIBE {name} WITH UPSERT ({payload.names[0] if len(payload) else 'column'})",
            )  # fmt: skip
        self.name, self.form, self._key = name, form, tuple(key)
        self._log, self._payload, self._dates, self._relation = log, payload, dates, relation
        self._history = Changes.empty(payload)
        self._cti = NEG_INFINITY
        self._waiting: list[tuple[pa.Table, bool]] = []
        self.closed = False
        self.schema = self._shape(self._empty()).schema
        if cursor is None:
            self.offset = log.end
            self._begin()
        else:
            self.offset = self._place(cursor)
            if form != "events":
                self._take(self._read(log.first, self.offset))
            else:
                self._cti = self._promise_before(self.offset)

    def _empty(self) -> pa.Table:
        if self.form == "events":
            return physical_schema(self._payload).empty_table()
        rows = history(Changes.empty(self._payload))
        return rows if self.form == "final" else rows.drop_columns(["re"]).add_column(0, OP, pa.array([], pa.string()))

    def _shape(self, rows: pa.Table) -> pa.Table:
        return shown(rows, dates=self._dates)

    def _place(self, cursor: str) -> int:
        number, _, offset = cursor.partition(".")
        own = self._log.folder.name.partition("-")[0]
        if number != own or not (offset.isascii() and offset.isdigit()) or int(offset) > self._log.end:
            raise SubscriptionError(
                f"this is not a cursor of {self.name}", given=cursor, allowed=f"{own}.OFFSET",
                instead=f"SUBSCRIBE {self.name}, which begins with a snapshot",
            )  # fmt: skip
        if int(offset) < self._log.kept:
            raise SubscriptionError(
                f"what {self.name} had from this cursor on is no longer kept", given=cursor,
                allowed=f"{cursor_of(self._log, self._log.kept)} or later",
                instead=f"SUBSCRIBE {self.name}, which begins with a snapshot",
            )  # fmt: skip
        return int(offset)

    def _read(self, start: int, end: int) -> pa.Table:
        return self._log.rows(start, end)[1]

    def _promise_before(self, offset: int) -> int:
        """The promise in force at a place: the latest before it, since promises grow."""
        found = NEG_INFINITY
        while offset > self._log.first and found == NEG_INFINITY:
            start = max(self._log.first, offset - _ROWS)
            found, offset = _promise(self._read(start, offset), NEG_INFINITY), start
        return found

    # --- pieces ------------------------------------------------------------------------------------------------------

    @property
    def cursor(self) -> str:
        """The place after what was given."""
        return cursor_of(self._log, self.offset)

    def _begin(self) -> None:
        """The snapshot: the history up to the offset, and the promise in force."""
        events = self._read(self._log.first, self.offset)
        if self.form == "events":
            self._cti = _promise(events, NEG_INFINITY)
            held = history(to_changes(events, self._payload))
            kinds = pa.array(["insert"] * held.num_rows, pa.string())
            rows = held.add_column(0, "kind", kinds).add_column(3, "re_new", pa.nulls(held.num_rows, pa.int64()))
            promise = [cti_row(self._cti, self._payload)] if self._cti > NEG_INFINITY else []
            rows = pa.concat_tables([rows.cast(physical_schema(self._payload)), *promise])
        else:
            rows = self._take(events)
        if rows.num_rows:
            self._waiting.append((rows, True))

    def next(self, timeout: float | None = None, rows: int | None = None) -> SubscribedRows | None:
        """The next rows, at most so many; None if there are none in time."""
        most = rows or _ROWS
        while not self._waiting:
            if self.closed or not self._log.wait(self.offset, timeout):
                if self._log.closed and not self.closed:
                    raise SubscriptionError(f"{self.name} was dropped, or its server stops", given=self.cursor)
                return None
            end = min(self._log.end, self.offset + most)
            events = self._read(self.offset, end)
            if self.offset < self._log.kept:  # looked at after they were read: rows may be removed meanwhile
                self._place(self.cursor)  # raises
            found = self._take(events)
            self.offset = end
            if found.num_rows:
                self._waiting.append((found, False))
        found, snapshot = self._waiting.pop(0)
        if found.num_rows > most and self.form == "events":
            self._waiting.insert(0, (found.slice(most), snapshot))
            if not snapshot:  # a cursor inside a piece that was read as a whole
                cursor = cursor_of(self._log, self.offset - (found.num_rows - most))
                return SubscribedRows(self._shape(found.slice(0, most)), cursor, self._cti)
            found = found.slice(0, most)
        return SubscribedRows(self._shape(found), self.cursor if not self._waiting else "", self._cti, snapshot)

    def _take(self, events: pa.Table) -> pa.Table:
        """The rows of the form that follow from new rows of the log."""
        self._cti = _promise(events, self._cti)
        if self.form == "events":
            return events
        changes, before = to_changes(events, self._payload), self._history
        self._history = Changes.concat([before, changes]).consolidate()
        return self._final() if self.form == "final" else self._upserts(changes, before)

    def _final(self) -> pa.Table:
        done = self._history.re <= self._cti
        rows = history(self._history.filter(done))
        self._history = self._history.filter(~done)
        return rows

    def _upserts(self, changes: Changes, before: Changes) -> pa.Table:
        """The latest row of every key that changed, or its deletion if it had one before."""
        if not len(changes):
            return self._empty()
        held, known = self._held(self._history), self._held(before)
        parts = (changes, held, known)
        codes = factorize(pa.concat_tables([part.payload.select(list(self._key)) for part in parts]))[0]
        of_changes, of_held, of_known = np.split(codes, np.cumsum([len(changes), len(held)]))
        changed = np.unique(of_changes, return_index=True)
        order = np.lexsort((held.le, of_held))
        last = order[np.r_[of_held[order][1:] != of_held[order][:-1], True][: len(order)]]
        last = last[np.isin(of_held[last], changed[0])]
        gone = changed[1][~np.isin(changed[0], of_held[last]) & np.isin(changed[0], of_known)]
        latest, lost = held.take(last), changes.take(gone)
        nulls = {name: pa.nulls(len(lost), lost.payload.schema.field(name).type) for name in self._payload.names}
        table = pa.table({
            OP: pa.array(["upsert"] * len(latest) + ["delete"] * len(lost), pa.string()),
            "le": pa.array(np.concatenate([latest.le, lost.le])),
        })  # fmt: skip
        for name in self._payload.names:
            of_lost = lost.payload.column(name) if name in self._key else pa.chunked_array([nulls[name]])
            table = table.append_column(name, pa.chunked_array([*latest.payload.column(name).chunks, *of_lost.chunks]))
        return table

    def _held(self, events: Changes) -> Changes:
        """The events that may be the latest rows of keys."""
        return events.filter(events.re == INFINITY) if self._relation else events

    def close(self) -> None:
        """End it."""
        self.closed = True
        self._slot.close()


def _promise(events: pa.Table, before: int) -> int:
    promises = pc.max(events.filter(pc.equal(events["kind"], "cti"))["le"]).as_py()
    return before if promises is None else max(before, promises)


def _column(payload: Schema, given: str, name: str) -> str:
    """The column that a name of SQL means: spelled exactly so, else whatever its case."""
    among = [column for column in payload.names if column.lower() == given.lower()]
    if given not in among and len(among) != 1:
        raise UnknownColumn.of(given, payload.names, name)
    return given if given in among else among[0]
