"""string_agg and array_agg in an order, DISTINCT ON, OFFSET alone, QUALIFY beside ORDER BY.

`tests/properties` compares their answers with DuckDB's.
"""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import ExpressionError, SqlError
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql
from headrace.sql.unbind import unbind


@pytest.fixture
def s() -> hr.Stream:
    return hr.events(
        """
        kind    | le | re | re_new | k | i | x   | d
        insert  | 1  | ∞  |        | a | 1 | 3.5 | 2024-01-02
        insert  | 2  | ∞  |        | b | 1 | -1  | 2024-01-01
        insert  | 3  | ∞  |        | b | 3 |     |
        insert  | 4  | ∞  |        | c |   | 0.1 | 2023-01-01
        retract | 2  | ∞  | 6      | b | 1 | -1  | 2024-01-01
        """,
        "k STRING, i LONG, x DOUBLE, d DATE",
    )


def at(instant: int, stream: hr.Stream) -> list[Any]:
    rows = [row for row in stream.cht().to_pylist() if row["le"] <= instant < row["re"]]
    return [tuple(row.values())[2:] for row in rows]


@pytest.mark.parametrize(
    ("call", "python", "answer"),
    [
        (
            "string_agg(k, '' ORDER BY i DESC, x)",
            hr.concat("k", "", order_by=["i", "x"], descending=[True, False]),
            "bbac",
        ),
        (
            "string_agg(k, '' ORDER BY d NULLS FIRST)",
            hr.concat("k", "", order_by=[col("d").is_null(), "d"], descending=[True, False]),
            "bcba",
        ),
        ("string_agg(k, '-' ORDER BY d)", hr.concat("k", "-", order_by="d"), "c-b-a-b"),
        (
            "array_agg(x ORDER BY k DESC, x)",
            hr.collect("x", order_by=["k", "x"], descending=[True, False]),
            [0.1, -1.0, 3.5],
        ),
        ("array_agg(d ORDER BY x DESC)", hr.collect("d", order_by="x", descending=True), None),
        ("array_agg(DISTINCT k)", hr.collect("k", distinct=True), ["a", "b", "c"]),
        (
            "string_agg(DISTINCT k, ',' ORDER BY k DESC)",
            hr.concat("k", order_by="k", descending=True, distinct=True),
            "c,b,a",
        ),
        (
            "string_agg(k, ',' ORDER BY x) FILTER (WHERE i = 1)",
            hr.concat("k", order_by="x", where=col("i") == 1),
            "b,a",
        ),
        ("array_agg(i ORDER BY i) FILTER (WHERE i > 9)", hr.collect("i", order_by="i", where=col("i") > 9), []),
        ("string_agg(k, ',' ORDER BY i) FILTER (WHERE i > 9)", hr.concat("k", order_by="i", where=col("i") > 9), None),
    ],
)
def test_in_an_order(call: str, python: Any, answer: Any, s: hr.Stream):
    asked = hr.sql(f"SELECT {call} AS v FROM s", s=s)
    assert asked.node == s.aggregate(v=python).node
    if answer is not None or call.startswith("string"):
        assert at(5, asked) == [(answer,)]
    history = asked.history(engine="duckdb").cht().to_pylist()
    assert sorted(history, key=repr) == sorted(asked.cht().to_pylist(), key=repr)


def test_a_value_that_is_taken_back_leaves_its_place(s: hr.Stream):
    asked = hr.sql("SELECT string_agg(k, '' ORDER BY i DESC, k) AS v FROM s", s=s)
    assert [(r["le"], r["v"]) for r in asked.cht().to_pylist()] == [
        (1, "a"),
        (2, "ab"),
        (3, "bab"),
        (4, "babc"),
        (6, "bac"),
    ]


def test_any_characters_and_ties_by_value():
    texts = ["\x01", "\x02a", "\x02n", "", "a\x01b\x02", "-"]
    rows = [{"le": 1, "re": 9, "k": k, "i": i % 2} for i, k in enumerate(texts)]
    stream = hr.events(rows, "k STRING, i LONG")
    found = stream.aggregate(by_text=hr.collect("k", order_by="k"), by_number=hr.collect("k", order_by="i"))
    assert at(1, found) == [(sorted(texts), [*sorted(texts[::2]), *sorted(texts[1::2])])]


def test_not_a_number_is_greatest():
    rows = [{"le": 1, "re": 9, "x": x} for x in (float("nan"), 1.0, float("inf"), -0.0, None)]
    found = hr.events(rows, "x DOUBLE").aggregate(v=hr.collect("x", order_by="x", descending=True))
    assert str(at(1, found)) == "[([nan, inf, 1.0, 0.0],)]"


def test_windows_of_a_stream(s: hr.Stream):
    text = "SELECT k, string_agg(k, '' ORDER BY i) AS v FROM p [TUMBLING 10 us] GROUP BY k"
    assert at(1, hr.sql(text, p=s.point_at_start())) == [("a", "a"), ("b", "bb"), ("c", "c")]


@pytest.mark.parametrize(
    "call",
    ["string_agg(k, ',' ORDER BY i DESC, x) FILTER (WHERE i > 0)", "collect(DISTINCT i)", "collect(i ORDER BY x)"],
)
def test_unbound(call: str, s: hr.Stream):
    stream = hr.sql(f"SELECT k, {call} AS v FROM s [TUMBLING 10 us] GROUP BY k", s=s)
    spoken = unbind(stream.node, {s.node: "s"})
    assert call in spoken.text
    assert hr.sql(spoken.text, s=s).node == stream.node


def test_one_of_each(s: hr.Stream):
    on = hr.sql("SELECT DISTINCT ON (k) k, i FROM s ORDER BY k, i DESC", s=s)
    assert on.node == hr.sql("SELECT k, i FROM s ORDER BY k, i DESC LIMIT 1 BY k", s=s).node
    assert sorted(at(5, on)) == [("a", 1), ("b", 3), ("c", None)]


def test_all_but_the_first(s: hr.Stream):
    asked = hr.sql("SELECT k FROM s ORDER BY i, k OFFSET 2", s=s)
    assert sorted(at(5, asked)) == [("b",), ("c",)]
    assert "Top all after 2" in asked.explain()


def test_qualify_beside_order(s: hr.Stream):
    text = "SELECT k FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY i) = 1 ORDER BY i DESC, k LIMIT 1"
    assert at(5, hr.sql(text, s=s)) == [("a",)]


@pytest.mark.parametrize("text", ["SELECT DISTINCT ON (a, b) a FROM s ORDER BY a", "SELECT a FROM s OFFSET 3 ROWS"])
def test_printed(text: str):
    tree = parse(text)
    assert parse(to_sql(tree)) == tree


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("sum(i ORDER BY i)", "sum is the same in any order"),
        ("array_agg(DISTINCT x ORDER BY i)", "in the order of the values themselves"),
        ("string_agg(x, ',' ORDER BY i)", "cannot take DOUBLE"),
        ("sum(DISTINCT i)", r"sum\(DISTINCT …\) does not exist"),
    ],
)
def test_refused(call: str, says: str, s: hr.Stream):
    with pytest.raises(SqlError, match=says):
        hr.sql(f"SELECT {call} AS v FROM s", s=s)


def test_refused_in_python(s: hr.Stream):
    with pytest.raises(ExpressionError, match="descending is one for all keys"):
        hr.collect("x", order_by=["i", "k"], descending=[True])
    with pytest.raises(ExpressionError, match="texts are joined"):
        s.aggregate(v=hr.concat("i", order_by="x"))
