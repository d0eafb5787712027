"""Joins of two streams of instants whose times the condition bounds."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import SqlError
from headrace.plan.instants import has_points

FIRST, SECOND = [0, 3, 3, 10, 14], [1, 4, 9, 10, 30]
COMPARED = {">": int.__gt__, ">=": int.__ge__, "<": int.__lt__, "<=": int.__le__}


def points(times: list[int], **how: object) -> hr.Stream:
    table = pa.table({"t": pa.array(times, pa.int64()), "n": pa.array(range(len(times)), pa.int64())})
    return hr.from_arrow(table, lifetime=hr.point("t"), progress=hr.advance(delay=1000), **how)  # type: ignore[arg-type]


def pairs(condition: str, first: list[int] = FIRST, second: list[int] = SECOND) -> Counter[tuple[int, int, int]]:
    """The numbers of the rows that meet, and the time of each pair: the same in batches, buckets and batch SQL."""
    query = f"SELECT a.n AS x, b.n AS y FROM a JOIN b ON {condition}"
    made = hr.sql(query, a=points(first), b=points(second))
    assert has_points(made.node)
    found = made.cht()
    assert not hr.history_diff(made.run(batch_rows=1, buckets=2).cht(), found)
    assert not hr.history_diff(made.history(engine="duckdb", late="include").cht(), found)
    return Counter((row["le"], row["x"], row["y"]) for row in found.to_pylist())


@given(
    st.lists(st.integers(0, 20), max_size=6),
    st.lists(st.integers(0, 20), max_size=6),
    st.sampled_from([">", ">="]),
    st.integers(-6, 6),
    st.sampled_from(["<", "<="]),
    st.integers(-6, 6),
)
def test_pairs_within_bounds(first: list[int], second: list[int], over: str, low: int, under: str, high: int):
    expected = Counter(
        (max(s, t), x, y)
        for x, s in enumerate(first)
        for y, t in enumerate(second)
        if COMPARED[over](s, t + low) and COMPARED[under](s, t + high)
    )
    assert pairs(f"a.t {over} b.t + {low} AND a.t {under} b.t + {high}", first, second) == expected


@pytest.mark.parametrize(
    "condition",
    [
        "a.t BETWEEN b.t - 5 AND b.t",
        "b.t >= a.t AND 5 + a.t >= b.t",
        "b.t - a.n < 99 AND b.t - 5 <= a.t AND a.t <= b.t AND a.t < b.t + 7",
        "(a.t <= b.t AND a.n >= 0) AND b.t BETWEEN a.t AND a.t + 5",
    ],
)
def test_bounds_are_written_in_many_ways(condition: str):
    found = pairs(condition)
    assert found == Counter((t, x, y) for x, s in enumerate(FIRST) for y, t in enumerate(SECOND) if t - 5 <= s <= t)
    assert found


def test_dates_and_where():
    day = datetime(2024, 5, 1, tzinfo=UTC)
    rows = [{"ts": day + timedelta(minutes=m), "k": k} for m, k in ((0, "a"), (3, "b"), (4, "a"), (20, "a"))]
    made = hr.from_arrow(pa.Table.from_pylist(rows), lifetime=hr.point("ts"))
    query = (
        "SELECT a.ts AS x, b.ts AS y FROM s a, s b WHERE a.k = b.k AND a.ts < b.ts AND a.ts > b.ts - INTERVAL '1' HOUR"
    )
    found = hr.sql(query, s=made).cht().to_pylist()
    assert [(row["x"].minute, row["y"].minute) for row in found] == [(0, 4), (0, 20), (4, 20)]


def test_the_same_instant_is_a_bound_too():
    assert pairs("a.t = b.t") == {(10, 3, 3): 1}


def test_old_rows_are_forgotten():
    made = hr.sql("SELECT a.n AS x FROM a JOIN b ON a.t BETWEEN b.t - 5 AND b.t + 5", a=points(FIRST), b=points(SECOND))
    assert "SetDuration 6" in made.explain()


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        ("JOIN", "a.t > b.t"),
        ("JOIN", "a.n BETWEEN b.n - 5 AND b.n"),
        ("JOIN", "a.t > b.t - 5 OR a.t < b.t"),
        ("JOIN", "NOT a.t BETWEEN b.t - 5 AND b.t"),
        ("LEFT JOIN", "a.t BETWEEN b.t - 5 AND b.t"),
    ],
)
def test_what_bounds_nothing_is_refused(kind: str, condition: str):
    with pytest.raises(SqlError, match="both sides are instants") as caught:
        hr.sql(f"SELECT a.n AS x FROM a {kind} b ON {condition}", a=points(FIRST), b=points(SECOND))
    assert "BETWEEN" in caught.value.allowed
