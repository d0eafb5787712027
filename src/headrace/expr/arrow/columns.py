"""Columns for kernels: Arrow arrays and scalars, and NumPy values with a mask of valid rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["Datum", "Kernel", "from_numpy", "null_where", "repeated", "to_numpy", "valid"]

Datum = Any  # pa.Array | pa.Scalar; pyarrow ships no types
Kernel = Callable[..., Datum]


def to_numpy(datum: Datum) -> NDArray[Any]:
    """The values, zero where NULL; a scalar becomes an array without dimensions, which broadcasts."""
    if isinstance(datum, pa.Scalar):
        value = datum.as_py()
        return np.asarray(0 if value is None else value, dtype=datum.type.to_pandas_dtype())
    if datum.null_count:
        datum = pc.fill_null(datum, pa.scalar(0, pa.int8()).cast(datum.type))
    return np.asarray(datum.to_numpy(zero_copy_only=False))


def valid(*data: Datum) -> NDArray[np.bool_] | None:
    """A mask of the rows where none of `data` is NULL, or None if there are no NULLs."""
    mask: NDArray[np.bool_] | None = None
    for datum in data:
        if isinstance(datum, pa.Scalar):
            here = None if datum.is_valid else np.asarray(False)
        else:
            here = np.asarray(datum.is_valid().to_numpy(zero_copy_only=False)) if datum.null_count else None
        if here is not None:
            mask = here if mask is None else mask & here
    return mask


def from_numpy(values: NDArray[Any], mask: NDArray[np.bool_] | None, type: pa.DataType) -> pa.Array:
    """An array of `values`, NULL where `mask` is False."""
    return pa.array(values, type=type, mask=None if mask is None else ~np.broadcast_to(mask, values.shape))


def repeated(value: pa.Scalar, rows: int) -> pa.Array:
    """A value in so many rows; Arrow itself repeats no list zero times."""
    return pa.repeat(value, rows) if rows else pa.array([], value.type)


def null_where(condition: Datum, datum: Datum) -> Datum:
    """`datum`, NULL where the condition is true."""
    return pc.if_else(pc.fill_null(condition, False), pa.scalar(None, datum.type), datum)
