"""The parts of lifetimes that no other lifetime covers, found for all events of a batch at once.

Each left row comes with the right rows that match it, as pairs of row numbers. Sorted by left row and right start, the
running maximum of the right ends says how far a left row is covered; there is a gap wherever the next right row starts
later than that, and after the last one. Times are replaced by ranks, so that a left row and a time make one number:
pairs are sorted as plain integers, and a maximum never runs from one left row into the next.
"""

from __future__ import annotations

import numpy as np

from headrace.columnar import Int64s

__all__ = ["uncovered_parts"]


def uncovered_parts(
    start: Int64s, end: Int64s, rows: Int64s, covers: Int64s, cover_start: Int64s, cover_end: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """`(rows, starts, ends)` of the maximal parts of `[start, end)` that are not covered, row by row.

    Pair `p` says that row `rows[p]` is covered from `cover_start[covers[p]]` to `cover_end[covers[p]]`.
    """
    rows, covers = _sorted(rows, covers, cover_start)
    first = np.ones(len(rows), bool)
    first[1:] = rows[1:] != rows[:-1]
    last = np.roll(first, -1)
    # A row is covered as far as the pairs before reach: before the first pair not at all, after the last to the end.
    reached = np.clip(_running_maximum(rows, covers, cover_end), start[rows], end[rows])
    before = np.where(first, start[rows], np.roll(reached, 1))
    begins = np.minimum(cover_start[covers], end[rows])
    covered_to = start.copy()
    covered_to[rows[last]] = reached[last]
    all_rows = np.arange(len(start), dtype=np.int64)
    between, after = before < begins, covered_to < end
    return (
        np.concatenate([rows[between], all_rows[after]]),
        np.concatenate([before[between], covered_to[after]]),
        np.concatenate([begins[between], end[after]]),
    )


def _sorted(rows: Int64s, covers: Int64s, cover_start: Int64s) -> tuple[Int64s, Int64s]:
    """Pairs in the order of rows, and of starts within a row."""
    order = np.argsort(cover_start)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    rows, place = np.divmod(np.sort(rows * len(order) + rank[covers]), max(len(order), 1))
    return rows, order[place]


def _running_maximum(rows: Int64s, covers: Int64s, cover_end: Int64s) -> Int64s:
    """The latest end so far of each row's pairs."""
    ends, rank = np.unique(cover_end, return_inverse=True)
    place = rows * len(ends) + rank.astype(np.int64)[covers]
    return ends[np.maximum.accumulate(place) - rows * len(ends)]
