"""The events of groups in bands of an order, so that the first ones are found without reading the others.

The events of a group are one band as long as it is small, or is not asked for its first events. A band that is read and
found large is cut into bands of bounded size, each with the events from its lower bound up to the next one. Looking for
the first events alive at some instants reads the first band, and more bands only where that is not enough. A change is
stored in the band of its place in the order. So both cost the size of a band, and not the number of events.

Each band has a number, and a hash of its own in the trace of events; number 0 has the hash of its group. Bounds are the
rows of another trace, found by group. Bounds change only when all events of a band are known: it is cut, or it is empty
and its range goes to a neighbour. No answer depends on where the bounds are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, factorize, hash_rows, to_numpy
from headrace.compiled import INTS, compiled
from headrace.operators.groups import Groups, Hashes, as_rows, positions_among
from headrace.operators.kernel import cancelled_rows
from headrace.operators.per_window.divide import Windows
from headrace.operators.per_window.items import MemberOrder, Members, ranks
from headrace.operators.per_window.rows import next_tick
from headrace.trace import Trace

__all__ = ["Bands"]

#: Of a bound: the number of its band, whether it is the first of its group, and a start, which decides last.
_NUMBER, _FIRST, _START = "__band", "__first", "__start"
#: The number of the band of events that have no place in the order.
_NOWHERE = -1
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class _Bounds:
    """The bands of some groups, by group and order, with the row of the bound of each; -1 for a group's only band."""

    rows: pa.Table
    group: Int64s
    number: Int64s
    row: Int64s


@dataclass(frozen=True)
class _Read:
    """The events of some bands, by group, band and order, or in reverse; and events that have no place in it."""

    bands: Int64s
    events: Changes
    group: Int64s
    #: The band of each event, as a position among all bands of the groups.
    band: Int64s
    unordered: Changes
    band_of_unordered: Int64s


