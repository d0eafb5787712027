"""Conditions that pages and servers take: comparisons of columns with values."""

from __future__ import annotations

import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import TraceError
from headrace.expr import evaluate
from headrace.tracing.comparisons import comparisons_of

TABLE = pa.table({"t": [1, 2, 3], "k": ["a and b", "it's", "c"], "x": [5, 6, 7]})
ROWS = hr.from_arrow(TABLE, lifetime=hr.point("t"))


def fitting(text: str) -> list[int]:
    found = TABLE["x"].filter(evaluate(comparisons_of(ROWS.trace().record.output, text), TABLE))
    return sorted(found.to_pylist())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x > 5", [6, 7]),
        ("k = 'a and b'", [5]),
        ("k = 'a and b' and x < 6", [5]),
        ("k = 'a and b' AND x > 5", []),
        ("x >= 5\n And\tx <> 6", [5, 7]),
        ("\"k\" = 'it''s'", [6]),
    ],
)
def test_columns_are_compared_with_values(text: str, expected: list[int]):
    assert fitting(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "x > 5 AND", "AND", "x > 5 OR x < 2", "y = 1", "x", "x > (SELECT 1)", "k = 'a' AND nothing = 2", "x IN (1)",
     "x = 1 AND EXISTS (SELECT * FROM FILE ('/etc/passwd'))"],
)  # fmt: skip
def test_nothing_else_is_a_condition(text: str):
    with pytest.raises(TraceError):
        comparisons_of(ROWS.trace().record.output, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("le = '2024-05-01'", ["x"]), ("re > '2024-05-01T12:30:00Z' AND k <> 'x'", ["y"]), ("le < '2024-05-02'", ["x"])],
)
def test_the_times_of_events_are_compared_too(text: str, expected: list[str]):
    rows = hr.events("le | re | k\n2024-05-01 | 2024-05-01T12:00:00 | x\n2024-05-02 | 2024-05-03 | y")
    trace = rows.trace()
    assert trace.why(comparisons_of(trace.record.output, text)).inputs["k"].to_pylist() == expected


def test_times_that_are_none():
    output = hr.events("le | re | k\n2024-05-01 | 2024-05-02 | x").trace().record.output
    with pytest.raises(TraceError, match="are dates"):
        comparisons_of(output, "le = 5")
    with pytest.raises(TraceError, match="no date is like this"):
        comparisons_of(output, "re = inf")
