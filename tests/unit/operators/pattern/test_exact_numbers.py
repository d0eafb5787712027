"""Conditions of patterns over DECIMAL and DATE: as over DOUBLE, and exact."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import SqlError

CONDITIONS = [
    "B.p > A.p", "B.p <= A.p * 2", "B.p - A.p > 0.5", "B.p = A.p", "B.p <> A.p", "B.p > FIRST(A.p)", "B.p > MIN(A.p)",
    "B.p IN (A.p, 3)", "B.p + A.p > 3.25", "CAST(B.p AS DOUBLE) > A.p", "A.p IS NULL OR B.p < LAST(A.p) + 0.001",
    "B.p > CASE WHEN A.p > 1 THEN A.p ELSE 0 END", "B.p > COALESCE(A.p, 2)", "B.p > GREATEST(A.p, 1.5)",
    "B.p / A.p > 1", "B.p > PREV(B.p) - 1",
]  # fmt: skip
VALUES = st.one_of(st.none(), st.sampled_from([0, 0.25, 1, 1.5, 2, 2.75, 3, 4]))


def matches(kind: str, values: list[Any], condition: str, pattern: str) -> list[tuple[int, int]]:
    """The times of matches, the same in batches of one row, and as batch SQL."""
    rows = hr.events([{"le": at, "p": value} for at, value in enumerate(values)], f"p {kind}")
    made = hr.sql(
        f"SELECT * FROM t MATCH_RECOGNIZE (MEASURES count(*) AS n PATTERN ({pattern}) DEFINE B AS {condition}) AS m",
        t=rows,
    )
    found = made.cht()
    assert not hr.history_diff(made.run(batch_rows=1).cht(), found)
    assert not hr.history_diff(made.history(engine="duckdb").cht(), found)
    return sorted((row["le"], row["n"]) for row in found.to_pylist())


@pytest.mark.parametrize("condition", CONDITIONS)
@settings(max_examples=3)
@given(st.lists(VALUES, min_size=1, max_size=7), st.sampled_from(["A B", "A+ B", "A? B", "B+"]))
def test_decimals_match_as_doubles(condition: str, values: list[float | None], pattern: str):
    if "A" not in pattern and "A." in condition:
        pattern = "A? B"
    exact = [None if value is None else Decimal(str(value)) for value in values]
    found = matches("DECIMAL(10,2)", exact, condition, pattern)
    assert found == matches("DOUBLE", values, condition, pattern)


def test_decimals_are_exact_where_doubles_are_not():
    assert matches("DECIMAL(4,2)", [Decimal("0.1"), Decimal("0.3")], "B.p = A.p + 0.2", "A B") == [(1, 2)]
    large = [Decimal(10**17), Decimal(10**17) + 1]
    assert matches("DECIMAL(18,0)", large, "B.p > A.p", "A B") == [(1, 2)]


def test_days():
    day = date(1969, 12, 31)
    values = [day, day + timedelta(days=1), None, day + timedelta(days=9), day]
    assert matches("DATE", values, "B.p > A.p", "A B") == [(1, 2)]
    assert matches("DATE", values, "B.p >= FIRST(A.p) AND B.p IS NOT NULL", "A+ B") == [(4, 5)]
    assert matches("DATE", values, "YEAR(A.p) < 1970", "A B") == [(1, 2)]


@pytest.mark.parametrize(
    ("condition", "given_as"),
    [
        ("B.p > sum(A.p)", "CAST(\"B.p\" AS DECIMAL(38,2))"),
        ("SQRT(COALESCE(A.p, 4)) < 3", "sqrt(coalesce(\"A.p\", 4))"),
    ],
)  # fmt: skip
def test_what_cannot_be_computed_is_named_as_it_was_written(condition: str, given_as: str):
    with pytest.raises(SqlError, match="a pattern's condition cannot compute") as caught:
        matches("DECIMAL(10,2)", [Decimal(1), Decimal(2)], condition, "A B")
    assert caught.value.given is not None
    assert "__ref" not in str(caught.value)
    assert given_as in str(caught.value.given)
