"""Pairs of rows of two bags that have equal keys and overlapping lifetimes, found without looking at all pairs.

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
from headrace.columnar import Int64s, factorize
from headrace.time import INFINITY, add

__all__ = ["key_codes", "overlapping", "without_nulls"]


def overlapping(
    left: Changes, right: Changes, left_keys: pa.Table, right_keys: pa.Table, groups: int = 0
) -> tuple[Int64s, Int64s]:
    """Row numbers of all pairs that match; of the first `groups` keys, nulls match too."""
    none = np.empty(0, np.int64)
    if len(left) == 0 or len(right) == 0:
        return none, none
    a, b = key_codes(left_keys, right_keys, len(left), groups)
    pairs = [_within(left, right, a, b, rows) for rows in _by_duration(right, b)]
    i, j = (np.concatenate(parts) if parts else none for parts in zip(*pairs, strict=True)) if pairs else (none, none)
    meet = (left.re[i] > right.le[j]) & (right.re[j] > left.le[i])
    return i[meet], j[meet]


def key_codes(left_keys: pa.Table, right_keys: pa.Table, size: int, groups: int) -> tuple[Int64s, Int64s]:
    """The key of every row as a number, in both tables alike; -1 for keys with a null, which match nothing.

    `size` is how many rows the left one has. Of the first `groups` keys, nulls match too.
    """
    if left_keys.num_columns == 0:
        return np.zeros(size, np.int64), np.zeros(right_keys.num_rows, np.int64)
    names = [f"k{i}" for i in range(left_keys.num_columns)]
    both = pa.concat_tables(
        [left_keys.rename_columns(names), right_keys.rename_columns(names)], promote_options="permissive"
    )
    codes, _ = factorize(both)
    keyed = without_nulls(both.select(names[groups:]))
    if keyed is not None:
        codes = np.where(keyed, codes, -1)
    return codes[:size], codes[size:]


def without_nulls(keys: pa.Table) -> NDArray[np.bool_] | None:
    """A mask of the rows without nulls; None if there are no nulls."""
    masks = [np.asarray(pc.is_valid(column)) for column in keys.columns if column.null_count]
    return np.logical_and.reduce(masks) if masks else None


def _by_duration(right: Changes, codes: Int64s) -> list[Int64s]:
    """Row numbers of the right side with a key, by class of duration."""
    rows = np.flatnonzero(codes >= 0)
    endless = right.re[rows] == INFINITY
    kind = np.where(endless, 99, np.log2(_durations(right, rows).astype(np.float64)) // 2)
    return [rows[kind == k] for k in np.unique(kind)]


def _within(left: Changes, right: Changes, a: Int64s, b: Int64s, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Candidate pairs of the left rows with these right rows, all of about the same duration."""
    longest = _longest(right, rows)
    earliest = add(left.le, -longest) if longest < INFINITY else np.full(len(left), -INFINITY, np.int64)
    starts, low, high, span = _ranked(right.le[rows], earliest, left.re, int(max(a.max(), b.max())) + 1)
    place = b[rows] * span + starts
    order = np.argsort(place, kind="stable")
    place = place[order]
    first = np.searchsorted(place, a * span + low, "left")
    last = np.searchsorted(place, a * span + high, "left")
    count = np.where(a >= 0, np.maximum(last - first, 0), 0)
    i = np.repeat(np.arange(len(left)), count)
    offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return i, rows[order[first[i] + offset]]


def _ranked(starts: Int64s, low: Int64s, high: Int64s, keys: int) -> tuple[Int64s, Int64s, Int64s, int]:
    """Times as small numbers in the same order, and how many there are, so that key and time make one number.

    Times before or after all starts need no exact value. Mostly all times fit such numbers; otherwise they are ranked.
    """
    begin, end = int(starts.min()), int(starts.max()) + 1
    low, high = np.clip(low, begin, end), np.clip(high, begin, end)
    if (end - begin + 1) * keys < 2**62:
        return starts - begin, low - begin, high - begin, end - begin + 1
    times = np.unique(starts)
    starts, low, high = (np.searchsorted(times, part) for part in (starts, low, high))
    return starts, low, high, len(times) + 1


def _longest(right: Changes, rows: Int64s) -> int:
    """The longest duration."""
    return INFINITY if (right.re[rows] == INFINITY).any() else min(int(_durations(right, rows).max()), INFINITY)


def _durations(right: Changes, rows: Int64s) -> NDArray[np.uint64]:
    """The durations of these rows, unsigned: such numbers hold the difference of any two times exactly."""
    return right.re[rows].view(np.uint64) - right.le[rows].view(np.uint64)
