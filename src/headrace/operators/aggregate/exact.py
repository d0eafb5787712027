"""Sums that do not depend on the order of adding.

Adding floats rounds, and the rounding depends on the order; so a sum built from batches, corrected by retractions and
merged over partitions would differ in its last digits from run to run, and the law of the engine (rule 1.5) would not
hold. So sums are exact: a value is cut into *limbs*, integers `v_j` with `value = sum(v_j * 2**(32*j))`, and
each limb is added up in 64-bit integers, where addition is exact, associative and invertible. A 64-bit float has at
most three limbs; a column of prices needs three columns, so exactness costs little. The total is rounded once, when it
is read.

NaN and the infinities have no limbs; they are counted in columns of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.columnar import Int64s, group_sum
from headrace.operators.aggregate import loops

__all__ = [
    "CodedRows", "as_integers", "decimal_sums", "float_squares", "float_sums", "integer_squares", "integer_sums",
    "total_decimal", "total_float", "total_integer",
]  # fmt: skip

Floats = NDArray[np.float64]
BITS = 32
_MASK = np.int64(2**BITS - 1)
#: The exponent of a float whose digits are a whole number.
_UNIT = 1075
#: The greatest and the least whole number of 38 digits, in words of 64 bits.
_MOST_HIGH, _MOST_LOW = np.int64((10**38 - 1) >> 64), np.uint64((10**38 - 1) & (2**64 - 1))
_LEAST_HIGH, _LEAST_LOW = np.int64((1 - 10**38) >> 64), np.uint64((1 - 10**38) & (2**64 - 1))
_SPECIALS = {"nan": loops.NAN, "pinf": loops.POSITIVE, "ninf": loops.NEGATIVE}


@dataclass(frozen=True, eq=False)
class CodedRows:
    """How rows are added up: the code and the weight of each, and the number of codes."""

    codes: Int64s
    weight: Int64s
    size: int

    def total(self, values: Int64s) -> Int64s:
        """The weighted sums of small integers."""
        return group_sum(self.codes, values * self.weight, self.size)

    @cached_property
    def count(self) -> Int64s:
        """The sums of weights."""
        return group_sum(self.codes, self.weight, self.size)


def integer_sums(values: Int64s, rows: CodedRows) -> dict[str, Int64s]:
    """The limbs of sums of 64-bit integers, by column suffix."""
    low, high = np.zeros((2, rows.size), np.int64)
    loops.add_integer_limbs(np.ascontiguousarray(values), rows.codes, rows.weight, low, high)
    return {"0": low, "1": high} if high.any() else {"0": low}


def decimal_sums(words: Int64s, rows: CodedRows) -> dict[str, Int64s]:
    """The limbs of sums of whole numbers of 128 bits; a row of `words` has the lower and the upper 64 bits."""
    columns: dict[str, Int64s] = {}
    low, high = (np.ascontiguousarray(words[:, place]) for place in (0, 1))
    for place, limb in enumerate((low & _MASK, (low >> BITS) & _MASK, high & _MASK, high >> BITS)):
        total = rows.total(limb)
        if total.any():
            columns[str(place)] = total
    return columns


def float_sums(values: Floats, rows: CodedRows) -> dict[str, Int64s]:
    """The limbs of sums of floats, and counts of special values, by column suffix; columns of zeros are left out."""
    bits = np.ascontiguousarray(values).view(np.int64)
    least, greatest, special = loops.exponents(bits)
    lowest = (least - _UNIT) // BITS
    width = (greatest - _UNIT) // BITS - lowest + 3 if greatest else 0  # a float has three limbs at most
    limbs = np.zeros((rows.size, width), np.int64)
    specials = np.zeros((rows.size if special else 0, len(_SPECIALS)), np.int64)
    if special or greatest:
        loops.add_float_limbs(bits, rows.codes, rows.weight, lowest, limbs, specials)
    columns = {name: specials[:, place].copy() for name, place in _SPECIALS.items()} if special else {}
    digits = {str(lowest + j): limbs[:, j].copy() for j in range(width) if limbs[:, j].any()}
    return columns | digits


def integer_squares(values: Int64s, rows: CodedRows) -> dict[str, Int64s]:
    """The limbs of sums of squares of 64-bit integers."""
    size = np.where(values < 0, -values.astype(np.uint64), values.astype(np.uint64))
    low, high, mask = size & np.uint64(_MASK), size >> np.uint64(BITS), np.uint64(_MASK)
    parts = [low * low, low * high, low * high, high * high]  # their factors: 1, 2**32, 2**32, 2**64
    columns = {str(j): np.zeros(rows.size, np.int64) for j in range(4)}
    for part, place in zip(parts, (0, 1, 1, 2), strict=True):
        if part.any():
            columns[str(place)] += rows.total((part & mask).astype(np.int64))
            columns[str(place + 1)] += rows.total((part >> np.uint64(BITS)).astype(np.int64))
    return {name: column for name, column in columns.items() if column.any()}


def float_squares(values: Floats, rows: CodedRows) -> dict[str, Int64s]:
    """The limbs of sums of squares of floats; infinite and NaN values are counted as `nan`."""
    finite = np.isfinite(values)
    none = np.zeros(rows.size, np.int64)
    columns = {} if finite.all() else {"nan": rows.total((~finite).astype(np.int64)), "pinf": none, "ninf": none}
    rest = np.where(finite, values, 0.0)
    size = np.abs(rest)
    large, small = size >= 2.0**480, size < 2.0**-400
    # Squares of the very large and very small leave the range of floats: square them moved by whole limbs.
    for part, shift in ((~large & ~small, 0), (large, 17), (small, -24)):
        moved = np.where(part, rest, 0.0)
        if moved.any():
            for factor in _squares(np.ldexp(moved, -BITS * shift)):
                for suffix, limb in float_sums(factor, rows).items():
                    name = str(int(suffix) + 2 * shift)
                    columns[name] = columns.get(name, none) + limb
    return columns


def _squares(values: Floats) -> tuple[Floats, Floats]:
    """`values**2` as an unevaluated sum of two floats, exact except for under- and overflow (Dekker's product)."""
    product = values * values
    factor = values * 134217729.0  # 2**27 + 1 splits 53 bits into two halves
    high = factor - (factor - values)
    low = values - high
    return product, ((high * high - product) + 2.0 * high * low) + low * low


def _limbs(columns: Mapping[str, Int64s]) -> dict[int, Int64s]:
    return {int(suffix): column for suffix, column in columns.items() if suffix.lstrip("-").isdigit()}


def total_float(columns: Mapping[str, Int64s], size: int) -> Floats:
    """The sums as floats, rounded once: the float nearest to the exact value."""
    limbs = _limbs(columns)
    result = np.zeros(size, np.float64)
    if limbs:
        lowest = min(limbs)
        table = np.zeros((size, max(limbs) - lowest + 1), np.int64)
        for j, column in limbs.items():
            table[:, j - lowest] = column
        loops.nearest_floats(table, lowest, result)
    return _with_specials(result, columns)


def _with_specials(result: Floats, columns: Mapping[str, Int64s]) -> Floats:
    if "nan" not in columns:
        return result
    up, down = columns["pinf"] > 0, columns["ninf"] > 0
    result = np.where(up, np.inf, np.where(down, -np.inf, result))
    return np.where((columns["nan"] > 0) | (up & down), np.nan, result)


def total_integer(columns: Mapping[str, Int64s], size: int) -> tuple[Int64s, NDArray[np.bool_]]:
    """The sums as 64-bit integers, and where they fit."""
    limbs = _limbs(columns)
    if not limbs:
        return np.zeros(size, np.int64), np.ones(size, bool)
    low = limbs.get(0, np.zeros(size, np.int64))
    high = limbs.get(1, np.zeros(size, np.int64)) + (low >> BITS)
    fits = (high >= -(2**31)) & (high < 2**31)
    return (high << BITS) | (low & _MASK), fits


def total_decimal(columns: Mapping[str, Int64s], size: int) -> tuple[Int64s, NDArray[np.bool_]]:
    """The sums as whole numbers of 128 bits, in two columns of 64, and where they have 38 digits at most."""
    limbs, none = _limbs(columns), np.zeros(size, np.int64)
    parts, carry = [], none
    for place in range(4):
        total = limbs.get(place, none) + carry
        parts.append(total & _MASK)
        carry = total >> BITS
    low, high = parts[0] | (parts[1] << BITS), parts[2] | (parts[3] << BITS)
    inside = (carry == 0) & (high >= 0) | (carry == -1) & (high < 0)  # what is left over is the sign
    above = (high > _MOST_HIGH) | ((high == _MOST_HIGH) & (low.view(np.uint64) > _MOST_LOW))
    below = (high < _LEAST_HIGH) | ((high == _LEAST_HIGH) & (low.view(np.uint64) < _LEAST_LOW))
    return np.stack([low, high], axis=1), inside & ~above & ~below


def as_integers(columns: Mapping[str, Int64s], size: int, unit: int) -> NDArray[Any]:
    """The sums as Python integers in units of `2**(32*unit)`, for arithmetic that must not round."""
    result = np.zeros(size, object)
    for j, column in _limbs(columns).items():
        result = result + column.astype(object) * (1 << (BITS * (j - unit)))
    return result


def lowest_limb(columns: Mapping[str, Int64s]) -> int:
    """The smallest limb number in use."""
    return min(_limbs(columns), default=0)
