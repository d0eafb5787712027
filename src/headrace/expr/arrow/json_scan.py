"""The scan of JSON texts, compiled by Numba: checks whole texts, and finds the value at the end of a path.

A text is read as RFC 8259 has it: one value, with spaces around it and nothing else. A text nested more than `DEEPEST`
deep is taken as no JSON. Of equal keys the last one counts.
"""

# ruff: noqa: C901, PLR0912, PLR1714, SIM110 - one pass over bytes, and what Numba compiles well

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.columnar import Int64s
from headrace.compiled import BYTES, INT, INTS, NEW_BYTES, NEW_INTS, OFFSETS, compiled, inlined

__all__ = ["ARRAY", "BAD", "DEEPEST", "KEY", "MISSING", "NULL", "NUMBER", "OBJECT", "TEXT", "TRUTH", "copied", "find"]

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int32]

#: The kinds of what is found: no JSON text, nothing there, and the kinds of values.
BAD, MISSING, OBJECT, ARRAY, TEXT, NUMBER, TRUTH, NULL = range(8)
#: The place of a step that is a key.
KEY = -(2**40)
DEEPEST = 500
_ESCAPES = np.frombuffer(b'"\\/bfnrt', np.uint8)
_ESCAPED = np.frombuffer(b'"\\/\b\f\n\r\t', np.uint8)


@inlined
def _space(data: Bytes, i: int, end: int) -> int:
    while i < end and (data[i] == 32 or data[i] == 10 or data[i] == 13 or data[i] == 9):
        i += 1
    return i


@inlined
def _hex(data: Bytes, i: int) -> int:
    """The number of four hexadecimal digits, or -1."""
    value = 0
    for j in range(i, i + 4):
        c = int(data[j])
        if 48 <= c <= 57:
            digit = c - 48
        elif 97 <= (c | 32) <= 102:
            digit = (c | 32) - 87
        else:
            return -1
        value = value * 16 + digit
    return value


@inlined
def _text(data: Bytes, i: int, end: int) -> int:
    """Behind a text that begins at `i`, or -1."""
    i += 1
    while i < end:
        c = data[i]
        if c == 34:
            return i + 1
        if c < 32:
            return -1
        if c == 92:
            i += 1
            if i >= end:
                return -1
            c = data[i]
            if c == 117:
                if i + 4 >= end or _hex(data, i + 1) < 0:
                    return -1
                i += 4
            elif not (c == 34 or c == 92 or c == 47 or c == 98 or c == 102 or c == 110 or c == 114 or c == 116):
                return -1
        i += 1
    return -1


@inlined
def _digits(data: Bytes, i: int, end: int) -> int:
    """Behind at least one digit, or -1."""
    first = i
    while i < end and 48 <= data[i] <= 57:
        i += 1
    return i if i > first else -1


@inlined
def _number(data: Bytes, i: int, end: int) -> int:
    if data[i] == 45:
        i += 1
    if i < end and data[i] == 48:
        i += 1
    else:
        i = _digits(data, i, end)
        if i < 0:
            return -1
    if i < end and data[i] == 46:
        i = _digits(data, i + 1, end)
        if i < 0:
            return -1
    if i < end and (data[i] | 32) == 101:
        i += 1
        if i < end and (data[i] == 43 or data[i] == 45):
            i += 1
        i = _digits(data, i, end)
    return i


@inlined
def _word(data: Bytes, i: int, end: int) -> int:
    """Behind `true`, `false` or `null`, or -1."""
    if i + 4 <= end and data[i] == 116 and data[i + 1] == 114 and data[i + 2] == 117 and data[i + 3] == 101:
        return i + 4
    if i + 4 <= end and data[i] == 110 and data[i + 1] == 117 and data[i + 2] == 108 and data[i + 3] == 108:
        return i + 4
    if i + 5 <= end and data[i] == 102 and data[i + 1] == 97 and data[i + 2] == 108 and data[i + 3] == 115:
        return i + 5 if data[i + 4] == 101 else -1
    return -1


