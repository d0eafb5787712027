"""What the values of text are: the second half of the machine that reads rows of text, see `text_splitting.py`.

Each function checks and converts the values of one slot, and returns the number of nulls, or `FAILED`. `valid` starts
as 1 and becomes 0 where a value is null.
"""

# ruff: noqa: C901, PLR0912, PLR0915, PLR1714, SIM109 - a machine is a list of branches, one for each form

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from headrace.compiled import BYTES, INT, NEW_FLOATS, NEW_INTS, compiled, inlined

__all__ = ["FAILED", "Bytes", "Ints", "Places", "doubles", "integers", "texts", "times", "truths"]

Ints = NDArray[np.int64]
Places = NDArray[np.int32]
Bytes = NDArray[np.uint8]
Int = Any  # a number of 64 bits
#: Arguments that are written to.
PLACES = types.Array(types.int32, 1, "C")
NEW_BYTES = types.Array(types.uint8, 1, "C")

FAILED = -1
_BLANK, _QUOTE, _BACKSLASH = 32, 34, 92
_PLUS, _MINUS, _POINT, _ZERO, _NINE, _COLON = 43, 45, 46, 48, 57, 58
_MOST_DIGITS = 18
_LONGEST_NUMBER = 400
_EXACT = np.uint64(1 << 53)
_POWERS = np.array([10.0**i for i in range(23)])
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000_000, 253_402_300_800_000_000
#: The days from 1970 to each year, and from the begin of a year to each month.
_YEARS = np.array([365 * y + y // 4 - y // 100 + y // 400 for y in range(-1, 9999)]) - 719_162
_UNITS = np.array([1, 10, 100, 1000, 10_000, 100_000])
_MONTHS = np.array([0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365])


@compiled(BYTES, PLACES, PLACES, INT, NEW_INTS, NEW_BYTES)
def integers(data: Bytes, starts: Places, ends: Places, limit: int, out: Ints, valid: Bytes) -> int:
    """Decimal digits, at most 18, with a minus or without: whole numbers from -limit to limit - 1."""
    nulls = 0
    for row in range(len(out)):
        at, end = np.int64(starts[row]), np.int64(ends[row])
        if end < 0:
            out[row] = 0
            valid[row] = 0
            nulls += 1
            continue
        if at < 0:
            return FAILED
        while at < end and data[at] == _BLANK:
            at += 1
        while at < end and data[end - 1] == _BLANK:
            end -= 1
        negative = at < end and data[at] == _MINUS
        if negative:
            at += 1
        if at >= end or end > at + _MOST_DIGITS:
            return FAILED
        value = np.int64(0)
        while at < end:
            digit = np.int64(data[at]) - _ZERO
            if digit < 0 or digit > 9:
                return FAILED
            value = value * 10 + digit
            at += 1
        if negative:
            value = -value
        if value < -limit or value >= limit:
            return FAILED
        out[row] = value
    return nulls


@compiled(BYTES, PLACES, PLACES, types.float64, NEW_FLOATS, NEW_BYTES, NEW_INTS)
def doubles(
    data: Bytes, starts: Places, ends: Places, largest: float, out: NDArray[np.float64], valid: Bytes, hard: Ints
) -> int:
    """Numbers up to `largest`. One whose digits need more care has a `valid` of 2; `hard[0]` counts them."""
    nulls = 0
    for row in range(len(out)):
        at, end = np.int64(starts[row]), np.int64(ends[row])
        if end < 0:
            out[row] = 0
            valid[row] = 0
            nulls += 1
            continue
        if at < 0:
            return FAILED
        while at < end and data[at] == _BLANK:
            at += 1
        while at < end and data[end - 1] == _BLANK:
            end -= 1
        begin = at
        negative = at < end and data[at] == _MINUS
        if negative:
            at += 1
        if end > at + _LONGEST_NUMBER:
            return FAILED
        mantissa, first, exponent = np.uint64(0), at, np.int64(0)
        while at < end:
            digit = np.int64(data[at]) - _ZERO
            if digit < 0 or digit > 9:
                break
            mantissa = mantissa * np.uint64(10) + np.uint64(digit)
            at += 1
        digits = at - first
        if digits == 0:
            return FAILED
        if at < end and data[at] == _POINT:
            at += 1
            point = at
            while at < end:
                digit = np.int64(data[at]) - _ZERO
                if digit < 0 or digit > 9:
                    break
                mantissa = mantissa * np.uint64(10) + np.uint64(digit)
                at += 1
            exponent = point - at
            if exponent == 0:
                return FAILED
            digits -= exponent
        if at < end:
            if data[at] | 32 != 101:  # e or E
                return FAILED
            at += 1
            down = at < end and data[at] == _MINUS
            if down or (at < end and data[at] == _PLUS):
                at += 1
            if at == end or end > at + 5:
                return FAILED
            power = np.int64(0)
            while at < end:
                digit = np.int64(data[at]) - _ZERO
                if digit < 0 or digit > 9:
                    return FAILED
                power = power * 10 + digit
                at += 1
            exponent += -power if down else power
        # A product or quotient of two exact numbers is rounded once, so it is the nearest double.
        if digits > 19 or mantissa > _EXACT or exponent < -22 or exponent > 22:
            valid[row] = 2
            starts[row], ends[row] = begin, end
            hard[0] += 1
            continue
        value = np.float64(mantissa)
        value = value / _POWERS[-exponent] if exponent < 0 else value * _POWERS[exponent]
        if value > largest:
            return FAILED
        out[row] = -value if negative else value
    return nulls


@compiled(BYTES, PLACES, PLACES, NEW_BYTES, NEW_BYTES)
def truths(data: Bytes, starts: Places, ends: Places, out: Bytes, valid: Bytes) -> int:
    """`true` and `false` in any case, 1 and 0."""
    nulls = 0
    for row in range(len(out)):
        at, end = np.int64(starts[row]), np.int64(ends[row])
        if end < 0:
            out[row] = 0
            valid[row] = 0
            nulls += 1
            continue
        if at < 0 or at == end:
            return FAILED
        if end == at + 1 and _ZERO <= data[at] <= _ZERO + 1:
            out[row] = data[at] - _ZERO
            continue
        true = data[at] | 32 == 116
        word = (116, 114, 117, 101, 101) if true else (102, 97, 108, 115, 101)
        if end - at != (4 if true else 5):
            return FAILED
        for i in range(end - at):
            if data[at + i] | 32 != word[i]:
                return FAILED
        out[row] = 1 if true else 0
    return nulls


@inlined
def _two(data: Bytes, at: Int) -> Int:
    """A number of two digits; below zero if they are none."""
    high, low = np.int64(data[at]) - _ZERO, np.int64(data[at + 1]) - _ZERO
    return (high * 10 + low) | ((high | (9 - high) | low | (9 - low)) >> 63)


@compiled(BYTES, PLACES, PLACES, NEW_INTS, NEW_BYTES)
def times(data: Bytes, starts: Places, ends: Places, out: Ints, valid: Bytes) -> int:
    """Microseconds since 1970 of `2024-05-01T12:00:00.000000Z`; or whole numbers of them.

    The clock and the zone may be missing, and so may parts of the clock from the right; the zone may be `+01:00`.
    """
    nulls = 0
    for row in range(len(out)):
        at, end = np.int64(starts[row]), np.int64(ends[row])
        if end < 0:
            out[row] = 0
            valid[row] = 0
            nulls += 1
            continue
        if at < 0:
            return FAILED
        while at < end and data[at] == _BLANK:
            at += 1
        while at < end and data[end - 1] == _BLANK:
            end -= 1
        if end < at + 10 or data[at + 4] != _MINUS:
            negative = at < end and data[at] == _MINUS
            if negative:
                at += 1
            if at >= end or end > at + _MOST_DIGITS:
                return FAILED
            total = np.int64(0)
            while at < end:
                digit = np.int64(data[at]) - _ZERO
                if digit < 0 or digit > 9:
                    return FAILED
                total = total * 10 + digit
                at += 1
            if negative:
                total = -total
        else:
            century, year, month, day = _two(data, at), _two(data, at + 2), _two(data, at + 5), _two(data, at + 8)
            if century | year | month | day < 0 or data[at + 7] != _MINUS or month < 1 or month > 12 or day < 1:
                return FAILED
            year += century * 100
            if year == 0:
                return FAILED
            leap = 1 if year & 3 == 0 and (year % 100 != 0 or year % 400 == 0) else 0
            if day > _MONTHS[month + 1] - _MONTHS[month] + (leap if month == 2 else 0):
                return FAILED
            seconds = (_YEARS[year] + _MONTHS[month] + (leap if month > 2 else 0) + day - 1) * 86_400
            micros = np.int64(0)
            at += 10
            if at < end:
                if (data[at] != 84 and data[at] != _BLANK) or end < at + 6 or data[at + 3] != _COLON:  # T
                    return FAILED
                hour, minute, second = _two(data, at + 1), _two(data, at + 4), np.int64(0)
                at += 6
                if end >= at + 3 and data[at] == _COLON:
                    second = _two(data, at + 1)
                    at += 3
                    if at < end and data[at] == _POINT:
                        at += 1
                        first = at
                        while at < end:
                            digit = np.int64(data[at]) - _ZERO
                            if digit < 0 or digit > 9:
                                break
                            micros = micros * 10 + digit
                            at += 1
                        if at == first or at > first + 9:
                            return FAILED
                        if at - first <= 6:
                            micros *= _UNITS[6 - (at - first)]
                        else:
                            micros //= _UNITS[at - first - 6]  # fractions of a microsecond are cut off
                if hour | minute | second < 0 or hour > 23 or minute > 59 or second > 59:
                    return FAILED
                seconds += hour * 3600 + minute * 60 + second
                if at < end:
                    if data[at] == 90:  # Z
                        at += 1
                    elif end == at + 6 and (data[at] == _PLUS or data[at] == _MINUS) and data[at + 3] == _COLON:
                        hour, minute = _two(data, at + 1), _two(data, at + 4)
                        if hour | minute < 0 or hour > 23 or minute > 59:
                            return FAILED
                        offset = hour * 3600 + minute * 60
                        seconds += -offset if data[at] == _PLUS else offset
                        at += 6
                if at != end:
                    return FAILED
            total = seconds * 1_000_000 + micros
        if total < _FIRST_TIME or total >= _LAST_TIME:
            return FAILED
        out[row] = total
    return nulls


@compiled(BYTES, PLACES, PLACES, NEW_BYTES, PLACES, NEW_BYTES, types.boolean)
def texts(data: Bytes, starts: Places, ends: Places, out: Bytes, offsets: Places, valid: Bytes, json: bool) -> int:
    """Copy texts to `out`, one after another from `offsets[0]` on, and resolve what is escaped."""
    nulls, size = 0, np.int64(offsets[0])
    for row in range(len(valid)):
        at, end = np.int64(starts[row]), np.int64(ends[row])
        if end < 0:
            valid[row] = 0
            nulls += 1
        elif at >= 0:
            while at < end:
                out[size] = data[at]
                size += 1
                at += 1
        else:
            at = ~at
            while at < end:
                byte = data[at]
                at += 1
                if json and byte == _BACKSLASH:
                    at, size = _escaped(data, at, out, size)
                    if at < 0:
                        return FAILED
                else:
                    out[size] = byte
                    size += 1
                    if not json and byte == _QUOTE:
                        at += 1
        offsets[row + 1] = size
    return nulls


@inlined
def _hex(data: Bytes, at: Int) -> Int:
    """Four hexadecimal digits; -1 if they are none."""
    value = np.int64(0)
    for i in range(4):
        byte = np.int64(data[at + i])
        if _ZERO <= byte <= _NINE:
            value = value * 16 + byte - _ZERO
        elif 97 <= byte | 32 <= 102:
            value = value * 16 + (byte | 32) - 87
        else:
            return np.int64(-1)
    return value


@inlined
def _escaped(data: Bytes, at: Int, out: Bytes, size: Int) -> tuple[Int, Int]:
    """Copy the character that an escape of JSON stands for: the place after it, or FAILED, and the new size."""
    byte: Any = data[at]
    if byte != 117:  # u
        plain = np.uint8(0)
        if byte == _QUOTE or byte == _BACKSLASH or byte == 47:
            plain = byte
        elif byte == 110:
            plain = np.uint8(10)
        elif byte == 116:
            plain = np.uint8(9)
        elif byte == 114:
            plain = np.uint8(13)
        elif byte == 98:
            plain = np.uint8(8)
        elif byte == 102:
            plain = np.uint8(12)
        out[size] = plain
        return (at + 1 if plain else np.int64(FAILED)), size + 1
    code = _hex(data, at + 1)
    at += 5
    if 0xD800 <= code < 0xE000:  # half of a pair
        low = _hex(data, at + 2) if code < 0xDC00 and data[at] == _BACKSLASH and data[at + 1] == 117 else np.int64(-1)
        if not 0xDC00 <= low < 0xE000:
            return np.int64(FAILED), size
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        at += 6
    if code < 0:
        return np.int64(FAILED), size
    if code < 0x80:
        out[size] = code
        return at, size + 1
    if code < 0x800:
        out[size] = 0xC0 | (code >> 6)
        out[size + 1] = 0x80 | (code & 63)
        return at, size + 2
    if code < 0x10000:
        out[size] = 0xE0 | (code >> 12)
        out[size + 1] = 0x80 | ((code >> 6) & 63)
        out[size + 2] = 0x80 | (code & 63)
        return at, size + 3
    out[size] = 0xF0 | (code >> 18)
    out[size + 1] = 0x80 | ((code >> 12) & 63)
    out[size + 2] = 0x80 | ((code >> 6) & 63)
    out[size + 3] = 0x80 | (code & 63)
    return at, size + 4
