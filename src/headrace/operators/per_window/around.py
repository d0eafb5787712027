"""What ranked events see of the events around them (`plan/around.py`), for all windows at once.

Events stand in the order of their ranking, window by window, so a frame is a run of rows. Counts, sums, averages and
variances of runs are differences of running sums; the least and the greatest value are found in a table of the extremes
of runs of 1, 2, 4, … rows; other aggregates are computed from the pairs of an event and a row of its frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Int64s, concat, to_numpy
from headrace.expr import AggregateCall, Expr, col
from headrace.expr.aggregates import AGGREGATES
from headrace.operators.aggregate.accumulators import PART, Layout
from headrace.operators.aggregate.answers import answers
from headrace.operators.aggregate.combine import compact
from headrace.operators.ordered.tuples import bounded_runs, ranges
from headrace.operators.per_window.items import ranks
from headrace.operators.per_window.sums import WINDOW, by_window
from headrace.plan.around import Around
from headrace.plan.nodes import Aggregate, Node, Select
from headrace.plan.windows import Snapshot

__all__ = ["RankedRows", "argument_of", "seen_around"]

_VALUE = "value"
#: How many pairs of an event and a row of its frame are computed together.
_MOST_PAIRS = 1 << 21
#: The aggregates of no events that are not null.
_OF_NONE: dict[str, object] = {
    "count": 0, "distinct_count": 0, "approx_distinct": 0, "collect": [], "top_frequent": [],
}  # fmt: skip


@dataclass(frozen=True)
class RankedRows:
    """Rows in the order of a ranking, window by window, with a number that is equal for rows that the order equates."""

    window: Int64s
    peers: Int64s
    #: The value of the order and whether it descends, where frames measure distances in it.
    key: pa.ChunkedArray | None
    descending: bool

    def __len__(self) -> int:
        return len(self.window)

    @cached_property
    def whole(self) -> tuple[Int64s, Int64s]:
        """The first row of each row's window, and the one behind its last."""
        return _runs(np.diff(self.window) != 0, len(self))

    @cached_property
    def equals(self) -> tuple[Int64s, Int64s]:
        """The first row of those that the order equates with each row, and the one behind the last."""
        return _runs((np.diff(self.window) != 0) | (np.diff(self.peers) != 0), len(self))

    def frame(self, around: Around) -> tuple[Int64s, Int64s]:
        """The first row of each row's frame, and the one behind its last."""
        sides = []
        for side, distance in enumerate((around.start, around.end)):
            if distance is None:
                sides.append(self.whole[side])
            elif around.unit == "rows":
                # Distances beyond all rows would overflow.
                moved = np.arange(len(self)) + int(np.clip(distance, -len(self), len(self))) + side
                sides.append(np.clip(moved, *self.whole))
            else:
                sides.append(self.equals[side] if distance == 0 else self._at_distance(distance, side))
        first, stop = sides
        return first, np.maximum(first, stop)

    def _at_distance(self, distance: float, side: int) -> Int64s:
        """The first row that is not before the value at a distance from each row's, or the one behind the last."""
        assert self.key is not None
        # Nulls and NaN are at no distance from anything but their equals.
        apart = to_numpy(pc.is_null(self.key, nan_is_null=True))
        values = _ascending(self.key, descending=self.descending)
        wanted = _moved(values, distance)
        codes = np.unique(np.r_[values, wanted], return_inverse=True)[1]
        rows, targets = codes[: len(self)], codes[len(self) :]
        some = np.flatnonzero(~apart)
        number = self.window[some] * (len(codes) + 1)
        found = np.searchsorted(number + rows[some], number + targets[some], "right" if side else "left")
        # The others of a window stand together, before or behind those.
        before = np.searchsorted(some, self.whole[0][some], "left")
        result = self.equals[side].copy()
        result[some] = some[before] + found - before
        return result


def _runs(differs: np.ndarray, rows: int) -> tuple[Int64s, Int64s]:
    """For rows that differ from those before them: the first row of each row's run, and the one behind its last."""
    if rows == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    first = np.flatnonzero(np.r_[True, differs])
    sizes = np.diff(np.r_[first, rows])
    return np.repeat(first, sizes), np.repeat(first + sizes, sizes)


def _ascending(key: pa.ChunkedArray, *, descending: bool) -> np.ndarray:
    """Numbers that grow in the order of a ranking, with the distances of the values; anything for nulls and NaN."""
    if pa.types.is_floating(key.type):
        values = to_numpy(pc.fill_null(pc.cast(key, pa.float64()), 0.0))
        values = np.where(np.isnan(values), 0.0, values)
        return -values if descending else values
    whole = to_numpy(pc.fill_null(pc.cast(key, pa.int64()), 0))
    return ~whole if descending else whole  # the complement cannot overflow


def _moved(values: np.ndarray, distance: float) -> np.ndarray:
    if values.dtype != np.int64:
        return values + distance
    ends, step = np.iinfo(np.int64), int(distance)
    if step > 0:
        return np.where(values > ends.max - step, ends.max, values + np.int64(step))
    return np.where(values < ends.min - step, ends.min, values + np.int64(step))


