"""Small columnar tools that every layer uses: row codes, row hashes, sums per group.

All of them handle a whole table in a handful of NumPy or Arrow calls; none loops over rows. Nulls equal nulls, NaN
equals NaN and -0.0 equals 0.0, because rows are compared here as data, not by SQL's rules. Lists are compared element
by element; Arrow can neither encode nor sort them, so `Lists` takes them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace import native

__all__ = [
    "Bools", "Int64s", "Lists", "canonical_floats", "concat", "factorize", "group_sum", "hash_rows", "marks",
    "sortable", "to_numpy", "twins",
]  # fmt: skip

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
#: Numbers of several columns stay below this.
_MOST_NUMBERS = 2**62
#: A table of all numbers in a range has so many places for each row, or so few.
_SPARSE, _FEW = 4, 1024
_OF_64_BITS = (pa.int64(), pa.uint64(), pa.float64())


def to_numpy(column: pa.ChunkedArray | pa.Array) -> Int64s:
    """A column of int64 without nulls as an array, without copying when it is one chunk."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def canonical_floats(table: pa.Table) -> pa.Table:
    """`table` with one NaN and one zero, so that equal values have equal bits."""
    for i, field in enumerate(table.schema):
        if pa.types.is_floating(field.type) and table.num_rows:
            table = table.set_column(i, field, _canonical(table.column(i)))
        elif pa.types.is_list(field.type) and pa.types.is_floating(field.type.value_type) and table.num_rows:
            lists = Lists.of(table.column(i))
            table = table.set_column(i, field, lists.with_elements(_canonical(lists.elements)))
    return table


def _canonical(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    column = pc.add(column, pa.scalar(0.0, column.type))
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)


@dataclass(frozen=True, eq=False)
class Lists:
    """A column of lists taken apart: list i is `elements[offsets[i]:offsets[i + 1]]`, or null."""

    offsets: NDArray[np.int64]
    elements: pa.Array
    missing: NDArray[np.bool_]

    @classmethod
    def of(cls, column: pa.ChunkedArray | pa.Array) -> Lists:
        """The parts of a column; elements inside null lists are left out."""
        lengths = to_numpy(pc.fill_null(pc.list_value_length(column), 0)).astype(np.int64)
        elements = pc.list_flatten(column)
        if isinstance(elements, pa.ChunkedArray):
            elements = elements.combine_chunks()
        return cls(np.r_[np.int64(0), np.cumsum(lengths)], elements, to_numpy(pc.is_null(column)).astype(bool))

    def array(self) -> pa.Array:
        """The column of lists."""
        mask = pa.array(self.missing) if self.missing.any() else None
        return pa.ListArray.from_arrays(pa.array(self.offsets, pa.int32()), self.elements, mask=mask)

    def with_elements(self, elements: pa.Array) -> pa.Array:
        """The column with other elements in the same places."""
        return Lists(self.offsets, elements, self.missing).array()

    def keys(self) -> pa.Array:
        """Bytes for every list: equal for equal lists, and in the order of the lists, element by element."""
        encoded = pc.dictionary_encode(self.elements, null_encoding="encode")
        rank = np.empty(len(encoded.dictionary), ">u8")
        rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
        data = rank[encoded.indices.to_numpy(zero_copy_only=False)]
        offsets = pa.py_buffer(self.offsets * rank.itemsize)
        size = len(self.missing)
        keys = pa.Array.from_buffers(pa.large_binary(), size, [None, offsets, pa.py_buffer(np.ascontiguousarray(data))])
        return pc.if_else(pa.array(self.missing), pa.scalar(None, keys.type), keys) if self.missing.any() else keys


def sortable(table: pa.Table) -> pa.Table:
    """`table` with lists as bytes in the same order, which Arrow can sort by."""
    for i, field in enumerate(table.schema):
        if pa.types.is_list(field.type):
            table = table.set_column(i, field.name, Lists.of(table.column(i)).keys())
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
    chunk = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return pc.dictionary_encode(chunk, null_encoding="encode")


def factorize(table: pa.Table) -> tuple[Int64s, Int64s]:
    """`(codes, first)`: rows with equal values share a code `0..g-1`; `first[c]` is the first row with code c.

    Codes are in the order of their first rows.
    """
    n = table.num_rows
    if n == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    numbers, low, size = np.zeros(n, np.int64), 0, 1
    for digits in (digits for column in sortable(canonical_floats(table)).columns for digits in _digits(column)):
        least, greatest = native.ends(digits)
        span = greatest - least + 1
        if size * span > _MOST_NUMBERS:
            numbers, low, size = _renumbered(numbers, low, size)
            digits, least, span = _renumbered(digits, least, span)
        if size == 1:
            numbers, low, size = digits, least, span
        elif span > 1:
            numbers, low, size = native.with_digit(numbers, low, digits, least, span), 0, size * span
    return _codes(numbers, low, size)


def _digits(column: pa.ChunkedArray) -> list[Int64s]:
    """Numbers that distinguish the values of a column: numbers and short texts stand for themselves; null is apart."""
    kind = column.type
    if column.null_count and (pa.types.is_signed_integer(kind) or pa.types.is_string(kind)):
        some = pa.scalar("" if pa.types.is_string(kind) else 0, kind)
        return [to_numpy(pc.is_null(column)).astype(np.int64), *_digits(pc.fill_null(column, some))]
    if column.null_count == 0 and pa.types.is_float64(kind):
        return [to_numpy(column).view(np.int64)]
    if column.null_count == 0 and (pa.types.is_signed_integer(kind) or pa.types.is_timestamp(kind)):
        return [to_numpy(column if kind == pa.int64() else pc.cast(column, pa.int64()))]
    numbers = _short_texts(column) if pa.types.is_string(kind) else None
    return [_numbered(column)[0] if numbers is None else numbers]


