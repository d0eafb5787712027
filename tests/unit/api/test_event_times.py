"""Times of events in expressions and lifetimes by expression: what is allowed, what is refused, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace import col
from headrace.errors import EventError, ExpressionError, HeadraceError, PlanError, SqlError
from headrace.expr import Expr, greatest, least, lit
from headrace.plan.lifetimes import furthest_back
from headrace.sql.unbind import unbind
from headrace.testing.verify.differential import differential_reference
from headrace.time import duration, ticks

EVENTS = hr.events("""
    le | re | k | d
    1  | 5  | a | 3
    2  | 9  | b | 4
    7  | ∞  | a | 1
""")
LONGS = pa.schema([("le", pa.int64()), ("re", pa.int64())])
WINDOWS = EVENTS.group_by("k").window(hr.tumbling(5)).aggregate(n=hr.count())


def times(stream: hr.Stream) -> list[tuple[int, int]]:
    return [(row["le"], row["re"]) for row in stream.cht().to_pylist()]


# ---- values


def test_dates_give_dates_and_numbers_give_numbers(tmp_path: Path):
    (tmp_path / "f.csv").write_text("k,dep,arr\na,2024-05-01T12:00:00Z,2024-05-01T13:00:00Z\nb,2024-05-01T12:30:00Z,\n")
    rows = hr.read_csv(
        str(tmp_path / "f.csv"),
        "k STRING, dep DATETIME, arr DATETIME",
        lifetime=hr.point("dep"),
        progress=hr.advance(0),
    )
    flights = rows.alter_lifetime(end="arr").select("k", s=hr.start(), e=hr.end())
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    first, second = flights.cht().to_pylist()
    assert (first["s"], first["e"]) == (noon, noon.replace(hour=13))
    assert second["e"] is None
    assert hr.history_diff(flights.cht(), flights.history(engine="duckdb").cht()) == ""
    assert EVENTS.select(s=hr.start(), e=hr.end()).cht().to_pylist()[2] | {"re": 0} == {
        "le": 7, "re": 0, "s": 7, "e": None,
    }  # fmt: skip


def test_an_upsert_key_may_be_the_start_of_a_window():
    sink = hr.memory(encoding="upsert", key=("k", "start"))
    counted = WINDOWS.select("k", "n", start=hr.window_start())
    hr.run({"out": counted}, sinks={"out": sink})
    assert {(row["k"], row["start"]) for row in sink.cht().to_pylist()} == {("a", 0), ("b", 0), ("a", 5), ("b", 5)}


def test_chop_cuts_at_the_grid():
    event = hr.events("le | re | k \n 1 | 12 | a")
    assert times(event.chop(5)) == [(1, 5), (5, 10), (10, 12)]
    assert times(event.chop(5, origin=2)) == [(1, 2), (2, 7), (7, 12)]
    assert times(event.chop(100)) == [(1, 12)]


def test_nulls_and_empty_lifetimes():
    rows = hr.events("le | s | e \n 1 | 4 | 9 \n 2 |   | 9 \n 3 | 5 |   \n 4 | 9 | 9 \n 5 | 9 | 7")
    assert times(rows.alter_lifetime(start="s", end="e", earliest=0)) == [(4, 9), (5, hr.INFINITY)]
    assert times(rows.alter_lifetime(start="s", duration=col("e"), earliest=0))[-1] == (9, 18)
    assert times(rows.set_duration(col("e") * 0 - 1)) == [(3, hr.INFINITY)]


def same(stream: hr.Stream) -> hr.Stream:
    """The stream, whose twin and history agree with its run."""
    differential_reference(stream.node, buckets=1)
    assert hr.history_diff(stream.cht(), stream.history(engine="duckdb").cht()) == ""
    return stream


def test_a_coarse_grid():
    year = hr.events("le | re | k \n 2024-01-01 | 2024-12-01 | a")
    assert same(year.chop("120 d")).cht().num_rows == 4


def test_times_beyond_the_limit_are_null():
    rows = hr.events("le | re | k | x \n 0 | 10 | p | 1 \n 2 | 4 | q | 2")
    far = 2**60
    assert times(same(rows.alter_lifetime(start=hr.start() - far - 1))) == [(1 - far, 4)]
    assert times(same(rows.set_duration(col("x") * 0 + far))) == [(0, far), (2, hr.INFINITY)]
    assert times(same(rows.alter_lifetime(end=hr.end() - 2 * far))) == []
    windows = rows.alter_lifetime(start=hr.start() - 4 * far, duration=7).window(hr.tumbling(5))
    assert times(same(windows.aggregate(n=hr.count()))) == []


LATE = hr.events("le | re | k \n 2024-01-01 | 9999-12-31 | a").extend("1 d")
EARLY = hr.events("le | re | k \n 0001-01-01 | 2024-01-01 | a")
BEYOND = hr.events("le | re | k \n 9999-12-30 | 9999-12-31 | a").shift("20 d")
LATE_END, EARLY_START = ticks("9999-12-31") + duration("1 d"), ticks("0001-01-01") - duration("1 d")


def ticks_of(stream: hr.Stream) -> list[tuple[int, int]]:
    """Times that no `datetime` can hold."""
    table = stream.cht()
    return [tuple(row.values()) for row in table.select(["le", "re"]).cast(LONGS).to_pylist()]  # type: ignore[misc]


def test_times_outside_of_the_calendar_are_not_null():
    assert same(LATE.where(hr.end() > "2024-06-01")).cht().num_rows == 1
    assert same(LATE.where(hr.end().is_null())).cht().num_rows == 0
    assert same(EARLY.shift("-1 d").where(hr.start() < "0001-01-02")).cht().num_rows == 1
    last = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert same(LATE.select(e=hr.end())).cht()["e"].to_pylist() == [last]


def test_lifetimes_outside_of_the_calendar_are_exact():
    late, early = (ticks("2024-01-01"), LATE_END), (EARLY_START, ticks("2024-01-01"))
    assert ticks_of(same(LATE.alter_lifetime(end=hr.end()))) == [late]
    assert ticks_of(same(LATE.alter_lifetime(end=hr.when(hr.end() > "2024-02-01").then(hr.end())))) == [late]
    assert ticks_of(same(EARLY.alter_lifetime(start=hr.start() - "1 d"))) == [early]
    assert ticks_of(same(EARLY.alter_lifetime(start=hr.start() - timedelta(days=1), end=hr.end()))) == [early]
    only_later = BEYOND.alter_lifetime(start=greatest(hr.start(), lit("2024-01-01")))
    assert ticks_of(same(only_later)) == ticks_of(BEYOND)


@pytest.mark.parametrize(
    ("expr", "back"),
    [
        (hr.start(), 0), (hr.end(), -1), (hr.start() + 5, -5), (5 + hr.start(), -5), (hr.start() - 5, 5),
        (hr.start() - "7 s", 7_000_000), (hr.end() - 3, 2), (greatest(col("d"), hr.start() - 2), 2),
        (greatest(col("d"), hr.end()), None), (least(hr.start() + 1, hr.start() - 4), 4), (least(hr.start(), 5), None),
        (hr.when(col("d") > 1).then(hr.start()), 0), (hr.start() + col("d"), None), (col("d"), None),
    ],
)  # fmt: skip
def test_how_far_back_a_start_can_be(expr: Expr, back: int | None):
    assert furthest_back(expr) == back


# ---- what is refused


@pytest.mark.parametrize(
    ("build", "error", "says", "instead"),
    [
        (lambda: EVENTS.alter_lifetime(start="d"), PlanError, "cannot promise", "earliest="),
        (EVENTS.alter_lifetime, PlanError, "new start, end or duration", "alter_lifetime"),
        (lambda: EVENTS.alter_lifetime(end="d", duration=3), PlanError, "follows from a duration", ""),
        (lambda: EVENTS.alter_lifetime(end="d", earliest=3), PlanError, "how far before", "start="),
        (lambda: EVENTS.alter_lifetime(start="d", earliest=-3), PlanError, "how far before", "earliest="),
        (lambda: EVENTS.alter_lifetime(end="k"), ExpressionError, "number of ticks", "cast"),
        (lambda: EVENTS.alter_lifetime(end=3), ExpressionError, "a column or an expression", "alter_lifetime(end="),
        (lambda: EVENTS.chop(0), PlanError, "positive", "chop"),
        (lambda: EVENTS.select(hr.window_start()), PlanError, "last as long as their window", "hr.start()"),
        (lambda: WINDOWS.extend(1).select(hr.window_end()), PlanError, "last as long", "hr.end()"),
        (lambda: EVENTS.where(hr.start(of="right") > 1), PlanError, "one stream here", "hr.start()"),
        (lambda: hr.end(of="middle"), ExpressionError, "two sides", "of='right'"),
        (lambda: EVENTS.top(1, by=hr.start()), ExpressionError, "no lifetimes", "select(..., start=hr.start())"),
        (lambda: EVENTS.window(hr.tumbling(5)).aggregate(s=hr.start()), ExpressionError, "many", "hr.min(hr.start())"),
        (
            lambda: EVENTS.window(hr.tumbling(5)).aggregate(w=hr.window_start()),
            PlanError, "beside the times of its window", "aggregate(w=hr.window_start(), n=hr.count())",
        ),
        (lambda: EVENTS.group_by(k=hr.start()), PlanError, "hides a column", "k_key=hr.start()"),
        (lambda: hr.memory(encoding="upsert", key=(hr.start(),)), PlanError, "made of columns", "start=hr.start()"),
        (lambda: hr.recurse(EVENTS, lambda f: f.where(hr.start() > 3)), PlanError, "one instant", "before the loop"),
        (lambda: hr.recurse(EVENTS, lambda f: f.where(hr.end() > 3), distinct=False), PlanError, "back in", "the loop"),
        (
            lambda: hr.recurse(EVENTS, lambda f: f.alter_lifetime(start=hr.start() - 1), distinct=False),
            PlanError, "back in time", "the loop",
        ),
    ],
)  # fmt: skip
def test_refused(build: Callable[[], object], error: type[HeadraceError], says: str, instead: str):
    with pytest.raises(error, match=says) as raised:
        build()
    assert instead in (raised.value.instead or "")


def test_the_greatest_of_an_end_is_no_bound():
    with pytest.raises(PlanError) as raised:
        EVENTS.alter_lifetime(start=greatest(hr.end(), col("d")))
    assert "greatest(...) of hr.start(), moved by a constant, and anything" in str(raised.value.allowed)


@pytest.mark.parametrize("history", [False, True])
def test_a_start_that_is_too_early_stops_the_query(history: bool):
    moved = EVENTS.alter_lifetime(start=col("d") - 3, earliest=5)
    with pytest.raises(EventError, match="would start an event at -2, and it starts at 7"):
        moved.history(engine="duckdb").cht() if history else moved.cht()


@pytest.mark.parametrize("history", [False, True])
def test_an_endless_event_is_not_chopped(history: bool):
    chopped = EVENTS.chop(5)
    with pytest.raises(EventError, match="pieces") as raised:
        chopped.history(engine="duckdb").cht() if history else chopped.cht()
    assert "cap_duration" in raised.value.instead


def test_a_loop_may_move_lifetimes_forward():
    later = hr.recurse(EVENTS, lambda f: f.alter_lifetime(start=hr.start() + 3).where(hr.start() < 9), distinct=False)
    assert later.cht().num_rows > EVENTS.cht().num_rows


def test_explain_says_what_the_cti_waits_for():
    assert "CTI: start of the oldest event that has not ended" in EVENTS.select(e=hr.end()).explain(liveliness=True)
    assert "oldest event" not in EVENTS.select(s=hr.start()).explain(liveliness=True)
    assert "CTI: its input's less 10 s" in EVENTS.alter_lifetime(start="d", earliest="10 s").explain(liveliness=True)


# ---- SQL

OTHER = hr.events("le | re | k | w \n 3 | 8 | a | 1 \n 1 | 4 | b | 2")
SAME = {
    "SELECT * FROM s WHERE le > 1": lambda: EVENTS.where(hr.start() > 1),
    "SELECT k, le AS a, re AS b FROM s": lambda: EVENTS.select("k", a=hr.start(), b=hr.end()),
    "SELECT le, re FROM s": lambda: EVENTS.select(hr.start(), hr.end()),
    "SELECT s.LE - 1 AS a FROM s": lambda: EVENTS.select(a=hr.start() - 1),
    "SELECT n, window_start AS w FROM (SELECT k, count(*) AS n FROM s [TUMBLING 5 us] GROUP BY k)": lambda: (
        WINDOWS.select("n", w=hr.window_start())
    ),
}


@pytest.mark.parametrize("text", SAME)
def test_sql_builds_the_plan_of_python(text: str):
    plan = hr.sql(text, s=EVENTS).node
    assert plan == SAME[text]().node
    assert hr.sql(unbind(plan, {EVENTS.node: "s"}).text, s=EVENTS).node == plan


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT k, window_start, window_end, count(*) AS n FROM s [TUMBLING 5 us] GROUP BY k",
         [("a", 0, 5, 1), ("b", 0, 5, 1), ("a", 5, 10, 1), ("b", 5, 10, 1)]),
        ("SELECT k, count(*) + window_end AS n FROM s [TUMBLING 5 us] GROUP BY k, window_start HAVING window_start > 0",
         [("a", 11), ("b", 11)]),
        ("SELECT le, max(re) AS m FROM s [TUMBLING 5 us] GROUP BY le", [(1, 5), (2, 9), (2, 9), (7, None)]),
        ("SELECT d, window_start FROM s [TUMBLING 5 us]", [(3, 0), (4, 0), (1, 5), (4, 5)]),
        ("SELECT d, le, window_end FROM s [TUMBLING 5 us] ORDER BY le LIMIT 1", [(3, 1, 5), (4, 2, 10)]),
        ("SELECT s.k, s.le AS a, t.le AS b, le AS c FROM s JOIN t ON s.k = t.k AND s.le < t.re",
         [("b", 2, 1, 2), ("a", 1, 3, 3), ("a", 7, 3, 7)]),
        ("SELECT k, max(le) OVER (PARTITION BY k ROWS 2 PRECEDING) AS m FROM s", [("a", 1), ("b", 2), ("a", 7)]),
    ],
)  # fmt: skip
def test_times_in_sql(text: str, rows: list[tuple[object, ...]]):
    query = hr.sql(text, s=EVENTS, t=OTHER)
    assert [tuple(row.values())[2:] for row in query.cht().to_pylist()] == rows
    assert hr.history_diff(query.cht(), query.history(engine="duckdb").cht()) == ""


def test_a_column_of_that_name_takes_precedence():
    named = EVENTS.select("k", window_start=col("d"))
    assert hr.sql("SELECT window_start AS w FROM s", s=named).cht()["w"].to_pylist() == [3, 4, 1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT window_start FROM s", "last as long as their window"),
        ("SELECT s.k FROM s JOIN t ON s.k = t.k AND le > 3", "no column 'le'"),
    ],
)
def test_refused_in_sql(text: str, says: str):
    with pytest.raises(SqlError, match=says):
        hr.sql(text, s=EVENTS, t=OTHER)
