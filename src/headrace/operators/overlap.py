"""Which rows of two bags have equal keys and overlapping lifetimes, found without looking at all pairs.

Right rows are sorted by key and start. A left row `[l, r)` overlaps the right rows of its key that start before r and
end after l. Ends are not sorted, so the right rows are first divided by duration, in powers of four: among rows no
longer than d, only those that start after `l - d` can reach l. Short events then cost what they match, and a few that
last for ever do not slow them down.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import factorize, to_numpy
from headrace.time import INFINITY, add

__all__ = ["overlapping"]

Int64s = NDArray[np.int64]


def overlapping(left: Changes, right: Changes, left_keys: pa.Table, right_keys: pa.Table) -> tuple[Int64s, Int64s]:
    """Row numbers of all pairs that match."""
    none = np.empty(0, np.int64)
    if len(left) == 0 or len(right) == 0:
        return none, none
    a, b = _codes(left_keys, right_keys, len(left))
    pairs = [_within(left, right, a, b, rows) for rows in _by_duration(right, b)]
    i, j = (np.concatenate(parts) if parts else none for parts in zip(*pairs, strict=True)) if pairs else (none, none)
    meet = (left.re[i] > right.le[j]) & (right.re[j] > left.le[i])
    return i[meet], j[meet]


def _codes(left_keys: pa.Table, right_keys: pa.Table, size: int) -> tuple[Int64s, Int64s]:
    """The key of every row as a number; -1 for keys with a null, which match nothing."""
    if left_keys.num_columns == 0:
        return np.zeros(size, np.int64), np.zeros(right_keys.num_rows, np.int64)
    names = [f"k{i}" for i in range(left_keys.num_columns)]
    both = pa.concat_tables(
        [left_keys.rename_columns(names), right_keys.rename_columns(names)], promote_options="permissive"
    )
    codes, _ = factorize(both)
    for column in both.columns:
        if column.null_count:
            codes = np.where(to_numpy(pc.is_null(column)), -1, codes)
    return codes[:size], codes[size:]


def _by_duration(right: Changes, codes: Int64s) -> list[Int64s]:
    """Row numbers of the right side with a key, by class of duration."""
    rows = np.flatnonzero(codes >= 0)
    endless = right.re[rows] == INFINITY
    # Differences of 64-bit times may need 65 bits: floats are exact enough to tell classes apart.
    length = right.re[rows].astype(np.float64) - right.le[rows].astype(np.float64)
    kind = np.where(endless, 99, np.log2(np.maximum(length, 1.0)) // 2)
    return [rows[kind == k] for k in np.unique(kind)]


def _within(left: Changes, right: Changes, a: Int64s, b: Int64s, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Candidate pairs of the left rows with these right rows, all of about the same duration."""
    longest = _longest(right, rows)
    earliest = add(left.le, -longest) if longest < INFINITY else np.full(len(left), -INFINITY, np.int64)
    # Times as ranks, so that key and time make one sortable number.
    times, ranks = np.unique(np.concatenate([right.le[rows], earliest, left.re]), return_inverse=True)
    starts, low, high = np.split(ranks.astype(np.int64), [len(rows), len(rows) + len(left)])
    place = b[rows] * len(times) + starts
    order = np.argsort(place, kind="stable")
    first = np.searchsorted(place[order], a * len(times) + low, "left")
    last = np.searchsorted(place[order], a * len(times) + high, "left")
    count = np.where(a >= 0, np.maximum(last - first, 0), 0)
    i = np.repeat(np.arange(len(left)), count)
    offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return i, rows[order[first[i] + offset]]


def _longest(right: Changes, rows: Int64s) -> int:
    """At least the longest duration; a little more where floats are too coarse to tell."""
    if (right.re[rows] == INFINITY).any():
        return INFINITY
    longest = float((right.re[rows].astype(np.float64) - right.le[rows].astype(np.float64)).max())
    return min(int(longest) + 1 + int(longest / 2**50), INFINITY)
