"""Hashes of columns and the search for equal ones, each in one pass.

Hashes are saved in checkpoints and decide the bucket of a row, so they never change: numbers are mixed by the finisher
of splitmix64, texts are hashed by SipHash-2-4 with a fixed key and then mixed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.compiled import BYTES, INTS, NEW_UINTS, TRUTHS, UINT, UINTS, compiled, inlined

__all__ = ["NULL_HASH", "UInt64s", "add_marks", "combine", "hash_numbers", "hash_texts", "mixed", "repeated"]

UInt64s = NDArray[np.uint64]

#: The hash of null, and of a row without columns.
NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_MIX, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
#: SipHash's constants, with the key `0123456789123456` in them.
_KEY = [int.from_bytes(b"01234567", "little"), int.from_bytes(b"89123456", "little")]
_V0, _V1, _V2, _V3 = (
    np.uint64(constant ^ _KEY[i % 2])
    for i, constant in enumerate((0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573))
)


@inlined
def _mix(value: np.uint64) -> np.uint64:
    """The finisher of splitmix64: neighbouring values end far apart."""
    value = (value ^ (value >> _30)) * _MIX
    value = (value ^ (value >> _27)) * _MIX_2
    return value ^ (value >> _31)


@compiled(UINTS)
def mixed(values: UInt64s) -> UInt64s:
    """The values, mixed."""
    result = np.empty(len(values), np.uint64)
    for i in range(len(values)):
        result[i] = _mix(values[i])
    return result


@compiled(UINTS, TRUTHS)
def hash_numbers(values: UInt64s, missing: NDArray[np.bool_]) -> UInt64s:
    """The hashes of numbers, given as bits; `missing` has a value for each, or none at all."""
    result = np.empty(len(values), np.uint64)
    for i in range(len(values)):
        result[i] = _mix(values[i])
    for i in range(len(missing)):
        if missing[i]:
            result[i] = NULL_HASH
    return result


@compiled(NEW_UINTS, UINTS)
def combine(result: UInt64s, hashes: UInt64s) -> None:
    """Add the hashes of another column to those of rows, in place."""
    for i in range(len(result)):
        result[i] = _mix(result[i] ^ hashes[i])


@compiled(NEW_UINTS, UINTS, UINT)
def add_marks(result: UInt64s, values: UInt64s, factor: np.uint64) -> None:
    """Add values times an odd factor to the marks of rows, in place."""
    for i in range(len(result)):
        result[i] += (values[i] ^ (values[i] >> _32)) * factor


def hash_texts(column: pa.Array) -> UInt64s:
    """The hashes of texts or bytes; nulls have any."""
    if len(column) == 0:
        return np.empty(0, np.uint64)
    _, offsets, data = column.buffers()
    width = np.int32 if column.type in (pa.string(), pa.binary()) else np.int64
    ends = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1]
    return _sip_hashes(ends.astype(np.int64), np.frombuffer(data if data is not None else b"", np.uint8))


@compiled(INTS, BYTES)
def _sip_hashes(ends: NDArray[np.int64], data: NDArray[np.uint8]) -> UInt64s:
    result = np.empty(len(ends) - 1, np.uint64)
    for i in range(len(result)):
        start, stop = np.int64(ends[i]), np.int64(ends[i + 1])
        v0, v1, v2, v3 = _V0, _V1, _V2, _V3
        while stop - start >= 8:
            v0, v1, v2, v3 = _absorbed(v0, v1, v2, v3, _word(data, start, np.int64(8)))
            start += 8
        size = np.uint64(stop - np.int64(ends[i])) << np.uint64(56)
        v0, v1, v2, v3 = _absorbed(v0, v1, v2, v3, size | _word(data, start, stop - start))
        v2 ^= np.uint64(0xFF)
        for _ in range(4):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        result[i] = _mix(v0 ^ v1 ^ v2 ^ v3)
    return result


@inlined
def _word(data: NDArray[np.uint8], start: np.int64, size: np.int64) -> np.uint64:
    word = np.uint64(0)
    for k in range(size):
        word |= np.uint64(data[start + k]) << np.uint64(8 * k)
    return word


Words = tuple[np.uint64, np.uint64, np.uint64, np.uint64]


@inlined
def _absorbed(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64, word: np.uint64) -> Words:
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ word, v1, v2, v3


@inlined
def _round(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64) -> Words:
    v0 += v1
    v2 += v3
    v1 = _rotated(v1, np.uint64(13)) ^ v0
    v3 = _rotated(v3, np.uint64(16)) ^ v2
    v0 = _rotated(v0, _32) + v3
    v2 += v1
    v3 = _rotated(v3, np.uint64(21)) ^ v0
    v1 = _rotated(v1, np.uint64(17)) ^ v2
    return v0, v1, _rotated(v2, _32), v3


@inlined
def _rotated(value: np.uint64, bits: np.uint64) -> np.uint64:
    return (value << bits) | (value >> (np.uint64(64) - bits))


@compiled(UINTS)
def repeated(numbers: UInt64s) -> NDArray[np.bool_]:
    """Whether each number is there more than once."""
    bits = 4
    while (1 << bits) < 2 * len(numbers):
        bits += 1
    shift, last = np.uint64(64 - bits), (1 << bits) - 1
    table = np.full(1 << bits, -1, np.int64)
    again = np.zeros(len(numbers), np.bool_)
    for i in range(len(numbers)):
        place = np.int64((numbers[i] * NULL_HASH) >> shift)
        while table[place] >= 0 and numbers[table[place]] != numbers[i]:
            place = (place + 1) & last
        if table[place] < 0:
            table[place] = i
        else:
            again[table[place]] = again[i] = True
    return again