class Bands:
    """The bands of all groups in one order."""

    #: A large band is cut into bands of so many events; a band is large if it has more than `most` events.
    size: ClassVar[int] = 1024
    most: ClassVar[int] = 4096

    def __init__(self, groups: Groups, order: MemberOrder, columns: Sequence[str]) -> None:
        """`columns` are kept of events, beside the keys of their groups."""
        self.groups, self.order = groups, order
        self.columns = list(dict.fromkeys([*groups.keys, *columns]))
        self.events, self.bounds = Trace(cancelled_rows), Trace(cancelled_rows)

    # --- adding events -----------------------------------------------------------------------------------------------

    def store(self, delta: Changes) -> None:
        """Add changes of events to their bands."""
        delta = delta.with_payload(delta.payload.select(self.columns))
        hashes = self.groups.hashes(delta.payload)
        bounds = self.bounds.lookup(hashes)
        if bounds is not None:
            hashes = _banded(hashes, self._placed(_living(bounds), delta)[0])
        self._append(delta, hashes)

    def _append(self, rows: Changes, hashes: Hashes) -> None:
        self.events.append(rows.to_table(), hashes, next_tick(rows.re))

    def _placed(self, bounds: pa.Table, rows: Changes) -> tuple[Int64s, Int64s]:
        """The number of the band of each row, and its place in the order."""
        rank = self._ranks(bounds, rows)
        if bounds.num_rows == 0:
            return np.zeros(len(rows), np.int64), rank
        (of_bounds, group), _ = self.groups.number(bounds, rows.payload)
        order = np.lexsort((rank, np.r_[of_bounds, group]))
        # The last bound before a row, or equal to it, is that of its band: the first bound of a group is before all.
        last = np.maximum.accumulate(np.where(order < len(of_bounds), np.arange(len(order)), -1))
        found = np.empty(len(order), np.int64)
        found[order] = np.where(last >= 0, order[last], -1)
        found = found[len(of_bounds) :]
        there = (found >= 0) & (of_bounds[found] == group)
        numbers = np.where(there, to_numpy(bounds.column(_NUMBER))[found], 0)
        return np.where(there & ~self._ordered(rows), _NOWHERE, numbers), rank[len(of_bounds) :]

    def _ranks(self, bounds: pa.Table, rows: Changes) -> Int64s:
        """The places of bounds and rows in the order; of equal ones bounds come first."""
        names = self.order.names
        keyed = rows.payload.select(names).append_column(_START, pa.array(rows.le))
        table = pa.concat_tables([bounds.select([*names, _START]), keyed])
        rank = ranks(table, [*self.order.columns, (_START, "ascending")])
        rank[np.flatnonzero(_flags(bounds))] = -1
        return rank

    def _ordered(self, rows: Changes) -> Bools:
        """Which rows have a place in the order."""
        if self.order.total:
            return np.ones(len(rows), bool)
        column = rows.payload.column(self.order.names[0])
        valid = pc.is_valid(column)
        if pa.types.is_floating(column.type):
            valid = pc.and_(valid, pc.invert(pc.fill_null(pc.is_nan(column), True)))
        return np.asarray(valid)

    # --- reading -----------------------------------------------------------------------------------------------------

    def all(self, hashes: Hashes) -> Changes:
        """All events of some groups."""
        bounds = self.bounds.lookup(hashes)
        if bounds is not None:
            of, numbers = self.groups.hashes(bounds), to_numpy(bounds.column(_NUMBER))
            nowhere = np.full(len(of), _NOWHERE)
            hashes = np.concatenate([hashes, _banded(of, numbers), _banded(of, nowhere)])
        return self._events(hashes)

    def _events(self, hashes: Hashes) -> Changes:
        rows = self.events.lookup(hashes)
        return self._nothing if rows is None else Changes.from_table(rows).cancelled()

    @cached_property
    def _nothing(self) -> Changes:
        return Changes.inserts(_NONE, _NONE, self.groups.schema.arrow.empty_table().select(self.columns))

    def first(self, keys: pa.Table, windows: Windows, need: int, *, back: bool = False) -> Members:
        """The first `need` events in order that are alive where windows start, or the last ones."""
        bounds, step = self._bounds_of(keys, np.unique(windows.group)), -1 if back else 1
        start, stop = (np.searchsorted(bounds.group, windows.group, side) for side in ("left", "right"))
        at, end = (stop - 1, start - 1) if back else (start, stop)  # the next band of each window, and where to stop
        missing, width, rows = np.full(len(windows), need), 1, 0
        window, row, parts = [_NONE], [_NONE], []
        while len(some := np.flatnonzero((missing > 0) & (at != end))):
            ahead = at[some][:, None] + step * np.arange(width)
            inside = (end[some][:, None] - ahead) * step > 0
            parts.append(self._read(keys, bounds, np.unique(ahead[inside]), step))
            i, j, missing[some] = _alive_rows(parts[-1], windows.take(some), missing[some])
            window.append(some[i])
            row.append(rows + j)
            at[some] += step * inside.sum(axis=1)
            rows, width = rows + len(parts[-1].events), 2 * width
        self._arrange(keys, bounds, parts, step)
        events = Changes.concat([self._nothing, *(part.events for part in parts)])
        return Members(np.concatenate(window), np.concatenate(row), events)

    def _bounds_of(self, keys: pa.Table, groups: Int64s) -> _Bounds:
        """The bands of groups, in order."""
        rows = self.bounds.lookup(self.groups.hashes(keys.take(pa.array(groups))))
        if rows is None:
            return _Bounds(self._no_bounds, groups, np.zeros(len(groups), np.int64), np.full(len(groups), -1))
        bounds = _living(rows)
        group = positions_among(keys, bounds.select(self.groups.keys))
        bounds, group = bounds.filter(pa.array(group >= 0)), group[group >= 0]
        alone = np.setdiff1d(groups, group)
        none = np.zeros(len(alone), np.int64)
        group = np.r_[group, alone]
        order = np.lexsort((np.r_[self._ranks(bounds, self._nothing), none], group))
        number, row = np.r_[to_numpy(bounds.column(_NUMBER)), none], np.r_[np.arange(bounds.num_rows), none - 1]
        return _Bounds(bounds, group[order], number[order], row[order])

    @cached_property
    def _no_bounds(self) -> pa.Table:
        return self._bound_rows(self._nothing, _NONE, first=False)

    def _read(self, keys: pa.Table, bounds: _Bounds, bands: Int64s, step: int) -> _Read:
        """The events of some bands, in order, or in reverse."""
        events = self._events(_banded(self.groups.hashes(keys)[bounds.group[bands]], bounds.number[bands]))
        group = positions_among(keys, events.payload.select(self.groups.keys))
        number, rank = self._placed(bounds.rows, events)
        places = pa.table({"group": bounds.group[bands], "number": bounds.number[bands]})
        place = positions_among(places, pa.table({"group": group, "number": number}))
        known = (group >= 0) & (place >= 0)  # others have equal hashes by chance
        band, ordered = bands[place], self._ordered(events)
        order = np.lexsort((step * rank, step * band, group))
        order, others = order[(known & ordered)[order]], np.flatnonzero(known & ~ordered)
        return _Read(bands, events.take(order), group[order], band[order], events.take(others), band[others])

    # --- bounds ------------------------------------------------------------------------------------------------------

    def _bound_rows(self, events: Changes, numbers: Int64s, *, first: bool) -> pa.Table:
        """Bounds at these events."""
        names = list(dict.fromkeys([*self.groups.keys, *self.order.names]))
        rows = events.payload.select(names).append_column(_START, pa.array(events.le))
        rows = rows.append_column(_NUMBER, pa.array(numbers))
        return rows.append_column(_FIRST, pa.array(np.full(len(numbers), first)))

    def _change_bounds(self, rows: pa.Table, weight: int) -> None:
        changes = as_rows(rows) if weight > 0 else as_rows(rows).negated()
        self.bounds.append(*self.groups.stamped(changes))

    def _arrange(self, keys: pa.Table, bounds: _Bounds, parts: Sequence[_Read], step: int) -> None:
        """Cut the bands that were read and are large, and leave out those that are empty."""
        count = np.full(len(bounds.group), -1)
        for part in parts:
            count[part.bands] = 0
            for bands in (part.band, part.band_of_unordered):
                count += np.bincount(bands, minlength=len(count))
        if (count == 0).any():
            self._leave_out(bounds, count == 0)
        if (count > self.most).any():
            free = max(int(bounds.number.max()), 0) + 1
            for part in parts:
                free += self._cut(keys, bounds, part, count > self.most, free, step)

    def _leave_out(self, bounds: _Bounds, empty: Bools) -> None:
        """Give the ranges of empty bands to those before them; the first one that stays has all before it."""
        last = np.r_[bounds.group[1:] != bounds.group[:-1], True]
        stays = ~empty
        if not self.order.total:  # events without a place are found by the bounds of their group
            stays |= last & ~np.isin(bounds.group, bounds.group[stays])
        gone = bounds.row[~stays & (bounds.row >= 0)]
        kept = np.flatnonzero(stays & (bounds.row >= 0))
        lowest = kept[np.r_[True, bounds.group[kept][1:] != bounds.group[kept][:-1]]] if len(kept) else kept
        lowest = bounds.row[lowest]
        lowest = lowest[~_flags(bounds.rows)[lowest]]
        self._change_bounds(bounds.rows.take(pa.array(np.r_[gone, lowest])), -1)
        rows = bounds.rows.take(pa.array(lowest))
        flags = pa.array(np.ones(len(lowest), bool))
        self._change_bounds(rows.set_column(rows.schema.get_field_index(_FIRST), _FIRST, flags), 1)

    def _cut(self, keys: pa.Table, bounds: _Bounds, read: _Read, large: Bools, free: int, step: int) -> int:
        """Move the events of large bands, but for the first of each, to new ones from number `free` on; how many."""
        rows = np.flatnonzero(large[read.band])[::step]
        events, band = read.events.take(rows), read.band[rows]
        key = events.payload.select(self.order.names).append_column(_START, pa.array(events.le))
        codes, place = factorize(key)[0], np.arange(len(rows))
        begins = np.r_[True, band[1:] != band[:-1]] if len(band) else np.empty(0, bool)
        changes = begins | np.r_[True, codes[1:] != codes[:-1]] if len(band) else begins
        # Equal events stay together, so that bounds are between them and others.
        place = np.maximum.accumulate(np.where(changes, place, 0)) - np.maximum.accumulate(np.where(begins, place, 0))
        piece = place // self.size
        new = begins | np.r_[True, piece[1:] != piece[:-1]] if len(band) else begins
        starts, moved = np.flatnonzero(new & (piece > 0)), np.flatnonzero(piece > 0)
        if len(starts) == 0:
            return 0
        number = free + np.searchsorted(starts, moved, "right") - 1
        hashes = self.groups.hashes(keys)
        self._move(events.take(moved), hashes[bounds.group[band[moved]]], bounds.number[band[moved]], number)
        self._change_bounds(self._bound_rows(events.take(starts), free + np.arange(len(starts)), first=False), 1)
        alone = np.unique(band[starts])
        alone = alone[bounds.row[alone] < 0]
        firsts = np.flatnonzero(begins & np.isin(band, alone))
        self._change_bounds(self._bound_rows(events.take(firsts), np.zeros(len(firsts), np.int64), first=True), 1)
        some = np.isin(read.band_of_unordered, alone)
        others, of = read.unordered.filter(some), hashes[bounds.group[read.band_of_unordered[some]]]
        self._move(others, of, np.zeros(len(of), np.int64), np.full(len(of), _NOWHERE))
        return len(starts)

    def _move(self, events: Changes, groups: Hashes, old: Int64s, new: Int64s) -> None:
        """Move events of groups, whose hashes are given, from bands to others."""
        both = Changes.concat([events.negated(), events])
        self._append(both, np.r_[_banded(groups, old), _banded(groups, new)])


