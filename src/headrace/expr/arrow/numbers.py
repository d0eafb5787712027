"""Arithmetic and mathematics.

Integer overflow gives NULL, floating overflow infinity, as in IEEE. Division by zero and arguments outside a function's
domain give NULL; NaN gives NaN. Results do not distinguish 0.0 from -0.0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.expr.arrow.columns import Datum, Kernel, from_numpy, null_where, to_numpy, valid
from headrace.expr.arrow.decimals import DECIMALS

__all__ = ["DEGREE", "EXACT", "NUMBERS"]

# From here on a double has no decimals.
EXACT = 2.0**52
# In radians.
DEGREE = math.pi / 180


def _checked(fast: Kernel, slow: Kernel) -> Kernel:
    """Arrow's checked kernel; if any row overflows, a slower one, with NULL in those rows."""

    def kernel(a: Datum, b: Datum) -> Datum:
        try:
            return fast(a, b)
        except pa.ArrowInvalid:
            return _overflowing(slow, a, b)

    return kernel


def _overflowing(slow: Kernel, a: Datum, b: Datum) -> pa.Array:
    mask = valid(a, b)
    with np.errstate(over="ignore"):
        values, fits = slow(to_numpy(a).astype(np.int64), to_numpy(b).astype(np.int64))
    limits = np.iinfo(a.type.to_pandas_dtype())
    fits = fits & (values >= limits.min) & (values <= limits.max)
    clean = np.where(fits, values, 0).astype(limits.dtype)
    return from_numpy(clean, fits if mask is None else fits & mask, a.type)


