"""NULLS FIRST and NULLS LAST, and the order of NULL where nothing is said."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pytest
from tests.unit.sql.test_tables import rows

import headrace as hr
from headrace.errors import SqlError
from headrace.sql.parse import parse_statement
from headrace.sql.printer import to_sql
from headrace.sql.session import SqlSession

ROWS = "CREATE TABLE t (k TEXT, x INT); INSERT INTO t VALUES ('a', 1), ('b', NULL), ('c', 3), ('d', 2), ('e', NULL)"


def answer(text: str) -> list[tuple[Any, ...]]:
    session = SqlSession()
    session.execute(ROWS)
    return rows(session, text)


@pytest.mark.parametrize("limit", ["", " LIMIT 3"])
@pytest.mark.parametrize(
    "order", ["x", "x DESC", "x NULLS FIRST", "x DESC NULLS FIRST", "x NULLS LAST", "x + 1 DESC NULLS LAST"]
)
def test_the_order_of_a_table(order: str, limit: str):
    query = f"SELECT k, x FROM t ORDER BY {order}, k{limit}"
    with duckdb.connect() as database:
        database.execute(ROWS)
        assert answer(query) == database.execute(query).fetchall()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, max(x) AS m FROM t GROUP BY k ORDER BY m NULLS FIRST, k LIMIT 3",
        "SELECT k, x FROM t ORDER BY 2 NULLS FIRST, 1 LIMIT 3",
        "SELECT k, x FROM t ORDER BY 2 DESC NULLS FIRST, 1",
        "SELECT k, row_number() OVER w AS n, lag(k) OVER w AS b FROM t WINDOW w AS (ORDER BY x NULLS FIRST, k)",
    ],
)
def test_groups_positions_and_rankings(query: str):
    with duckdb.connect() as database:
        database.execute(ROWS)
        assert Counter(answer(query)) == Counter(database.execute(query).fetchall())


def test_windows_of_a_stream():
    ticks = hr.events([{"le": 1, "x": 5}, {"le": 2, "x": None}, {"le": 3, "x": 4}], "x LONG")
    found = hr.sql("SELECT x FROM s [TUMBLING 10 us] ORDER BY x DESC NULLS FIRST LIMIT 2", s=ticks).cht()
    assert found["x"].to_pylist() in ([None, 5], [5, None])


def test_it_prints_and_parses_back():
    text = "SELECT x\nFROM t\nORDER BY x DESC NULLS FIRST, k NULLS LAST\nLIMIT 1"
    assert to_sql(parse_statement(text)) == text


@pytest.mark.parametrize("order", ["2", "0", "9"])
def test_positions_that_are_none_are_refused(order: str):
    with pytest.raises(SqlError, match=r"position|the list has no entry"):
        answer(f"SELECT *, k AS l FROM t ORDER BY {order}" if order == "2" else f"SELECT k, x FROM t ORDER BY {order}")