def _alive_rows(read: _Read, windows: Windows, missing: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """The first rows of each window that are alive where it starts, as pairs; and how many are missing still."""
    first, stop = (np.searchsorted(read.group, windows.group, side) for side in ("left", "right"))
    events = read.events
    found = _alive(first, stop, windows.le, events.le, events.re, events.weight, missing)
    taken = np.zeros(len(windows), np.int64)
    np.add.at(taken, found[:, 0], events.weight[found[:, 1]])
    return found[:, 0], found[:, 1], np.maximum(missing - taken, 0)


@compiled(INTS, INTS, INTS, INTS, INTS, INTS, INTS)
def _alive(
    first: Int64s, stop: Int64s, time: Int64s, le: Int64s, re: Int64s, weight: Int64s, missing: Int64s
) -> np.ndarray:
    """For each time as many rows from `first` to `stop` as are missing, among those that are alive."""
    size = 0
    for write in range(2):
        pairs = np.empty((size, 2), np.int64)
        size = 0
        for i in range(len(time)):
            j, left = first[i], missing[i]
            while left > 0 and j < stop[i]:
                if le[j] <= time[i] < re[j]:
                    left -= weight[j]
                    if write:
                        pairs[size, 0], pairs[size, 1] = i, j
                    size += 1
                j += 1
    return pairs


def _banded(hashes: Hashes, numbers: Int64s) -> Hashes:
    """The hashes of bands."""
    return np.where(numbers == 0, hashes, hash_rows(pa.table({"group": hashes.view(np.int64), "band": numbers})))


def _living(rows: pa.Table) -> pa.Table:
    return Changes.from_table(rows).cancelled().payload


def _flags(bounds: pa.Table) -> Bools:
    return np.asarray(bounds.column(_FIRST), bool)
