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
