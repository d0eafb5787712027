"""Subscriptions: a place in a log, from which a client pulls rows at its own pace.

A subscription begins with a snapshot, the history that the log has at that moment, and goes on with what follows. Its
*cursor* names the log and an offset; another subscription with that cursor continues there, without a snapshot. A log
keeps its rows on disk, so a client that reads slowly or comes back later costs the server nothing.

**Forms.** `events` are the rows of the log. `final` and `upsert` are computed from the history so far, which such a
subscription keeps in memory; with a cursor it first reads what is before it. They take whole frames of the log, so that
a batch of the query counts as a whole.

- `final`: an event is given when the promise of the log has reached its end, and never changes after that.
- `upsert`: for each key, the row that starts last (of an answer over tables: the row that holds now) if it is another
  than before, or `delete` if there is none any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import pyarrow as pa

from headrace.border import shown
from headrace.changes import Changes
from headrace.errors import SubscriptionError, UnknownColumn
from headrace.events import cti_row, history, physical_schema, to_changes
from headrace.schema import Schema
from headrace.server.interface import Form, SubscribedRows
from headrace.server.log import EventLog
from headrace.server.shared_pieces import SharedPieces, cursor_of
from headrace.server.upserts import OP, upserts
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["LogSubscription"]

_ROWS = 10_000  # of a piece
#: Rows of the log that are read at once to find the history before a cursor.
_REREAD = 100_000


class LogSubscription:
    """A place in the log of a stream's answers."""

    def __init__(
        self, name: str, log: EventLog, payload: Schema, *, form: Form = "events", key: Sequence[str] = (),
        cursor: str | None = None, dates: bool = False, relation: bool = False, slot: ExitStack | None = None,
        shared: SharedPieces | None = None,
    ) -> None:  # fmt: skip
        self._slot = slot or ExitStack()
        self._shared = SharedPieces(log) if shared is None else shared
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
        self._waiting: list[tuple[pa.Table, bool]] = []
        self.closed = False
        self.schema = self._shape(self._empty()).schema
        if cursor is None:
            self.offset = log.end
            self._cti = self._shared.promise(self.offset)
            self._begin()
        else:
            self.offset = self._place(cursor)
            self._cti = self._shared.promise(self.offset)
            if form != "events":
                self._catch_up()

    def _catch_up(self) -> None:
        """Read what is before the cursor, some frames at a time: what matters of it is the history."""
        place = self._log.first
        while place < self.offset:
            end = min(self._log.whole_frames(place, _REREAD), self.offset)
            self._add(to_changes(self._read(place, end), self._payload))
            if self.form == "final":
                self._history = self._history.filter(self._history.re > self._shared.promise(end))
            place = end

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

    # --- pieces ------------------------------------------------------------------------------------------------------

    @property
    def cursor(self) -> str:
        """The place after what was given."""
        return cursor_of(self._log, self.offset)

    @property
    def source(self) -> EventLog:
        """The log."""
        return self._log

    @property
    def at_hand(self) -> bool:
        """Whether `next` that waits for nothing is quick: it neither reads a file nor computes."""
        if self._waiting:
            return False
        return self._log.end == self.offset or (self.form == "events" and self._shared.at_hand(self.offset))

    def _begin(self) -> None:
        """The snapshot: the history up to the offset, and the promise in force."""
        events = self._read(self._log.first, self.offset)
        if self.form == "events":
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
            if self.form == "events":
                piece = self._shared_piece(min(self._log.end, self.offset + most))
                if piece.rows.num_rows:
                    return piece
                continue
            end = min(self._log.end, self._log.whole_frames(self.offset, most))
            events = self._read(self.offset, end)
            self._check_kept()
            self._cti = self._shared.promise(end)
            found = self._take(events)
            self.offset = end
            if found.num_rows:
                self._waiting.append((found, False))
        found, snapshot = self._waiting.pop(0)
        if found.num_rows > most:
            self._waiting.insert(0, (found.slice(most), snapshot))
            found = found.slice(0, most)
        return SubscribedRows(self._shape(found), self.cursor if not self._waiting else "", self._cti, snapshot)

    def _shared_piece(self, end: int) -> SubscribedRows:
        piece = self._shared.piece(self.offset, end, dates=self._dates)
        self._check_kept()
        self.offset, self._cti = end, piece.cti
        return piece

    def _check_kept(self) -> None:
        """Raise if rows are gone from here on; looked at after they were read, since they may be removed meanwhile."""
        if self.offset < self._log.kept:
            self._place(self.cursor)

    def _take(self, events: pa.Table) -> pa.Table:
        """The rows of the form that follow from new rows of the log."""
        changes, before = to_changes(events, self._payload), self._history
        self._add(changes)
        if self.form == "final":
            return self._final()
        return upserts(self._current(before), self._current(self._history), changes, self._key)

    def _add(self, changes: Changes) -> None:
        self._history = Changes.concat([self._history, changes]).consolidate()

    def _current(self, rows: Changes) -> Changes:
        """The rows that count for upserts: of an answer over tables those that hold now."""
        return rows.filter(rows.re == INFINITY) if self._relation else rows

    def _final(self) -> pa.Table:
        done = self._history.re <= self._cti
        rows = history(self._history.filter(done))
        self._history = self._history.filter(~done)
        return rows

    def close(self) -> None:
        """End it."""
        self.closed = True
        self._slot.close()


def _column(payload: Schema, given: str, name: str) -> str:
    """The column that a name of SQL means: spelled exactly so, else whatever its case."""
    among = [column for column in payload.names if column.lower() == given.lower()]
    if given not in among and len(among) != 1:
        raise UnknownColumn.of(given, payload.names, name)
    return given if given in among else among[0]
