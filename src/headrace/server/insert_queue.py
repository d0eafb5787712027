"""Inserts of many clients, carried out together.

Inserts into one object wait in a queue. One thread at a time, the *leader*, takes all that wait: it converts their rows
at once, appends them as one frame, and after one sync of the disk all of them are acknowledged. Under load the next
inserts gather meanwhile, so the cost of a frame and of a sync is shared by as many inserts as there are. An insert that
finds the queue empty is carried out by the thread that makes it.

**Each insert for itself.** Whether one is refused never depends on its neighbours: rows are converted together only
where that gives what each insert alone would give; if anything is refused, halves are tried, down to the one that is
wrong. Inserts are carried out in the order in which they were added.

**Keys.** The key of an insert stands in the frame of its rows. An insert whose key is known, also from the same frame,
adds nothing; it is acknowledged when the first one is on disk.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.api.tables import Table
from headrace.errors import ServerError, TableError, UnknownColumn
from headrace.io.tables import fitted
from headrace.schema import Schema, Type
from headrace.server.interface import Insert, Inserted
from headrace.server.log import EventLog
from headrace.server.published import ARRIVED, DiskLog, without_arrival

__all__ = ["InsertQueue", "stream_inserts", "table_inserts"]

#: Rows of a frame, if no single call has more.
_ROWS = 50_000
#: Types of which the values of a column may be: of some of them Arrow makes the same as of all.
_PLAIN: tuple[set[type], ...] = (set(), {str}, {float}, {bool}, {int})
_NUMBERS: set[type] = {int, float}
#: Carries out the inserts of several calls in order, each call up to the insert that is refused.
CarryOut = Callable[[Sequence[Sequence[Insert]]], list[Inserted]]


@dataclass(eq=False)
class _Call:
    """Inserts that wait."""

    inserts: Sequence[Insert]
    noted: Callable[[Inserted], None]
    done: Future[Inserted] = field(default_factory=Future)

    def __post_init__(self) -> None:
        self.done.set_running_or_notify_cancel()  # a client that goes away does not undo its inserts

    def finish(self, inserted: Inserted) -> None:
        """Note the inserts, and wake the thread that waits for them."""
        try:
            self.noted(inserted)
        finally:
            self.done.set_result(inserted)


class InsertQueue:
    """The inserts into one object."""

    def __init__(self, carry_out: CarryOut, workers: Executor) -> None:
        self._carry_out, self._workers = carry_out, workers
        self._lock = threading.Lock()
        self._calls: deque[_Call] = deque()
        #: Whether a thread leads, or is about to. If not, nothing waits.
        self._led = False

    def add(
        self, inserts: Sequence[Insert], noted: Callable[[Inserted], None], *, here: bool = False
    ) -> Future[Inserted]:
        """Carry out inserts in order, up to one that is refused; the future is done when they are on disk.

        `here`: this thread is going to wait for them, and may carry them out. `noted` is called before the end.
        """
        call = _Call(inserts, noted)
        with self._lock:
            self._calls.append(call)
            leads, self._led = not self._led, True
        if leads and here:
            self._lead()
        elif leads:
            self._hand_over()
        return call.done

    def _hand_over(self) -> None:
        """Let a worker lead."""
        try:
            self._workers.submit(self._lead)
        except RuntimeError:  # the server stops
            with self._lock:
                left, self._calls, self._led = self._calls, deque(), False
            for call in left:
                call.finish(Inserted([], ServerError("the server stops")))

    def _lead(self) -> None:
        """Carry out what waits; a worker goes on with what was added meanwhile."""
        with self._lock:
            calls = list(self._taken())
        try:
            outcomes = self._carry_out([call.inserts for call in calls])
        except Exception as error:  # noqa: BLE001 - of any kind: each client gets it
            outcomes = [Inserted([], error)] * len(calls)
        with self._lock:
            self._led = goes_on = bool(self._calls)
        if goes_on:
            self._hand_over()
        for call, inserted in zip(calls, outcomes, strict=True):
            call.finish(inserted)

    def _taken(self) -> Iterator[_Call]:
        rows = 0
        while self._calls and rows < _ROWS:
            call = self._calls.popleft()
            rows += sum(len(insert.rows) for insert in call.inserts)
            yield call


def table_inserts(table: Table, log: DiskLog) -> CarryOut:
    """Carries out inserts into a table: one after the other, since each may be refused by the rows before it."""

    def insert_one(insert: Insert) -> int:
        known = None if insert.key is None else log.log.marked(_mark(insert.key))
        if known is not None:
            return known
        with log.marking(insert.key):
            return table.insert(insert.rows)

    def carry_out(calls: Sequence[Sequence[Insert]]) -> list[Inserted]:
        outcomes = []
        for call in calls:
            counts: list[int] = []
            error = None
            try:
                for insert in call:
                    counts.append(insert_one(insert))  # noqa: PERF401 - those before an error are kept
            except Exception as refused:  # noqa: BLE001 - of any kind: its client gets it
                error = _named(refused, table.live.name)
            outcomes.append(Inserted(counts, error))
        return outcomes

    return carry_out


def stream_inserts(name: str, log: EventLog) -> CarryOut:
    """Carries out inserts into a stream that clients feed: all of them as one frame of its log."""
    columns = without_arrival(log.schema)

    def carry_out(calls: Sequence[Sequence[Insert]]) -> list[Inserted]:
        rows, sizes = _converted([insert for call in calls for insert in call], columns, name)
        frame = _GatheredFrame(log, sizes)
        outcomes = [frame.add(call) for call in calls]
        frame.append(rows)
        return outcomes

    return carry_out


class _GatheredFrame:
    """A frame as it is gathered; `sizes` has the rows of each insert, or why they do not fit the columns."""

    def __init__(self, log: EventLog, sizes: list[int | Exception]) -> None:
        self._log, self._sizes = log, iter(sizes)
        self._marks: dict[str, int] = {}
        self._counts: list[int] = []
        self._kept: list[bool] = []

    def add(self, call: Sequence[Insert]) -> Inserted:
        """Add inserts up to one that is refused, without those whose key is known."""
        counts: list[int] = []
        error: Exception | None = None
        for insert in call:
            size, known = next(self._sizes), self._known(insert.key)
            if isinstance(size, int):
                adds = known is None and error is None
                self._counts.append(size)
                self._kept.append(adds)
                if adds and insert.key is not None:
                    self._marks[_mark(insert.key)] = size
            if error is None and known is None and isinstance(size, Exception):
                error = size
            if error is None:
                counts.append(size if known is None else known)  # type: ignore[arg-type]
        return Inserted(counts, error)

    def _known(self, key: str | None) -> int | None:
        if key is None:
            return None
        found = self._marks.get(_mark(key))
        return self._log.marked(_mark(key)) if found is None else found

    def append(self, rows: pa.Table) -> None:
        """Append the rows of all inserts whose rows fit, without those that were not added."""
        if not all(self._kept):
            rows = rows.filter(pa.array(np.repeat(self._kept, self._counts)))
        if rows.num_rows or self._marks:
            now = pa.repeat(pa.scalar(time.time_ns() // 1000, pa.int64()), rows.num_rows)
            self._log.append(rows.append_column(ARRIVED, now), self._marks)


def _named(error: Exception, name: str) -> Exception:
    """An error as a client sees it: Arrow does not say what was too large."""
    if not isinstance(error, OverflowError):
        return error
    named = TableError(f"{name}: a number does not fit in 64 bits")
    named.__cause__ = error
    return named


def _mark(key: str) -> str:
    return f"key {key}"


def _converted(inserts: Sequence[Insert], columns: Schema, name: str) -> tuple[pa.Table, list[int | Exception]]:
    """The rows that fit, in their order; and of each insert how many they are, or why they do not fit."""
    tables, sizes = [columns.arrow.empty_table()], []
    for _, alike in groupby(inserts, lambda one: None if isinstance(one.rows, list) else one.rows.schema):
        for table, found in _halved(list(alike), columns, name):
            tables.append(table)
            sizes += found
    return pa.concat_tables(tables), sizes


def _halved(inserts: list[Insert], columns: Schema, name: str) -> Iterator[tuple[pa.Table, list[int | Exception]]]:
    """The rows of all inserts at once; if they do not fit, those of each half."""
    try:
        if len(inserts) == 1:
            table = _checked(_one_table(inserts[0].rows, columns, name), columns, name)
        else:
            table = _checked(_joined([one.rows for one in inserts], columns, name), columns, name)
    except Exception as error:  # noqa: BLE001 - of any kind: its client gets it
        failure = _named(error, name)
    else:
        yield table, [len(one.rows) for one in inserts]
        return
    if len(inserts) == 1:
        yield columns.arrow.empty_table(), [failure]
        return
    half = len(inserts) // 2
    yield from _halved(inserts[:half], columns, name)
    yield from _halved(inserts[half:], columns, name)


def _joined(parts: list[pa.Table] | list[list[dict[str, Any]]], columns: Schema, name: str) -> pa.Table:
    """The rows of several inserts; `TableError` where together they might be read otherwise than each alone."""
    if isinstance(parts[0], pa.Table):
        return pa.concat_tables(parts)
    rows = [row for part in parts for row in part]
    for column in columns:
        kinds = {type(row.get(column.name)) for row in rows} - {type(None)}
        if kinds not in _PLAIN and not (kinds == _NUMBERS and column.type is Type.DOUBLE):
            raise TableError(f"{name}: values of {column.name} are not all alike")
    return _one_table(rows, columns, name)


def _one_table(rows: pa.Table | list[dict[str, Any]], columns: Schema, name: str) -> pa.Table:
    """Rows of a client as a table, with the columns of a stream; those that are left out are null."""
    if isinstance(rows, list):
        names = set(columns.names)
        for row in rows:
            if not row.keys() <= names:
                raise UnknownColumn.of(next(one for one in row if one not in names), columns.names, name)
        try:
            return pa.table({one: pa.array([row.get(one) for row in rows]) for one in columns.names})
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TableError(f"{name}: values of a column are of several types: {error}") from error
    for column in rows.column_names:
        if column not in columns:
            raise UnknownColumn.of(column, columns.names, name)
    for column in columns:
        if column.name not in rows.column_names:
            rows = rows.append_column(column.name, pa.nulls(rows.num_rows, column.type.arrow))
    return rows


def _checked(rows: pa.Table, columns: Schema, name: str) -> pa.Table:
    """Rows in the types of a stream; `TableError` names the first value that does not fit."""
    block = fitted(rows, columns, name)
    if block.refused.num_rows:
        row = block.refused.slice(0, 1).to_pylist()[0]
        raise TableError(f"{name}: {row['reason']}", given=row["raw"], allowed=str(columns))
    return block.table
