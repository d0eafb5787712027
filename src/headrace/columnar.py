"""Small columnar tools that every layer uses: row codes, row hashes, sums per group.

All of them handle a whole table in a handful of NumPy or Arrow calls; none loops over rows. Nulls equal nulls, NaN
equals NaN and -0.0 equals 0.0, because rows are compared here as data, not by SQL's rules. Lists are compared element
by element, structs field by field; Arrow can neither encode nor sort them, so they are taken apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace import coding
from headrace.hashing import NULL_HASH, UInt64s, add_marks, combine, hash_numbers, hash_texts, mixed, repeated

__all__ = [
    "Bools", "Int64s", "Lists", "canonical_floats", "concat", "factorize", "group_sum", "hash_rows", "marks",
    "sortable", "struct_of", "struct_parts", "to_numpy", "twins",
]  # fmt: skip

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

_MARK, _MARK_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_NOTHING = np.empty(0, bool)
_TEXTS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
#: Numbers of several columns stay below this.
_MOST_NUMBERS = 2**62
#: A table of all numbers in a range has so many places for each row, or so few.
_SPARSE, _FEW = 4, 1024


def to_numpy(column: pa.ChunkedArray | pa.Array) -> Int64s:
    """A column of int64 without nulls as an array, without copying when it is one chunk."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def canonical_floats(table: pa.Table) -> pa.Table:
    """`table` with one NaN and one zero, so that equal values have equal bits."""
    for i, field in enumerate(table.schema):
        if _has_floats(field.type) and table.num_rows:
            table = table.set_column(i, field, _canonical(table.column(i)))
    return table


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _canonical(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    if not _has_floats(column.type):
        return column
    if pa.types.is_list(column.type):
        lists = Lists.of(column)
        return lists.with_elements(_canonical(lists.elements))
    if pa.types.is_struct(column.type):
        return struct_of(column.type, map(_canonical, struct_parts(column)), column)
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
        return _as_bytes(_ranks(self.elements), self.offsets, self.missing)


def struct_parts(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    """The fields of a column of structs, null where the struct is."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return list(column.flatten())


def struct_of(kind: pa.DataType, parts: Iterable[pa.Array], like: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column of structs, null where another one is."""
    mask = pa.array(to_numpy(pc.is_null(like)).astype(bool)) if like.null_count else None
    return pa.StructArray.from_arrays(list(parts), fields=list(kind), mask=mask)


def _ranks(values: pa.Array) -> NDArray[np.uint64]:
    """A number for every value, in the order of the values; null is the last."""
    encoded = pc.dictionary_encode(_comparable(values), null_encoding="encode")
    rank = np.empty(len(encoded.dictionary), ">u8")
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    ranks: NDArray[np.uint64] = rank[encoded.indices.to_numpy(zero_copy_only=False)]
    return ranks


def _as_bytes(ranks: NDArray[np.uint64], offsets: Int64s, missing: Bools) -> pa.Array:
    data, places = pa.py_buffer(np.ascontiguousarray(ranks)), pa.py_buffer(offsets * ranks.itemsize)
    keys = pa.Array.from_buffers(pa.large_binary(), len(missing), [None, places, data])
    return pc.if_else(pa.array(missing), pa.scalar(None, keys.type), keys) if missing.any() else keys


def _comparable(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Lists and structs as bytes in the same order, which Arrow can sort by and encode."""
    if pa.types.is_list(column.type):
        return Lists.of(column).keys()
    if not pa.types.is_struct(column.type):
        return column
    ranks = [_ranks(part) for part in struct_parts(column)]
    offsets = np.arange(len(column) + 1, dtype=np.int64) * len(ranks)
    return _as_bytes(np.stack(ranks, axis=1), offsets, to_numpy(pc.is_null(column)).astype(bool))


def sortable(table: pa.Table) -> pa.Table:
    """`table` with lists and structs as bytes in the same order, which Arrow can sort by."""
    for i, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            table = table.set_column(i, field.name, _comparable(table.column(i)))
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
        least, greatest = coding.ends(digits)
        span = greatest - least + 1
        if size * span > _MOST_NUMBERS:
            numbers, low, size = _renumbered(numbers, low, size)
            digits, least, span = _renumbered(digits, least, span)
        if size == 1:
            numbers, low, size = digits, least, span
        elif span > 1:
            numbers, low, size = coding.with_digit(numbers, low, digits, least, span), 0, size * span
    return _codes(numbers, low, size)


def _digits(column: pa.ChunkedArray) -> list[Int64s]:
    """Numbers that distinguish the values of a column: numbers and short texts stand for themselves; null is apart."""
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return _digits(pc.cast(column, pa.int32() if pa.types.is_date32(kind) else pa.int64()))
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
    return numbers if coding.short_texts(offsets, np.frombuffer(data, np.uint8), numbers) else None


def _codes(numbers: Int64s, low: int, size: int) -> tuple[Int64s, Int64s]:
    """Codes for numbers `low..low+size-1`."""
    n = len(numbers)
    codes, first = np.empty(n, np.int64), np.empty(min(n, size), np.int64)
    dense = size <= max(_SPARSE * n, _FEW)
    count = (
        coding.dense_codes(numbers, low, size, codes, first) if dense else coding.hashed_codes(numbers, codes, first)
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


def marks(table: pa.Table) -> UInt64s:
    """A number for each row, equal for equal rows of this table and hardly ever for others, unless nested ones differ.

    Values are multiplied by odd constants and added up. They mean nothing outside this table.
    """
    result = np.zeros(table.num_rows, np.uint64)
    factor = _MARK
    for column in canonical_floats(table).columns if table.num_rows else ():
        if not pa.types.is_nested(column.type):
            add_marks(result, _bits(column), np.uint64(factor))
            factor = (factor * _MARK_2) % 2**64
    return result


def _bits(column: pa.ChunkedArray) -> UInt64s:
    """A number for each value of a column, equal for equal ones: numbers as they are, 0 for null, hashes of texts."""
    kind = column.type
    if kind in _TEXTS:
        return _hash_column(column)
    if pa.types.is_decimal(kind):
        return _decimal_bits(column)
    if pa.types.is_date32(kind):
        column = pc.cast(column, pa.int32())
    wide = kind if kind == pa.uint64() else pa.float64() if pa.types.is_floating(kind) else pa.int64()
    values = pc.cast(column, wide)
    return to_numpy(pc.fill_null(values, 0) if values.null_count else values).view(np.uint64)


def _decimal_bits(column: pa.ChunkedArray) -> UInt64s:
    """A number for each decimal: its digits in 64 bits, changed by the 64 above them."""
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), np.uint64)
    words = np.frombuffer(data, np.uint64)[: 2 * (array.offset + len(array))].reshape(-1, 2)[array.offset :]
    low, high = np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])
    bits = low ^ mixed(high)
    if array.null_count:
        bits = np.where(to_numpy(pc.is_null(array)).astype(bool), np.uint64(0), bits)
    return bits


def twins(numbers: UInt64s) -> Int64s:
    """The places of all numbers that are there more than once."""
    return np.flatnonzero(repeated(numbers))


def hash_rows(table: pa.Table) -> UInt64s:
    """A 64-bit hash of each row, the same in every process and version; also what decides a row's bucket."""
    result = np.full(table.num_rows, NULL_HASH, np.uint64)
    for column in canonical_floats(table).columns:
        combine(result, _hash_column(column))
    return result


def _hash_column(column: pa.ChunkedArray) -> UInt64s:
    kind = column.type
    if pa.types.is_list(kind):
        return _hash_lists(Lists.of(column))
    if pa.types.is_struct(kind):
        return _hash_structs(column)
    missing = to_numpy(pc.is_null(column)).astype(bool) if column.null_count else _NOTHING
    if kind not in _TEXTS:
        return hash_numbers(_bits(column), missing)
    hashed = hash_texts(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
    return np.where(missing, NULL_HASH, hashed) if len(missing) else hashed


def _hash_structs(column: pa.ChunkedArray) -> UInt64s:
    hashed = np.full(len(column), NULL_HASH, np.uint64)
    for part in struct_parts(column):
        combine(hashed, _hash_column(pa.chunked_array([part])))
    return np.where(to_numpy(pc.is_null(column)).astype(bool), NULL_HASH, hashed)


def _hash_lists(lists: Lists) -> UInt64s:
    """Of every element and its place: what is in another order is another list."""
    lengths = np.diff(lists.offsets)
    places = (np.arange(len(lists.elements)) - np.repeat(lists.offsets[:-1], lengths)).astype(np.uint64)
    each = mixed(_hash_column(pa.chunked_array([lists.elements])) ^ mixed(places))
    total = np.r_[np.uint64(0), np.cumsum(each, dtype=np.uint64)]  # wraps; differences of what has wrapped are right
    hashed = mixed((total[lists.offsets[1:]] - total[lists.offsets[:-1]]) ^ mixed(lengths.astype(np.uint64)))
    return np.where(lists.missing, NULL_HASH, hashed)


def group_sum(codes: Int64s, values: Int64s, groups: int) -> Int64s:
    """The exact int64 sum of `values` per code."""
    result = np.zeros(groups, np.int64)
    coding.add_by_code(np.ascontiguousarray(codes, np.int64), np.ascontiguousarray(values, np.int64), result)
    return result
