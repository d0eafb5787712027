"""Sub-queries, set operations and rows in SQL: the plans they build, and what is refused.

tests/properties/test_sql_relations.py compares their answers with a database, instant by instant.
"""

from __future__ import annotations

import pytest
from tests.unit.sql.test_tables import rows as shown

import headrace as hr
from headrace.errors import SqlError
from headrace.plan.nodes import Join, walk
from headrace.sql.session import SqlSession

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
    found = hr.sql(text, a=A, b=B).cht().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


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


def test_a_count_beside_a_count():
    text = "SELECT k, (SELECT count(*) + (SELECT max(y) FROM b WHERE b.y <= a.x) FROM b WHERE b.k = a.k) AS n FROM a"
    assert rows(f"{text} WHERE k = 'a'") == [(1, 3, "a", None), (3, 7, "a", 4), (7, 9, "a", None)]


def test_what_is_connected_by_more_than_equalities_is_answered_for_the_values_outside():
    text = "SELECT k, (SELECT count(*) FROM b WHERE b.y < a.x) AS n FROM a"
    assert rows(text) == [(1, 9, "a", 0), (2, 3, "b", 0), (3, 5, "b", 1)]


def test_lateral_gives_the_rows_of_each_row():
    text = "SELECT x, y, n FROM a LEFT JOIN LATERAL (SELECT y, a.x + y AS n FROM b WHERE b.y < a.x) AS t ON true"
    assert rows(f"{text} WHERE x = 4") == [(2, 3, 4, None, None), (3, 5, 4, 3, 7)]
    assert rows("SELECT x, v FROM a, LATERAL (VALUES (1), (a.x)) AS t (v) WHERE x = 4") == [(2, 5, 4, 1), (2, 5, 4, 4)]


def test_lateral_of_one_row_needs_no_join():
    node = hr.sql("SELECT k, s FROM a, LATERAL (SELECT a.x + 1 AS s) AS t WHERE s > 4", a=A).node
    assert not any(isinstance(one, Join) for one in walk(node))


def test_instants_have_an_answer_at_their_time():
    points = A.point_at_start()
    text = "SELECT k, n FROM a, LATERAL (SELECT count(*) AS n FROM b WHERE b.y <= a.x) AS t"
    found = hr.sql(text, a=points.shift(3), b=B).cht().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(4, 5, "a", 1), (5, 6, "b", 1)]


def test_copies_of_instants():
    points = hr.events("le | x\n1 | 7\n1 | 7\n2 | 7\n", "x LONG")
    found = hr.sql("SELECT x FROM a EXCEPT ALL SELECT x FROM b", a=points, b=hr.events("le | x\n1 | 7\n", "x LONG"))
    assert sorted(tuple(row.values()) for row in found.cht().to_pylist()) == [(1, 2, 7), (2, 3, 7)]


def test_null_equals_null_as_a_key():
    text = "SELECT a.x, b.y FROM a JOIN b ON a.k IS NOT DISTINCT FROM b.k AND a.x > 0"
    (join,) = [node for node in walk(hr.sql(text, a=A, b=B).node) if isinstance(node, Join)]
    assert (join.on, join.groups, str(join.where)) == ((("k", "k"),), 1, "x > 0")


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
        ("SELECT a.k FROM a LEFT JOIN b ON a.x IN (SELECT y FROM b AS c WHERE c.y > b.y)", "about both"),
        ("SELECT a.k FROM a RIGHT JOIN LATERAL (SELECT y FROM b WHERE b.k = a.k) t ON true", "joined to each of them"),
        ("SELECT a.k FROM a, (SELECT y FROM b WHERE b.k = a.k) AS t", "there is no stream 'a' in FROM"),
        ("SELECT a.k FROM a, LATERAL (SELECT y FROM b) [TUMBLING 10 ticks] t", "no window of its own"),
        (
            "SELECT a.k, (SELECT count(*) AS n FROM b [TUMBLING 10 ticks] WHERE b.y < a.x) AS n FROM a",
            "a sub-query over a window is connected",
        ),
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


def test_the_row_of_a_primary_key_is_a_value():
    session = SqlSession()
    session.execute("""
        CREATE TABLE a (id INT PRIMARY KEY, name STRING); CREATE TABLE p (x INT, y INT, v INT, PRIMARY KEY (x, y));
        CREATE TABLE t (n INT, id INT); INSERT INTO a VALUES (1, 'ann'), (2, 'bob');
        INSERT INTO p VALUES (1, 1, 10), (1, 2, 20); INSERT INTO t VALUES (1, 1), (2, 2), (3, 9);
    """)
    whom = "SELECT t.n, (SELECT name FROM a WHERE a.id = t.id) AS who FROM t"
    assert sorted(shown(session, whom)) == [(1, "ann"), (2, "bob"), (3, None)]
    pair = "SELECT t.n, (SELECT v FROM p WHERE p.x = 1 AND p.y = t.n) AS v FROM t"
    assert sorted(shown(session, pair), key=str) == [(1, 10), (2, 20), (3, None)]
    assert shown(session, "SELECT n FROM t WHERE id = (SELECT id FROM a WHERE 2 = id)") == [(2,)]
    session.execute("DELETE FROM a WHERE id = 1")
    assert sorted(shown(session, whom)) == [(1, None), (2, "bob"), (3, None)]
    several = ("v FROM p WHERE x = t.id", "name FROM a WHERE id > 1", "a.name FROM a, p WHERE a.id = 1")
    for one in several:
        with pytest.raises(SqlError, match="may give only one row"):
            session.execute(f"SELECT (SELECT {one}) AS v FROM t")
