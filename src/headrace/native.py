"""Loops over numbers, compiled by Numba: what NumPy needs several passes or a sort for.

A function declares the types of its arguments, so it is compiled once, when it is first called, and not again for
arrays that cannot be written to. The machine code is kept on disk beside the source, or in the user's cache folder; it
runs without the GIL.

Codes number equal values from 0 on in the order of their first rows. They are found with a table: of all numbers in the
range if it is small, else a hash table that grows, so that few distinct values need few places in the processor's
cache.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

__all__ = [
    "BYTES", "FLOATS", "INT", "INTS", "NEW_FLOATS", "NEW_INTS", "NEW_TABLE", "NEW_TRUTHS", "TABLE", "TRUTHS",
    "add_by_code", "compiled", "dense_codes", "ends", "hashed_codes", "short_texts", "with_digit",
]  # fmt: skip

Int64s = NDArray[np.int64]
_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Arguments that are read.
INT = types.int64
INTS = types.Array(types.int64, 1, "C", readonly=True)
FLOATS = types.Array(types.float64, 1, "C", readonly=True)
TRUTHS = types.Array(types.boolean, 1, "C", readonly=True)
OFFSETS = types.Array(types.int32, 1, "C", readonly=True)
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
TABLE = types.Array(types.int64, 2, "C", readonly=True)
#: Arguments that are written to.
NEW_INTS = types.Array(types.int64, 1, "C")
NEW_FLOATS = types.Array(types.float64, 1, "C")
NEW_TRUTHS = types.Array(types.boolean, 1, "C")
NEW_TABLE = types.Array(types.int64, 2, "C")


def compiled(*takes: types.Type) -> Callable[[_Function], _Function]:
    """Compile a function for arguments of these types when it is first called."""

    def wrap(function: _Function) -> _Function:
        return cast("_Function", update_wrapper(_Compiled(function, takes), function))

    return wrap


class _Compiled:
    """A function that is compiled, or read from the disk, by its first call."""

    def __init__(self, function: Callable[..., Any], takes: tuple[types.Type, ...]) -> None:
        self._function, self._takes = function, takes
        self._code: Any = None

    def __call__(self, *args: Any) -> Any:
        if self._code is None:
            self._code = self._compile()
        return self._code(*args)

    def _compile(self) -> Any:
        options: Any = {"error_model": "numpy", "nogil": True}
        try:
            return njit(self._takes, cache=True, **options)(self._function)
        except RuntimeError:  # there is no folder for the cache
            return njit(self._takes, **options)(self._function)


@compiled(INTS)
def ends(values: Int64s) -> tuple[int, int]:
    """The least and the greatest of some numbers, in one pass; there is at least one."""
    low = high = values[0]
    for value in values:
        low = min(low, value)
        high = max(high, value)
    return low, high


@compiled(INTS, INT, INTS, INT, INT)
def with_digit(numbers: Int64s, low: int, digits: Int64s, least: int, span: int) -> Int64s:
    """The numbers, counted from `low`, with another digit `digits - least` of base `span`."""
    result = np.empty(len(numbers), np.int64)
    for i in range(len(numbers)):
        result[i] = (numbers[i] - low) * span + (digits[i] - least)
    return result


@compiled(INTS, INT, INT, NEW_INTS, NEW_INTS)
def dense_codes(numbers: Int64s, low: int, size: int, codes: Int64s, first: Int64s) -> int:
    """Fill the codes of numbers `low..low+size-1`, and the first row of each code; return how many there are."""
    table = np.zeros(size, np.int32)
    count = 0
    for i in range(len(numbers)):
        place = numbers[i] - low
        code = table[place]
        if code == 0:
            first[count] = i
            count += 1
            code = table[place] = count
        codes[i] = code - 1
    return count


@compiled(INTS, NEW_INTS, NEW_INTS)
def hashed_codes(numbers: Int64s, codes: Int64s, first: Int64s) -> int:
    """The same for any numbers."""
    mix, n = np.uint64(0x9E3779B97F4A7C15), len(numbers)
    count = i = 0
    bits = 10
    while True:  # with a table of four times the places, when it is half full
        keys, table = np.empty(1 << bits, np.int64), np.zeros(1 << bits, np.int32)
        shift, mask, most = np.uint64(64 - bits), (1 << bits) - 1, 1 << (bits - 1)
        for c in range(count):
            number = numbers[first[c]]
            place = np.int64((np.uint64(number) * mix) >> shift)
            while table[place] != 0:
                place = (place + 1) & mask
            keys[place] = number
            table[place] = c + 1
        while i < n and count < most:
            number = numbers[i]
            place = np.int64((np.uint64(number) * mix) >> shift)
            while table[place] != 0 and keys[place] != number:
                place = (place + 1) & mask
            code = table[place]
            if code == 0:
                first[count] = i
                count += 1
                code = count
                keys[place] = number
                table[place] = code
            codes[i] = code - 1
            i += 1
        if i == n:
            return count
        bits += 2


@compiled(OFFSETS, BYTES, NEW_INTS)
def short_texts(offsets: NDArray[np.int32], data: NDArray[np.uint8], numbers: Int64s) -> bool:
    """A number for each text `data[offsets[i]:offsets[i + 1]]`: its bytes and its length.

    False if a text has more than seven bytes.
    """
    for i in range(len(numbers)):
        start, end = offsets[i], offsets[i + 1]
        if end - start > 7:
            return False
        number = np.int64(end - start)
        for j in range(start, end):
            number = (number << 8) | np.int64(data[j])
        numbers[i] = number
    return True


@compiled(INTS, INTS, NEW_INTS)
def add_by_code(codes: Int64s, values: Int64s, sums: Int64s) -> None:
    """Add each value to the sum of its code."""
    for i in range(len(codes)):
        sums[codes[i]] += values[i]
