"""Windows as functions in FROM and GROUP BY: of streams the brackets, of rows that last the values of a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import PlanError, SqlError

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


@pytest.mark.parametrize(
    "function",
    [
        "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
        "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)",
    ],
)
def test_over_the_rows_of_a_window(function: str, t: hr.Stream):
    """As a LIMIT of each window; a row lasts as long as its window."""
    over = "row_number() OVER (PARTITION BY window_start, window_end ORDER BY x DESC, k)"
    outer = hr.sql(f"SELECT k, x FROM (SELECT *, {over} AS n FROM TABLE({function}) WHERE x > 0) WHERE n = 1", t=t)
    qualified = hr.sql(f"SELECT k, x FROM {function} AS w WHERE w.x > 0 QUALIFY {over} = 1", t=t)
    limited = hr.sql(f"SELECT k, x FROM {function} WHERE x > 0 ORDER BY x DESC, k LIMIT 1", t=t)
    assert limited.cht().num_rows > 1
    for one in (outer, qualified):
        assert not hr.history_diff(one.cht(), limited.cht())


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


# --- rows that last


@pytest.fixture
def bids() -> hr.Stream:
    return hr.events(
        """
        kind    | le | re | re_new | k | ts                  | n
        insert  | 1  | ∞  |        | a | 2024-05-01T12:00:03 | 3
        insert  | 2  | ∞  |        | a | 2024-05-01T12:00:09 | 9
        insert  | 3  | ∞  |        | b | 2024-05-01T12:00:12 | 12
        insert  | 4  | ∞  |        | b |                     |
        retract | 2  | ∞  | 6      | a | 2024-05-01T12:00:09 | 9
        """,
        "k STRING, ts DATETIME, n LONG",
    )


@pytest.mark.parametrize(
    ("function", "window"),
    [
        (f"TUMBLE(TABLE bids, DESCRIPTOR(ts), {TEN})", hr.tumbling("10 s")),
        (f"TUMBLE(bids, ts, {TEN}, INTERVAL '3' SECOND)", hr.tumbling("10 s", 3_000_000)),
        (f"HOP(bids, ts, {FIVE}, {TEN})", hr.hopping("10 s", every="5 s")),
        (f"HOP(bids, ts, {TEN}, {FIVE})", hr.hopping("5 s", every="10 s")),
        ("HOP(bids, ts, 4 s, 10 s)", hr.hopping("10 s", every="4 s")),
        ("HOP(bids, ts, 1 month, INTERVAL '1' YEAR)", hr.hopping("1 year", every="1 month")),
    ],
)
def test_windows_by_a_column(function: str, window: Any, bids: hr.Stream):
    called = hr.sql(f"SELECT * FROM {function}", bids=bids)
    assert called.node == bids.with_windows("ts", window).node
    rows = called.cht().to_pylist()
    assert all(row["window_start"] <= row["ts"] < row["window_end"] for row in rows)
    assert sorted(map(repr, rows)) == sorted(map(repr, called.history().cht().to_pylist()))


def test_a_correction_moves_a_row_out_of_its_window(bids: hr.Stream):
    text = f"SELECT window_start, sum(n) AS n FROM TUMBLE(bids, ts, {TEN}) GROUP BY window_start"
    found = [(r["le"], r["window_start"].second, r["n"]) for r in hr.sql(text, bids=bids).cht().to_pylist()]
    assert found == [(1, 0, 3), (2, 0, 12), (3, 10, 12), (6, 0, 3)]
    grouped = f"SELECT TUMBLE_START(ts, {TEN}) AS window_start, sum(n) AS n FROM bids GROUP BY TUMBLE(ts, {TEN})"
    assert hr.sql(grouped, bids=bids).cht().to_pylist() == [
        {**row, "n": n} for row, (_, _, n) in zip(hr.sql(text, bids=bids).cht().to_pylist(), found, strict=True)
    ]


def test_windows_that_grow_by_a_column(bids: hr.Stream):
    found = hr.sql(
        "SELECT n, window_start AS s, window_end AS e, window_time AS t FROM CUMULATE(bids, n, 4 us, 12 us)", bids=bids
    )
    assert sorted((row["n"], row["s"], row["e"], row["t"]) for row in found.cht().to_pylist()) == [
        (3, 0, 4, 3), (3, 0, 8, 7), (3, 0, 12, 11), (9, 0, 12, 11), (12, 12, 16, 15), (12, 12, 20, 19),
        (12, 12, 24, 23),
    ]  # fmt: skip


def test_windows_of_a_query_and_of_two_sides(bids: hr.Stream):
    text = f"""
        SELECT a.n, b.n AS other, a.window_start FROM TUMBLE((SELECT * FROM bids WHERE n > 3), ts, {TEN}) AS a
        JOIN TUMBLE(bids, ts, {TEN}) AS b ON a.window_start = b.window_start AND a.n <> b.n
    """
    assert [(r["le"], r["re"], r["n"], r["other"]) for r in hr.sql(text, bids=bids).cht().to_pylist()] == [(2, 6, 9, 3)]


def test_le_is_the_time_of_the_rows(bids: hr.Stream):
    called = hr.sql("SELECT k, count(*) AS n FROM TUMBLE(bids, le, 4 us) GROUP BY k", bids=bids)
    assert called.node == hr.sql("SELECT k, count(*) AS n FROM bids [TUMBLING 4 us] GROUP BY k", bids=bids).node


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("SESSION(bids, ts, 4 s)", "sessions of several rows"),
        ("TUMBLE(TABLE bids PARTITION BY k, DESCRIPTOR(ts), 4 s)", "all rows have the same windows"),
        ("TUMBLE(bids, k, 4 s)", "k cannot be a time"),
        ("HOP(bids, ts, 1 s, 1 h)", "too many windows"),
        ("TUMBLE(bids, ts, 2 months)", "begin every month, quarter or year"),
        ("TUMBLE((SELECT *, 1 AS window_end FROM bids), ts, 2 s)", "there is a column 'window_end' already"),
    ],
)
def test_refused_by_a_column(function: str, says: str, bids: hr.Stream):
    with pytest.raises(SqlError, match=says):
        hr.sql(f"SELECT * FROM {function}", bids=bids)


def test_refused_in_python(bids: hr.Stream):
    with pytest.raises(PlanError, match="the windows of a column have one size"):
        bids.with_windows("ts", hr.session("5 s"))  # type: ignore[arg-type]


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
