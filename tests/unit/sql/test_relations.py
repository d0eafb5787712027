"""Streams whose events last are relations at every instant: groups and aggregates without a window (rule 8.4)."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace import col
from headrace.errors import SqlError
from headrace.plan.instants import has_points
from headrace.sql.unbind import unbind
from headrace.time import INFINITY

ROWS = hr.events("""
    kind    | le | re | re_new | k | v
    insert  | 1  | ∞  |        | a | 1
    insert  | 2  | ∞  |        | a | 2
    insert  | 4  | 9  |        | b | 3
    retract | 1  | ∞  | 5      | a | 1
    cti     | 20 |    |        |   |
""")
POINTS = ROWS.point_at_start()


def answers(query: str, **streams: hr.Stream) -> list[tuple[object, ...]]:
    """The history of a query, the same in one batch, in batches of one row, and as batch SQL."""
    made = hr.sql(query, **({"t": ROWS, "p": POINTS} | streams))
    live = made.cht()
    assert not hr.history_diff(made.run(buckets=2, batch_rows=1).cht(), live)
    assert not hr.history_diff(made.history(engine="duckdb").cht(), live)
    return sorted(tuple(row.values()) for row in live.to_pylist())


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k",
            [(1, 2, "a", 1, 1), (2, 5, "a", 2, 3), (4, 9, "b", 1, 3), (5, INFINITY, "a", 1, 2)],
        ),
        # Neighbours with equal values are one answer, after the list and HAVING; other groups stay separate.
        ("SELECT count(*) > 0 AS some FROM t GROUP BY k", [(1, INFINITY, True), (4, 9, True)]),
        ("SELECT k, max(v) AS m FROM t WHERE v > 1 GROUP BY k", [(2, INFINITY, "a", 2), (4, 9, "b", 3)]),
        ("SELECT count(*) AS n FROM t GROUP BY k HAVING max(v) > 1 AND count(*) < 2", [(4, 9, 1), (5, INFINITY, 1)]),
        ("SELECT k FROM t GROUP BY k", [(1, INFINITY, "a"), (4, 9, "b")]),
        ("SELECT DISTINCT count(*) AS n FROM t GROUP BY k", [(1, 2, 1), (2, 5, 2), (4, INFINITY, 1)]),
        ("SELECT count(*) AS n FROM p [RANGE UNBOUNDED]", [(1, 2, 1), (2, 4, 2), (4, INFINITY, 3)]),
        ("SELECT sum(n) AS n FROM (SELECT k, count(*) AS n FROM t GROUP BY k) WHERE k <> 'b'", [
            (1, 2, 1), (2, 5, 2), (5, INFINITY, 1),
        ]),
        (
            "SELECT x.k, count(*) AS n FROM t AS x JOIN t AS y ON x.k = y.k GROUP BY x.k HAVING count(*) > 1",
            [(2, 5, "a", 4)],
        ),
        ("SELECT x.k, count(*) AS n FROM t AS x LEFT JOIN t AS y ON x.v = y.v + 1 GROUP BY x.k", [
            (1, 2, "a", 1), (2, 5, "a", 2), (4, 9, "b", 1), (5, INFINITY, "a", 1),
        ]),
    ],
)  # fmt: skip
def test_what_holds_at_every_instant(query: str, expected: list[tuple[object, ...]]) -> None:
    assert answers(query) == expected


def test_python_builds_the_same_plans() -> None:
    grouped = hr.sql("SELECT k, sum(v) AS s, count(*) AS n FROM t GROUP BY k", t=ROWS)
    assert grouped.node == ROWS.group_by("k").aggregate(s=hr.sum("v"), n=hr.count()).node
    over_all = hr.sql("SELECT max(v) AS m FROM p [RANGE UNBOUNDED]", p=POINTS)
    assert over_all.node == POINTS.set_duration(hr.INFINITY).aggregate(m=hr.max("v")).node


def test_a_table_beside_a_lasting_stream(tmp_path: Path) -> None:
    file = tmp_path / "names.csv"
    file.write_text("k,name\na,Ann\nb,Bob\n", encoding="utf-8")
    table = f"CREATE TABLE names (k STRING, name STRING) SOURCE CSV ('{file}');"
    query = "SELECT name, sum(v) AS s FROM {} JOIN names ON {}.k = names.k GROUP BY name"
    assert answers(table + query.format("t", "t")) == [
        (1, 2, "Ann", 1), (2, 5, "Ann", 3), (4, 9, "Bob", 3), (5, INFINITY, "Ann", 2),
    ]  # fmt: skip
    with pytest.raises(SqlError, match="instants"):
        hr.sql(table + query.format("p", "p"), p=POINTS)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) AS n FROM p",
        "SELECT k, count(*) AS n FROM p GROUP BY k",
        "SELECT p.k, count(*) AS n FROM p JOIN t ON p.k = t.k GROUP BY p.k",
        "SELECT count(*) AS n FROM (SELECT k, sum(v) OVER (ROWS 1 PRECEDING) AS s FROM p)",
    ],
)
def test_instants_are_refused_with_both_ways_out(query: str) -> None:
    with pytest.raises(SqlError, match="instants without a window") as caught:
        hr.sql(query, p=POINTS, t=ROWS)
    assert "[TUMBLING 10 s]" in str(caught.value)
    assert "[RANGE UNBOUNDED]" in str(caught.value)


def test_what_is_known_to_be_instants() -> None:
    instants = [
        POINTS.where(col("v") > 0),
        POINTS.join(ROWS, on="k"),
        ROWS.join(POINTS, on="k"),
        POINTS.left_join(ROWS, on="k"),
        POINTS.clip(ROWS, on="k"),
        POINTS.window(hr.snapshot()).aggregate(n=hr.count()),
        POINTS.over(rows=1).aggregate(n=hr.count()),
        POINTS.group_by("k").apply(lambda group: group.where(col("v") > 1)),
    ]
    lasting = [ROWS.left_join(POINTS, on="k"), ROWS.anti_join(POINTS, on="k"), POINTS.extend(5), ROWS.join(ROWS)]
    assert [has_points(stream.node) for stream in instants] == [True] * len(instants)
    assert not any(has_points(stream.node) for stream in lasting)


def test_an_empty_relation_has_one_row(tmp_path: Path) -> None:
    """From the first event of what stands in FROM, before WHERE; HAVING is applied to that row, too."""
    assert answers("SELECT count(*) AS n, sum(v + 1) AS s FROM t WHERE k = 'b'") == [
        (1, 4, 0, None), (4, 9, 1, 4), (9, INFINITY, 0, None),
    ]  # fmt: skip
    assert answers("SELECT coalesce(max(v), 0) AS m FROM t WHERE k = 'c' HAVING count(*) < 1") == [(1, INFINITY, 0)]
    assert answers("SELECT count(*) AS n FROM t WHERE k = 'c' HAVING count(*) > 0") == []
    assert answers("SELECT count(*) AS n FROM t AS x JOIN t AS y ON x.v = y.v + 9") == [(1, INFINITY, 0)]
    assert answers("SELECT k, count(*) AS n FROM t WHERE k = 'c' GROUP BY k") == []
    assert answers("SELECT count(*) AS n FROM t [SNAPSHOT] WHERE k = 'b'") == [(4, 9, 1)]
    file = tmp_path / "none.csv"
    file.write_text("k,v\n", encoding="utf-8")
    table = f"CREATE TABLE none (k STRING, v INT) SOURCE CSV ('{file}');"
    assert answers(table + "SELECT count(*) AS n, max(v) AS m FROM none") == [(0, INFINITY, 0, None)]
    assert answers(table + "SELECT count(*) AS n FROM none AS a JOIN none AS b ON a.k = b.k") == [(0, INFINITY, 0)]


def test_an_empty_relation_in_python() -> None:
    some = ROWS.where(col("k") == "b").aggregate(n=hr.count(), m=hr.max("v"))
    assert [tuple(row.values()) for row in some.cht().to_pylist()] == [(4, 9, 1, 3), (9, INFINITY, 0, None)]


def test_the_first_instant_is_one_number() -> None:
    """The state of the row of an empty relation does not grow with the events."""
    rows = [{"kind": "insert", "le": i, "re": INFINITY, "v": 1} for i in range(1000)]
    ctis = [{"kind": "cti", "le": i, "v": None} for i in range(1000)]
    stream = hr.events([row for pair in zip(rows, ctis, strict=True) for row in pair], "v INT", batches=[100] * 20)
    run = stream.aggregate(n=hr.count()).run()
    first = [part["operators"] for part in run.statistics[-2] if part["level"] == 2]
    assert [one["rows"] for operators in first for one in operators.values()] == [2]


def test_over_without_a_frame_is_about_all_rows_that_hold():
    lasting = hr.events([{"le": 0, "re": 10, "v": 1}, {"le": 3, "re": 20, "v": 2}], "v LONG")
    found = hr.sql(
        "SELECT v, sum(v) OVER () AS s, row_number() OVER (ORDER BY v DESC) AS n FROM lasting", lasting=lasting
    )
    assert [tuple(row.values()) for row in found.cht().to_pylist()] == [
        (0, 3, 1, 1, 1), (3, 10, 1, 3, 2), (3, 10, 2, 3, 1), (10, 20, 2, 2, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("call", ["rank() OVER ()", "lag(v) OVER ()", "lead(v) OVER (PARTITION BY v)"])
def test_what_over_cannot_do_with_rows_that_last(call: str):
    lasting = hr.events([{"le": 0, "re": 10, "v": 1}], "v LONG")
    with pytest.raises(SqlError, match="order"):
        hr.sql(f"SELECT {call} FROM lasting", lasting=lasting)


def test_the_first_rows_are_merged_where_they_stay_and_copies_stay_separate():
    twice = hr.events("""
        le | re | k | v
        0  | 20 | a | 5
        0  | 20 | a | 5
        3  | 10 | b | 9
        5  | 8  | c | 1
    """)
    expected = [(0, 3, "a", 5), (0, 20, "a", 5), (3, 10, "b", 9), (10, 20, "a", 5)]
    text = "SELECT * FROM t ORDER BY v DESC LIMIT 2"
    assert answers(text, t=twice) == expected
    assert hr.sql(text, t=twice).node == twice.top(2, by="v").node
    assert answers("SELECT k, count(*) AS n FROM t GROUP BY k ORDER BY n DESC LIMIT 1", t=twice) == [(0, 20, "a", 2)]
    unbound = unbind(hr.sql(text, t=twice).node, {twice.node: "t"})
    assert hr.sql(unbound.text, t=twice).node == hr.sql(text, t=twice).node
    assert "LIMIT 2" in unbound.text


def test_an_end_may_move_from_never_to_before_time_zero():
    """The difference of such ends is more than 64 bits hold; found by an intent."""
    rows = hr.events(
        """
        kind   | le | re | k
        insert | -3 | ∞  | a
        insert | -2 | -1 | a
    """,
        batches=[1, 1],
    )
    assert answers("SELECT k FROM t ORDER BY k LIMIT 1", t=rows) == [(-3, INFINITY, "a")]


def test_items_of_a_window_are_in_the_order_of_their_starts_when_an_end_moves():
    """The window from 5 to 9 is new, and the event that lasts until then began before the other."""
    rows = hr.events(
        """
        kind    | le | re | re_new | v
        insert  | 1  | 5  |        | 7
        insert  | 6  | 9  |        | 3
        retract | 1  | 5  | 9      | 7
    """,
        batches=[2, 1],
    )
    assert answers("SELECT first(v) AS f, max(v) AS m FROM t", t=rows)[:1] == [(1, 9, 7, 7)]