@inlined
def _key(data: Bytes, i: int, end: int) -> int:
    """Behind the colon of a key, or -1."""
    if i >= end or data[i] != 34:
        return -1
    i = _text(data, i, end)
    if i < 0:
        return -1
    i = _space(data, i, end)
    return i + 1 if i < end and data[i] == 58 else -1


@inlined
def _value(data: Bytes, i: int, end: int, closing: Int64s) -> int:
    """Behind the value that begins at `i` or behind spaces, or -1; `closing` has room for `DEEPEST` brackets."""
    depth = 0
    while True:
        i = _space(data, i, end)
        if i >= end:
            return -1
        c = data[i]
        if c == 123 or c == 91:  # an object or an array: its closing bracket is two characters later
            if depth == DEEPEST:
                return -1
            i = _space(data, i + 1, end)
            if i < end and data[i] == c + 2:
                i += 1
            else:
                closing[depth] = c + 2
                depth += 1
                if c == 123:
                    i = _key(data, i, end)
                    if i < 0:
                        return -1
                continue
        elif c == 34:
            i = _text(data, i, end)
        elif c == 45 or 48 <= c <= 57:
            i = _number(data, i, end)
        else:
            i = _word(data, i, end)
        if i < 0:
            return -1
        while depth > 0:
            i = _space(data, i, end)
            if i >= end:
                return -1
            if data[i] == closing[depth - 1]:
                i += 1
                depth -= 1
                continue
            if data[i] != 44:
                return -1
            i += 1
            if closing[depth - 1] == 125:
                i = _key(data, _space(data, i, end), end)
                if i < 0:
                    return -1
            break
        else:
            return i


@inlined
def _unescaped(data: Bytes, i: int, end: int, out: Bytes, at: int) -> int:
    """Write the characters of a text, without its quotes, to `out` from `at`.

    The place behind them, or -1 for half a surrogate pair.
    """
    while i < end:
        c = data[i]
        if c != 92:
            out[at] = c
            i += 1
            at += 1
            continue
        c = data[i + 1]
        i += 2
        if c != 117:
            for k in range(8):
                if c == _ESCAPES[k]:
                    out[at] = _ESCAPED[k]
            at += 1
            continue
        code = _hex(data, i)
        i += 4
        if 0xD800 <= code < 0xDC00 and i + 5 < end and data[i] == 92 and data[i + 1] == 117:
            low = _hex(data, i + 2)
            if not 0xDC00 <= low < 0xE000:
                return -1
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
            i += 6
        elif 0xD800 <= code < 0xE000:
            return -1
        if code < 0x80:
            out[at] = code
            at += 1
            continue
        extra = 1 if code < 0x800 else 2 if code < 0x10000 else 3
        out[at] = (0xC0 if extra == 1 else 0xE0 if extra == 2 else 0xF0) | (code >> (6 * extra))
        for k in range(extra):
            out[at + 1 + k] = 0x80 | ((code >> (6 * (extra - 1 - k))) & 0x3F)
        at += 1 + extra
    return at


@inlined
def _is_key(data: Bytes, i: int, end: int, keys: Bytes, first: int, last: int, room: Bytes) -> bool:
    """Whether the text `data[i:end]`, without its quotes, is the key `keys[first:last]`."""
    size = _unescaped(data, i, end, room, 0)
    if size != last - first:
        return False
    for k in range(size):
        if room[k] != keys[first + k]:
            return False
    return True


@inlined
def _member(data: Bytes, i: int, end: int, keys: Bytes, first: int, last: int, closing: Int64s, room: Bytes) -> int:
    """The value of a key of the object at `i`, or -1."""
    found = -1
    i = _space(data, i + 1, end)
    while data[i] == 34:
        behind = _text(data, i, end)
        begin = _space(data, _key(data, i, end), end)
        if _is_key(data, i + 1, behind - 1, keys, first, last, room):
            found = begin
        i = _space(data, _value(data, begin, end, closing), end)
        if data[i] != 44:
            break
        i = _space(data, i + 1, end)
    return found


