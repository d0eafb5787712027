"""Pairs of rows of two bags that have equal keys and overlapping lifetimes, found without looking at all pairs.

Right rows are put together by key, and those of a key are sorted by start. A left row `[l, r)` overlaps the right rows
of its key that start before r and end after l. Ends are not sorted, so the right rows of a key are divided by duration,
in powers of four: among rows no longer than d, only those that start after `l - d` can reach l. Short events then cost
what they match, and a few that last for ever do not slow them down. Keys with few rows are not divided.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import Int64s, factorize
from headrace.compiled import INT, INTS, NEW_INTS, TABLE, compiled, inlined
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["key_codes", "overlapping", "without_nulls"]

#: Keys with at most so many rows are one run, for any durations.
_FEW = 8
#: Classes of duration: below 4, below 16, and so on; the last one has rows without end.
_CLASSES = 33


def overlapping(
    left: Changes, right: Changes, left_keys: pa.Table, right_keys: pa.Table, groups: int = 0
) -> tuple[Int64s, Int64s]:
    """Row numbers of all pairs that match; of the first `groups` keys, nulls match too."""
    if len(left) == 0 or len(right) == 0:
        none = np.empty(0, np.int64)
        return none, none
    a, b = key_codes(left_keys, right_keys, len(left), groups)
    keys = int(max(a.max(), b.max())) + 1
    rows, starts = _by_key(b, keys, np.arange(len(b)))
    if len(rows) > _FEW and np.diff(starts).max() > _FEW:  # sorted here, because keys with few rows need no sort
        rows, starts = _by_key(b, keys, np.argsort(right.le))
    first, runs = _divided(rows, starts, right.le, right.re)
    others = np.stack([rows, right.le[rows], right.re[rows]], axis=1)
    return _pairs(a, left.le, left.re, first, runs, others)


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


@compiled(INTS, INT, INTS)
def _by_key(codes: Int64s, keys: int, order: Int64s) -> tuple[Int64s, Int64s]:
    """The rows with a key, by key and then in an order; those of key k are `rows[starts[k]:starts[k + 1]]`."""
    starts = np.zeros(keys + 2, np.int64)
    for i in range(len(codes)):
        if codes[i] >= 0:
            starts[codes[i] + 2] += 1
    for k in range(1, keys + 1):
        starts[k + 1] += starts[k]
    rows = np.empty(starts[keys + 1], np.int64)
    for i in range(len(order)):
        code = codes[order[i]]
        if code >= 0:
            rows[starts[code + 1]] = order[i]
            starts[code + 1] += 1
    return rows, starts[: keys + 1]


@compiled(NEW_INTS, INTS, INTS, INTS)
def _divided(rows: Int64s, starts: Int64s, le: Int64s, re: Int64s) -> tuple[Int64s, Int64s]:
    """Put the rows of every key in the order of class and start, in place, and return the runs that they consist of.

    Keys with many rows have them in the order of start. The runs of key k are those from `first[k]` to `first[k + 1]`;
    a run is where its rows begin, where they end, and how long they last at most.
    """
    first, runs, count = np.zeros(len(starts), np.int64), np.empty((len(rows), 3), np.int64), 0
    kinds, space = np.empty(_CLASSES, np.int64), np.empty(len(rows), np.int64)
    for k in range(len(starts) - 1):
        begin, stop = starts[k], starts[k + 1]
        few = stop - begin <= _FEW
        if few:
            _sort_few(rows, begin, stop, le)
        else:
            _divide_many(rows, begin, stop, le, re, kinds, space)
        for kind in range(_CLASSES):
            end = stop if few else kinds[kind]
            if end > begin:
                runs[count, 0], runs[count, 1], runs[count, 2] = begin, end, _longest(rows, begin, end, le, re)
                begin, count = end, count + 1
            if begin == stop:
                break
        first[k + 1] = count
    return first, runs[:count]


@inlined
def _sort_few(rows: Int64s, start: int, stop: int, le: Int64s) -> None:
    for i in range(start + 1, stop):
        row, place = rows[i], i
        while place > start and le[rows[place - 1]] > le[row]:
            rows[place] = rows[place - 1]
            place -= 1
        rows[place] = row


@inlined
def _divide_many(
    rows: Int64s, start: int, stop: int, le: Int64s, re: Int64s, kinds: Int64s, space: Int64s
) -> None:  # fmt: skip
    """Put rows together by class, in the order that they have; `kinds` becomes where each class ends."""
    kinds[:] = 0
    for i in range(start, stop):
        space[i] = rows[i]
        kinds[_class(le[rows[i]], re[rows[i]])] += 1
    total = start
    for kind in range(_CLASSES):
        size = kinds[kind]
        kinds[kind] = total
        total += size
    for i in range(start, stop):
        kind = _class(le[space[i]], re[space[i]])
        rows[kinds[kind]] = space[i]
        kinds[kind] += 1


@inlined
def _class(le: int, re: int) -> int:
    if re == INFINITY:
        return _CLASSES - 1
    # Unsigned numbers hold the difference of any two times.
    duration, kind = (np.uint64(re) - np.uint64(le)) >> np.uint64(2), 0
    while duration:
        duration >>= np.uint64(2)
        kind += 1
    return kind


@inlined
def _longest(rows: Int64s, start: int, stop: int, le: Int64s, re: Int64s) -> np.int64:
    """The longest duration, or `INFINITY`."""
    most = np.uint64(0)
    for i in range(start, stop):
        row = rows[i]
        most = max(most, np.uint64(INFINITY) if re[row] == INFINITY else np.uint64(re[row]) - np.uint64(le[row]))
    return np.int64(min(most, np.uint64(INFINITY)))


@compiled(INTS, INTS, INTS, INTS, TABLE, TABLE)
def _pairs(
    keys: Int64s, le: Int64s, re: Int64s, first: Int64s, runs: Int64s, others: Int64s
) -> tuple[Int64s, Int64s]:  # fmt: skip
    """The pairs of left rows, with these keys and lifetimes, and right rows, each with its number, start and end."""
    i, j, count = np.empty(len(keys) + 16, np.int64), np.empty(len(keys) + 16, np.int64), 0
    for left in range(len(keys)):
        if keys[left] < 0:
            continue
        begins, ends = le[left], re[left]
        for run in range(first[keys[left]], first[keys[left] + 1]):
            place, stop = _reaching(others, runs[run, 0], runs[run, 1], begins, runs[run, 2]), runs[run, 1]
            while place < stop and others[place, 1] < ends:
                if others[place, 2] > begins:
                    if count == len(i):
                        i, j = np.append(i, np.empty(count, np.int64)), np.append(j, np.empty(count, np.int64))
                    i[count], j[count] = left, others[place, 0]
                    count += 1
                place += 1
    return i[:count], j[:count]


@inlined
def _reaching(others: Int64s, start: int, stop: int, time: int, longest: int) -> int:
    """The place of the first row that starts after `time - longest`."""
    if longest == INFINITY or time < NEG_INFINITY + longest:  # before all times
        return start
    earliest = time - longest
    while stop > start:
        middle = (start + stop) // 2
        if others[middle, 1] > earliest:
            stop = middle
        else:
            start = middle + 1
    return start