def _short_texts(column: pa.ChunkedArray) -> Int64s | None:
    """Numbers in place of texts; None if some are too long."""
    texts = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    _, places, data = texts.buffers()
    if data is None:
        return np.zeros(len(texts), np.int64)
    offsets, numbers = np.frombuffer(places, np.int32)[texts.offset :], np.empty(len(texts), np.int64)
    return numbers if native.short_texts(offsets, np.frombuffer(data, np.uint8), numbers) else None


def _codes(numbers: Int64s, low: int, size: int) -> tuple[Int64s, Int64s]:
    """Codes for numbers `low..low+size-1`."""
    n = len(numbers)
    codes, first = np.empty(n, np.int64), np.empty(min(n, size), np.int64)
    dense = size <= max(_SPARSE * n, _FEW)
    count = (
        native.dense_codes(numbers, low, size, codes, first) if dense else native.hashed_codes(numbers, codes, first)
    )
    return codes, first[:count]


def _renumbered(numbers: Int64s, low: int, size: int) -> tuple[Int64s, int, int]:
    """Codes in place of numbers, if that is shorter: their least, and the size of their range."""
    if size <= len(numbers):
        return numbers, low, size
    codes, first = _codes(numbers, low, size)
    return codes, 0, len(first)


def _numbered(column: pa.ChunkedArray) -> tuple[Int64s, int]:
    """Numbers `0..size-1` for the distinct values of a column, possibly with gaps: integers stand for themselves."""
    kind = column.type
    if not column.null_count and (pa.types.is_signed_integer(kind) or pa.types.is_timestamp(kind)):
        values = to_numpy(pc.cast(column, pa.int64()))
        low, high = int(values.min()), int(values.max())
        if high - low < _MOST_NUMBERS:
            return values - low, high - low + 1
    encoded = _encoded(column)
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


def marks(table: pa.Table) -> NDArray[np.uint64]:
    """A number for each row, equal for equal rows of this table and hardly ever for others; quicker than `hash_rows`.

    Values are multiplied by odd constants and added up. They mean nothing outside this table.
    """
    result = np.zeros(table.num_rows, np.uint64)
    factor = int(_MIX)
    for column in sortable(canonical_floats(table)).columns if table.num_rows else ():
        if not column.null_count and column.type in _OF_64_BITS:
            numbers = to_numpy(column).view(np.uint64)
        else:
            numbers = _numbered(column)[0].view(np.uint64)
        result += (numbers ^ (numbers >> np.uint64(32))) * np.uint64(factor)
        factor = (factor * int(_MIX_2)) % 2**64
    return result


def twins(numbers: NDArray[np.uint64]) -> Int64s:
    """The places of all numbers that are there more than once."""
    order = np.argsort(numbers)
    ordered = numbers[order]
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    again = np.zeros(len(order), bool)
    again[same] = again[same + 1] = True
    return np.sort(order[again])


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
    elif pa.types.is_list(kind):
        return _hash_lists(Lists.of(column))
    else:
        return _hash_text(column)
    if column.null_count:
        hashed = np.where(to_numpy(pc.is_null(column)), _NULL_HASH, hashed)
    return hashed


def _hash_text(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    # Text repeats: hash each distinct value once.
    encoded = _encoded(column)
    words = encoded.dictionary.to_numpy(zero_copy_only=False).astype(object)
    missing = np.asarray(pc.is_null(encoded.dictionary))
    words[missing] = ""
    # Here, because loading pandas takes longer than all the rest of a start-up, and a command may not need it.
    from pandas.util import hash_array

    hashed = hash_array(words, categorize=False)
    hashed[missing] = _NULL_HASH
    return hashed[encoded.indices.to_numpy(zero_copy_only=False)]  # type: ignore[no-any-return]


def _hash_lists(lists: Lists) -> NDArray[np.uint64]:
    """Of every element and its place: what is in another order is another list."""
    lengths = np.diff(lists.offsets)
    places = (np.arange(len(lists.elements)) - np.repeat(lists.offsets[:-1], lengths)).astype(np.uint64)
    each = _mixed(_hash_column(pa.chunked_array([lists.elements])) ^ _mixed(places))
    total = np.r_[np.uint64(0), np.cumsum(each, dtype=np.uint64)]  # wraps; differences of what has wrapped are right
    hashed = _mixed((total[lists.offsets[1:]] - total[lists.offsets[:-1]]) ^ _mixed(lengths.astype(np.uint64)))
    return np.where(lists.missing, _NULL_HASH, hashed)


def _mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finisher of splitmix64: neighbouring values end far apart."""
    with np.errstate(over="ignore"):
        value = (value ^ (value >> np.uint64(30))) * _MIX
        value = (value ^ (value >> np.uint64(27))) * _MIX_2
        return value ^ (value >> np.uint64(31))


def group_sum(codes: Int64s, values: Int64s, groups: int) -> Int64s:
    """The exact int64 sum of `values` per code."""
    result = np.zeros(groups, np.int64)
    native.add_by_code(np.ascontiguousarray(codes), np.ascontiguousarray(values, np.int64), result)
    return result
