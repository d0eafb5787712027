"""JSON in SQL: the same plans as in Python, printed and parsed back."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace import col
from headrace.errors import SqlError
from headrace.sql.parse import parse_expression
from headrace.sql.printer import to_sql

ROWS = hr.events("""
    kind   | le | re | x
    insert | 1  | 5  | {"a": {"b": [1, "q"]}, "it's": true}
    insert | 2  | 5  | none
    insert | 3  | 5  | [1, 2]
    cti    | 9  |    |
""")
x = col("x")


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("x -> 'a'", x.json_get("a")),
        ("x ->> -1", x.json_text(-1)),
        ("x -> 'a' -> 'b' ->> 0", x.json_get("a").json_get("b").json_text(0)),
        ("json_value(x, '$.a.b[0]' RETURNING LONG) + 1", x.json_value("$.a.b[0]", "LONG") + 1),
        ("json_query(x, '$.a')", x.json_query("$.a")),
        ("json_array_length(x)", x.json_array_length()),
        ("get_json_object(x, '$.a')", x.json_text("a")),
        ("x IS NOT JSON ARRAY", ~x.is_json("array")),
        ("-json_array_length(x -> 0)", -x.json_get(0).json_array_length()),
    ],
)
def test_sql_builds_the_plan_of_python(text: str, expr: hr.Expr):
    stream = hr.sql(f"SELECT {text} AS y FROM s", s=ROWS)
    assert stream.node == ROWS.select(y=expr).node
    assert parse_expression(to_sql(parse_expression(text))) == parse_expression(text)
    assert stream.history(engine="duckdb").cht().equals(stream.cht())


@pytest.mark.parametrize(
    ("text", "says", "word"),
    [
        ("json_value(x, 'a')", "begins with", "json_value(x, 'a')"),
        ("json_query(x, '$[*]')", "no step", "json_query(x, '$[*]')"),
        ("json_value(x, x)", "plain value", "json_value(x, x)"),
        ("upper(x RETURNING LONG)", "RETURNING is of json_value", "RETURNING LONG"),
        ("json_array_length(n)", "cannot take LONG", "json_array_length(n)"),
        ("n -> 'a'", "cannot take LONG", "n -> 'a'"),
        ("x -> 'a\"b'", "a key or a place", "'a\"b'"),
    ],
)
def test_mistakes_are_errors_at_their_place(text: str, says: str, word: str):
    query = f"SELECT {text} AS y FROM s"
    with pytest.raises(SqlError, match=says) as error:
        hr.sql(query, s=ROWS.select("x", n=hr.lit(2**40)))
    assert error.value.at == (query.index(word), query.index(word) + len(word))
