"""Decimals: exact arithmetic, NULL where a result has more digits than its type."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.expr.arrow.columns import Datum, Kernel, null_where
from headrace.expr.decimals import product_type, rounded_type
from headrace.schema import Type
from headrace.types import DIGITS

__all__ = ["DECIMALS", "fitted", "from_floats", "from_texts", "to_floats", "to_texts", "unscaled"]

_WIDEST = 76
_AWAY = "half_towards_infinity"  # Arrow's name for halves away from zero
_TEXTS = pa.decimal256(_WIDEST, DIGITS)
#: Numbers of so many digits are exact as doubles, and so are the powers of ten up to the next.
_EXACT_DIGITS, _EXACT_POWER = 15, 22
#: Floats nearer to zero than this have no digit among the decimals that they can be cast to.
_TINY = 1e-20


def fitted(values: Datum, kind: pa.DataType) -> Datum:
    """Decimals as another type, rounded half away from zero; NULL where they do not fit."""
    given, room = values.type, kind.precision - kind.scale
    if given.scale <= kind.scale and given.precision - given.scale <= room:
        return pc.cast(values, kind)
    wide = _widened(values, max(kind.scale - given.scale, 0) + 1, max(given.scale, kind.scale))
    if given.scale > kind.scale:
        wide = pc.round(wide, kind.scale, _AWAY)
    if wide.type.precision - wide.type.scale > room:
        limit = pa.scalar(Decimal(10) ** room, wide.type)
        wide = null_where(pc.greater_equal(pc.abs(wide), limit), wide)
    return pc.cast(wide, kind)


def _widened(values: Datum, digits: int, scale: int) -> Datum:
    return pc.cast(values, pa.decimal256(min(values.type.precision + digits, _WIDEST), scale))


def _sum(kernel: Kernel) -> Kernel:
    def total(a: Datum, b: Datum) -> Datum:
        if a.type.precision < DIGITS:  # there is a digit left for the carry
            return pc.cast(kernel(a, b), a.type)
        return fitted(kernel(_widened(a, 1, a.type.scale), _widened(b, 1, b.type.scale)), a.type)

    return total


def multiply(a: Datum, b: Datum) -> Datum:
    kind = product_type("the product", Type.from_arrow(a.type), Type.from_arrow(b.type)).arrow
    digits = a.type.precision + b.type.precision + 1
    if digits <= DIGITS:
        return pc.multiply(a, b)
    a, b = _widened(a, 0, a.type.scale), _widened(b, 0, b.type.scale)
    if digits > _WIDEST:
        a, b = (_narrower(a), b) if isinstance(a, pa.Array) else (a, _narrower(b))
    return fitted(pc.multiply(a, b), kind)


def _narrower(values: pa.Array) -> pa.Array:
    """The same values said to have a digit less: Arrow refuses a type of 77 digits, and computes with all of them."""
    kind = pa.decimal256(values.type.precision - 1, values.type.scale)
    return pa.Array.from_buffers(kind, len(values), values.buffers(), values.null_count, values.offset)


def _whole(kernel: Kernel) -> Kernel:
    def rounded(a: Datum) -> Datum:
        return fitted(kernel(_widened(a, 1, a.type.scale)), rounded_type(Type.from_arrow(a.type), 0).arrow)

    return rounded


def _round(a: Datum, digits: Datum) -> Datum:
    return fitted(a, rounded_type(Type.from_arrow(a.type), digits.as_py()).arrow)


DECIMALS: dict[str, Kernel] = {
    "add": _sum(pc.add),
    "subtract": _sum(pc.subtract),
    "multiply": multiply,
    "negate": pc.negate,
    "abs": pc.abs,
    "floor": _whole(pc.floor),
    "ceil": _whole(pc.ceil),
    "round": _round,
}


# --- casts -----------------------------------------------------------------------------------------------------------


def unscaled(values: pa.Array) -> NDArray[np.int64]:
    """The digits of decimal128 as whole numbers: of each the lower and the upper 64 bits; nulls have any."""
    data = values.buffers()[1]
    if data is None:
        return np.zeros((len(values), 2), np.int64)
    words = np.frombuffer(data, np.int64)[: 2 * (values.offset + len(values))]
    return words.reshape(-1, 2)[values.offset :]


def to_floats(values: Datum) -> Datum:
    """The nearest doubles."""
    kind = values.type
    if isinstance(values, pa.Array) and kind.precision <= _EXACT_DIGITS and kind.scale <= _EXACT_POWER:
        numbers = unscaled(values)[:, 0].astype(np.float64) / 10.0**kind.scale
        missing = np.asarray(values.is_null()) if values.null_count else None
        return pa.array(numbers, pa.float64(), mask=missing)
    return pc.cast(pc.cast(values, pa.string()), pa.float64())


def to_texts(values: Datum) -> Datum:
    """The digits with all decimals, without an exponent."""
    if isinstance(values, pa.Scalar):
        return to_texts(pa.repeat(values, 1))[0]
    texts = pc.cast(values, pa.string())
    short = pc.fill_null(pc.match_substring(texts, "E"), False)
    if pc.any(short).as_py():
        plain = [f"{value:f}" for value in values.filter(short).to_pylist()]
        texts = pc.replace_with_mask(texts, short, pa.array(plain, pa.string()))
    return texts


def from_texts(texts: Datum, kind: pa.DataType) -> Datum:
    """Texts that are numbers of at most 38 digits on either side of the point."""
    bare = pc.utf8_rtrim(pc.utf8_ltrim(texts, "+"), ".")
    return fitted(pc.cast(bare, _TEXTS), kind)


def from_floats(values: Datum, kind: pa.DataType) -> Datum:
    """The decimals of the shortest texts of floats, as doubles: engines write a FLOAT in different ways."""
    values = pc.cast(values, pa.float64())
    size = pc.abs(values)
    outside = pc.or_(pc.invert(pc.is_finite(values)), pc.greater_equal(size, pa.scalar(1e38, values.type)))
    near = pc.if_else(pc.less(size, pa.scalar(_TINY, values.type)), pa.scalar(0.0, values.type), values)
    return fitted(pc.cast(pc.cast(null_where(outside, near), pa.string()), _TEXTS), kind)
