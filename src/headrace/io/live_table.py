"""Tables that live: rows that statements insert, update and delete while queries read them.

**A table is the history of its rows.** A row lasts from the statement that inserts it to the statement that changes or
deletes it. The table's *log* is that history as a physical stream (rule 1.3): an insert is an event without an end, a
deletion retracts the event's end to the time of the statement, an update is both. The log only grows. A query reads it
as it reads any stream, so a table that changes is joined as its history, and a query over it without a window is a
relation at every instant (rule 8.4).

**When a statement happens.** Scripts fill tables first and query them later, often over events of years ago, and expect
every event to find the rows. So the statements of a table have no time at first: they give the rows that the table has
*always* had, from `BEGINNING` on. Two things give statements a time:

- `AT`, or a time that the session sets: the statement happens then. So a history can be written down, and scripts give
  the same answers whenever they run.
- A started query that reads the table. From then on a statement happens when it is executed, by the clock.

Times never go back: a statement before the latest one of its table is an error, and so is one before a promise.

**What a query sees.** A run to the end of its inputs sees the log as it is when the run begins, and the table does not
change during it: its rows are followed by the promise that nothing changes any more. A started query follows the log,
as an adapter's source (`adapter.py`). While the clock gives the times, the log promises each second that no statement
happens earlier. The promise is a row of the log, and a later statement is never before it, so no row is ever late.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.columnar import to_numpy
from headrace.errors import TableError
from headrace.events import history, to_changes
from headrace.expr import Expr, evaluate
from headrace.io.adapter import Offsets, SourceAdapter
from headrace.io.decoded import DecodedBlock, refused_table
from headrace.io.origins import AdapterRead
from headrace.io.table_log import LoggedElsewhere, MemoryLog, Places, RowLog
from headrace.plan.nodes import Admit, Node, Source
from headrace.plan.policies import Explicit, Physical
from headrace.schema import Field, Schema, Type
from headrace.time import BEGINNING, INFINITY, format_ticks

__all__ = ["NOW", "ChangingTable", "LiveTable", "LiveTableRead", "log_columns"]

#: The column with the time of a statement, for defaults.
NOW = "arrival()"
_PROMISE_EVERY = 1_000_000  # ticks between two promises
_TIMES = (Field("kind", Type.STRING), Field("le", Type.LONG), Field("re", Type.LONG), Field("re_new", Type.LONG))
_PARTITION = "changes"


def log_columns(schema: Schema) -> Schema:
    """The columns of the log of a table with these columns."""
    return Schema((*_TIMES, *schema))


def _same(logged: LoggedElsewhere) -> LoggedElsewhere:
    return logged


class ChangingTable:
    """A table that queries read by the log of its changes."""

    #: Whether users see its times as dates from the beginning, whatever statements say later.
    dated = False

    def __init__(self, name: str, schema: Schema, log: RowLog | None = None) -> None:
        self.name, self.schema = name, schema
        #: Whether its times are given as numbers, not as dates.
        self.numbers = False
        self._log = MemoryLog(log_columns(schema)) if log is None else log
        self._lock = threading.RLock()

    def __str__(self) -> str:
        return f"table {self.name}"

    @property
    def dates(self) -> bool:
        """Whether users see its times as dates."""
        raise NotImplementedError

    @property
    def log_schema(self) -> Schema:
        """The columns of the log."""
        return self._log.schema

    @property
    def row_log(self) -> RowLog:
        """The log itself."""
        return self._log

    @property
    def changes(self) -> int:
        """How many rows the log has."""
        return len(self._log)

    def log(self, start: int, end: int) -> pa.Table:
        """Rows of the log."""
        return self._log.rows(start, end)[1]

    def numbered_log(self, start: int, end: int) -> tuple[Places, pa.Table]:
        """Rows of the log, with their numbers."""
        return self._log.rows(start, end)

    def so_far(self, until: int | None = None) -> pa.Table:
        """The log up to a row, without promises, and with the one that nothing changes any more."""
        with self._lock:
            events = self.log(0, self.changes if until is None else until)
        events = events.filter(pc.not_equal(events["kind"], "cti"))
        return pa.concat_tables([events, self._promise(INFINITY)])

    def follow(self) -> int:
        """How many rows the log has for a started query, after what can be promised now is."""
        raise NotImplementedError

    def _promise(self, time: int) -> pa.Table:
        row = {"kind": "cti", "le": time}
        return pa.Table.from_pylist([row], schema=self.log_schema.arrow)

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker of Spark reads the log from files; driver and workers share the directory, as they share checkpoints.
        with self._lock:
            return _same, (self._log.elsewhere(self.name),)


class LiveTable(ChangingTable):
    """The rows of a table, and the log of their changes. Each change is checked as a whole, before any of it is made.

    `key` columns identify a row, and are never null; `required` columns are never null. `defaults` are the values of
    columns that an insert leaves out, and may read the column `NOW`. `clock` gives the time in ticks.
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        *,
        clock: Callable[[], int],
        key: Sequence[str] = (),
        required: Sequence[str] = (),
        defaults: Mapping[str, Expr] | None = None,
        log: RowLog | None = None,
    ) -> None:
        super().__init__(name, schema, log)
        self.key = tuple(key)
        self.required = tuple(dict.fromkeys((*key, *required)))
        self.defaults = dict(defaults or {})
        self.rows: pa.Table = schema.arrow.empty_table()
        self._clock = clock
        self._starts: Places = np.empty(0, np.int64)
        #: The time of the latest statement or promise.
        self.latest = BEGINNING
        #: Whether a started query follows it; whether its latest statement took its time from the clock.
        self._followed, self._clocked = False, True
        if len(self._log):
            self._restore()

    def _restore(self) -> None:
        """Continue with a log that has rows."""
        events = self.log(0, len(self._log))
        promises = events.filter(pc.equal(events["kind"], "cti"))
        held = history(to_changes(events, self.schema))
        held = held.filter(pc.equal(held["re"], INFINITY))
        self.rows, self._starts = held.select(list(self.schema.names)), to_numpy(held["le"])
        times = [pc.max(events[name]).as_py() for name in ("le", "re_new")]
        self.latest = max(BEGINNING, *(time for time in times if time is not None))
        self._log.promised = pc.max(promises["le"]).as_py() or BEGINNING
        self._followed = promises.num_rows > 0
        self._clocked, self.numbers = bool(self._log.about.get("clocked", 1)), bool(self._log.about.get("numbers", 0))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def dates(self) -> bool:
        return self.latest > BEGINNING and not self.numbers

    # --- changes -----------------------------------------------------------------------------------------------------

    def insert(self, rows: pa.Table, at: int | None = None, *, numbers: bool = False) -> int:
        """Insert rows that have all columns, in their types; return how many."""
        return self.change(np.empty(0, np.int64), rows, at, numbers=numbers)

    def change(self, gone: Places, rows: pa.Table, at: int | None = None, *, numbers: bool = False) -> int:
        """Delete the rows at these places and insert others, as one statement; return how many were inserted.

        `at` is the time of the statement in ticks; `numbers`: it was given as a number, not as a date.
        """
        with self._lock:
            time = self._time(at)
            if not len(gone) and not rows.num_rows:  # nothing happens, at no time
                return 0
            rows = rows.select(list(self.schema.names)).cast(self.schema.arrow)
            kept = np.ones(len(self), bool)
            kept[gone] = False
            whole = pa.concat_tables([self.rows.filter(pa.array(kept)), rows])
            self._check(rows, whole)
            deleted = self._events("retract", self.rows.take(pa.array(gone)), self._starts[gone], time)
            inserted = self._events("insert", rows, np.full(rows.num_rows, time))
            numbers = numbers if at is not None else self.numbers
            self._log.append(pa.concat_tables([deleted, inserted]), clocked=at is None, numbers=numbers)
            self.rows = whole.combine_chunks()
            self._starts = np.concatenate([self._starts[kept], np.full(rows.num_rows, time)])
            self.latest, self._clocked, self.numbers = time, at is None, numbers
            return int(rows.num_rows)

    def filled(self, given: pa.Table, at: int | None = None) -> pa.Table:
        """Rows with all columns: those that are left out have their defaults `at` a time, or are null."""
        there = given.column_names
        values = [
            given.column(name) if name in there else pa.repeat(self.default(name, at), given.num_rows)
            for name in self.schema.names
        ]
        return pa.table(values, schema=self.schema.arrow)

    def default(self, name: str, at: int | None = None) -> pa.Scalar:
        """The value of a column that an insert leaves out; `at` is its time, by default that of the clock."""
        kind = self.schema[name].type.arrow
        if name not in self.defaults:
            return pa.scalar(None, kind)
        now = pa.array([self._clock() if at is None else at], pa.int64()).cast(Type.DATETIME.arrow)
        return evaluate(self.defaults[name], pa.table([now], names=[NOW])).cast(kind)[0]

    def _time(self, at: int | None) -> int:
        """The time of a statement; None: that of the clock, or no time yet."""
        if at is None:
            always = self.latest == BEGINNING and not self._followed
            return BEGINNING if always else max(self._clock(), self.latest)
        if at < self.latest:
            promised = self._followed and self._log.promised == self.latest
            shown = format_ticks(self.latest, dates=not self.numbers)
            raise TableError(
                f"time does not go back: {self} has "
                + (f"promised a query that nothing changes before {shown}" if promised else f"changed at {shown}"),
                given=format_ticks(at, dates=not self.numbers),
                allowed=f"{shown} or later",
            )
        return at

    def _check(self, rows: pa.Table, whole: pa.Table) -> None:
        """Check the rules of the columns; `whole` are all rows after the change."""
        for name in self.required:
            if rows.column(name).null_count:
                row = rows.filter(pc.is_null(rows.column(name))).slice(0, 1).to_pylist()[0]
                rule = "part of the PRIMARY KEY" if name in self.key else "NOT NULL"
                raise TableError(f"{name} of {self} may not be null: it is {rule}", given=_words(row))
        if not self.key or not rows.num_rows:
            return
        counts = whole.select(list(self.key)).group_by(list(self.key)).aggregate([([], "count_all")])
        twice = counts.filter(pc.greater(counts["count_all"], 1)).select(list(self.key)).slice(0, 1).to_pylist()
        if twice:
            raise TableError(
                f"{self} has a row with this key already",
                given=_words(twice[0]),
                allowed=f"one row for each {', '.join(self.key)}, its PRIMARY KEY",
                instead="an update of that row",
            )

    def _events(self, kind: str, rows: pa.Table, starts: Places, end: int | None = None) -> pa.Table:
        count = rows.num_rows
        ends = pa.nulls(count, pa.int64()) if end is None else pa.array(np.full(count, end))
        times = [pa.array([kind] * count, pa.string()), pa.array(starts), pa.array(np.full(count, INFINITY)), ends]
        return pa.table([*times, *rows.columns], schema=self.log_schema.arrow)

    # --- the log -----------------------------------------------------------------------------------------------------

    def follow(self) -> int:
        with self._lock:
            self._followed = True
            time = self._clock() if self._clocked else self.latest
            if time >= self._log.promised + (_PROMISE_EVERY if self._clocked else 1):
                self._log.promise(self._promise(time), time)
                self.latest = max(self.latest, time)
            return self.changes


