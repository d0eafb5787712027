"""Window functions with an order over rows that last: the answer at each instant is about the rows alive then."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.errors import SqlError

ROWS = """
    kind    | le | re | re_new | k | x | day        | at
    insert  | 1  | ∞  |        | a | 2 | 2024-01-02 | 2024-01-02 00:00:10
    insert  | 3  | ∞  |        | a | 1 | 2024-01-01 | 2024-01-01 00:00:00
    insert  | 3  | ∞  |        | b | 7 | 2024-01-09 | 2024-01-02 00:00:05
    insert  | 5  | ∞  |        | a | 2 | 2024-01-02 | 2024-01-02 00:00:10
    retract | 1  | ∞  | 8      | a | 2 | 2024-01-02 | 2024-01-02 00:00:10
"""


def asked(call: str, columns: str = "k, x") -> list[tuple[Any, ...]]:
    rows = hr.events(ROWS, "k STRING, x LONG, day DATE, at DATETIME")
    found = hr.sql(f"SELECT {columns}, {call} AS r FROM rows", rows=rows)
    return sorted((tuple(row.values()) for row in found.cht().to_pylist()), key=repr)


def test_a_row_is_divided_where_its_answer_changes_and_nowhere_else():
    assert asked("sum(x) OVER (PARTITION BY k ORDER BY x)") == [
        (1, 3, "a", 2, 2), (3, 5, "a", 2, 3), (3, hr.INFINITY, "a", 1, 1), (3, hr.INFINITY, "b", 7, 7),
        (5, 8, "a", 2, 5), (5, 8, "a", 2, 5), (8, hr.INFINITY, "a", 2, 3),
    ]  # fmt: skip


def test_rows_are_counted_one_by_one_and_columns_decide_between_equal_ones():
    assert asked("lag(x, 1, 0) OVER (ORDER BY x DESC, k)") == [
        (1, 3, "a", 2, 0), (3, hr.INFINITY, "a", 1, 2), (3, hr.INFINITY, "a", 2, 7), (3, hr.INFINITY, "b", 7, 0),
        (5, 8, "a", 2, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "frame",
    [
        "ORDER BY day RANGE BETWEEN INTERVAL '1' DAY PRECEDING AND CURRENT ROW",
        "ORDER BY at RANGE BETWEEN INTERVAL '1' DAY PRECEDING AND INTERVAL '0' SECOND FOLLOWING",
        "ORDER BY x RANGE 1 PRECEDING",
        "PARTITION BY k ORDER BY x RANGE UNBOUNDED PRECEDING",
    ],
)
def test_frames_of_distances(frame: str):
    where = "WHERE k = 'a'"
    rows = hr.events(ROWS, "k STRING, x LONG, day DATE, at DATETIME")
    found = hr.sql(f"SELECT x, count(*) OVER ({frame}) AS n FROM rows {where}", rows=rows).cht().to_pylist()
    expected = [(1, 3, 2, 1), (3, 5, 2, 2), (3, hr.INFINITY, 1, 1), (5, 8, 2, 3), (5, 8, 2, 3), (8, hr.INFINITY, 2, 2)]
    if " at " in frame:  # a day and ten seconds lie between
        expected = [(1, 5, 2, 1), (3, hr.INFINITY, 1, 1), (5, 8, 2, 2), (5, 8, 2, 2), (8, hr.INFINITY, 2, 1)]
    assert sorted(tuple(row.values()) for row in found) == expected


def test_empty_frames():
    frame = "PARTITION BY k ORDER BY x ROWS BETWEEN 5 FOLLOWING AND UNBOUNDED FOLLOWING"
    assert {row[-1] for row in asked(f"count(*) OVER ({frame})")} == {0}
    assert {row[-1] for row in asked(f"sum(x) OVER ({frame})")} == {None}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("sum(x) OVER (ORDER BY x ROWS BETWEEN 1 FOLLOWING AND CURRENT ROW)", "ends before it begins"),
        ("sum(x) OVER (ORDER BY x ROWS BETWEEN UNBOUNDED FOLLOWING AND UNBOUNDED FOLLOWING)", "ends before it begins"),
        ("sum(x) OVER (ORDER BY k RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)", "one of the values of its ORDER BY"),
        ("sum(x) OVER (ORDER BY x, k RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)", "one of the values of its ORDER BY"),
        ("sum(x) OVER (ORDER BY at RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)", "one of the values of its ORDER BY"),
        ("sum(x) OVER (ORDER BY day RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW)", "days for a DATE"),
        ("sum(x) OVER (ORDER BY x ROWS BETWEEN 1.5 PRECEDING AND CURRENT ROW)", "ROWS counts rows"),
        ("row_number(x) OVER (ORDER BY x)", "has no arguments"),
        ("lag() OVER (ORDER BY x)", "lag takes a value"),
        ("nth_value(x) OVER (ORDER BY x)", "nth_value takes other arguments"),
        ("sum(x) OVER (ORDER BY x ROWS 2 PRECEDING SLIDE 2)", "SLIDE and ACTIVE EXPIRATION"),
    ],
)
def test_what_is_refused(call: str, message: str):
    with pytest.raises(SqlError, match=message):
        asked(call)


def test_explain_tells_the_cost():
    rows = hr.events(ROWS, "k STRING, x LONG, day DATE, at DATETIME")
    plan = hr.sql("SELECT x, lag(x) OVER (ORDER BY x) AS b FROM rows", rows=rows).explain()
    assert "a change costs the events of its group that are alive" in str(plan)
