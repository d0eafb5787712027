"""Progress by key: a silent key holds nobody back (rule 3.2).

With `hr.advance(per="sensor", idle="30 s")` the rows of one key are a channel. The promise of the input follows the
key that is farthest behind, of those that are not *idle*: a key is idle if its highest time is `idle` or more before
the highest of all keys. So time is that of the data, and the same rows always make the same promises. An idle key is
forgotten: whether its earlier times are known makes no difference any more.

Keys are texts, the JSON of their values, because they are part of reports and commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.columnar import Int64s, canonical_floats, to_numpy
from headrace.compiled import INT, INTS, NEW_INTS, TRUTHS, compiled, inlined
from headrace.plan.policies import Advance, ProgressPolicy
from headrace.time import NEG_INFINITY

__all__ = ["KeyTimes", "active", "farthest_behind"]


def active(times: Mapping[str, int], idle: int) -> dict[str, int]:
    """The keys that are not idle, with their highest times."""
    high = max(times.values(), default=NEG_INFINITY)
    return {key: time for key, time in times.items() if time > max(high - idle, NEG_INFINITY)}


def farthest_behind(times: Iterable[tuple[str, int]]) -> str | None:
    """The key that holds back its input."""
    return min(times, key=lambda pair: (pair[1], pair[0]), default=(None,))[0]


class KeyTimes:
    """The highest times of the keys of one channel."""

    def __init__(self, column: str, idle: int, known: Iterable[tuple[str, int]]) -> None:
        self.column, self.idle = column, min(idle, 2**62)  # so that no time less it leaves 64 bits
        times = dict(known)
        self._numbers = {key: number for number, key in enumerate(times)}
        self._times = np.array([*times.values()], np.int64)

    @classmethod
    def of(cls, policy: ProgressPolicy, known: Iterable[tuple[str, int]]) -> KeyTimes | None:
        """Those of an input with progress by key; None for others."""
        if not isinstance(policy, Advance) or policy.per is None or policy.idle is None:
            return None
        return cls(policy.per, policy.idle, known)

    def take(self, table: pa.Table, le: Int64s, counted: NDArray[np.bool_]) -> Int64s:
        """The time of the key that is farthest behind, after each row."""
        keys = canonical_floats(table.select([self.column])).column(0)  # 0.0 and -0.0 are one key
        encoded = keys.combine_chunks().dictionary_encode(null_encoding="encode")
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        texts = [json.dumps(value, default=str, ensure_ascii=False) for value in encoded.dictionary.to_pylist()]
        numbers = np.array([self._numbers.setdefault(text, len(self._numbers)) for text in texts], np.int64)
        new = np.full(len(self._numbers) - len(self._times), NEG_INFINITY, np.int64)
        self._times = np.r_[self._times, new]
        codes = numbers[to_numpy(encoded.indices).astype(np.int64)] if len(numbers) else np.empty(0, np.int64)
        behind = np.empty(len(le), np.int64)
        heap = np.empty(2 * (len(self._times) + len(le)), np.int64)
        _follow(np.ascontiguousarray(codes), np.ascontiguousarray(le), counted, self.idle, self._times, heap, behind)
        return behind

    def active(self) -> dict[str, int]:
        """The keys that are not idle."""
        return active({key: int(self._times[n]) for key, n in self._numbers.items()}, self.idle)


@inlined
def _push(heap: Int64s, size: int, key: int, time: int) -> None:
    """Add a key and its time to a heap of so many entries."""
    place = size
    while place > 0 and heap[2 * ((place - 1) // 2) + 1] > time:
        above = (place - 1) // 2
        heap[2 * place], heap[2 * place + 1] = heap[2 * above], heap[2 * above + 1]
        place = above
    heap[2 * place], heap[2 * place + 1] = key, time


@inlined
def _replace_first(heap: Int64s, size: int) -> None:
    """Move the last entry, which has the number `size`, to the place of the first one, and then to its own."""
    key, time, place = heap[2 * size], heap[2 * size + 1], 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and heap[2 * below + 3] < heap[2 * below + 1]:
            below += 1
        if heap[2 * below + 1] >= time:
            break
        heap[2 * place], heap[2 * place + 1] = heap[2 * below], heap[2 * below + 1]
        place = below
    heap[2 * place], heap[2 * place + 1] = key, time


@compiled(INTS, INTS, TRUTHS, INT, NEW_INTS, NEW_INTS, NEW_INTS)
def _follow(
    codes: Int64s, le: Int64s, counted: NDArray[np.bool_], idle: int, times: Int64s, heap: Int64s, behind: Int64s
) -> None:
    """Fill the least time of the keys that are not idle, after each row.

    `heap` is a heap of keys and times in turn, the least time first. A key that moves on is added again; an entry that
    its key has left, or that is idle, is removed when it comes to the front. So a row costs the logarithm of the keys.
    """
    high, size = NEG_INFINITY, 0
    for key in range(len(times)):
        high = max(high, times[key])
        if times[key] > NEG_INFINITY:
            _push(heap, size, key, times[key])
            size += 1
    for i in range(len(le)):
        if counted[i] and le[i] > times[codes[i]]:
            times[codes[i]] = le[i]
            high = max(high, le[i])
            _push(heap, size, codes[i], le[i])
            size += 1
        while size > 0 and (heap[1] != times[heap[0]] or heap[1] <= high - idle):
            size -= 1
            _replace_first(heap, size)
        behind[i] = heap[1] if size > 0 else NEG_INFINITY
