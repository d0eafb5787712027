"""Functions that native code calls for tables of many rows. They run compiled, never as Python.

A table is an array of words, `width` for each of its rows, in their order: a word for each column, read as a whole
number or as a decimal, and behind them the *flags*, whose bits say which columns are NULL. A row is called by the
place of its first word; `used` is where the last ends. A row that was deleted stays where it is, with flags of -1,
until room is wanted. Where a table has a key, `slots` is its index, by open addressing: a slot has a row, or -1; `size`
of them, a power of two, are in use. Bits of `keys` say which columns are the key, those of `decimals` which of all are
decimals. Behind the last row there is always room for one more, where the row that is looked for is put.

All of it works on arrays of words and on whole numbers, so that each function is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["LEAVING", "ROW_FUNCTIONS"]

Words = Any
#: Marks a row that a statement deletes, until its end: the statement still reads all rows.
LEAVING = 1 << 62
_FACTOR, _NAN, _NULL = np.uint64(0x9E3779B97F4A7C15), np.uint64(0x7FF8000000000001), np.uint64(0x5851F42D4C957F2D)
_SHIFT = np.uint64(29)


def copied(words: Words, to: int, other: Words, begin: int, count: int) -> None:
    """Copy words of one array into another, or to an earlier place of the same."""
    for place in range(count):
        words[to + place] = other[begin + place]


def longer(words: Words, size: int) -> Words:
    """The array, enlarged to at least this size."""
    if len(words) >= size:
        return words
    found = np.empty(max(2 * len(words), size), np.int64)
    copied(found, 0, words, 0, len(words))
    return found


def packed(words: Words, used: int, width: int) -> int:
    """Move the remaining rows together; return where the last ends."""
    to = 0
    for row in range(0, used, width):
        if words[row + width - 1] >= 0:
            if to < row:
                copied(words, to, words, row, width)
            to += width
    return to


def roomier(words: Words, used: int, width: int) -> tuple[Words, int]:
    """A full table without a key, enlarged; and where its last row ends."""
    used = packed(words, used, width)
    return longer(words, 2 * used + 2 * width), used


def row_of(words: Words, floats: Words, slots: Words, size: int, row: int, width: int, keys: int, decimals: int) -> int:
    """The row with the same key as another one; if there is none, -1 - s for the slot s where it would be."""
    mixed, flags = np.uint64(0), words[row + width - 1]
    for column in range(width - 1):
        if (keys >> column) & 1:
            word = np.uint64(words[row + column])
            if (flags >> column) & 1:
                word = _NULL
            elif (decimals >> column) & 1:
                value = floats[row + column]
                if value == 0:
                    word = np.uint64(0)
                elif value != value:  # noqa: PLR0124 - NaN
                    word = _NAN
            mixed = (mixed ^ word) * _FACTOR
            mixed ^= mixed >> _SHIFT
    at = np.int64(mixed) & (size - 1)
    while slots[at] >= 0:
        other = slots[at]
        if words[other + width - 1] >= 0 and agree(words, floats, row, other, width, keys, decimals):
            return other  # type: ignore[no-any-return]
        at = (at + 1) & (size - 1)
    return -1 - at  # type: ignore[return-value]


def agree(words: Words, floats: Words, row: int, other: int, width: int, keys: int, decimals: int) -> bool:
    """Whether two rows have the same key; NULL is NULL here, and NaN is NaN."""
    for column in range(width - 1):
        if (keys >> column) & 1:
            mine, theirs = (words[row + width - 1] >> column) & 1, (words[other + width - 1] >> column) & 1
            if mine != theirs:
                return False
            if mine == 0 and words[row + column] != words[other + column]:
                if (decimals >> column) & 1 == 0:
                    return False
                a, b = floats[row + column], floats[other + column]
                if a != b and not (a != a and b != b):  # noqa: PLR0124 - NaN
                    return False
    return True


def indexed(words: Words, slots: Words, size: int, used: int, width: int, keys: int, decimals: int) -> int:
    """Rebuild the index. Of rows with equal keys the last stays, at the place of the first; return how many go."""
    floats, gone = words.view(np.float64), 0
    for slot in range(size):
        slots[slot] = -1
    for row in range(0, used, width):
        if words[row + width - 1] >= 0:
            at = row_of(words, floats, slots, size, row, width, keys, decimals)
            if at >= 0:
                copied(words, at, words, row, width)
                words[row + width - 1] = -1
                gone += 1
            else:
                slots[-1 - at] = row
    return gone


def keyed_room(
    words: Words, slots: Words, size: int, used: int, width: int, keys: int, decimals: int
) -> tuple[Words, Words, int, int]:
    """A table with a key, with room for as many rows as it has; its index, the size of that, and where it ends."""
    used = packed(words, used, width)
    while size < 4 * (used // width) + 8:
        size *= 2
    words = longer(words, size // 2 * width)
    if len(slots) < size:
        slots = np.empty(size, np.int64)
    indexed(words, slots, size, used, width, keys, decimals)
    return words, slots, size, used


def swept(words: Words, used: int, width: int) -> int:
    """Delete the marked rows; return their number."""
    gone = 0
    for last in range(width - 1, used, width):
        if words[last] >= 0 and words[last] & LEAVING:
            words[last] = -1
            gone += 1
    return gone


def kept(saved: Words, at: int, words: Words, used: int, width: int) -> int:
    """Copy the remaining rows into a state; return the position after them."""
    for row in range(0, used, width):
        if words[row + width - 1] >= 0:
            copied(saved, at, words, row, width)
            at += width
    return at


def summed(low: Any, high: int, value: int) -> tuple[Any, int]:
    """A sum of LONGs in twice their width, with one more."""
    found = low + np.uint64(value)
    return found, high + (1 if found < low else 0) - (1 if value < 0 else 0)


def narrowed(low: Any, high: int) -> tuple[Any, bool]:
    """Such a sum as a LONG, NULL if it does not fit."""
    found = np.int64(low)
    return found, high != (-1 if found < 0 else 0)


#: The functions that native code may call for tables.
ROW_FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        copied, longer, packed, roomier, row_of, agree, indexed, keyed_room, swept, kept, summed, narrowed
    )
}  # fmt: skip
