"""OVER with aggregates that go from tuple to tuple: window versions, rows, slides, active expiration (rule 7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import ModuleFailed, SqlError
from headrace.events import history
from headrace.host.local.run import run_local
from headrace.plan.nodes import Fold, Output, walk
from headrace.testing.same import assert_same_history
from headrace.testing.verify.differential import differential_reference

TICKS = hr.events(
    """
    kind   | le | re | symbol | price
    insert | 1  | 2  | A      | 4.0
    insert | 2  | 3  | B      | 2.0
    insert | 5  | 6  | A      | 8.0
    insert | 12 | 13 | A      | 6.0
    """,
    "symbol STRING, price DOUBLE",
)
MEAN = """
CREATE WINDOW AGGREGATE mean_of(next DOUBLE): DOUBLE {
    TABLE state(total DOUBLE, n INT);
    TABLE inwindow(wnext DOUBLE);
    INITIALIZE: { INSERT INTO state VALUES (next, 1); INSERT INTO RETURN VALUES (next); }
    ITERATE: { UPDATE state SET total = total + next, n = n + 1; INSERT INTO RETURN SELECT total / n FROM state; }
    EXPIRE: {
        UPDATE state SET total = total - oldest(), n = n - 1;
        INSERT INTO RETURN SELECT total / n FROM state WHERE n > 0;
    }
};
"""
NUMBERED = """
CREATE AGGREGATE numbered(symbol STRING, price DOUBLE): (symbol STRING, number INT) {
    TABLE n(number INT);
    INITIALIZE: { INSERT INTO n VALUES (1); INSERT INTO RETURN VALUES (symbol, 1); }
    ITERATE: { UPDATE n SET number = number + 1; INSERT INTO RETURN SELECT symbol, number FROM n; }
};
"""
SILENCE = """
CREATE WINDOW AGGREGATE silence(heard LONG): LONG {
    TABLE inwindow(heard LONG);
    TABLE n(count LONG) AS VALUES (0);
    INITIALIZE: ITERATE: { UPDATE n SET count = count + 1; }
    EXPIRE: {
        UPDATE n SET count = count - 1;
        INSERT INTO RETURN SELECT oldest() FROM n WHERE count = 0;
    }
};
"""


def rows(text: str, **streams: Any) -> list[tuple[Any, ...]]:
    """What a query says, on the local host, by its twin and in batch SQL."""
    made = hr.sql(text, **(streams or {"ticks": TICKS}))
    differential_reference(made.node)
    assert_same_history(made.cht(), made.history(engine="duckdb").cht())
    return [tuple(row.values()) for row in made.cht().to_pylist()]


@pytest.mark.slow
def test_the_window_version_is_kept_up_by_expire() -> None:
    query = "SELECT symbol, mean_of(price) OVER (PARTITION BY symbol ROWS 1 PRECEDING) AS mean FROM ticks"
    assert rows(MEAN + query) == [(1, 2, "A", 4.0), (2, 3, "B", 2.0), (5, 6, "A", 6.0), (12, 13, "A", 7.0)]
    query = "SELECT symbol, mean_of(price) OVER (PARTITION BY symbol RANGE 5 ticks PRECEDING) AS mean FROM ticks"
    assert rows(MEAN + query) == [(1, 2, "A", 4.0), (2, 3, "B", 2.0), (5, 6, "A", 6.0), (12, 13, "A", 6.0)]


def test_built_in_and_other_aggregates_stand_side_by_side() -> None:
    frame = "OVER (PARTITION BY symbol RANGE 5 ticks PRECEDING)"
    query = f"SELECT price, 2 * mean_of(price) {frame} + avg(price) {frame} AS m, count(*) {frame} AS n FROM ticks"
    assert rows(MEAN + query) == [
        (1, 2, 4.0, 12.0, 1), (2, 3, 2.0, 6.0, 1), (5, 6, 8.0, 18.0, 2), (12, 13, 6.0, 18.0, 1),
    ]  # fmt: skip


def test_active_expiration_answers_when_a_tuple_leaves() -> None:
    frame = "OVER (PARTITION BY symbol RANGE 5 ticks PRECEDING ACTIVE EXPIRATION)"
    assert rows(MEAN + f"SELECT symbol, mean_of(price) {frame} AS mean FROM ticks") == [
        (1, 2, "A", 4.0), (2, 3, "B", 2.0), (5, 6, "A", 6.0), (6, 7, "A", 8.0), (12, 13, "A", 6.0),
    ]  # fmt: skip


def test_built_in_aggregates_expire_actively() -> None:
    frame = "OVER (PARTITION BY symbol RANGE 5 ticks PRECEDING ACTIVE EXPIRATION)"
    assert rows(f"SELECT symbol, max(price) {frame} AS top FROM ticks") == [
        (1, 2, "A", 4.0), (2, 3, "B", 2.0), (5, 6, "A", 8.0), (6, 7, "A", 8.0), (12, 13, "A", 6.0),
    ]  # fmt: skip
    assert [row[2:] for row in rows(f"SELECT symbol, count(*) {frame} AS n FROM ticks")] == [
        ("A", 1), ("B", 1), ("A", 2), ("A", 1), ("A", 1),
    ]  # fmt: skip


def test_rows_are_beside_their_tuple() -> None:
    query = "SELECT price, numbered(symbol, price) OVER (PARTITION BY symbol) FROM ticks"
    assert rows(NUMBERED + query) == [
        (1, 2, 4.0, "A", 1), (2, 3, 2.0, "B", 1), (5, 6, 8.0, "A", 2), (12, 13, 6.0, "A", 3),
    ]  # fmt: skip
    # Without a window it answers at each tuple, if it is not blocking.
    plain = rows(NUMBERED + "SELECT numbered(symbol, price) FROM ticks GROUP BY symbol")
    assert [row[2:] for row in plain] == [("A", 1), ("B", 1), ("A", 2), ("A", 3)]


def test_a_slide_gives_every_so_many() -> None:
    query = "SELECT price, mean_of(price) OVER (ROWS 2 PRECEDING SLIDE 2) AS mean FROM ticks"
    assert rows(MEAN + query) == [(2, 3, 2.0, 3.0), (12, 13, 6.0, 16 / 3)]


HEARD = """
    kind    | le | re | re_new | v
    insert  | 1  | 2  |        | 1
    cti     | 2  |    |        |
    cti     | 6  |    |        |
    cti     | 7  |    |        |
    insert  | 9  | 10 |        | 2
    insert  | 30 | 31 |        | 3
    insert  | 12 | 13 |        | 4
    cti     | 31 |    |        |
