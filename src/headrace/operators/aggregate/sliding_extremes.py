"""The least and greatest values of overlapping windows, without merging every run into every window of it.

They cannot be subtracted, so they do not come from steps as sums do (`overlapping.py`). But nothing is taken back here,
and a row that has *begun* is in the next window that becomes visible and in all others up to its last one. So it can be
forgotten as soon as its group has another that lasts as long and is at least as good: only a *staircase* remains, where
rows that last longer are worse. It has about ln(n) steps of n rows in any order, and n only if values rise or fall all
the time. Rows of later windows (the skew guard, `point_at_end`) wait until they begin.

The answers of new windows are found from the best value on: a row answers those windows of its run that have no answer
yet. So each window is looked at once, however large it is and however many rows it has.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.columnar import Bools, Int64s, concat, factorize, hash_rows, to_numpy
from headrace.compiled import INTS, NEW_INTS, NEW_TRUTHS, compiled
from headrace.operators.aggregate.accumulators import Layout
from headrace.operators.aggregate.combine import FIRST, LAST, merged_column
from headrace.plan.windows import ENDLESS, Grid
from headrace.trace import HASH, TIME, Trace

__all__ = ["SlidingExtremes"]


class SlidingExtremes:
    """The staircases of all groups, and the answers of windows that become visible."""

    def __init__(self, layout: Layout, window: Grid) -> None:
        self.keys, self.columns, self.window = layout.keys, layout.extreme_columns, window
        #: The last visible window.
        self.visible = -ENDLESS
        self.trace = Trace(lambda rows: self._with_hashes(self._staircases(rows.drop_columns([HASH, TIME]))))

    def add(self, rows: pa.Table) -> None:
        """Keep what windows that are not visible need of new rows."""
        later = rows.filter(pa.array(to_numpy(rows.column(LAST)) > self.visible))
        if self.columns and later.num_rows:
            table = self._with_hashes(self._staircases(later.select([*self.keys, FIRST, LAST, *self.columns])))
            hashes, times = (to_numpy(table.column(name)) for name in (HASH, TIME))
            self.trace.append(table.drop_columns([HASH, TIME]), hashes.view(np.uint64), times)

    def _with_hashes(self, rows: pa.Table) -> pa.Table:
        """With the hash of the group: staircases are made of all rows of a group that meet."""
        hashes = hash_rows(rows.select(self.keys)) if self.keys else np.zeros(rows.num_rows, np.uint64)
        times = self.window.end(to_numpy(rows.column(LAST)))
        return rows.append_column(HASH, pa.array(hashes)).append_column(TIME, pa.array(times))

    def _staircases(self, rows: pa.Table) -> pa.Table:
        """Without the rows of which a longer one is at least as good in every column."""
        first = to_numpy(rows.column(FIRST))
        begun = np.where(first <= self.visible + 1, -ENDLESS, first)
        rows = rows.set_column(rows.schema.get_field_index(FIRST), FIRST, pa.array(begun))
        by = [*self.keys, FIRST, LAST]
        codes, first = factorize(rows.select(by))
        table = rows.select(by).take(pa.array(first))
        for name in self.columns:
            table = table.append_column(name, merged_column(name, rows.column(name), codes, len(first)))
        groups, _ = factorize(table.select([*self.keys, FIRST]))
        # Of equal values the longest comes first, and is the better one.
        order = np.lexsort((-to_numpy(table.column(LAST)), groups))
        table, groups = table.take(pa.array(order)), groups[order]
        needed = np.zeros(table.num_rows, bool)
        for name in self.columns:
            ranks = np.full(table.num_rows, table.num_rows, np.int64)
            best_first = _best_first(table.column(name), name)
            ranks[best_first] = np.arange(len(best_first))
            _mark_steps(groups, ranks, needed)
        return table.filter(pa.array(needed))

    def with_extremes(self, windows: pa.Table, numbers: Int64s, new: pa.Table | None) -> pa.Table:
        """New windows, the numbers of which are in order in each group, with their values, of kept and new rows."""
        size = windows.num_rows
        parts = [part for part in (self.trace.scan(), new) if part is not None]
        if not self.columns or not parts:
            for name, kind in self.columns.items():  # only nulls
                windows = windows.append_column(name, pa.nulls(size, kind))
            return windows
        rows = concat([part.select([*self.keys, FIRST, LAST, *self.columns]) for part in parts])
        groups = np.zeros(size + rows.num_rows, np.int64)
        if self.keys:
            groups, _ = factorize(pa.concat_tables([windows.select(self.keys), rows.select(self.keys)]))
        begins = np.searchsorted(groups[:size], np.arange(int(groups.max(initial=0)) + 2))
        first, last = to_numpy(rows.column(FIRST)), to_numpy(rows.column(LAST))
        for name in self.columns:
            column, best = rows.column(name).combine_chunks(), np.full(size, -1, np.int64)
            _answer(_best_first(column, name), groups[size:], first, last, begins, numbers, np.arange(size + 1), best)
            windows = windows.append_column(name, column.take(pa.array(best, mask=best < 0)))
        return windows


def _best_first(column: pa.ChunkedArray | pa.Array, name: str) -> Int64s:
    """The rows with a value, the best first; rows of equal values stay in their order."""
    how = "descending" if name.endswith("max") else "ascending"
    order = to_numpy(pc.sort_indices(column, sort_keys=[("", how)])).view(np.int64)
    return order[: len(order) - column.null_count]


@compiled(INTS, INTS, NEW_TRUTHS)
def _mark_steps(groups: Int64s, ranks: Int64s, needed: Bools) -> None:
    """Mark the rows that are better than all rows before them in their group; rows without a value are never."""
    best = len(ranks)
    for i in range(len(groups)):
        if i > 0 and groups[i] != groups[i - 1]:
            best = len(ranks)
        if ranks[i] < best:
            best = ranks[i]
            needed[i] = True


@compiled(INTS, INTS, INTS, INTS, INTS, INTS, NEW_INTS, NEW_INTS)
def _answer(
    order: Int64s, groups: Int64s, first: Int64s, last: Int64s, begins: Int64s, windows: Int64s,
    following: Int64s, best: NDArray[np.int64],
) -> None:  # fmt: skip
    """The best row for each window: the first in `order` whose run contains it.

    The windows of group g are at `begins[g]..begins[g + 1] - 1`, in order. `following` leads from a window to the next
    one without an answer, itself if it has none.
    """
    for row in order:
        low, end = begins[groups[row]], begins[groups[row] + 1]
        high = end
        while low < high:  # the first window that is not before the run
            middle = (low + high) // 2
            if windows[middle] < first[row]:
                low = middle + 1
            else:
                high = middle
        while True:
            while following[low] != low:
                following[low] = following[following[low]]
                low = following[low]
            if low >= end or windows[low] > last[row]:
                break
            best[low] = row
            following[low] = low + 1