def argument_of(around: Around) -> Expr | None:
    """The expression that is needed of each event; a count of events needs none."""
    return around.value if around.nth is not None else next(iter(around.value.children), None)


def seen_around(around: Around, rows: RankedRows, values: pa.ChunkedArray | None, below: Node) -> pa.Array:
    """The answer for each row; `values` are those of its argument, an expression over `below`."""
    first, stop = rows.frame(around)
    if values is None:
        return pa.array(stop - first)
    if around.nth is not None:
        place = first + around.nth - 1 if around.nth > 0 else stop + around.nth
        return _taken(values, place, (place >= first) & (place < stop))
    call = around.value
    assert isinstance(call, AggregateCall)
    if call.function in ("min", "max"):
        return _extreme(values, first, stop, greatest=call.function == "max")
    return _Aggregated(call, values, below).of(first, stop)


def _taken(values: pa.ChunkedArray, place: Int64s, there: np.ndarray) -> pa.Array:
    return _one(values.take(pa.array(np.where(there, place, 0), mask=~there)))


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _extreme(values: pa.ChunkedArray, first: Int64s, stop: Int64s, *, greatest: bool) -> pa.Array:
    """The least or greatest value of runs: the better of two runs of 2^n rows that cover each."""
    place = ranks(pa.table({_VALUE: values}), [(_VALUE, "descending" if greatest else "ascending")])
    place[to_numpy(pc.is_null(values))] = len(place)  # behind all values
    filled = stop > first
    size = np.where(filled, stop - first, 1)
    level = np.frexp(size.astype(np.float64))[1].astype(np.int64) - 1
    best = np.full(len(first), len(place), np.int64)
    table, width = place, 1
    for number in range(int(level.max(initial=0)) + 1):
        some = np.flatnonzero(filled & (level == number))
        best[some] = np.minimum(table[first[some]], table[stop[some] - width])
        table, width = np.minimum(table[:-width], table[width:]), 2 * width
    row = np.empty(len(place) + 1, np.int64)
    row[place] = np.arange(len(place))
    found = best < len(place)
    return _taken(values, row[np.where(found, best, 0)], found)


class _Aggregated:
    """A built-in aggregate of runs of rows."""

    def __init__(self, call: AggregateCall, values: pa.ChunkedArray, below: Node) -> None:
        assert call.argument is not None
        self.call = call
        own = AggregateCall(call.function, col(_VALUE), call.parameters)
        self.layout = Layout(Aggregate(Select(below, ((_VALUE, call.argument),)), (), Snapshot(), ((_VALUE, own),)))
        places = np.arange(len(values))  # the order of the ranking decides what is first and last
        self.rows = Changes(places, places + 1, np.ones(len(values), np.int64), pa.table({_VALUE: values}))

    def of(self, first: Int64s, stop: Int64s) -> pa.Array:
        """The aggregate of each run."""
        if AGGREGATES[self.call.function].adds_up:
            found = self._by_sums(first, stop)
        else:
            pairs = np.r_[0, np.cumsum(stop - first)]
            runs = pairwise(bounded_runs(pairs, _MOST_PAIRS))
            found = pa.concat_arrays([self._by_pairs(first[a:b], stop[a:b]) for a, b in runs])
        none = pa.array([_OF_NONE.get(self.call.function)], found.type)
        place = np.where(stop > first, np.arange(len(first)), len(first))
        return pa.concat_arrays([found, none]).take(pa.array(place))

    def _by_sums(self, first: Int64s, stop: Int64s) -> pa.Array:
        no_keys = pa.table({"none": pa.nulls(len(self.rows))}).select([])
        sums = self.layout.sums_table(self.rows, no_keys)
        columns = {WINDOW: np.arange(len(first)), PART: np.zeros(len(first), np.int8)}
        for name in sums.column_names:  # sums may overflow: the differences of wrapped sums are still right
            total = np.r_[np.int64(0), np.cumsum(to_numpy(sums.column(name)))]
            columns[name] = total[stop] - total[first]
        return self._answers(pa.table(columns), len(first))

    def _by_pairs(self, first: Int64s, stop: Int64s) -> pa.Array:
        number, row = ranges(first, stop - 1)
        rows, numbers = self.rows.take(row), pa.table({WINDOW: number})
        sums = self.layout.sums_table(rows, numbers)
        sums = sums.add_column(0, PART, pa.array(np.zeros(len(rows), np.int8)))
        parts = [compact(part, self.layout, [WINDOW]) for part in [sums, *self.layout.bag_tables(rows, numbers)]]
        return self._answers(concat(parts), len(first))

    def _answers(self, sums: pa.Table, count: int) -> pa.Array:
        """The answer of each run, null for one without rows."""
        found = answers(sums, self.layout, WINDOW)
        return _one(by_window(found, count).column(next(iter(self.layout.node.split[0]))))
