"""GROUPING SETS, ROLLUP, CUBE and grouping(…): a union of groupings. `tests/properties` compares them with DuckDB."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.errors import SqlError
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql


@pytest.fixture
def s() -> hr.Stream:
    return hr.events(
        """
        kind   | le | re | k | i | x
        insert | 1  | 9  | a | 1 | 3
        insert | 2  | 9  | b | 1 | 13
        insert | 2  | 9  | b | 2 | 4
        """,
        "k STRING, i LONG, x LONG",
    )


def at(instant: int, text: str, **streams: hr.Stream) -> list[tuple[Any, ...]]:
    rows = hr.sql(text, **streams).cht().to_pylist()
    return sorted((tuple(row.values())[2:] for row in rows if row["le"] <= instant < row["re"]), key=repr)


def test_rollup_is_a_union(s: hr.Stream):
    rollup = hr.sql("SELECT k, sum(x) AS n FROM s GROUP BY ROLLUP (k)", s=s)
    union = "SELECT k, sum(x) AS n FROM s GROUP BY k UNION ALL SELECT CAST(NULL AS STRING) AS k, sum(x) AS n FROM s"
    assert rollup.node == hr.sql(union, s=s).node


@pytest.mark.parametrize(
    ("sets", "same"),
    [
        ("ROLLUP (k, i)", "GROUPING SETS ((k, i), (k), ())"),
        ("CUBE (k, i)", "GROUPING SETS ((k, i), (k), (i), ())"),
        ("ROLLUP ((k, i), x)", "GROUPING SETS ((k, i, x), (k, i), ())"),
        ("i, ROLLUP (k)", "GROUPING SETS ((i, k), (i))"),
        ("GROUPING SETS (ROLLUP (k), (i))", "GROUPING SETS ((k), (), (i))"),
        ("ROLLUP (1, 2)", "ROLLUP (k, i)"),
    ],
)
def test_short_for(sets: str, same: str, s: hr.Stream):
    text = "SELECT k, i, count(*) AS n, grouping(k, i) AS g FROM s GROUP BY"
    assert at(5, f"{text} {sets}", s=s) == at(5, f"{text} {same}", s=s)


def test_a_total_while_there_is_nothing(s: hr.Stream):
    assert at(5, "SELECT k, count(*) AS n FROM s WHERE x > 100 GROUP BY ROLLUP (k)", s=s) == [(None, 0)]
    assert at(5, "SELECT k FROM s WHERE x > 100 GROUP BY ROLLUP (k)", s=s) == [(None,)]


def test_over_windows_of_a_stream(s: hr.Stream):
    points = s.point_at_start()
    brackets = "SELECT k, sum(x) AS n FROM p [TUMBLING 2 us] GROUP BY ROLLUP (k)"
    assert at(2, brackets, p=points) == [("b", 17), (None, 17)]
    function = """
        SELECT k, sum(x) AS n FROM TUMBLE(p, le, 2 us)
        GROUP BY GROUPING SETS ((window_start, window_end, k), (window_start, window_end))
    """
    assert at(2, function, p=points) == [("b", 17), (None, 17)]


def test_order_and_names(s: hr.Stream):
    text = "SELECT k AS c, sum(x) FROM s GROUP BY ROLLUP (c) ORDER BY sum(x) DESC LIMIT 1"
    assert at(5, text, s=s) == [(None, 20)]
    assert hr.sql(text, s=s).schema.names == ("c", "sum_x")
    assert at(5, "SELECT k, grouping(k) AS g FROM s GROUP BY k", s=s) == [("a", 0), ("b", 0)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT k, grouping(x) FROM s GROUP BY ROLLUP (k)", "this is no key"),
        ("SELECT k, x FROM s GROUP BY ROLLUP (k)", "neither in GROUP BY nor in an aggregate"),
        ("SELECT * FROM s GROUP BY ROLLUP (k)", "cannot be used with groups"),
        ("SELECT k FROM s GROUP BY CUBE (k, ROLLUP (i))", "CUBE is of keys"),
        ("SELECT k FROM s GROUP BY CUBE (1, 1, 1, 1, 1, 1, 1)", "too many"),
        ("SELECT k FROM s [HOPPING 4 us EVERY 2 us] GROUP BY ROLLUP (k) LIMIT 1", "overlapping windows"),
    ],
)
def test_refused(text: str, says: str, s: hr.Stream):
    with pytest.raises(SqlError, match=says):
        hr.sql(text, s=s)


@pytest.mark.parametrize(
    "sets", ["ROLLUP (a, (b, c))", "x, GROUPING SETS (a, (), (a, b + 1), CUBE (c))", "CUBE ((a + 1) * 2)"]
)
def test_printed(sets: str):
    text = f"SELECT count(*) AS n FROM s GROUP BY {sets}"
    tree = parse(text)
    assert parse(to_sql(tree)) == tree
