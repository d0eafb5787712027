"""Sub-queries, set operations and rows in SQL: the plans they build, and what is refused.

tests/properties/test_sql_relations.py compares their answers with a database, instant by instant.
"""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.errors import SqlError
from headrace.plan.nodes import Join, walk

A = hr.events("""
    kind   | le | re | k | x
    insert | 1  | 9  | a | 3
    insert | 2  | 5  | b | 4
""", schema="k STRING, x LONG")  # fmt: skip
B = hr.events("""
    kind   | le | re | k | y
    insert | 3  | 7  | a | 3
""", schema="k STRING, y LONG")  # fmt: skip


def rows(text: str) -> list[tuple]:
    return sorted(tuple(row.values()) for row in hr.sql(text, a=A, b=B).cht().to_pylist())


def test_exists_is_a_semi_join():
    assert rows("SELECT k FROM a WHERE EXISTS (SELECT * FROM b WHERE b.k = a.k)") == [(3, 7, "a")]
    assert rows("SELECT k FROM a SEMI JOIN b ON b.k = a.k") == [(3, 7, "a")]
    assert rows("SELECT k FROM a WHERE NOT EXISTS (SELECT * FROM b WHERE b.k = a.k)") == [
        (1, 3, "a"), (2, 5, "b"), (7, 9, "a"),
    ]  # fmt: skip


def test_a_count_of_nothing_is_zero():
    assert rows("SELECT k, (SELECT count(*) FROM b WHERE b.k = a.k) AS n FROM a WHERE k = 'a'") == [
        (1, 3, "a", 0), (3, 7, "a", 1), (7, 9, "a", 0),
    ]  # fmt: skip


def test_a_join_of_a_list_is_by_the_equalities_of_where():
    listed = hr.sql("SELECT a.x, b.y FROM a, b WHERE a.k = b.k AND b.y > 0 AND a.x < b.y", a=A, b=B).node
    (join,) = [node for node in walk(listed) if isinstance(node, Join)]
    assert (join.on, str(join.where)) == ((("k", "k"),), "x < y")


def test_no_cross_product_where_an_equality_connects():
    text = "SELECT p.x FROM a p, a q, b, a r WHERE p.k = r.k AND q.k = b.k AND b.y = r.x"
    joins = [node for node in walk(hr.sql(text, a=A, b=B).node) if isinstance(node, Join)]
    assert len(joins) == 3
    assert all(join.on for join in joins)


def test_a_query_is_read_by_later_statements():
    assert rows("QUERY large AS SELECT k, x FROM a WHERE x > 3; SELECT k FROM large") == [(2, 5, "b")]


def test_values_are_a_relation():
    assert [row[2:] for row in rows("VALUES (1, 'a'), (2, NULL)")] == [(1, "a"), (2, None)]
    assert rows("SELECT x, n FROM a, (VALUES ('b', 7)) AS v (k, n) WHERE a.k = v.k") == [(2, 5, 4, 7)]
    assert [row[2:] for row in rows("SELECT 1 + 1 AS two")] == [(2,)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT k, (SELECT y FROM b WHERE b.k = a.k) AS y FROM a", "may give only one row"),
        ("SELECT k, (SELECT * FROM b) AS y FROM a", "has one column"),
        ("SELECT k FROM a WHERE x IN (SELECT k, y FROM b)", "has 2 columns"),
        ("SELECT k FROM a WHERE x > (SELECT max(y) FROM b WHERE b.y < a.x)", "connected by equalities"),
        ("SELECT a.k FROM a JOIN b ON a.x IN (SELECT y FROM b)", "cannot stand here"),
        ("SELECT k FROM a EXCEPT ALL SELECT k FROM b", "not there yet"),
        ("SELECT k FROM a EXCEPT SELECT k, y FROM b", "in an EXCEPT must have the same number"),
        ("SELECT a.x FROM a NATURAL JOIN (SELECT y FROM b) c", "there are none"),
        ("SELECT n FROM (VALUES (1)) AS v (n, m)", "only 1 columns"),
        ("VALUES (1), (1, 2)", "same number of columns"),
        ("SELECT count(*) AS n FROM a [TUMBLING 10 ticks] WHERE x IN (SELECT y FROM b)", "answered at every instant"),
    ],
)
def test_what_is_refused(text: str, message: str):
    with pytest.raises(SqlError, match=message):
        hr.sql(text, a=A, b=B)
