"""UNNEST in FROM, and lists in expressions: the plans of Python, and mistakes."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace import col
from headrace.errors import SqlError
from headrace.sql.parse import parse_statement
from headrace.sql.printer import to_sql
from headrace.sql.unbind import unbind

S = hr.events("""
    kind   | le | re | k | i
    insert | 1  | 5  | a | 1
    insert | 2  | 7  | b | 2
    cti    | 9  |    |   |
""").select("k", a=hr.array("i", 7))  # fmt: skip


@pytest.mark.parametrize(
    ("text", "stream"),
    [
        ("SELECT * FROM s, UNNEST(s.a) AS t(x)", S.explode("a", into="x")),
        ("SELECT * FROM s CROSS JOIN UNNEST(a) AS x", S.explode("a", into="x")),
        ("SELECT * FROM s, LATERAL UNNEST(a) WITH ORDINALITY AS t(x, n)", S.explode("a", into="x", position="n")),
        ("SELECT * FROM s LEFT JOIN UNNEST(a) AS t(x) ON TRUE", S.explode("a", into="x", outer=True)),
        ("SELECT k, unnest FROM s, UNNEST(a)", S.explode("a", into="unnest").select("k", "unnest")),
        ("SELECT t.k AS x FROM s, UNNEST(a) AS t(k)", S.explode("a", into="k_2").select(x=col("k_2"))),
        (
            "SELECT k, x FROM s, UNNEST(a) AS t(x) WHERE x > 1",
            S.explode("a", into="x").where(col("x") > 1).select("k", "x"),
        ),
        ("SELECT a[1] + 1 AS x FROM s", S.select(x=col("a").element_at(1) + 1)),
        ("SELECT 7 = ANY (a) AS x FROM s", S.select(x=col("a").array_contains(7))),
        ("SELECT ARRAY[k, 'b'][2] AS x FROM s", S.select(x=hr.array("k", hr.lit("b")).element_at(2))),
        ("SELECT array_length(a) AS x FROM s", S.select(x=col("a").cardinality())),
    ],
)
def test_sql_builds_the_plan_of_python(text: str, stream: hr.Stream):
    found = hr.sql(text, s=S)
    assert found.node == stream.node
    assert parse_statement(to_sql(parse_statement(text))) == parse_statement(text)
    assert hr.same_history(found.history(engine="duckdb").cht(), found.cht())


def test_a_plan_unbinds_to_unnest():
    stream = S.explode("a", into="x", position="n", outer=True)
    spoken = unbind(stream.node, {S.node: "s"})
    assert "LEFT JOIN UNNEST" in spoken.text
    assert hr.sql(spoken.text, s=S).node == stream.node


def test_several_lists_and_windows_of_time():
    twice = hr.sql("SELECT x, y FROM s, UNNEST(a) AS t(x), UNNEST(ARRAY[x, x + 1]) AS u(y)", s=S)
    assert sorted((r["x"], r["y"]) for r in twice.cht().to_pylist()) == [
        (1, 1), (1, 2), (2, 2), (2, 3), (7, 7), (7, 7), (7, 8), (7, 8),
    ]  # fmt: skip
    text = "SELECT x, count(*) AS n, max(le) AS m FROM s [TUMBLING 10 ticks], UNNEST(a) AS t(x) GROUP BY x"
    assert [(r["x"], r["n"], r["m"]) for r in hr.sql(text, s=S).cht().to_pylist()] == [(1, 1, 1), (2, 1, 2), (7, 2, 2)]


@pytest.mark.parametrize(
    "joined",
    [
        "s, UNNEST(s.a) AS t(x), u WHERE u.k = s.k",
        "s, UNNEST(s.a) AS t(x) JOIN u ON u.y = t.x + 0 AND u.k = s.k",
        "s JOIN u ON u.k = s.k, UNNEST(ARRAY[u.y, s.a[2]]) AS t(x)",
        "u, s CROSS JOIN UNNEST(s.a) AS t(x) WHERE u.k = s.k",
        "s, UNNEST(ARRAY[1]) AS one(n), u, UNNEST(s.a) AS t(x) JOIN u AS v ON v.k = s.k WHERE u.k = s.k",
    ],
)
def test_lists_beside_joins(joined: str):
    u = S.select("k", y=col("a").element_at(1))
    found = hr.sql(f"SELECT s.k, t.x FROM {joined}", s=S, u=u)
    expected = [("a", 1), ("b", 2)] if "t.x + 0" in joined else [("a", 1), ("a", 7), ("b", 2), ("b", 7)]
    assert sorted((row["k"], row["x"]) for row in found.cht().to_pylist()) == expected
    assert hr.same_history(found.history(engine="duckdb").cht(), found.cht())


@pytest.mark.parametrize(
    ("text", "says", "word"),
    [
        ("SELECT * FROM UNNEST(ARRAY[1, 2]) AS t(x)", "no row before it", "UNNEST(ARRAY[1, 2])"),
        ("SELECT * FROM s, UNNEST(k) AS t(x)", "only a list has elements", "UNNEST(k)"),
        ("SELECT * FROM s, UNNEST(a) AS t(x, n)", "UNNEST gives an element", "n)"),
        ("SELECT * FROM s JOIN UNNEST(a) AS t(x) ON x > 1", "their own row", "JOIN UNNEST(a) AS t(x) ON x > 1"),
        ("SELECT * FROM s [SIZE 2], UNNEST(a) AS t(x)", "window of tuples", "SIZE 2"),
        ("SELECT k FROM s WHERE k < ANY (a)", "is not there", "k < ANY (a)"),
        ("SELECT k[1] FROM s", "a list", "k[1]"),
    ],
)
def test_mistakes_are_errors_at_their_place(text: str, says: str, word: str):
    with pytest.raises(SqlError, match=says) as error:
        hr.sql(text, s=S)
    assert error.value.at[0] == text.index(word)
