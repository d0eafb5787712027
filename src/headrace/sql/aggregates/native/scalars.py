"""The functions of `scalars` for native code, on machine numbers. They run compiled, never as Python.

A function that may have no result gives a value and whether it is NULL. The value of a NULL is never looked at, but it
fits its type, so nothing overflows on the way: sums of LONGs are formed without a sign, where wrapping is defined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.expr.arrow.dates import FIRST_DAY, LAST_TICK

__all__ = ["CONSTANTS", "FUNCTIONS"]

Found = tuple[Any, bool]

_LEAST, _MOST = np.int64(-(2**63)), np.int64(2**63 - 1)
_NEVER = _LEAST
_FIRST, _LAST = np.int64(FIRST_DAY), np.int64(LAST_TICK)


def fits(found: int, limit: int) -> Found:
    """A whole number, NULL unless it is in [-limit, limit)."""
    return (found, False) if -limit <= found < limit else (0, True)


def whole(value: float, limit: float) -> Found:
    """A number without its decimals; NULL unless it is in [-limit, limit)."""
    cut = np.trunc(value)
    return (np.int64(cut), False) if -limit <= cut < limit else (0, True)


def single(value: float) -> float:
    """The nearest number of 32 bits."""
    return np.float64(np.float32(value))


def add_long(a: int, b: int) -> Found:
    found = np.int64(np.uint64(a) + np.uint64(b))
    return (0, True) if (a ^ found) & (b ^ found) < 0 else (found, False)


def subtract_long(a: int, b: int) -> Found:
    found = np.int64(np.uint64(a) - np.uint64(b))
    return (0, True) if (a ^ b) & (a ^ found) < 0 else (found, False)


def multiply_long(a: int, b: int) -> Found:
    small = np.int64(2**31)
    if -small <= a < small and -small <= b < small:
        return a * b, False
    if b == 0:
        return 0, False
    one = np.uint64(a) if a > 0 else np.uint64(0) - np.uint64(a)
    other = np.uint64(b) if b > 0 else np.uint64(0) - np.uint64(b)
    negative = (a < 0) != (b < 0)
    limit = np.uint64(_MOST) + np.uint64(1 if negative else 0)
    if one > limit // other:
        return 0, True
    found = one * other
    return np.int64(np.uint64(0) - found if negative else found), False


def negate_long(a: int) -> Found:
    return (0, True) if a == _LEAST else (-a, False)


def abs_long(a: int) -> Found:
    return (0, True) if a == _LEAST else (abs(a), False)


def rest_whole(a: int, b: int) -> Found:
    """The rest with the sign of the dividend."""
    if b == 0:
        return 0, True
    if b == -1:
        return 0, False
    found = a % b
    return (found - b if found != 0 and (found < 0) != (a < 0) else found), False


def rest(a: float, b: float) -> Found:
    """As above, of decimals."""
    if b == 0:
        return 0.0, True
    return (math.nan if math.isinf(a) or math.isnan(a) or math.isnan(b) else np.fmod(a, b)), False


def divide(a: float, b: float) -> Found:
    return (0.0, True) if b == 0 else (a / b, False)


def root(a: float) -> Found:
    return (0.0, True) if a < 0 else (math.sqrt(a), False)


def floor(a: float) -> float:
    return float(np.floor(a)) + 0.0  # -0.0 + 0.0 is 0.0


def ceil(a: float) -> float:
    return float(np.ceil(a)) + 0.0


def same(a: float, b: float) -> bool:
    """Whether decimals are equal; NaN equals NaN."""
    return a == b or (math.isnan(a) and math.isnan(b))


def less(a: float, b: float) -> bool:
    """Whether one is less than another; NaN is greater than any number."""
    return a < b or (math.isnan(b) and not math.isnan(a))


def both(a: bool, a_null: bool, b: bool, b_null: bool) -> Found:
    """AND."""
    no = not (a or a_null) or not (b or b_null)
    return a and b and not no, (a_null or b_null) and not no


def either(a: bool, a_null: bool, b: bool, b_null: bool) -> Found:
    """OR."""
    yes = (a and not a_null) or (b and not b_null)
    return yes, (a_null or b_null) and not yes


def instant(ticks: int) -> Found:
    """A DATETIME, if there is one of these ticks."""
    return (ticks, False) if _FIRST <= ticks <= _LAST else (0, True)


def left_before(time: int, span: int) -> np.int64 | int:
    """The time before which tuples have left a window of this span; a negative span is without end."""
    return time - span if span >= 0 and time >= _NEVER + span else _NEVER


#: The functions that native code may call.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        fits, whole, single, add_long, subtract_long, multiply_long, negate_long, abs_long, rest_whole, rest, divide,
        root, floor, ceil, same, less, both, either, instant, left_before,
    )
}  # fmt: skip
CONSTANTS: dict[str, Any] = {"np": np, "LEAST": _LEAST, "MOST": _MOST, "NEVER": _NEVER}
