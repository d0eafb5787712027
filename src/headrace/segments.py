"""Segments: the immutable pieces of a trace.

A segment is a table sorted by hash. Its ranges of hashes and times are saved beside it, with the trace. So a stored
segment is opened only when some of its rows may be needed, and then it is mapped into memory: its pages belong to the
file, and all processes of the machine share them.

A segment whose rows have different times also has their *order* by time, a column of row numbers, so that due rows are
found without reading the others.

A trace refers to segments by *parts*: a part is the rest of a segment, from one row on.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.columnar import to_numpy
from headrace.pieces import Pieces, ipc_pieces
from headrace.time import INFINITY

__all__ = ["HASH", "TIME", "Hashes", "Int64s", "Part", "Segment", "SegmentInfo", "cut", "restored"]

HASH, TIME, _ORDER = "__hash", "__time", "__order"
Int64s = NDArray[np.int64]
Hashes = NDArray[np.uint64]
#: With fewer rows all times are compared, without their order.
_FEW = 1024
#: Rows of so few sorted runs are merged rather than sorted.
_FEW_RUNS = 4


class SegmentInfo(NamedTuple):
    """The description of a segment: the number and bytes of its rows, and the ranges of hashes and times."""

    rows: int
    nbytes: int
    low: int
    high: int
    first: int
    last: int

    @classmethod
    def of(cls, table: pa.Table) -> SegmentInfo:
        hashes, times = to_numpy(table.column(HASH)), to_numpy(table.column(TIME))
        return cls(
            table.num_rows, table.nbytes, int(hashes[0]), int(hashes[-1]), int(times.min()), int(times.max())
        )  # fmt: skip


class Segment:
    """Immutable rows, at least one, sorted by hash."""

    def __init__(self, name: str, about: SegmentInfo, read: Callable[[], pa.Table]) -> None:
        self.name, self.about = name, about
        self._read: Callable[[], pa.Table] | None = read
        self._table: pa.Table | None = None
        self._order: NDArray[np.int32] | None = None
        self._arrays: tuple[Hashes, Int64s] | None = None

    @classmethod
    def of(cls, rows: pa.Table) -> Segment:
        """A new segment of these rows, which carry `HASH` and `TIME` and are sorted by hash."""
        rows = rows.combine_chunks()
        about = SegmentInfo.of(rows)
        if about.rows > _FEW and about.first != about.last:
            order = np.argsort(to_numpy(rows.column(TIME))).astype(np.int32)
            rows = rows.append_column(_ORDER, pa.array(order))
        return cls(uuid.uuid4().hex, about, lambda: rows)

    @classmethod
    def load(cls, name: str, data: bytes | pa.Buffer) -> Segment:
        """The segment of these bytes, which are not copied."""
        table = _opened(data)
        return cls(name, SegmentInfo.of(table), lambda: table)

    @classmethod
    def stored(cls, name: str, about: SegmentInfo, read: Callable[[], bytes | pa.Buffer]) -> Segment:
        """A segment whose bytes `read` returns when they are needed."""
        return cls(name, about, partial(_read, read))

    def move(self, read: Callable[[], bytes | pa.Buffer]) -> None:
        """Use the bytes of `read` from now on: the same rows, where they are stored."""
        self._read, self._table, self._order, self._arrays = partial(_read, read), None, None, None

    def _open(self) -> pa.Table:
        if self._table is None:
            assert self._read is not None
            table, self._read = self._read(), None
            if _ORDER in table.column_names:
                self._order = table.column(_ORDER).to_numpy()
                table = table.drop_columns([_ORDER])
            self._table = table
        return self._table

    @property
    def table(self) -> pa.Table:
        """Its rows, with `HASH` and `TIME`."""
        return self._open()

    @property
    def order(self) -> NDArray[np.int32] | None:
        """The rows in the order of their times, if it is stored."""
        self._open()
        return self._order

    @property
    def arrays(self) -> tuple[Hashes, Int64s]:
        """The hashes and times of its rows."""
        if self._arrays is None:
            table = self._open()
            self._arrays = to_numpy(table.column(HASH)).view(np.uint64), to_numpy(table.column(TIME))
        return self._arrays

    def save(self) -> Pieces:
        """The segment as an Arrow IPC stream."""
        table = self._open()
        return ipc_pieces(table if self._order is None else table.append_column(_ORDER, pa.array(self._order)))


def _read(read: Callable[[], bytes | pa.Buffer]) -> pa.Table:
    return _opened(read())


def _opened(data: bytes | pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


@dataclass(slots=True)
class Part:
    """The rows of a segment from `start` on: how many of them are dead, the least hash, and the least living time."""

    segment: Segment
    start: int
    low: int
    first: int
    dead: int = 0

    @classmethod
    def whole(cls, segment: Segment) -> Part:
        """All rows of a segment."""
        return cls(segment, 0, segment.about.low, segment.about.first)

    @property
    def high(self) -> int:
        """The greatest hash."""
        return self.segment.about.high

    @property
    def rows(self) -> int:
        """The number of rows, dead or alive."""
        return self.segment.about.rows - self.start

    @property
    def living(self) -> int:
        """The number of living rows."""
        return self.rows - self.dead

    @property
    def nbytes(self) -> int:
        """The approximate bytes of its rows."""
        return self.segment.about.nbytes * self.rows // self.segment.about.rows

    def saved(self) -> tuple[str, list[int]]:
        """The name of the segment, and its numbers."""
        return self.segment.name, [*self.segment.about, self.start, self.low, self.first, self.dead]

    def forget(self, floor: int) -> None:
        """Mark rows up to this time as dead."""
        if self.first > floor:
            return
        if self.segment.about.last <= floor:
            self.dead, self.first = self.rows, INFINITY
            return
        times = self.segment.arrays[1]
        order = self.segment.order if self.start == 0 else None
        if order is None:
            alive = times[self.start :]
            alive = alive[alive > floor]
            self.dead, self.first = self.rows - len(alive), int(alive.min(initial=INFINITY))
        else:
            self.dead = _due(times, order, floor)
            self.first = int(times[order[self.dead]])

    def until(self, time: int, floor: int) -> Int64s:
        """The living rows up to a time, by their numbers in the segment."""
        times = self.segment.arrays[1]
        order = self.segment.order if self.start == 0 else None
        if order is None:
            some = times[self.start :]
            return np.flatnonzero((some <= time) & (some > floor)) + self.start
        return np.sort(order[self.dead : _due(times, order, time)]).astype(np.int64)

    def find(self, wanted: Hashes, floor: int) -> Int64s:
        """The living rows with one of these hashes, which are sorted, by their numbers in the segment."""
        hashes, times = self.segment.arrays
        hashes = hashes[self.start :]
        if len(wanted) < len(hashes):
            low = np.searchsorted(hashes, wanted, "left")
            count = np.searchsorted(hashes, wanted, "right") - low
            rows = np.repeat(low - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
        else:
            place = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
            rows = np.flatnonzero(wanted[place] == hashes)
        rows = rows + self.start
        return rows[times[rows] > floor] if self.dead else rows

    def hash_at(self, row: int) -> int:
        """The hash of a row; the greatest hash, if there are fewer rows."""
        return self.high if row >= self.rows else int(self.segment.arrays[0][self.start + row])

    def take(self, rows: Int64s) -> pa.Table:
        """Rows by their numbers in the segment."""
        return self.segment.table.take(pa.array(rows))

    def table(self, floor: int, names: Sequence[str] = ()) -> pa.Table:
        """All living rows, or some of their columns."""
        return self._living(self.start, self.rows, floor, names)

    def split(self, hash_: int, floor: int) -> tuple[pa.Table, int, Part | None]:
        """The living rows up to a hash; the number of rows up to it, with dead ones; and the part after them."""
        hashes, _ = self.segment.arrays
        count = int(np.searchsorted(hashes[self.start :], np.uint64(hash_), "right"))
        head, stop = self._living(self.start, count, floor), self.start + count
        if count == self.rows:
            return head, count, None
        rest = Part(self.segment, stop, int(hashes[stop]), self.first, self.dead)
        if count and self.dead:
            rest.dead, rest.first = 0, min(rest.first, floor)
            rest.forget(floor)
        return head, count, rest

    def _living(self, start: int, count: int, floor: int, names: Sequence[str] = ()) -> pa.Table:
        table = self.segment.table
        table = (table.select(names) if names else table).slice(start, count)
        if not self.dead:
            return table
        return table.filter(pa.array(self.segment.arrays[1][start : start + count] > floor))


def _due(times: Int64s, order: NDArray[np.int32], time: int) -> int:
    """The number of rows up to a time, given their order by time."""
    return bisect_right(range(len(order)), time, key=lambda i: times[order[i]])


def restored(segment: Segment, saved: list[int] | None) -> Part:
    """A saved part of a segment; the complete segment, if an earlier Headrace saved it."""
    if saved is None:
        return Part.whole(segment)
    return Part(segment, *saved[len(SegmentInfo._fields) :])


def cut(rows: pa.Table, most: int) -> list[Part]:
    """Rows with `HASH` and `TIME` as new segments of at most `most` rows, with disjoint ranges of hashes.

    Rows of one hash stay together, in their order, even if there are more.
    """
    size = rows.num_rows
    if size == 0:
        return []
    hashes = to_numpy(rows.column(HASH)).view(np.uint64)
    order = _sorted(hashes)
    if (np.diff(order) != 1).any():
        rows, hashes = rows.take(pa.array(order)), hashes[order]
    pieces = -(-size // most)
    inner = np.searchsorted(hashes, hashes[np.arange(1, pieces) * size // pieces], "left")
    borders = np.unique(np.r_[0, inner, size]).tolist()
    rows = rows.combine_chunks() if pieces > 1 else rows
    return [Part.whole(Segment.of(rows.slice(start, stop - start))) for start, stop in pairwise(borders)]


def _sorted(hashes: Hashes) -> Int64s:
    """The stable order of hashes."""
    if np.count_nonzero(hashes[1:] < hashes[:-1]) <= _FEW_RUNS:
        return np.argsort(hashes, kind="stable")
    order: Int64s = np.argsort(hashes)  # with the next steps, several times as fast as a stable sort
    ranked = hashes[order]
    same = ranked[1:] == ranked[:-1]
    if same.any():
        group = np.r_[0, np.cumsum(~same)] * len(order)
        order = np.sort(group + order) - group
    return order
