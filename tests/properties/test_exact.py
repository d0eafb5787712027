"""Exact sums against fractions: any values, in any order, with any weights, cut into any batches."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.aggregate.exact import (
    CodedRows,
    as_integers,
    float_squares,
    float_sums,
    integer_squares,
    integer_sums,
    lowest_limb,
    total_float,
    total_integer,
)

floats = st.floats(allow_nan=False, allow_infinity=False)
weights = st.integers(-3, 3).filter(bool)
longs = st.integers(-(2**63), 2**63 - 1)


def one_code(items: list[tuple[float, int]]) -> tuple[np.ndarray, CodedRows]:
    """Values, and the weights with which they are added to one sum."""
    return np.array([v for v, _ in items]), CodedRows(
        np.zeros(len(items), np.int64), np.array([w for _, w in items]), 1
    )


def added(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: sum(part.get(name, np.zeros(1, np.int64)) for part in parts) for part in parts for name in part}


def rounded(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def exactly(columns: dict[str, np.ndarray]) -> Fraction:
    unit = min(lowest_limb(columns), 0)
    return Fraction(int(as_integers(columns, 1, unit)[0])) / 2 ** (-32 * unit)


@given(st.lists(st.tuples(floats, weights), min_size=1, max_size=8), st.integers(1, 4))
def test_oracle_float_sums(items: list[tuple[float, int]], size: int):
    batches = [items[i : i + size] for i in range(0, len(items), size)]
    parts = [float_sums(*one_code(b)) for b in batches]
    right = sum((Fraction(v) * w for v, w in items), Fraction(0))
    assert exactly(added(parts)) == right
    assert total_float(added(parts), 1)[0] == rounded(right)


@given(st.lists(st.tuples(longs, weights), min_size=1, max_size=8), st.integers(1, 4))
def test_oracle_integer_sums(items: list[tuple[int, int]], size: int):
    batches = [items[i : i + size] for i in range(0, len(items), size)]
    parts = [integer_sums(*one_code(b)) for b in batches]
    value, fits = total_integer(added(parts), 1)
    right = sum(v * w for v, w in items)
    assert bool(fits[0]) == (-(2**63) <= right < 2**63)
    assert not fits[0] or value[0] == right
    assert total_float(added(parts), 1)[0] == float(right)


@given(st.lists(floats, min_size=1, max_size=6))
def test_oracle_float_squares(values: list[float]):
    columns = float_squares(*one_code([(v, 1) for v in values]))
    assert exactly(columns) == sum((Fraction(v) ** 2 for v in values), Fraction(0))


@given(st.lists(longs, min_size=1, max_size=6))
def test_oracle_integer_squares(values: list[int]):
    columns = integer_squares(*one_code([(v, 1) for v in values]))
    assert exactly(columns) == sum(v * v for v in values)


@given(st.lists(st.floats(), min_size=1, max_size=5))
def test_oracle_sums_with_what_is_no_number(values: list[float]):
    columns = float_sums(*one_code([(v, 1) for v in values]))
    odd = {str(v) for v in values if not math.isfinite(v)}
    got = total_float(columns, 1)[0]
    if not odd:
        assert got == rounded(sum((Fraction(v) for v in values), Fraction(0)))
    else:
        assert str(float(got)) == (odd.pop() if len(odd) == 1 else "nan")


@given(st.lists(st.tuples(st.one_of(floats, st.integers(-9, 9).map(float)), st.integers(0, 3)), max_size=12))
def test_what_is_added_and_taken_back_leaves_no_digit(items: list[tuple[float, int]]):
    """Digits of a value do not depend on the values beside it: rows that cancel are found by their zeros."""
    values, codes = np.array([v for v, _ in items]), np.array([c for _, c in items], np.int64)
    added_up = float_sums(values, CodedRows(codes, np.ones(len(items), np.int64), 4))
    for value, code in items:
        for name, column in float_sums(np.array([value]), CodedRows(np.array([code]), np.array([-1]), 4)).items():
            added_up[name] = added_up[name] + column
    assert not any(column.any() for column in added_up.values())
