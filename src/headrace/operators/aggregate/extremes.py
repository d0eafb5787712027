"""The least and the greatest value of every code, of any type; nulls do not count, and NaN is counted apart."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.columnar import Bools, Int64s, to_numpy
from headrace.operators.aggregate import loops

__all__ = ["extremes"]

_NO_NULLS = np.empty(0, bool)


def extremes(values: pa.Array, codes: Int64s, size: int) -> tuple[pa.Array, pa.Array, Int64s | None]:
    """The least and greatest values of codes `0..size-1`, null where there are none; how many are NaN, of floats."""
    kind = values.type
    valid = np.asarray(pc.is_valid(values)) if values.null_count else _NO_NULLS
    if pa.types.is_floating(kind):
        return _of_floats(values, valid, codes, size)
    if pa.types.is_signed_integer(kind) or (pa.types.is_temporal(kind) and not pa.types.is_date32(kind)):
        return *_of_integers(values, valid, codes, size), None
    return *_of_others(values, codes, size), None


def _of_floats(values: pa.Array, valid: Bools, codes: Int64s, size: int) -> tuple[pa.Array, pa.Array, Int64s]:
    low, high, nans = np.full(size, np.inf), np.full(size, -np.inf), np.zeros(size, np.int64)
    numbers = values if values.type == pa.float64() else pc.cast(values, pa.float64())
    loops.float_ends(numbers.to_numpy(zero_copy_only=False), valid, codes, low, high, nans)
    return *(pc.cast(pa.array(ends, mask=low > high), values.type) for ends in (low, high)), nans


def _of_integers(values: pa.Array, valid: Bools, codes: Int64s, size: int) -> tuple[pa.Array, pa.Array]:
    ends = np.iinfo(np.int64)
    low, high = np.full(size, ends.max), np.full(size, ends.min)
    numbers = pc.cast(values, pa.int64())
    numbers = pc.fill_null(numbers, 0) if values.null_count else numbers
    loops.int_ends(to_numpy(numbers), valid, codes, low, high)
    least, greatest = (pc.cast(pa.array(column, mask=low > high), values.type) for column in (low, high))
    return least, greatest


def _of_others(values: pa.Array, codes: Int64s, size: int) -> tuple[pa.Array, pa.Array]:
    """Text and truth values, by Arrow."""
    table = pa.table({"code": codes, "value": values})
    ends = table.group_by("code", use_threads=False).aggregate([("value", "min"), ("value", "max")])
    row = np.empty(size, np.int64)
    row[to_numpy(ends.column("code"))] = np.arange(ends.num_rows)
    least, greatest = (ends.column(f"value_{how}").combine_chunks().take(pa.array(row)) for how in ("min", "max"))
    return least, greatest