def _words(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in row.items())


@dataclass(frozen=True)
class LiveTableRead(SourceAdapter):
    """The log of a table as a source; `until` is the number of its rows that a run to the end reads, by default all."""

    table: ChangingTable
    until: int | None = None
    #: Whether a started query lets statements happen by the clock from then on; the answer of a view does not.
    promises: bool = True

    def __str__(self) -> str:
        return str(self.table) if self.until is None else f"{self.table} as of change {self.until}"

    @cached_property
    def schema(self) -> Schema:
        return self.table.log_schema

    def offsets(self, positions: Mapping[str, int]) -> Mapping[str, Offsets]:  # noqa: ARG002 - one partition
        return {_PARTITION: Offsets(0, self.table.follow() if self.promises else self.table.changes)}

    def read(
        self,
        partition: str,  # noqa: ARG002 - there is one
        start: int,
        end: int,
        columns: Sequence[str],
    ) -> Generator[DecodedBlock, None, int | None]:
        numbers, rows = self.table.numbered_log(start, end)
        yield DecodedBlock(rows.select(list(columns)), refused_table(), numbers)
        return None

    @property
    def source(self) -> Node:
        """The node of the table's history."""
        return Admit(
            Source(AdapterRead(self), self.schema, Physical(), Explicit("raise"), "raise", dated=self.table.dated)
        )