@inlined
def _count(data: Bytes, i: int, end: int, closing: Int64s) -> int:
    """The number of elements of the array at `i`."""
    count = 0
    i = _space(data, i + 1, end)
    while data[i] != 93:
        i = _space(data, _value(data, i, end, closing), end)
        count += 1
        if data[i] == 44:
            i += 1
    return count


@inlined
def _element(data: Bytes, i: int, end: int, place: int, closing: Int64s) -> int:
    """The element at a place of the array at `i`, or -1."""
    if place < 0:
        place += _count(data, i, end, closing)
        if place < 0:
            return -1
    i = _space(data, i + 1, end)
    while data[i] != 93:
        i = _space(data, i, end)
        if place == 0:
            return i
        i = _space(data, _value(data, i, end, closing), end)
        place -= 1
        if data[i] == 44:
            i += 1
    return -1


@inlined
def _kind(c: int) -> int:
    if c == 123:
        return OBJECT
    if c == 91:
        return ARRAY
    if c == 34:
        return TEXT
    if c == 116 or c == 102:
        return TRUTH
    return NULL if c == 110 else NUMBER


@compiled(OFFSETS, BYTES, INTS, OFFSETS, BYTES, INT, NEW_INTS, NEW_INTS, NEW_INTS, NEW_INTS, NEW_BYTES)
def find(
    offsets: Offsets,
    data: Bytes,
    places: Int64s,
    key_offsets: Offsets,
    keys: Bytes,
    counting: int,
    begins: Int64s,
    ends: Int64s,
    kinds: Int64s,
    counts: Int64s,
    room: Bytes,
) -> None:
    """The value at the end of a path in each text: where it begins and ends, its kind, and the length of an array.

    A step is a place, or `KEY` and a key. `room` has place for the longest text.
    """
    closing = np.empty(DEEPEST, np.int64)
    for row in range(len(kinds)):
        start, end = int(offsets[row]), int(offsets[row + 1])
        kinds[row] = BAD
        i = _value(data, start, end, closing)
        if i < 0 or _space(data, i, end) != end:
            continue
        i = _space(data, start, end)
        for step in range(len(places)):
            c = data[i]
            if places[step] == KEY and c == 123:
                i = _member(data, i, end, keys, key_offsets[step], key_offsets[step + 1], closing, room)
            elif places[step] != KEY and c == 91:
                i = _element(data, i, end, places[step], closing)
            else:
                i = -1
            if i < 0:
                break
        kinds[row] = MISSING
        if i >= 0:
            kinds[row] = _kind(data[i])
            begins[row] = i
            ends[row] = _value(data, i, end, closing)
            if counting != 0 and kinds[row] == ARRAY:
                counts[row] = _count(data, i, end, closing)


@compiled(BYTES, INTS, INTS, INTS, INT, NEW_BYTES, NEW_INTS)
def copied(data: Bytes, begins: Int64s, ends: Int64s, chosen: Int64s, plain: int, out: Bytes, places: Int64s) -> None:
    """Copy the chosen values, one after the other; if `plain`, texts without quotes and escapes.

    `places` are the places behind them; negative for a text that has no characters of its own, half a surrogate pair.
    """
    at = 0
    for row in range(len(chosen)):
        before = at
        if chosen[row] != 0:
            begin, end = begins[row], ends[row]
            if plain != 0 and data[begin] == 34:
                at = _unescaped(data, begin + 1, end - 1, out, at)
            else:
                for i in range(begin, end):
                    out[at] = data[i]
                    at += 1
        if at < 0:
            at = before
            places[row] = -1 - at
        else:
            places[row] = at
