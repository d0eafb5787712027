"""Bit operations on integers, with the sign as the first bit."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from headrace.expr.arrow.columns import Datum, Kernel, from_numpy, to_numpy, valid

__all__ = ["BITS"]


def _shift(kernel: Kernel) -> Kernel:
    """`kernel` for a valid number of places, else NULL."""

    def shifted(a: Datum, places: Datum) -> Datum:
        bits, by, mask = to_numpy(a), to_numpy(places), valid(a, places)
        fits = (by >= 0) & (by < a.type.bit_width)
        moved = kernel(bits, np.where(fits, by, 0).astype(bits.dtype))
        return from_numpy(moved, fits if mask is None else fits & mask, a.type)

    return shifted


BITS: dict[str, Kernel] = {
    "bit_and": pc.bit_wise_and,
    "bit_or": pc.bit_wise_or,
    "bit_xor": pc.bit_wise_xor,
    "bit_not": pc.bit_wise_not,
    "shift_left": _shift(np.left_shift),
    "shift_right": _shift(np.right_shift),
}
