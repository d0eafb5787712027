"""Queries over stored tables: their rows hold at every instant, so anything may be asked of them (rule 7.2)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import PlanError
from headrace.time import INFINITY

FOLLOWED = """
CREATE AGGREGATE followed(x LONG): LONG {
    TABLE s(n LONG);
    INITIALIZE: { INSERT INTO s VALUES (x); }
    ITERATE: { UPDATE s SET n = n * 10 + x; }
    TERMINATE: { INSERT INTO RETURN SELECT n FROM s; }
};
"""


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("SELECT a FROM t WHERE a > 1", [2, 3]),
        ("SELECT count(*) AS n FROM t", [3]),
        ("SELECT b, max(a) AS m FROM t GROUP BY b HAVING count(*) > 1", [("y", 3)]),
        ("SELECT DISTINCT b FROM t", ["x", "y"]),
        ("SELECT a FROM t ORDER BY a DESC LIMIT 1", [3]),
        ("SELECT b, followed(a) AS m FROM t GROUP BY b", [("x", 1), ("y", 23)]),
        ("SELECT sum(a) OVER (ROWS 1 PRECEDING) AS m FROM t", [1, 3, 5]),
        ("SELECT x.a, y.b FROM t AS x JOIN t AS y ON x.a = y.a WHERE x.a < 3", [(1, "x"), (2, "y")]),
        ("SELECT count(*) AS n FROM t AS x JOIN t AS y ON x.b = y.b", [5]),
    ],
)
def test_tables_take_any_query(tmp_path: Path, query: str, answer: list[object]) -> None:
    file = tmp_path / "t.csv"
    file.write_text("a,b\n1,x\n2,y\n3,y\n", encoding="utf-8")
    made = hr.sql(f"CREATE TABLE t (a INT, b STRING) SOURCE CSV ('{file}'); {FOLLOWED}{query};")
    found = made.cht().to_pylist()
    assert {(row.pop("le"), row.pop("re")) for row in found} == {(0, INFINITY)}
    values = [tuple(row.values()) for row in found]
    assert sorted(v[0] if len(v) == 1 else v for v in values) == answer


def test_a_table_may_be_the_history_of_a_query_so_far() -> None:
    ticks = hr.events(
        """
        kind   | le | re | k | v
        insert | 1  | 5  | a | 1
        insert | 3  | ∞  | a | 2
        insert | 4  | 6  | b | 4
        """,
        "k STRING, v LONG",
    )
    made = hr.sql(
        """
        CREATE TABLE sums AS SELECT k, sum(v) AS total FROM ticks [SNAPSHOT] GROUP BY k;
        SELECT k, max(total) AS most, count(*) AS times, max(coalesce(valid_to, 99)) AS until FROM sums GROUP BY k;
        """,
        ticks=ticks,
    )
    assert [tuple(row.values())[2:] for row in made.cht().to_pylist()] == [("a", 3, 3, 99), ("b", 4, 1, 6)]


TICKS = hr.events([{"le": 1, "k": "a"}, {"le": 2, "k": "b"}], "k STRING")
PRICES = pa.table({"k": ["a"], "price": [2.5]})


@pytest.mark.parametrize("table", [PRICES, PRICES.to_pandas()], ids=["Arrow", "pandas"])
def test_a_table_may_be_given_by_name(table: object) -> None:
    joined = hr.sql("SELECT k, price FROM ticks JOIN prices ON ticks.k = prices.k", ticks=TICKS, prices=table)
    assert joined.cht().select(["k", "price"]).to_pylist() == [{"k": "a", "price": 2.5}]
    read = """
    CREATE AGGREGATE dear(x STRING): DOUBLE {
        INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT price FROM prices WHERE k = x; }
    };
    SELECT dear(k) AS price FROM ticks
    """
    assert hr.sql(read, ticks=TICKS, prices=table).cht()["price"].to_pylist() == [2.5]


def test_what_is_neither_a_stream_nor_a_table_is_refused() -> None:
    with pytest.raises(PlanError, match="not a stream") as caught:
        hr.sql("SELECT k FROM ticks", ticks=[{"k": "a"}])
    assert "ticks=table" in caught.value.instead
