"""Windows as functions in FROM and GROUP BY: the same plans as the brackets."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import SqlError

ROWS = """k,ts,other,x
a,2024-05-01T12:00:01Z,2024-05-01T13:00:01Z,1
b,2024-05-01T12:00:04Z,2024-05-01T13:00:04Z,2
a,2024-05-01T12:00:12Z,2024-05-01T13:00:02Z,3
"""


@pytest.fixture
def t(tmp_path: Path) -> hr.Stream:
    (tmp_path / "t.csv").write_text(ROWS)
    schema = "k STRING, ts DATETIME, other DATETIME, x INT"
    return hr.read_csv(str(tmp_path / "t.csv"), schema=schema, lifetime=hr.point("ts"))


SUMS = "SELECT k, sum(x) AS n FROM"
TEN, FIVE = "INTERVAL '10' SECOND", "INTERVAL '5 seconds'"


@pytest.mark.parametrize(
    ("function", "brackets"),
    [
        (f"TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), {TEN}))", "t [TUMBLING 10 s]"),
        (f"TUMBLE(t, ts, {TEN})", "t [TUMBLING 10 s]"),
        (f"TABLE(TUMBLE(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZE => {TEN})) AS w", "t [TUMBLING 10 s]"),
        ("TUMBLE(t, le, INTERVAL '1' MONTH)", "t [TUMBLING 1 MONTH]"),
        (f"HOP(t, ts, {FIVE}, {TEN})", "t [HOPPING 10 s EVERY 5 s]"),
        (f"SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), {FIVE})", "t [SESSION 5 s PARTITIONED BY k]"),
        (f"SESSION(TABLE t, DESCRIPTOR(ts), {FIVE})", "t [SESSION 5 s]"),
    ],
)
def test_functions_are_brackets(function: str, brackets: str, t: hr.Stream):
    called = hr.sql(f"{SUMS} {function} GROUP BY k, window_start, window_end", t=t)
    assert called.node == hr.sql(f"{SUMS} {brackets} GROUP BY k", t=t).node


def test_grouped_by_a_function(t: hr.Stream):
    old = f"SELECT k, sum(x) AS n, TUMBLE_START(ts, {TEN}) AS b FROM t GROUP BY TUMBLE(ts, {TEN}), k"
    new = "SELECT k, sum(x) AS n, window_start AS b FROM t [TUMBLING 10 s] GROUP BY k"
    assert hr.sql(old, t=t).node == hr.sql(new, t=t).node


def test_another_time_than_the_streams_own(t: hr.Stream):
    found = hr.sql(f"{SUMS} TUMBLE(t, other, {TEN}) GROUP BY k", t=t).cht().to_pylist()
    assert [(row["k"], row["n"]) for row in found] == [("a", 4), ("b", 2)]
    assert found[0]["le"].hour == 13


def test_star_has_the_times_of_the_window(t: hr.Stream):
    found = hr.sql(f"SELECT * FROM TUMBLE(t, ts, {TEN})", t=t).cht()
    assert found.column_names[2:] == ["k", "ts", "other", "x", "window_start", "window_end"]
    assert [(r["window_start"], r["window_end"]) for r in found.to_pylist()] == [
        (r["le"], r["re"]) for r in found.to_pylist()
    ]


def test_window_time_is_the_last_instant(t: hr.Stream):
    text = f"SELECT k, sum(x) AS n, window_time FROM TUMBLE(t, ts, {TEN}) GROUP BY k, window_start, window_time"
    found = hr.sql(text, t=t).cht().to_pylist()
    assert all((row["re"] - row["window_time"]).microseconds == 1 for row in found)


def test_cumulating_windows_begin_together(t: hr.Stream):
    text = f"{SUMS} TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), {FIVE}, {TEN})) GROUP BY k, window_start, window_end"
    found = [(r["le"].second, r["re"].second, r["k"], r["n"]) for r in hr.sql(text, t=t).cht().to_pylist()]
    assert found == [
        (0, 5, "a", 1),
        (0, 5, "b", 2),
        (0, 10, "a", 1),
        (0, 10, "b", 2),
        (10, 15, "a", 3),
        (10, 20, "a", 3),
    ]


@pytest.mark.parametrize("side", ["TUMBLE(t, ts, 10 s)", "(SELECT * FROM TUMBLE(t, ts, 10 s))"])
def test_joined_windows(side: str, t: hr.Stream):
    on = "a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end"
    text = f"SELECT a.k, a.x, b.x AS y, a.window_start FROM {side} a JOIN {side} b ON {on}"
    found = hr.sql(text, t=t).cht().to_pylist()
    assert [(r["k"], r["x"], r["y"], r["window_start"].second) for r in found] == [
        ("a", 1, 1, 0), ("b", 2, 2, 0), ("a", 3, 3, 10),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"SELECT k FROM TUMBLE(t, {TEN})", "TUMBLE: the argument size is missing"),
        ("SELECT k FROM HOP(t, ts, 5, 10)", "the argument slide is an interval"),
        (f"SELECT k FROM TUMBLE(t, k, {TEN})", "k cannot be a time"),
        (f"SELECT k FROM TUMBLE(t, ts, {TEN}, {TEN}, {TEN})", "this argument has no place here"),
        (f"SELECT k FROM CUMULATE(t, ts, INTERVAL '3' SECOND, {TEN})", "the size is a multiple of the step"),
        (f"SELECT k FROM TUMBLE('t', ts, {TEN})", "the rows are a stream"),
    ],
)
def test_refused(text: str, says: str, t: hr.Stream):
    with pytest.raises(SqlError, match=says):
        hr.sql(text, t=t)
