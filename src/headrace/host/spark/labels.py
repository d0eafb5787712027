"""Bucket labels that Spark's shuffle spreads evenly.

Spark puts an int into shuffle partition `murmur3(int, 42) mod n`; numbered 0, 1, 2, … two buckets may share a partition
while another stays empty. So bucket i is labelled by the first int that lands in partition i.
"""

from __future__ import annotations

__all__ = ["bucket_labels"]

_MASK = 0xFFFFFFFF


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _MASK


def spark_hash(value: int, seed: int = 42) -> int:
    """Spark's Murmur3 hash of an int."""
    mixed = _rotated(value * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    state = ((_rotated(seed ^ mixed, 13) * 5 + 0xE6546B64) & _MASK) ^ 4
    state = (state ^ (state >> 16)) * 0x85EBCA6B & _MASK
    state = (state ^ (state >> 13)) * 0xC2B2AE35 & _MASK
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


def bucket_labels(buckets: int) -> tuple[int, ...]:
    """`labels[i]` is an int that the shuffle puts into partition i."""
    found: dict[int, int] = {}
    value = 0
    while len(found) < buckets:
        found.setdefault(spark_hash(value) % buckets, value)
        value += 1
    return tuple(found[i] for i in range(buckets))