"""


def test_an_alarm_fires_by_time_alone_and_is_withdrawn_if_it_was_wrong() -> None:
    heard = hr.events(HEARD, "v LONG", batches=[2, 1, 1, 1, 1, 1, 1])
    frame = "OVER (RANGE 5 ticks PRECEDING ACTIVE EXPIRATION)"
    made = hr.sql(SILENCE + f"SELECT silence(v) {frame} AS last FROM heard", heard=heard)
    differential_reference(made.node)
    result = run_local([Output(made.node, "out")]).results["out"]
    told = [
        list(zip(changes.le.tolist(), changes.weight.tolist(), changes.payload["last"].to_pylist(), strict=True))
        for changes, _ in result.batches
    ]
    assert told[:4] == [[], [(6, 1, 1)], [], []]  # nothing came after 1, as the CTI at 6 tells
    assert told[4] == [(14, 1, 2)]  # and nothing after 9, or so it seemed at 30
    assert sorted(told[5]) == [(14, -1, 2), (17, 1, 4)]  # but 12 had been on its way
    assert [row["last"] for row in history(result.changes()).to_pylist()] == [1, 4, 3]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT price, mean_of(price) OVER (RANGE 5 ticks PRECEDING ACTIVE EXPIRATION) AS m FROM ticks",
         "rows returned when a tuple leaves have no current tuple"),
        ("SELECT collect(price) OVER (RANGE 5 ticks PRECEDING ACTIVE EXPIRATION) AS m FROM ticks",
         "returns nothing when a tuple leaves"),
        ("SELECT mean_of(price) OVER (ROWS 5 PRECEDING ACTIVE EXPIRATION) AS m FROM ticks",
         "tuples leave by time alone only where the frame is one of time"),
        ("SELECT numbered(symbol, price) OVER () AS x FROM ticks", "at most one aggregate that returns rows"),
        ("SELECT mean_of(DISTINCT price) AS x FROM ticks [TUMBLING 10 ticks]", "does not exist"),
        ("SELECT numbered(symbol, price) OVER (), sum(price) OVER (ROWS 1 PRECEDING SLIDE 2) AS x FROM ticks",
         "skips tuples"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(query: str, said: str) -> None:
    with pytest.raises(SqlError, match=said):
        hr.sql(MEAN + NUMBERED + query, ticks=TICKS)


TWICE = """
CREATE AGGREGATE twice(next DOUBLE): DOUBLE {
    TABLE n(count LONG);
    INITIALIZE: { INSERT INTO n VALUES (1); INSERT INTO RETURN VALUES (next); }
    ITERATE: {
        UPDATE n SET count = count + 1;
        INSERT INTO RETURN VALUES (next);
        INSERT INTO RETURN SELECT next FROM n WHERE count > 1;
    }
};
"""


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_a_group_that_fails_stops_the_query_or_is_diverted() -> None:
    query = "SELECT symbol, twice(price) OVER (PARTITION BY symbol) AS x FROM ticks"
    with pytest.raises(ModuleFailed, match="failed at 5 of symbol = 'A': it returned 2 values at one tuple") as raised:
        hr.sql(TWICE + query, ticks=TICKS).cht()
    assert "on_error='skip'" in str(raised.value)
    made = hr.sql("SET on_error = 'skip';" + TWICE + query, ticks=TICKS)
    assert [tuple(row.values()) for row in made.cht().to_pylist()] == [(1, 2, "A", 4.0), (2, 3, "B", 2.0)]
    differential_reference(made.node)
    (side,) = [node.side() for node in walk(made.node) if isinstance(node, Fold)]
    assert side is not None
    assert [row["row"] for row in hr.Stream(side).cht().to_pylist()] == ["at 5, symbol = 'A'", "at 12, symbol = 'A'"]


def test_files_are_read_with_all_columns_that_tell_tuples_apart(tmp_path: Path) -> None:
    file = tmp_path / "ticks.csv"
    file.write_text("symbol,price,ts\nA,1.0,1\nB,2.0,2\nA,4.0,3\n", encoding="utf-8")
    made = hr.sql(
        f"""CREATE STREAM ticks (symbol STRING, price DOUBLE, ts LONG) ORDER BY ts SOURCE CSV ('{file}');
        {MEAN} SELECT mean_of(price) OVER (PARTITION BY symbol ROWS 9 PRECEDING) AS m FROM ticks;"""
    )
    assert made.cht()["m"].to_pylist() == [1.0, 2.0, 2.5]


@pytest.mark.slow
def test_a_slot_that_a_cti_falls_into_is_answered_once() -> None:
    drawn = """
        kind   | le | re | x
        insert | 3  | 4  | 4.0
        insert | 7  | 8  | 2.0
        cti    | 6  |    |
        insert | 9  | 10 | 1.0
    """
    for batches in ([4], [1, 1, 1, 1], [2, 2]):
        stream = hr.events(drawn, "x DOUBLE", batches=batches)
        for call in ("sum(x)", "mean_of(x)"):
            text = f"SELECT {call} OVER (RANGE 3 ticks PRECEDING SLIDE 7 ticks) AS s FROM t"
            found = rows(MEAN + text, t=stream)
            assert [row[:2] for row in found] == [(3, 4), (9, 10)]


TWO = """
CREATE AGGREGATE two(x DOUBLE): (a DOUBLE, b INT) {
    INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (x, 1), (x, 2); }
};
"""


def test_rows_are_given_behind_all_other_answers() -> None:
    sums = "sum(price) OVER (UNBOUNDED PRECEDING) AS s"
    text = f"SELECT {sums}, two(price) OVER (), count(*) OVER (ROWS 0 PRECEDING) AS n FROM ticks"
    assert [row[2:] for row in rows(TWO + text)] == [
        (4.0, 4.0, 1, 1), (4.0, 4.0, 2, 1), (6.0, 2.0, 1, 1), (6.0, 2.0, 2, 1),
        (14.0, 8.0, 1, 1), (14.0, 8.0, 2, 1), (20.0, 6.0, 1, 1), (20.0, 6.0, 2, 1),
    ]  # fmt: skip
    star = rows(TWO + "SELECT *, two(price) OVER () FROM ticks")
    assert star[0] == (1, 2, "A", 4.0, 4.0, 1)
