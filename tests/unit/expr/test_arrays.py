"""Lists: made of values, and their elements."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ExpressionError
from headrace.expr import array, col, evaluate
from headrace.schema import Schema

LISTS = st.lists(st.none() | st.lists(st.none() | st.integers(0, 3), max_size=3), min_size=1, max_size=6)


@given(LISTS, st.none() | st.integers(-1, 4))
def test_oracle_elements(lists: list[list[int | None] | None], value: int | None):
    whole = pa.array([[1], *lists], pa.list_(pa.int64()))
    table = pa.table({"a": whole}).slice(1)  # a column that does not begin at 0
    a = col("a")

    def contains(one: list[int | None] | None) -> bool | None:
        if one is None or (value is None and one):
            return None
        return True if value in one else None if None in one else False

    def element(one: list[int | None] | None) -> int | None:
        return one[value - 1] if one is not None and value is not None and 1 <= value <= len(one) else None

    assert evaluate(a.cardinality(), table).to_pylist() == [None if one is None else len(one) for one in lists]
    assert evaluate(a.element_at(value), table).to_pylist() == list(map(element, lists))
    assert evaluate(a.array_contains(value), table).to_pylist() == list(map(contains, lists))


def test_a_list_of_columns_and_values():
    table = pa.table({"x": [1, None], "y": [2.5, 3.5]})
    assert evaluate(array("x", 7, None), table).to_pylist() == [[1, 7, None], [None, 7, None]]
    assert evaluate(array("x", "y"), table).to_pylist() == [[1.0, 2.5], [None, 3.5]]
    assert array("x", "y").type(Schema.of("x LONG, y DOUBLE")).value == "ARRAY<DOUBLE>"
    assert evaluate(array(1, 2), table).to_pylist() == [[1, 2], [1, 2]]


def test_lists_in_pieces():
    chunks = pa.chunked_array([pa.array([[1, 2]]), pa.array([[3], []], pa.list_(pa.int64()))])
    assert evaluate(col("a").element_at(1), pa.table({"a": chunks})).to_pylist() == [1, 3, None]


@pytest.mark.parametrize(
    ("expr", "says"),
    [
        (array("x", "s"), "numbers with numbers"),
        (col("x").element_at(1), "a list"),
        (col("a").element_at("b"), "whole number"),
        (col("a").array_contains("b"), "numbers with numbers"),
        (col("a").array_contains(0.5), "LONG"),
        (col("x").cardinality(), "a list"),
    ],
)
def test_mistakes(expr: object, says: str):
    with pytest.raises(ExpressionError, match=says):
        expr.type(Schema.of("x LONG, s STRING, a ARRAY<LONG>"))  # type: ignore[attr-defined]
