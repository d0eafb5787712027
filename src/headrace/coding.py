"""Codes that number equal values from 0 on, in the order of their first rows, and sums per code.

Codes are found with a table: of all numbers in the range if it is small, else a hash table that grows, so that few
distinct values need few places in the processor's cache.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.compiled import BYTES, INT, INTS, NEW_INTS, OFFSETS, compiled

__all__ = ["add_by_code", "dense_codes", "ends", "hashed_codes", "short_texts", "with_digit"]

Int64s = NDArray[np.int64]


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
