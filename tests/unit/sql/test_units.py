"""Bare numbers that measure time: the attribute's own unit where it is a number, seconds where it is a date (8.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.border import as_ticks
from headrace.errors import SqlError
from headrace.plan.nodes import Source, walk
from headrace.plan.policies import Advance, Heartbeat

TIMES = (0, 1, 2, 9, 11)
DATES = "CREATE STREAM s (ts DATETIME, v LONG) ORDER BY ts SOURCE FILE ('dates.csv', ',');"
NUMBERS = "CREATE STREAM s (ts LONG, v LONG) ORDER BY ts SOURCE FILE ('numbers.csv', ',');"
EPOCH = 1_704_067_200  # 2024-01-01, in seconds: a multiple of every size below

QUERIES = [
    "SELECT v, sum(v) OVER (RANGE 1 PRECEDING) AS a FROM s",
    "SELECT v, sum(v) OVER (RANGE 5 PRECEDING SLIDE 4) AS a FROM s",
    "SELECT sum(v) AS a FROM s [SIZE 3 ON ts]",
    "SELECT sum(v) AS a FROM s [SIZE 3 ON le]",
    "SELECT sum(v) AS a FROM s [SIZE 6 ON ts EVERY 3 ON ts]",
    "SELECT sum(v) AS a FROM s [SIZE 3 ON ts EVERY 2]",
    "SELECT sum(v) AS a FROM s [SIZE 2 EVERY 3 ON le]",
    "SELECT sum(v) AS a FROM s [SIZE 3 ON ts STARTING AT 1]",
    "SELECT sum(v) AS a FROM s [LANDMARK {at} EVERY 3 ON ts]",
    "SELECT sum(v) AS a FROM s [FIXED {at} TO {until}]",
    "SELECT * FROM s MATCH_RECOGNIZE (MEASURES A.v AS x, B.v AS y PATTERN (A B) WITHIN 1 DEFINE B AS B.v > A.v)",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [(time, value) for value, time in enumerate(TIMES, 1)]
    (tmp_path / "numbers.csv").write_text("".join(f"{time},{value}\n" for time, value in rows))
    (tmp_path / "dates.csv").write_text("".join(f"2024-01-01 00:00:{time:02},{value}\n" for time, value in rows))
    return tmp_path


def _answers(create: str, query: str, start: int, unit: int, folder: Path) -> list[tuple[int, ...]]:
    """The history, its starts in units since the first row; those that depend on an end are a tick behind it."""
    stream = hr.sql(create + query.format(at=start + 1, until=start + 9), base=folder)
    assert not hr.history_diff(stream.cht(), stream.history(engine="duckdb").cht())
    columns = as_ticks(stream.cht()).to_pydict().values()
    return sorted((-(-le // unit) - start, *rest) for le, _, *rest in zip(*columns, strict=True))


@pytest.mark.parametrize("query", QUERIES)
def test_seconds_of_dates_are_units_of_numbers(query: str, folder: Path):
    dates = _answers(DATES, query, EPOCH, 1_000_000, folder)
    assert dates
    assert dates == _answers(NUMBERS, query, 0, 1, folder)


@pytest.mark.parametrize(
    ("create", "unit"),
    [
        ("(ts DATETIME, v LONG) ORDER BY ts", 1_000_000),
        ("(ts LONG, v LONG) ORDER BY ts", 1),
        ("(ts DATETIME, v LONG) LIFETIME EDGE AT ts KEY v", 1_000_000),
        ("(a DATETIME, b DATETIME, v LONG) LIFETIME FROM a TO b", 1_000_000),
        ("(v LONG) ORDER BY current_time", 1_000_000),
        ("(kind STRING, le DATETIME, re DATETIME, re_new DATETIME, v LONG) LIFETIME PHYSICAL", 1_000_000),
    ],
)
def test_promises_are_measured_alike(create: str, unit: int, folder: Path):
    for text, wanted in {
        "ADVANCE 5 EVERY 2 SKEW 60": Advance("divert", 5 * unit, 2 * unit, 60 * unit),
        "ADVANCE 5 s": Advance("divert", 5_000_000),
        "HEARTBEAT 2 DELAY 3": Heartbeat("divert", 2 * unit, 3 * unit),
    }.items():
        text = f"CREATE STREAM s {create} WITH PROGRESS {text} SOURCE FILE ('dates.csv', ','); SELECT v FROM s"
        (source,) = [node for node in walk(hr.sql(text, base=folder).node) if isinstance(node, Source)]
        assert source.policy == wanted


def test_a_fraction_of_a_second_is_a_duration_and_of_a_tick_is_not(folder: Path):
    half = hr.sql(DATES + "SELECT sum(v) OVER (RANGE 1.5 PRECEDING) AS a FROM s", base=folder)
    assert half.node == hr.sql(DATES + "SELECT sum(v) OVER (RANGE 1500 ms PRECEDING) AS a FROM s", base=folder).node
    with pytest.raises(SqlError, match="whole number of ticks"):
        hr.sql(NUMBERS + "SELECT sum(v) OVER (RANGE 1.5 PRECEDING) AS a FROM s", base=folder)
