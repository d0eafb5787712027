"""Hashes are saved in checkpoints and decide buckets, so they are those of other implementations, forever."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.util import hash_array

from headrace.columnar import hash_rows, marks, twins
from headrace.hashing import NULL_HASH, hash_texts, mixed


@given(st.lists(st.text(), max_size=20), st.integers(0, 5))
def test_oracle_texts(texts: list[str], start: int):
    array = pa.array(["first", *texts], pa.string())[min(start, len(texts)) :]
    words = np.array(array.to_pylist(), object)
    assert hash_texts(array).tolist() == hash_array(words, categorize=False).tolist()
    assert hash_texts(array.cast(pa.large_binary())).tolist() == hash_texts(array).tolist()


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_oracle_numbers(numbers: list[int]):
    def finisher(value: int) -> int:
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
        return value ^ (value >> 31)

    assert mixed(np.array(numbers, np.uint64)).tolist() == [finisher(n) for n in numbers]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None, -3]), [538020821241227815, 0, 13927117827302515779]),
        (pa.array([1.5, None, float("nan")]), [17735258107155672501, 0, 11424554300528956693]),
        (pa.array(["a", None, ""]), [6432166962757996159, 0, 2623833426235851552]),
        (pa.array([True, None, False]), [538020821241227815, 0, 16294208416658607535]),
        (pa.array([[1, 2], None, []]), [8018485354402548263, 0, 16294208416658607535]),
    ],
)
def test_a_hash_never_changes(column: pa.Array, expected: list[int]):
    """These are what an earlier Headrace saved."""
    assert hash_rows(pa.table({"c": column})).tolist() == expected


def test_null_has_one_hash_for_all_types():
    columns = [pa.nulls(2, kind) for kind in (pa.int32(), pa.string(), pa.float64(), pa.bool_(), pa.list_(pa.int64()))]
    assert {h for column in columns for h in hash_rows(pa.table({"c": column})).tolist()} == {
        int(mixed(np.array([0], np.uint64) ^ NULL_HASH ^ NULL_HASH)[0])
    }


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "a", None]), st.booleans()), max_size=30))
def test_oracle_rows_that_are_there_more_than_once(rows: list[tuple[int, str | None, bool]]):
    table = pa.table({"i": pa.array([r[0] for r in rows], pa.int64()), "s": pa.array([r[1] for r in rows], pa.string()),
                      "b": pa.array([r[2] for r in rows], pa.bool_())})  # fmt: skip
    repeated = [place for place, row in enumerate(rows) if rows.count(row) > 1]
    assert set(repeated) <= set(twins(marks(table)).tolist())


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), max_size=50))
def test_oracle_numbers_that_are_there_more_than_once(numbers: list[int]):
    expected = [place for place, number in enumerate(numbers) if numbers.count(number) > 1]
    assert twins(np.array(numbers, np.uint64)).tolist() == expected