def _sum(a: NDArray[np.int64], b: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    total = a + b
    return total, ((a ^ total) & (b ^ total)) >= 0


def _difference(a: NDArray[np.int64], b: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    rest = a - b
    return rest, ((a ^ b) & (a ^ rest)) >= 0


def _product(a: NDArray[np.int64], b: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    product = a * b
    divisor = np.where((a == 0) | (a == -1), 1, a)
    regular = product // divisor == b
    negated = b != np.iinfo(np.int64).min
    return product, np.where(a == 0, True, np.where(a == -1, negated, regular))


def divide(a: Datum, b: Datum) -> Datum:
    return pc.divide(a, null_where(pc.equal(b, 0.0), b))


def floor_divide(a: Datum, b: Datum) -> Datum:
    """The quotient rounded down; NULL for a divisor of zero and where the quotient does not fit."""
    if pa.types.is_floating(a.type):
        return NUMBERS["floor"](divide(a, b))
    dividend, divisor = to_numpy(a), to_numpy(b)
    mask = valid(a, b)
    least = np.iinfo(a.type.to_pandas_dtype()).min
    fits = (divisor != 0) & ((divisor != -1) | (dividend != least))
    quotient = np.floor_divide(dividend, np.where(fits, divisor, np.ones_like(divisor)))
    return from_numpy(quotient, fits if mask is None else fits & mask, a.type)


def modulo(a: Datum, b: Datum) -> Datum:
    """The remainder, with the sign of the dividend."""
    dividend, divisor = to_numpy(a), to_numpy(b)
    mask = valid(a, b)
    nonzero = divisor != 0
    # An integer modulo 1 or -1 is 0; dividing the smallest integer by -1 may trap.
    trivial = ~nonzero if np.issubdtype(divisor.dtype, np.floating) else ~nonzero | (divisor == -1)
    with np.errstate(invalid="ignore"):
        rest = np.fmod(dividend, np.where(trivial, np.ones_like(divisor), divisor))
    return from_numpy(rest, nonzero if mask is None else nonzero & mask, a.type)


def negate(a: Datum) -> Datum:
    if pa.types.is_floating(a.type):
        return pc.negate(a)
    return NUMBERS["subtract"](pa.scalar(0, a.type), a)


def absolute(a: Datum) -> Datum:
    if pa.types.is_floating(a.type):
        return pc.abs(a)
    return pc.if_else(pc.less(a, pa.scalar(0, a.type)), negate(a), a)


def _whole(kernel: Kernel) -> Kernel:
    """`kernel` on floating numbers; integers are unchanged."""

    def rounded(a: Datum, *digits: Datum) -> Datum:
        if pa.types.is_integer(a.type):
            return a
        return pc.add(kernel(a, *digits), 0.0)  # -0.0 + 0.0 is 0.0

    return rounded


def _round(a: Datum, digits: Datum) -> Datum:
    """Scaled, rounded half away from zero and scaled back; numbers without such decimals stay as they are."""
    number, scale = to_numpy(a), 10.0 ** digits.as_py()
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.abs(number) * scale
        whole = np.floor(scaled)
        near = np.copysign((whole + (scaled - whole >= 0.5)) / scale, number)
    return from_numpy(np.where(scaled < EXACT, near, number), valid(a), pa.float64())


def _within(kernel: Kernel, outside: Kernel) -> Kernel:
    """`kernel` where `outside` is false, else NULL."""
    return lambda a: kernel(null_where(outside(a), a))


def _of_decimals(name: str, kernel: Kernel) -> Kernel:
    """`kernel`, or that of decimals."""
    exact = DECIMALS[name]
    return lambda *args: (exact if pa.types.is_decimal(args[0].type) else kernel)(*args)


def _infinite(a: Datum) -> Datum:
    return pc.is_inf(a)


def _beyond_one(a: Datum) -> Datum:
    return pc.greater(pc.abs(a), 1.0)


def sign(a: Datum) -> Datum:
    return pc.add(pc.sign(a), 0.0)


def power(a: Datum, b: Datum) -> Datum:
    base, exponent = to_numpy(a) + 0.0, to_numpy(b)
    with np.errstate(all="ignore"):
        value = np.power(base, exponent)
        nan = np.isnan(base) | np.isnan(exponent)
        impossible = (
            ((base == 0) & (exponent < 0))
            | ((base < 0) & np.isfinite(exponent) & (exponent != np.floor(exponent)))
            | ((np.abs(base) == 1) & np.isinf(exponent))
        )
    mask, fits = valid(a, b), nan | ~impossible
    return from_numpy(np.where(nan, np.nan, value), fits if mask is None else fits & mask, pa.float64())


def _exp(a: Datum) -> Datum:
    with np.errstate(over="ignore"):
        return from_numpy(np.exp(to_numpy(a)), valid(a), pa.float64())


_KERNELS: dict[str, Kernel] = {
    "add": _checked(pc.add_checked, _sum),
    "subtract": _checked(pc.subtract_checked, _difference),
    "multiply": _checked(pc.multiply_checked, _product),
    "divide": divide,
    "floor_divide": floor_divide,
    "modulo": modulo,
    "negate": negate,
    "abs": absolute,
    "floor": _whole(pc.floor),
    "ceil": _whole(pc.ceil),
    "round": _whole(_round),
    "sqrt": _within(pc.sqrt, lambda a: pc.less(a, 0.0)),
    "ln": _within(pc.ln, lambda a: pc.less_equal(a, 0.0)),
    "log10": _within(pc.log10, lambda a: pc.less_equal(a, 0.0)),
    "exp": _exp,
    "sin": _within(pc.sin, _infinite),
    "cos": _within(pc.cos, _infinite),
    "tan": _within(pc.tan, _infinite),
    "asin": _within(pc.asin, _beyond_one),
    "acos": _within(pc.acos, _beyond_one),
    "atan": pc.atan,
    "radians": lambda a: pc.multiply(a, DEGREE),
    "degrees": lambda a: pc.multiply(a, 1 / DEGREE),
    "sign": sign,
    "power": power,
}
NUMBERS = _KERNELS | {name: _of_decimals(name, _KERNELS[name]) for name in DECIMALS}
