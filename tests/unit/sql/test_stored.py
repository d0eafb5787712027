"""Queries over stored tables: their rows hold at every instant, so anything may be asked of them (rule 7.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
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
