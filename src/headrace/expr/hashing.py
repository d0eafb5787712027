"""A hash of integers by plain arithmetic, so that all engines agree on it.

The number is taken in parts of 31 bits. Each is mixed in by XOR, a product and a remainder by a prime below 2^31, so no
step leaves 64 bits. The seed gives the factors and summands: another seed is another function. It is for
sampling and for count sketches, not for cryptography.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.expr.nodes import Expr
from headrace.schema import Type

__all__ = ["PRIME", "hashed", "uniform"]

#: Hashes are below it.
PRIME = 2**31 - 1
_WORD = 2**64 - 1


def hashed(value: Expr, seed: int = 0) -> Expr:
    """A whole number of `0 … 2147483646` that looks random, and is the same for the same value and seed."""
    whole = value.cast(Type.LONG)
    numbers = _numbers(seed)
    low, high, top = whole.bit_and(PRIME), whole.shift_right(31).bit_and(PRIME), whole.shift_right(62).bit_and(3)
    found = _mixed(low.bit_xor(next(numbers)), numbers)
    for part in (high, top):
        found = _mixed(found.bit_xor(part), numbers)
    return _mixed(found.bit_xor(next(numbers)), numbers)


def uniform(value: Expr, seed: int = 0) -> Expr:
    """A number of `[0, 1)` that looks random, and is the same for the same value and seed."""
    return hashed(value, seed) / float(PRIME)


def _mixed(value: Expr, numbers: Iterator[int]) -> Expr:
    return (value * (next(numbers) % (PRIME - 2) + 2) + next(numbers)) % PRIME


def _numbers(seed: int) -> Iterator[int]:
    """Numbers of 31 bits without end, from a seed: SplitMix64."""
    state = seed & _WORD
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _WORD
        mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _WORD
        yield (mixed ^ (mixed >> 31)) & PRIME
