"""Queries that users of databases write, over tables: the rows are those of DuckDB, after any changes."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import SqlError
from headrace.sql.peek import current
from headrace.sql.session import Answers, SqlSession

CREATES = """
    CREATE TABLE o (id {0}, k {1}, x {0}, d DECIMAL(10, 2), ts {2});
    CREATE TABLE c (k {1}, name {1});
    CREATE TABLE a (c {1}, v {0});
"""
ROWS = """
    INSERT INTO o VALUES (1, 'a', 1, 1.50, '2024-01-01 00:00:00'), (2, 'a', 2, 2.50, '2024-01-02 10:30:00'),
        (3, 'b', 10, 3.25, '2024-07-03 23:30:00'), (4, 'c', 5, NULL, NULL), (5, 'b', 2, 2.50, '2024-03-31 01:30:00');
    INSERT INTO c VALUES ('a', 'Ann'), ('b', 'Bob'), ('d', 'Dan');
    INSERT INTO a VALUES ('a', 10), ('b', 20), ('b', 30);
"""
TEXT = (Path(__file__).parent / "dialect.sql").read_text()
QUERIES = [" ".join(one.split()) for one in re.sub("--.*", "", TEXT).split(";") if one.strip()]


def sessions(rows: str = ROWS) -> tuple[SqlSession, duckdb.DuckDBPyConnection]:
    session, oracle = SqlSession(), duckdb.connect()
    session.execute(CREATES.format("LONG", "STRING", "DATETIME") + rows)
    oracle.execute(CREATES.format("BIGINT", "VARCHAR", "TIMESTAMP") + rows)
    return session, oracle


def rows_of(session: SqlSession, query: str) -> list[tuple[Any, ...]]:
    """The rows that a query shows now, in its order."""
    (outcome,) = session.execute(query)
    assert isinstance(outcome, Answers)
    done = hr.run({"q": outcome.shown})
    return [tuple(row.values()) for row in current(done.results["q"], outcome.order).to_pylist()]


def plain(value: Any) -> Any:
    if isinstance(value, (Decimal, float)):
        return round(float(value), 9)
    return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value


def bag(rows: Iterable[Sequence[Any]]) -> list[str]:
    return sorted(str([plain(value) for value in row]) for row in rows)


@pytest.mark.parametrize("query", QUERIES)
def test_oracle_rows_are_those_of_duckdb(query: str) -> None:
    session, oracle = sessions()
    assert bag(rows_of(session, query)) == bag(oracle.execute(query).fetchall())


changes = st.one_of(
    st.builds(
        "INSERT INTO o VALUES ({}, '{}', {}, {}, NULL)".format,
        st.integers(0, 9),
        st.sampled_from("abd"),
        st.integers(-3, 3),
        st.sampled_from(["NULL", "1.50", "-2.25"]),
    ),
    st.builds("DELETE FROM o WHERE x < {}".format, st.integers(-3, 10)),
    st.builds("UPDATE o SET x = x + {} WHERE k = '{}'".format, st.integers(-2, 2), st.sampled_from("abc")),
    st.builds("INSERT INTO c VALUES ('{}', 'Eve')".format, st.sampled_from("abc")),
    st.builds("DELETE FROM c WHERE k = '{}'".format, st.sampled_from("ab")),
)


@settings(deadline=None, max_examples=max(3, settings().max_examples // 3))
@given(st.sampled_from(QUERIES), st.lists(changes, min_size=1, max_size=4))
def test_oracle_rows_are_those_of_duckdb_after_changes(query: str, texts: list[str]) -> None:
    session, oracle = sessions()
    for time, text in enumerate(texts, 1):
        session.execute(f"SET time = {time}; {text}")
        oracle.execute(text)
    assert bag(rows_of(session, query)) == bag(oracle.execute(query).fetchall())
    (outcome,) = session.execute(query)
    assert isinstance(outcome, Answers)
    assert hr.same_history(outcome.stream.history(engine="duckdb").cht(), outcome.stream.cht())


EVENTS = hr.events("le|k|x\n1|a|1\n2|b|5\n3|a|2\n11|b|5\n12|a|1\n13|a|2\n")


@pytest.mark.parametrize(
    ("window", "starts"), [("[TUMBLING 10 us]", [0, 10]), ("[RANGE 10 us SLIDE 5 us]", [-5, 0, 5, 10])]
)
def test_window_functions_beside_groups_are_about_the_answers_of_one_window(window: str, starts: list[int]) -> None:
    ranked = f"SELECT k, sum(x) AS s, rank() OVER (ORDER BY sum(x) DESC) AS r FROM e {window} GROUP BY k"
    asked = hr.sql(ranked, e=EVENTS)
    expected = [(at, at + 10, k, s, r) for at in starts for k, s, r in (("a", 3, 2), ("b", 5, 1))]
    assert sorted(tuple(row.values()) for row in asked.cht().to_pylist()) == expected
    assert hr.same_history(asked.history(engine="duckdb").cht(), asked.cht())
    least = f"SELECT window_start AS w, k FROM e {window} GROUP BY k QUALIFY row_number() OVER (ORDER BY sum(x)) = 1"
    timed = hr.sql(least, e=EVENTS).cht().to_pylist()
    assert sorted((row["le"], row["w"], row["k"]) for row in timed) == [(at, at, "a") for at in starts]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT k, x, rank() OVER (ORDER BY sum(x)) FROM o GROUP BY k", "x is neither in GROUP BY nor"),
        ("SELECT k, rank() OVER (ORDER BY x) FROM o GROUP BY k", "x is neither in GROUP BY nor"),
    ],
)
def test_what_is_refused(query: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        sessions()[0].execute(query)


def test_a_table_outside_comes_before_a_struct_inside() -> None:
    session, _ = sessions()
    session.execute("CREATE TABLE s (c STRUCT<k STRING>); INSERT INTO s VALUES ({'k': 'a'})")
    assert rows_of(session, "SELECT name FROM c WHERE EXISTS (SELECT 1 FROM s WHERE c.k = 'b')") == [("Bob",)]
    assert len(rows_of(session, "SELECT name FROM c WHERE EXISTS (SELECT 1 FROM s WHERE (c).k = 'a')")) == 3


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("name ~ 'n$'", ["Ann", "Dan"]),
        ("name SIMILAR TO '(A|B)%'", ["Ann", "Bob"]),
        ("name NOT SIMILAR TO '_nn'", ["Bob", "Dan"]),
        ("name ~* 'AN$'", ["Dan"]),
        ("name ~* '^[A-C]'", ["Ann", "Bob"]),
        ("name !~ 'B'", ["Ann", "Dan"]),
        ("name !~* 'b'", ["Ann", "Dan"]),
        ("name SIMILAR TO 'A.n'", []),
        ('\'{"a": [1, {"b": "Bob"}]}\' #>> \'{a,1,b}\' = name', ["Bob"]),
        ("'{\"a\": [1, 2]}' #> '{a,-1}' = '2' AND name < 'B'", ["Ann"]),
    ],
)
def test_operators_of_postgresql(condition: str, names: list[str]) -> None:
    assert sorted(rows_of(sessions()[0], f"SELECT name FROM c WHERE {condition}")) == [(name,) for name in names]


def test_rows_of_values_know_what_is_unknown() -> None:
    session, _ = sessions("INSERT INTO o (id, k, x) VALUES (1, 'a', 1), (2, 'a', NULL), (3, 'b', 2)")
    found = (
        "SELECT id, (k, x) IN (SELECT k, x FROM o WHERE id <> 3) AS b, (k, x) IN (('a', 1), ('b', NULL)) AS c FROM o"
    )
    assert sorted(rows_of(session, found)) == [(1, True, True), (2, None, None), (3, False, None)]
    assert rows_of(session, "SELECT id FROM o WHERE (k, x) NOT IN (SELECT k, x FROM o WHERE id <> 3)") == [(3,)]
    assert rows_of(session, "SELECT id FROM o WHERE NOT (k, x) IN (SELECT k, x FROM o WHERE id <> 3)") == [(3,)]
    assert rows_of(session, "SELECT count(*) FROM o WHERE (k, x) NOT IN (SELECT k, x FROM o WHERE x > 9)") == [(3,)]


def test_the_time_of_a_statement() -> None:
    session = SqlSession()
    session.execute("CREATE TABLE t (a INT, b DATETIME DEFAULT now(), d DATE DEFAULT current_date)")
    session.execute("INSERT INTO t (a) AT '2024-01-01 10:00:00' VALUES (1)")
    session.execute("INSERT INTO t AT '2024-01-02' VALUES (2, current_timestamp - INTERVAL '1' HOUR, current_date)")
    session.execute("UPDATE t AT '2024-01-03' SET b = now() WHERE d < current_date - 1")
    session.execute("CREATE TABLE u (at DATETIME); INSERT INTO u AT '2024-01-04' SELECT now() FROM t")

    def day(number: int, hour: int = 0) -> dt.datetime:
        return dt.datetime(2024, 1, number, hour, tzinfo=dt.UTC)

    assert rows_of(session, "SELECT a, b, d FROM t ORDER BY a") == [
        (1, day(3), dt.date(2024, 1, 1)),
        (2, day(1, 23), dt.date(2024, 1, 2)),
    ]
    assert rows_of(session, "SELECT at FROM u") == [(day(4),), (day(4),)]
    session.execute("DELETE FROM t AT '2024-01-05' WHERE b < now() - INTERVAL '3' DAY")
    assert rows_of(session, "SELECT a FROM t") == [(1,)]


def test_a_default_must_fit() -> None:
    with pytest.raises(SqlError, match="the column a has the type INT"):
        SqlSession().execute("CREATE TABLE t (a INT DEFAULT 'x')")


def test_what_a_named_query_reads_is_dropped_with_it() -> None:
    session, _ = sessions()
    session.execute("QUERY big AS SELECT * FROM o WHERE x > 2; SELECT * FROM c")
    with pytest.raises(SqlError, match="QUERY big still reads o") as caught:
        session.execute("DROP TABLE o")
    assert caught.value.instead == "DROP QUERY big before it, or DROP TABLE o CASCADE"
    session.execute("DROP TABLE c; DROP TABLE o CASCADE")
    assert "big" not in session.catalog.queries


@pytest.mark.parametrize(
    ("interval", "meant"),
    [
        ("INTERVAL '-1' DAY", "-(1 day)"),
        ("INTERVAL '1 02:03:04' DAY TO SECOND", "1 day + 2 h + 3 min + 4 s"),
        ("INTERVAL '-1 02:03' DAY TO MINUTE", "-(1 day + 2 h + 3 min)"),
        ("INTERVAL '3 04' DAY TO HOUR", "3 day + 4 h"),
        ("INTERVAL '02:03' HOUR TO MINUTE", "2 h + 3 min"),
        ("INTERVAL '02:03:04.5' HOUR TO SECOND", "2 h + 3 min + 4500 ms"),
        ("INTERVAL '03:04' MINUTE TO SECOND", "3 min + 4 s"),
        ("INTERVAL '1 day 00:00:01'", "1 day + 1 s"),
        ("INTERVAL '-00:30:00'", "-(30 min)"),
    ],
)
def test_intervals_of_standard_sql(interval: str, meant: str) -> None:
    assert rows_of(SqlSession(), f"SELECT {interval} = CAST({meant} AS INTERVAL) AS same") == [(True,)]
    moved = f"SELECT DATETIME '2024-03-01 12:00:00' + {interval} = DATETIME '2024-03-01 12:00:00' + ({meant}) AS same"
    assert rows_of(SqlSession(), moved) == [(True,)]


def test_intervals_of_months() -> None:
    asked = "SELECT DATE '2024-03-31' + INTERVAL '-1' MONTH AS a, DATE '2024-01-31' + INTERVAL '1-1' YEAR TO MONTH AS b"
    assert rows_of(SqlSession(), asked) == [(dt.date(2024, 2, 29), dt.date(2025, 2, 28))]


@pytest.mark.parametrize("text", ["INTERVAL '1:2' DAY TO HOUR", "INTERVAL '1 2' HOUR TO DAY", "INTERVAL 'x' DAY"])
def test_texts_that_are_no_intervals(text: str) -> None:
    with pytest.raises(SqlError, match=r"this is no interval|expected|cannot"):
        SqlSession().execute(f"SELECT {text} AS i")
