"""Small columnar tools that every layer uses: row codes, row hashes, sums per group.

All of them handle a whole table in a handful of NumPy or Arrow calls; none loops over rows. Nulls equal nulls, NaN
equals NaN and -0.0 equals 0.0, because rows are compared here as data, not by SQL's rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["canonical_floats", "concat", "factorize", "group_sum", "hash_rows", "to_numpy"]

_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def to_numpy(column: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    """A column of int64 without nulls as an array, without copying when it is one chunk."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def canonical_floats(table: pa.Table) -> pa.Table:
    """`table` with one NaN and one zero, so that equal values have equal bits."""
    for i, field in enumerate(table.schema):
        if pa.types.is_floating(field.type) and table.num_rows:
            column = pc.add(table.column(i), pa.scalar(0.0, field.type))
            nan = pa.scalar(float("nan"), field.type)
            table = table.set_column(i, field, pc.if_else(pc.is_nan(column), nan, column))
    return table


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables; a column that one of them lacks is null there."""
    kept = [t for t in tables if t.num_rows] or list(tables[:1])
    if len(kept) == 1:
        return kept[0]
    return pa.concat_tables(kept, promote_options="default")


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """The distinct values of a column and where they are; null is one of them."""
    # One chunk first: Arrow cannot unify the dictionaries of several when null is a value.
    whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return pc.dictionary_encode(whole, null_encoding="encode")


def _codes(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], int]:
    encoded = _encoded(column)
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


def factorize(table: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`(codes, first)`: rows with equal values share a code `0..g-1`; `first[c]` is the first row with code c."""
    n = table.num_rows
    codes, size = np.zeros(n, np.int64), min(n, 1)
    for i, column in enumerate(canonical_floats(table).columns):
        more, cardinality = _codes(column)
        if i == 0:
            codes, size = more, cardinality
        else:
            codes, size = _codes(pa.chunked_array([pa.array(codes * max(cardinality, 1) + more)]))
    first = np.empty(size, np.int64)
    first[codes[::-1]] = np.arange(n - 1, -1, -1)
    return codes, first


def hash_rows(table: pa.Table) -> NDArray[np.uint64]:
    """A 64-bit hash of each row, the same in every process and version; also what decides a row's bucket."""
    result = np.full(table.num_rows, _NULL_HASH, np.uint64)
    for column in canonical_floats(table).columns:
        result = _mixed(result ^ _hash_column(column))
    return result


def _hash_column(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        values = pc.fill_null(pc.cast(column, pa.int64()), 0)
        hashed = _mixed(to_numpy(values).view(np.uint64))
    elif pa.types.is_timestamp(kind):
        return _hash_column(pc.cast(column, pa.int64()))
    elif pa.types.is_floating(kind):
        values = pc.fill_null(pc.cast(column, pa.float64()), 0.0)
        hashed = _mixed(to_numpy(values).view(np.uint64))
    else:
        return _hash_text(column)
    if column.null_count:
        hashed = np.where(to_numpy(pc.is_null(column)), _NULL_HASH, hashed)
    return hashed


def _hash_text(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    # Text repeats: hash each distinct value once.
    encoded = _encoded(column)
    words = encoded.dictionary.to_numpy(zero_copy_only=False).astype(object)
    missing = np.array([w is None for w in words], bool)
    words[missing] = ""
    # Here, because loading pandas takes longer than all the rest of a start-up, and a command may not need it.
    from pandas.util import hash_array

    hashed = hash_array(words, categorize=False)
    hashed[missing] = _NULL_HASH
    return hashed[encoded.indices.to_numpy(zero_copy_only=False)]  # type: ignore[no-any-return]


def _mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finisher of splitmix64: neighbouring values end far apart."""
    with np.errstate(over="ignore"):
        value = (value ^ (value >> np.uint64(30))) * _MIX
        value = (value ^ (value >> np.uint64(27))) * _MIX_2
        return value ^ (value >> np.uint64(31))


def group_sum(codes: NDArray[np.int64], values: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """The exact int64 sum of `values` per code."""
    result = np.zeros(groups, np.int64)
    np.add.at(result, codes, values)
    return result
