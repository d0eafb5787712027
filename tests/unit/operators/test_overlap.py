"""Pairs of overlapping rows with equal keys are those of a comparison of all pairs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.changes import Changes
from headrace.operators.overlap import overlapping
from headrace.time import INFINITY, NEG_INFINITY

Row = tuple[int | None, int, int]
times = st.integers(-5, 60) | st.sampled_from([NEG_INFINITY + 1, -(2**62), 2**62, INFINITY - 1])


@st.composite
def rows(draw: st.DrawFn) -> Row:
    start = draw(times)
    end = draw(st.integers(1, 70).map(lambda d: min(start + d, INFINITY)) | st.just(INFINITY))
    return draw(st.sampled_from([0, 0, 0, 1, None])), start, end


def changes(bag: list[Row]) -> tuple[Changes, pa.Table]:
    le, re = (np.array([row[i] for row in bag], np.int64) for i in (1, 2))
    keys = pa.table({"k": pa.array([row[0] for row in bag], pa.int64())})
    return Changes.inserts(le, re, keys), keys


@given(st.lists(rows(), max_size=40), st.lists(rows(), max_size=40), st.booleans())
@example([(0, 10, 11)], [(0, t, t + 1) for t in range(20)], False)
@example([(0, NEG_INFINITY + 1, INFINITY)], [(0, -(2**62), 2**62)] * 9, False)
def test_oracle_pairs(left: list[Row], right: list[Row], nulls: bool):
    (a, left_keys), (b, right_keys) = changes(left), changes(right)
    i, j = overlapping(a, b, left_keys, right_keys, groups=int(nulls))
    expected = [
        (m, n)
        for m, (k, start, end) in enumerate(left)
        for n, (key, begin, stop) in enumerate(right)
        if k == key and (nulls or k is not None) and start < stop and begin < end
    ]
    assert sorted(zip(i.tolist(), j.tolist(), strict=True)) == expected


@pytest.mark.parametrize("size", [1000, 100_000])
def test_oracle_short_events_beside_endless_ones(size: int):
    """Every short event meets the one at its time and the endless ones."""
    at = np.arange(size, dtype=np.int64)
    short, endless = Changes.inserts(at, at + 1, pa.table({"k": at * 0})), [(0, 0, INFINITY)] * 3
    lasting, keys = changes(endless)
    both, both_keys = Changes.concat([short, lasting]), pa.concat_tables([pa.table({"k": at * 0}), keys])
    i, j = overlapping(short, both, pa.table({"k": at * 0}), both_keys)
    expected = np.concatenate([np.stack([at, at]), *(np.stack([at, at * 0 + size + n]) for n in range(3))], axis=1)
    assert sorted(zip(i.tolist(), j.tolist(), strict=True)) == sorted(map(tuple, expected.T.tolist()))
