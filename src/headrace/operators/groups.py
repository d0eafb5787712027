"""The steps that kernels share which look at the groups again that a batch changes.

The kernels of windows, of tuples in their order, of folds and of patterns answer a batch in the same six steps:

1. *Project* the input to the keys of its groups and the columns that are needed (`Groups.projected`).
2. Find the groups that the batch *touches*: those that it changes, and those whose time has come (`touched`, `due`).
3. *Look* at what is kept of them (`known`). A trace finds rows by the hash of the key; `numbered` tells groups apart by
   the key itself, and gives each a number.
4. Compute what holds now. This is the only step that every kernel does in its own way.
5. *Exchange* it for what was given (`exchange`): take back the old, insert the new, cancel what is equal. The
   difference is remembered, and leaves under the names of the output (`leaving`, `diverted`). For what is one row a
   group, `set_rows` does the same.
6. *Drop* what the CTI has settled. Every row of a trace has a time, which may come from a column of it, and
   `Trace.drop` forgets the row then. What is not settled yet may hold back the output CTI (`least`).

A kernel creates a `Groups` over its own traces, and calls it step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Int64s, canonical_floats, factorize, hash_rows, to_numpy
from headrace.expr import Expr, lit
from headrace.operators.evaluated import evaluated
from headrace.plan.nodes import Match, PerWindow
from headrace.plan.source import DIVERTED, diverted_rows
from headrace.schema import Field, Schema
from headrace.segments import Hashes
from headrace.time import INFINITY
from headrace.trace import Trace

__all__ = [
    "AT", "HOLD", "OUT", "PREFIX", "REASON", "SILENT", "UNTIL", "Groups", "Hashes", "as_rows", "difference",
    "numbered", "place_among",
]  # fmt: skip

#: Columns of an input are stored under their names with this before them, columns of an output with that.
PREFIX, OUT = "in.", "out."
#: Of an output: the CTI at which it is forgotten, why it failed, and whether it only stands for a tuple without any.
UNTIL, REASON, SILENT = "__until", "__reason", "__silent"
#: Of a group: when to look at it again, and where it holds back the output CTI.
AT, HOLD = "__at", "__hold"


class Groups:
    """The groups of one kernel: what is needed of their events, and what its traces keep of them."""

    def __init__(
        self,
        node: PerWindow | Match,
        columns: Iterable[tuple[str, Expr]],
        traces: Mapping[str, Trace],
        *,
        stored: Sequence[str] = (),
    ) -> None:
        """`columns` are needed beside the keys; `stored` says what the keys are called among them."""
        self.node, self.traces = node, traces
        keys = [expr for _, expr in node.keys] or [lit(0)]  # all events of one group are a group too
        names = list(stored) or [f"key{i}" for i in range(len(keys))]
        self.keys = list(dict.fromkeys(names))
        self.projection = list((dict(zip(names, keys, strict=True)) | dict(columns)).items())
        below = node.input.schema
        self.schema = Schema(tuple(Field(name, expr.type(below)) for name, expr in self.projection))
        self._stored = dict(zip(node.key_names, names, strict=False))

    def projected(self, changes: Changes, re: Int64s) -> Changes:
        """What is needed of changes, with these ends; rows that are equal now may still be there."""
        columns = [evaluated(expr, changes.payload, changes.weight) for _, expr in self.projection]
        payload = canonical_floats(pa.Table.from_arrays(columns, schema=self.schema.arrow))
        return Changes(changes.le, re, changes.weight, payload)

    # --- which groups ------------------------------------------------------------------------------------------------

    def hashes(self, table: pa.Table) -> Hashes:
        """The hash of each row's key."""
        return hash_rows(table.select(self.keys))

    def due(self, **until: int) -> Hashes:
        """The groups of which traces have a row up to a time, each trace to its own."""
        found = [self.traces[name].until(time) for name, time in until.items()]
        return np.unique(np.concatenate([np.empty(0, np.uint64), *(self.hashes(t) for t in found if t is not None)]))

    def touched(self, delta: Changes, **until: int) -> Hashes:
        """The groups that change, and those that are due."""
        return np.union1d(self.hashes(delta.payload), self.due(**until))

    def numbered(self, *tables: pa.Table) -> tuple[list[Int64s], pa.Table]:
        """The number of each row's group, the same in all tables, and the groups' keys."""
        return numbered(*(table.select(self.keys) for table in tables))

    def named(self, keys: pa.Table, group: Int64s) -> pa.Table:
        """The keys of groups by their numbers, as the output calls them."""
        names = list(self._stored)
        return keys.take(pa.array(group)).select([self._stored[name] for name in names]).rename_columns(names)

    # --- what is kept of them ----------------------------------------------------------------------------------------

    def known(self, trace: str, touched: Hashes) -> Changes | None:
        """What a trace keeps of some groups; None if it is nothing."""
        found = self.traces[trace].lookup(touched)
        return None if found is None else Changes.from_table(found).cancelled()

    def events(self, touched: Hashes) -> Changes:
        """The events that are kept of some groups."""
        known = self.known("events", touched)
        return Changes.empty(self.schema) if known is None else known

    def stamped(self, rows: Changes, until: str | None = None) -> tuple[pa.Table, Hashes, Int64s]:
        """Rows as a trace takes them; a column may say when they are forgotten, else that is never."""
        never = np.full(len(rows), INFINITY, np.int64)
        times = never if until is None else to_numpy(rows.payload.column(until))
        return rows.to_table(), self.hashes(rows.payload), times

    def exchange(self, trace: str, old: Changes | None, new: Changes, until: str | None = None) -> Changes:
        """Keep the new in place of the old; the difference."""
        moved = difference(new, old)
        self.traces[trace].append(*self.stamped(moved, until))
        return moved

    def set_rows(self, trace: str, touched: Hashes, rows: pa.Table, until: str | None = None) -> None:
        """Keep these rows of the touched groups, one a group, in place of what was there."""
        self.exchange(trace, self.known(trace, touched), as_rows(rows), until)

    def set_alarms(self, trace: str, touched: Hashes, keys: pa.Table, at: Int64s, hold: Int64s | None = None) -> None:
        """Remember when to look at groups again, and where they hold back the output CTI; infinite is never."""
        hold = np.full(len(at), INFINITY, np.int64) if hold is None else hold
        rows = keys.append_column(AT, pa.array(at)).append_column(HOLD, pa.array(hold))
        self.set_rows(trace, touched, rows.filter(pa.array((at != INFINITY) | (hold != INFINITY))), AT)

    def least(self, trace: str, column: str) -> int:
        """The least time in a column of a trace, infinite if there is none."""
        held = self.traces[trace].scan()
        if held is None:
            return INFINITY
        times = to_numpy(Changes.from_table(held).cancelled().payload.column(column))
        return int(np.min(times, initial=INFINITY))

    # --- what leaves -------------------------------------------------------------------------------------------------

    def leaving(self, moved: Changes) -> Changes:
        """Changes of outputs as the next operator sees them, without those that failed or are silent."""
        there = moved.payload.column_names
        if REASON in there:
            moved = moved.filter(np.asarray(moved.payload.column(REASON).is_null()))
        if SILENT in there:
            moved = moved.filter(~np.asarray(moved.payload.column(SILENT), bool))
        places = [(OUT + name, self._stored.get(name), PREFIX + name) for name in self.node.schema.names]
        columns = [moved.payload.column(next(place for place in some if place in there)) for some in places]
        payload = pa.Table.from_arrays(columns, schema=self.node.schema.arrow)
        return Changes(moved.le, moved.re, moved.weight, payload).cancelled()

    def diverted(self, moved: Changes, where: Callable[[Changes], Iterable[str]]) -> Changes:
        """Changes of failures, for the side stream; `where` says of each where it was."""
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
        who = ", ".join(map(str, self.node.modules))
        payload = diverted_rows(who, moved.payload.column(REASON), rows)
        return Changes(moved.le, moved.re, moved.weight, payload).cancelled()


def numbered(*tables: pa.Table) -> tuple[list[Int64s], pa.Table]:
    """A number for each row, the same for equal rows of all tables, and the rows that they stand for."""
    whole = pa.concat_tables(tables)
    codes, first = factorize(whole)
    borders = np.cumsum([table.num_rows for table in tables])[:-1]
    return np.split(codes, borders), whole.take(pa.array(first))


def place_among(known: pa.Table, rows: pa.Table) -> Int64s:
    """Where each row is among known ones, which all differ; -1 if it is none of them."""
    codes, first = factorize(pa.concat_tables([known, rows]))
    place = np.full(len(first), -1, np.int64)
    place[codes[: known.num_rows]] = np.arange(known.num_rows)
    found: Int64s = place[codes[known.num_rows :]]
    return found


def difference(new: Changes, old: Changes | None) -> Changes:
    """What turns the old into the new."""
    return new if old is None else Changes.concat([old.negated(), new]).cancelled()


def as_rows(table: pa.Table) -> Changes:
    """Rows for which time does not matter."""
    zero = np.zeros(table.num_rows, np.int64)
    return Changes.inserts(zero, zero + 1, table)
