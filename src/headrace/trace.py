"""The trace: the one state structure of the engine.

A trace is a bag of rows kept as immutable Arrow *segments*. Each row has a 64-bit hash (of whatever its owner looks
rows up by) and a time (when it may be forgotten). A batch's rows become one new segment; segments are merged
geometrically, so there are about log(n) of them and a row is rewritten about log(n) times; rows whose time has passed
are dropped.

Segments never change once made and have unique names. So saving a trace means writing the segments that are new and
deleting those that are gone, and restoring it means reading only the segments a process does not hold already.

The owner gives `compact`, which sums rows of equal key and drops those that cancel; it runs whenever segments merge.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.columnar import concat, to_numpy
from headrace.pieces import Pieces, ipc_pieces
from headrace.time import NEG_INFINITY

__all__ = ["Segment", "Trace"]

HASH, TIME = "__hash", "__time"
Int64s = NDArray[np.int64]
Hashes = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Segment:
    """Immutable rows, sorted by hash."""

    name: str
    table: pa.Table

    @classmethod
    def of(cls, rows: pa.Table) -> Segment:
        """A new segment of these rows (which carry `HASH` and `TIME`)."""
        order = np.argsort(rows.column(HASH).to_numpy(), kind="stable")
        if len(order) and (np.diff(order) != 1).any():
            rows = rows.take(pa.array(order))
        return cls(uuid.uuid4().hex, rows.combine_chunks())

    @cached_property
    def hashes(self) -> Hashes:
        return to_numpy(self.table.column(HASH)).view(np.uint64)

    @cached_property
    def times(self) -> Int64s:
        return to_numpy(self.table.column(TIME))

    @cached_property
    def last_time(self) -> int:
        return int(self.times.max(initial=NEG_INFINITY))

    @cached_property
    def first_time(self) -> int:
        return int(self.times.min(initial=2**63 - 1))

    def save(self) -> Pieces:
        """The segment as an Arrow IPC stream."""
        return ipc_pieces(self.table)

    @classmethod
    def load(cls, name: str, data: bytes | pa.Buffer) -> Segment:
        """The segment of these bytes, which it goes on using."""
        return cls(name, pa.ipc.open_stream(data).read_all())


class Trace:
    """A bag of rows, looked up by hash and by time, dropped by time."""

    def __init__(self, compact: Callable[[pa.Table], pa.Table], *, pickled: bool = False) -> None:
        self._compact = compact
        #: Whether its rows hold values of Python as `pickle` writes them: only the query that saved them may load them.
        self.pickled = pickled
        self._floor = NEG_INFINITY
        self.segments: list[Segment] = []

    def append(self, rows: pa.Table, hashes: Hashes, times: Int64s) -> None:
        """Add rows as a new segment, merging small ones; what is forgotten already is left out."""
        living = times > self._floor
        if not living.all():
            rows, hashes, times = rows.filter(pa.array(living)), hashes[living], times[living]
        if rows.num_rows == 0:
            return
        rows = rows.append_column(HASH, pa.array(hashes.view(np.uint64))).append_column(TIME, pa.array(times))
        self.segments.append(Segment.of(rows))
        self._merge()

    def _merge(self) -> None:
        # Keep each segment at least twice as large as the next, so there are about log(n) segments.
        while len(self.segments) > 1 and self.segments[-2].table.num_rows < 2 * self.segments[-1].table.num_rows:
            last, before = self.segments.pop(), self.segments.pop()
            merged = self._compact(concat([self._living(before), self._living(last)]))
            if merged.num_rows:
                self.segments.append(Segment.of(merged))

    def _living(self, segment: Segment) -> pa.Table:
        if segment.first_time > self._floor:
            return segment.table
        return segment.table.filter(pa.array(segment.times > self._floor))

    def lookup(self, hashes: Hashes) -> pa.Table | None:
        """The living rows with one of these hashes, without `HASH` and `TIME`; None if there are none."""
        wanted = np.sort(hashes)
        wanted = wanted[np.r_[True, wanted[1:] != wanted[:-1]]] if len(wanted) else wanted
        return self._gather(self._rows_of(segment, wanted) for segment in self.segments)

    def _rows_of(self, segment: Segment, wanted: Hashes) -> pa.Table:
        if len(wanted) < len(segment.hashes):
            low = np.searchsorted(segment.hashes, wanted, "left")
            count = np.searchsorted(segment.hashes, wanted, "right") - low
            rows = np.repeat(low - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
        else:
            place = np.minimum(np.searchsorted(wanted, segment.hashes), len(wanted) - 1)
            rows = np.flatnonzero(wanted[place] == segment.hashes)
        rows = rows[segment.times[rows] > self._floor]
        return segment.table.take(pa.array(rows)) if len(rows) else segment.table.slice(0, 0)

    def until(self, time: int) -> pa.Table | None:
        """The living rows whose time is at most `time`."""
        parts = (
            s.table.filter(pa.array((s.times <= time) & (s.times > self._floor)))
            for s in self.segments
            if s.first_time <= time
        )
        return self._gather(parts)

    def scan(self) -> pa.Table | None:
        """All living rows."""
        return self._gather(self._living(segment) for segment in self.segments)

    @staticmethod
    def _gather(parts: Iterable[pa.Table]) -> pa.Table | None:
        found = [part for part in parts if part.num_rows]
        return concat(found).drop_columns([HASH, TIME]) if found else None

    def drop(self, time: int) -> None:
        """Forget every row whose time is at most `time`."""
        if time <= self._floor:
            return
        self._floor = time
        kept = []
        for segment in self.segments:
            if segment.last_time <= time:
                continue
            dead = int(np.count_nonzero(segment.times <= time)) if segment.first_time <= time else 0
            # Rewriting costs as much as the segment is large: wait until a quarter of it is dead.
            kept.append(Segment.of(self._living(segment)) if 4 * dead > len(segment.times) else segment)
        self.segments = kept

    def replace(self, rows: pa.Table, hashes: Hashes, times: Int64s) -> None:
        """Forget everything and keep these rows instead."""
        self.segments = []
        self.append(rows, hashes, times)

    @property
    def floor(self) -> int:
        """Rows up to this time are forgotten."""
        return self._floor

    @property
    def rows(self) -> int:
        """How many rows are alive."""
        return sum(
            len(s.times) if s.first_time > self._floor else int(np.count_nonzero(s.times > self._floor))
            for s in self.segments
        )

    @property
    def nbytes(self) -> int:
        return sum(s.table.nbytes for s in self.segments)

    def restore(self, names: Iterable[str], floor: int, held: Mapping[str, Segment]) -> None:
        """Become the trace that consists of these segments."""
        self._floor = floor
        self.segments = [held[name] for name in names]
