"""The loops of partial results, compiled by Numba: each adds the values of many rows to the results of their codes.

A code is the number of a group and window; every loop reads its rows once.
"""

# ruff: noqa: PLR1730 - a branch that is hardly ever taken is cheaper than min and max, and passes NaN by

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from headrace.columnar import Bools, Int64s
from headrace.compiled import FLOATS, INT, INTS, NEW_FLOATS, NEW_INTS, NEW_TABLE, TABLE, TRUTHS, compiled

__all__ = [
    "NAN", "NEGATIVE", "POSITIVE", "add_float_limbs", "add_integer_limbs", "exponents", "float_ends", "int_ends",
    "nearest_floats",
]  # fmt: skip

Floats = NDArray[np.float64]

#: The columns of special values.
NAN, POSITIVE, NEGATIVE = 0, 1, 2
_SPECIAL = 0x7FF


@compiled(INTS)
def exponents(bits: Int64s) -> tuple[int, int, bool]:
    """The least and the greatest exponent of floats that are neither zero nor special, and whether any is special."""
    least, greatest, special = _SPECIAL, 0, False
    for word in bits:
        exponent = (word >> 52) & _SPECIAL
        if exponent == _SPECIAL:
            special = True
        elif word & 0x7FFFFFFFFFFFFFFF != 0:
            exponent = max(exponent, 1)  # those below have no leading one
            least = min(least, exponent)
            greatest = max(greatest, exponent)
    return least, greatest, special


@compiled(INTS, INTS, INTS, INT, NEW_TABLE, NEW_TABLE)
def add_float_limbs(
    bits: Int64s, codes: Int64s, weight: Int64s, lowest: int, limbs: NDArray[np.int64], specials: NDArray[np.int64]
) -> None:
    """Add weighted floats, given as bits, to the limbs of their codes; the first column is limb number `lowest`."""
    for i in range(len(bits)):
        word, code, w = bits[i], codes[i], weight[i]
        exponent = (word >> 52) & 0x7FF
        digits = word & 0xFFFFFFFFFFFFF
        if exponent == 0x7FF:
            specials[code, NAN if digits != 0 else POSITIVE if word > 0 else NEGATIVE] += w
            continue
        if exponent == 0:
            if digits == 0:
                continue
            exponent = 1
        else:
            digits |= 1 << 52
        if word < 0:
            w = -w
        place = exponent - 1075 - 32 * lowest
        limb, shift = place >> 5, place & 31
        low, high = (digits & 0xFFFFFFFF) << shift, (digits >> 32) << shift
        limbs[code, limb] += (low & 0xFFFFFFFF) * w
        limbs[code, limb + 1] += ((low >> 32) | (high & 0xFFFFFFFF)) * w
        limbs[code, limb + 2] += (high >> 32) * w


@compiled(INTS, INTS, INTS, NEW_INTS, NEW_INTS)
def add_integer_limbs(values: Int64s, codes: Int64s, weight: Int64s, low: Int64s, high: Int64s) -> None:
    """Add weighted integers to the two limbs of their codes."""
    for i in range(len(values)):
        code, w = codes[i], weight[i]
        low[code] += (values[i] & 0xFFFFFFFF) * w
        high[code] += (values[i] >> 32) * w


@compiled(FLOATS, TRUTHS, INTS, NEW_FLOATS, NEW_FLOATS, NEW_INTS)
def float_ends(values: Floats, valid: Bools, codes: Int64s, low: Floats, high: Floats, nans: Int64s) -> None:
    """The least and greatest float of each code, and how many are NaN. `valid` may be empty: there are no nulls."""
    for i in range(len(values)):
        value = values[i] + 0.0  # one zero
        if len(valid) > 0 and not valid[i]:
            continue
        code = codes[i]
        if value < low[code]:
            low[code] = value
        if value > high[code]:
            high[code] = value
        if np.isnan(value):
            nans[code] += 1


@compiled(INTS, TRUTHS, INTS, NEW_INTS, NEW_INTS)
def int_ends(values: Int64s, valid: Bools, codes: Int64s, low: Int64s, high: Int64s) -> None:
    """The least and greatest integer of each code."""
    for i in range(len(values)):
        if len(valid) > 0 and not valid[i]:
            continue
        value, code = values[i], codes[i]
        if value < low[code]:
            low[code] = value
        if value > high[code]:
            high[code] = value


@compiled(TABLE, INT, NEW_FLOATS)
def nearest_floats(limbs: NDArray[np.int64], lowest: int, result: Floats) -> None:
    """The floats nearest to the numbers whose limbs are the rows, the lowest first: of 64 bits and one for the rest."""
    size, width = limbs.shape
    digits = np.zeros(width + 4, np.int64)  # two places for carries; below the lowest two zeros
    for i in range(size):
        sign, carry = 1, 0
        for j in range(width + 2):
            carry += limbs[i, j] if j < width else 0
            digits[j + 2] = carry & 0xFFFFFFFF
            carry >>= 32
        if carry < 0:
            sign, carry = -1, 0
            for j in range(width + 2):
                carry -= limbs[i, j] if j < width else 0
                digits[j + 2] = carry & 0xFFFFFFFF
                carry >>= 32
        top = width + 3
        while top > 2 and digits[top] == 0:
            top -= 1
        free = 32 - math.frexp(digits[top])[1]  # zero bits above the highest one
        head = (np.uint64(digits[top]) << np.uint64(32)) | np.uint64(digits[top - 1])
        third = digits[top - 2]
        head = (head << np.uint64(free)) | np.uint64(third >> (32 - free))
        rest = third & ((1 << (32 - free)) - 1)
        for j in range(2, top - 2):
            rest |= digits[j]
        head |= np.uint64(rest != 0)
        result[i] = math.ldexp(sign * np.float64(head), 32 * (lowest + top - 3) - free)
