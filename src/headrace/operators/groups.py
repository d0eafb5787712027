"""The steps that kernels share which recompute the groups that a batch changes.

The kernels of windows, of tuples in their order, of folds and of patterns answer a batch in the same six steps:

1. *Project* the input to the keys of its groups and the columns that the kernel needs (`Groups.project`).
2. Find the groups that the batch *touches*: those that it changes, and those that are due (`touched`, `due`).
3. *Look up* their state (`known`). A trace finds rows by the hash of the key; `number` compares the keys themselves
   and gives each group a number.
4. Compute the outputs that hold now. Only this step differs between kernels.
5. *Exchange* them for the earlier outputs (`exchange`): take back the old, insert the new, cancel equal rows. The trace
   stores the difference, which leaves under the names of the output (`leaving`, `diverted`). For state of one row per
   group, `set_rows` does the same.
6. *Drop* the rows that the CTI has settled. Every row of a trace has a time, possibly from one of its columns, at which
   `Trace.drop` forgets it. Rows that are not settled may hold back the output CTI (`least`).

A kernel creates a `Groups` over its own traces, and calls it step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Int64s, canonical_floats, factorize, hash_rows, to_numpy
from headrace.expr import Expr, lit
from headrace.operators.evaluate import evaluate_changes
from headrace.plan.nodes import Match, PerWindow
from headrace.plan.source import DIVERTED, diverted_rows
from headrace.schema import Field, Schema
from headrace.segments import Hashes
from headrace.time import INFINITY
from headrace.trace import Trace

__all__ = [
    "AT", "HOLD", "OUT", "PREFIX", "REASON", "SILENT", "UNTIL", "Groups", "Hashes", "as_rows", "difference",
    "number_rows", "positions_among",
]  # fmt: skip

#: Prefixes under which the columns of an input and of an output are stored.
PREFIX, OUT = "in.", "out."
#: Of an output: the CTI at which it is forgotten, why it failed, and whether it stands for a tuple without output.
UNTIL, REASON, SILENT = "__until", "__reason", "__silent"
#: Of a group: the time at which it is due, and the time to which it holds back the output CTI.
AT, HOLD = "__at", "__hold"


class Groups:
    """The groups of one kernel: the columns it needs of their events, and their rows in its traces."""

    def __init__(
        self,
        node: PerWindow | Match,
        columns: Iterable[tuple[str, Expr]],
        traces: Mapping[str, Trace],
        *,
        stored: Sequence[str] = (),
    ) -> None:
        """`columns` are needed beside the keys; `stored` has the names that the keys are stored under."""
        self.node, self.traces = node, traces
        keys = [expr for _, expr in node.keys] or [lit(0)]  # without keys, all events are one group
        names = list(stored) or [f"key{i}" for i in range(len(keys))]
        self.keys = list(dict.fromkeys(names))
        self.projection = list((dict(zip(names, keys, strict=True)) | dict(columns)).items())
        below = node.input.schema
        self.schema = Schema(tuple(Field(name, expr.type(below)) for name, expr in self.projection))
        self._stored = dict(zip(node.key_names, names, strict=False))

    def project(self, changes: Changes, re: Int64s) -> Changes:
        """The needed columns of changes, with these ends; equal rows are not summed yet."""
        columns = [evaluate_changes(expr, changes.payload, changes.weight) for _, expr in self.projection]
        payload = canonical_floats(pa.Table.from_arrays(columns, schema=self.schema.arrow))
        return Changes(changes.le, re, changes.weight, payload)

    # --- which groups ------------------------------------------------------------------------------------------------

    def hashes(self, table: pa.Table) -> Hashes:
        """The hash of each row's key."""
        return hash_rows(table.select(self.keys))

    def due(self, **until: int) -> Hashes:
        """The groups with a row up to a time, which is given for each trace."""
        tables = [self.traces[name].until(time) for name, time in until.items()]
        return np.unique(np.concatenate([np.empty(0, np.uint64), *(self.hashes(t) for t in tables if t is not None)]))

    def touched(self, delta: Changes, **until: int) -> Hashes:
        """The groups that change and those that are due."""
        return np.union1d(self.hashes(delta.payload), self.due(**until))

    def number(self, *tables: pa.Table) -> tuple[list[Int64s], pa.Table]:
        """The number of each row's group, the same in all tables, and the groups' keys."""
        return number_rows(*(table.select(self.keys) for table in tables))

    def key_columns(self, keys: pa.Table, group: Int64s) -> pa.Table:
        """The keys of groups by their numbers, under the names of the output."""
        names = list(self._stored)
        return keys.take(pa.array(group)).select([self._stored[name] for name in names]).rename_columns(names)

    # --- their state -------------------------------------------------------------------------------------------------

    def known(self, trace: str, touched: Hashes) -> Changes | None:
        """The rows of some groups in a trace; None if there are none."""
        rows = self.traces[trace].lookup(touched)
        return None if rows is None else Changes.from_table(rows).cancelled()

    def events(self, touched: Hashes) -> Changes:
        """The events that the state has of some groups."""
        known = self.known("events", touched)
        return Changes.empty(self.schema) if known is None else known

    def stamped(self, rows: Changes, until: str | None = None) -> tuple[pa.Table, Hashes, Int64s]:
        """Rows with hashes and times, as a trace takes them; times are in the column `until`, or infinite."""
        infinite = np.full(len(rows), INFINITY, np.int64)
        times = infinite if until is None else to_numpy(rows.payload.column(until))
        return rows.to_table(), self.hashes(rows.payload), times

    def exchange(self, trace: str, old: Changes | None, new: Changes, until: str | None = None) -> Changes:
        """Replace the old rows of a trace by the new ones; the difference."""
        moved = difference(new, old)
        self.traces[trace].append(*self.stamped(moved, until))
        return moved

    def set_rows(self, trace: str, touched: Hashes, rows: pa.Table, until: str | None = None) -> None:
        """Replace the rows of the touched groups by these, one per group."""
        self.exchange(trace, self.known(trace, touched), as_rows(rows), until)

    def set_alarms(self, trace: str, touched: Hashes, keys: pa.Table, at: Int64s, hold: Int64s | None = None) -> None:
        """Store when groups are due, and the time to which they hold back the output CTI; infinite means never."""
        hold = np.full(len(at), INFINITY, np.int64) if hold is None else hold
        rows = keys.append_column(AT, pa.array(at)).append_column(HOLD, pa.array(hold))
        self.set_rows(trace, touched, rows.filter(pa.array((at != INFINITY) | (hold != INFINITY))), AT)

    def least(self, trace: str, column: str) -> int:
        """The least time in a column of a trace; infinite if the trace is empty."""
        held = self.traces[trace].scan()
        if held is None:
            return INFINITY
        times = to_numpy(Changes.from_table(held).cancelled().payload.column(column))
        return int(np.min(times, initial=INFINITY))

    # --- outputs -----------------------------------------------------------------------------------------------------

    def leaving(self, moved: Changes) -> Changes:
        """Changes of outputs as the next operator sees them, without failed and silent ones."""
        stored = moved.payload.column_names
        if REASON in stored:
            moved = moved.filter(np.asarray(moved.payload.column(REASON).is_null()))
        if SILENT in stored:
            moved = moved.filter(~np.asarray(moved.payload.column(SILENT), bool))
        candidates = [(OUT + name, self._stored.get(name), PREFIX + name) for name in self.node.schema.names]
        columns = [moved.payload.column(next(name for name in names if name in stored)) for names in candidates]
        payload = pa.Table.from_arrays(columns, schema=self.node.schema.arrow)
        return Changes(moved.le, moved.re, moved.weight, payload).cancelled()

    def diverted(self, moved: Changes, where: Callable[[Changes], Iterable[str]]) -> Changes:
        """Changes of failures, for the side stream; `where` returns the place of each as a text."""
        assert isinstance(self.node, PerWindow)
        failed = np.asarray(moved.payload.column(REASON).is_valid())
        if not failed.any():
            return Changes.empty(DIVERTED)
        moved = moved.filter(failed)
        names = self.node.key_names
        keys = [zip(names, row.values(), strict=False) for row in moved.payload.select(self.keys).to_pylist()]
        rows = [
            place + "".join(f", {name} = {value!r}" for name, value in key)
            for place, key in zip(where(moved), keys, strict=True)
        ]
        modules = ", ".join(map(str, self.node.modules))
        payload = diverted_rows(modules, moved.payload.column(REASON), rows)
        return Changes(moved.le, moved.re, moved.weight, payload).cancelled()


def number_rows(*tables: pa.Table) -> tuple[list[Int64s], pa.Table]:
    """A number for each row, the same for equal rows of all tables, and the distinct rows by number."""
    rows = pa.concat_tables(tables)
    codes, first = factorize(rows)
    borders = np.cumsum([table.num_rows for table in tables])[:-1]
    return np.split(codes, borders), rows.take(pa.array(first))


def positions_among(known: pa.Table, rows: pa.Table) -> Int64s:
    """The position of each row among known rows, which are distinct; -1 if it is not one of them."""
    codes, first = factorize(pa.concat_tables([known, rows]))
    place = np.full(len(first), -1, np.int64)
    place[codes[: known.num_rows]] = np.arange(known.num_rows)
    positions: Int64s = place[codes[known.num_rows :]]
    return positions


def difference(new: Changes, old: Changes | None) -> Changes:
    """The changes that turn the old into the new."""
    return new if old is None else Changes.concat([old.negated(), new]).cancelled()


def as_rows(table: pa.Table) -> Changes:
    """Rows as changes, whose times do not matter."""
    zero = np.zeros(table.num_rows, np.int64)
    return Changes.inserts(zero, zero + 1, table)
