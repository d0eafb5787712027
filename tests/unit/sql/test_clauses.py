"""The clauses of SELECT that people know from elsewhere: FILTER, positions, OFFSET and FETCH, QUALIFY, WINDOW."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import SqlError
from headrace.sql.parse import parse_expression
from headrace.sql.printer import to_sql

SALES = hr.events(
    """
    kind    | le | re | re_new | shop | price
    insert  | 1  | 2  |        | A    | 3
    insert  | 2  | 3  |        | B    | 4
    insert  | 4  | 5  |        | A    | 8
    insert  | 4  | 5  |        | A    | 9
    retract | 4  | 5  | 4      | A    | 9
    insert  | 7  | 8  |        | A    | 5
    insert  | 3  | 4  |        | B    |
    cti     | 10 |    |        |      |
    """,
    "shop STRING, price LONG",
)
POINTS = SALES.point_at_start()
ALL = SALES.window(hr.tumbling(10))


def rows(text: str) -> list[tuple[Any, ...]]:
    found = hr.sql(text, sales=SALES, points=POINTS).cht()
    return [tuple(row.values()) for row in found.to_pylist()]


def test_filter_is_where_of_an_aggregate():
    calls = "count(*) FILTER (WHERE price > 3) AS n, sum(price) FILTER (WHERE shop = 'A') AS t"
    text = f"SELECT {calls} FROM sales [TUMBLING 10 us]"
    query = hr.sql(text, sales=SALES)
    n, t = hr.count(where=col("price") > 3), hr.sum("price", where=col("shop") == "A")
    assert query.node == ALL.aggregate(n=n, t=t).node
    assert rows(text) == [(0, 10, 3, 16)]


def test_filter_over():
    text = "SELECT price, count(*) FILTER (WHERE price > 3) OVER (ROWS 9 PRECEDING) AS n FROM sales"
    assert [row[2:] for row in rows(text)] == [(3, 0), (4, 1), (None, 1), (8, 2), (5, 3)]


@pytest.mark.parametrize(
    "clauses", ["GROUP BY 1 HAVING total > 4", "GROUP BY place HAVING sum(price) > 4", "GROUP BY shop HAVING total > 4"]
)
def test_positions_and_names_of_the_list(clauses: str):
    assert rows(f"SELECT shop AS place, sum(price) AS total FROM sales [TUMBLING 10 us] {clauses}") == [
        (0, 10, "A", 16)
    ]


def test_a_column_of_from_comes_before_a_name_of_the_list():
    text = "SELECT shop, sum(price) AS price FROM sales [TUMBLING 10 us] GROUP BY shop HAVING max(price) > 7"
    assert rows(text) == [(0, 10, "A", 16)]


@pytest.mark.parametrize("order", ["2 DESC", "total DESC", "sum(price) DESC"])
def test_order_of_answers(order: str):
    text = f"SELECT shop, sum(price) AS total FROM sales [TUMBLING 10 us] GROUP BY shop ORDER BY {order} LIMIT 1"
    assert rows(text) == [(0, 10, "A", 16)]


def test_order_by_a_name_of_the_list():
    assert rows("SELECT -price AS less FROM sales [TUMBLING 10 us] ORDER BY less LIMIT 1") == [(0, 10, -8)]


@pytest.mark.parametrize("limit", ["LIMIT 2 OFFSET 1", "OFFSET 1 ROW FETCH NEXT 2 ROWS ONLY", "OFFSET 1 LIMIT 2"])
def test_offset_and_fetch(limit: str):
    text = f"SELECT price FROM sales [TUMBLING 10 us] ORDER BY price DESC {limit}"
    assert rows(text) == [(0, 10, 4), (0, 10, 5)]
    assert hr.sql(text, sales=SALES).node == ALL.top(2, by="price", skip=1).select("price").node


def test_skip_and_changes_batch_by_batch():
    late = hr.events(
        """
        kind    | le | re | re_new | name | n
        insert  | 1  | 9  |        | a    | 3
        insert  | 1  | 9  |        | b    | 7
        insert  | 2  | 5  |        | c    | 5
        retract | 2  | 5  | 9      | c    | 5
        retract | 1  | 9  | 1      | b    | 7
        """
    )
    query = late.top(1, by="n", skip=1)
    assert query.cht().to_pylist() == [{"le": 2, "re": 9, "name": "a", "n": 3}]
    assert hr.same_history(query.cht(), query.history(engine="duckdb").cht())


def test_limit_without_order():
    assert rows("SELECT price FROM sales [TUMBLING 10 us] LIMIT 2") == [(0, 10, 3), (0, 10, 5)]  # by shop, then price
    assert [row[2] for row in rows("SELECT price FROM points LIMIT 2")] == [3, 4]
    assert [row[2] for row in rows("SELECT price FROM points LIMIT 2 OFFSET 2")] == [None, 8]
    assert [row[2] for row in rows("SELECT price FROM points LIMIT 1 BY shop")] == [3, 4]
    assert [row[2] for row in rows("SELECT price FROM points WHERE price > 4 ORDER BY le LIMIT 1")] == [8]


def test_order_by_the_own_time_changes_nothing():
    assert hr.sql("SELECT price FROM sales ORDER BY le", sales=SALES).cht().equals(SALES.select("price").cht())
    by_window = "SELECT shop, count(*) AS n, window_start FROM sales [TUMBLING 5 us] GROUP BY shop"
    assert rows(f"{by_window} ORDER BY window_start") == rows(by_window)


def test_qualify():
    numbered = "count(*) OVER (PARTITION BY shop ROWS UNBOUNDED PRECEDING)"
    assert [r[2:] for r in rows(f"SELECT shop, price FROM sales QUALIFY {numbered} = 2")] == [("B", None), ("A", 8)]
    assert [r[2:] for r in rows(f"SELECT shop, {numbered} AS n FROM sales QUALIFY n = 2 AND price > 1")] == [("A", 2)]


def test_named_windows():
    plain = "SELECT price, sum(price) OVER (PARTITION BY shop ROWS 1 PRECEDING) AS s FROM sales"
    named = "SELECT price, sum(price) OVER w AS s FROM sales WINDOW w AS (PARTITION BY shop ROWS 1 PRECEDING)"
    built = "SELECT price, sum(price) OVER (w ROWS 1 PRECEDING) AS s FROM sales WINDOW w AS (PARTITION BY shop)"
    wanted = hr.sql(plain, sales=SALES).node
    assert hr.sql(named, sales=SALES).node == wanted
    assert hr.sql(built, sales=SALES).node == wanted


@pytest.mark.parametrize(
    ("interval", "duration"),
    [
        ("INTERVAL '10' SECOND", "INTERVAL '10 SECOND'"),
        ("interval '10 seconds'", "INTERVAL '10 seconds'"),
        ("INTERVAL '1 h 30 min'", "INTERVAL '1 h 30 min'"),
        ("INTERVAL '1.5' DAYS", "INTERVAL '1.5 DAYS'"),
    ],
)
def test_intervals(interval: str, duration: str):
    assert to_sql(parse_expression(interval)) == duration


def test_no_interval():
    with pytest.raises(SqlError, match="this is no interval"):
        parse_expression("INTERVAL 'ten' SECOND")
