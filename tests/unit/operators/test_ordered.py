"""Windows of tuples: the worked examples of the paper behind rules 8.2 and 8.3, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import HeadraceError, PlanError
from headrace.operators.ordered import kernel as ordered_kernel
from headrace.plan.ordered import By, Slides, Time, Tuples
from headrace.plan.windows import Hopping
from headrace.testing.checks import check_output


def points(*rows: tuple[int, int], late: bool = False) -> hr.Stream:
    """Values at times, one a batch; the other way round if they are to be late."""
    told = [{"kind": "insert", "le": le, "re": le + 1, "re_new": None, "v": v} for le, v in rows]
    return hr.events(told[::-1] if late else told, "v LONG", batches=[1] * len(rows))


def averages(stream: hr.Stream, window: Any) -> list[float]:
    """The answers in the order of their windows' upper bounds."""
    found = stream.window(window).aggregate(a=hr.avg("v"), first=hr.min("v"))
    return [row["a"] for row in sorted(found.cht().to_pylist(), key=lambda row: (row["re"], row["first"]))]


def contents(stream: hr.Stream, window: Any) -> list[list[int]]:
    found = stream.window(window).aggregate(all=hr.collect("v")).cht().to_pylist()
    return sorted(row["all"] for row in found)


# --- section 3.1: one query, three systems ----------------------------------------------------------------------------

EXAMPLE_1 = points(*((t, 10 * (t - 9)) for t in range(10, 17)))
EXAMPLE_2 = points((30, 10), (31, 20), (36, 30))
EXAMPLE_3 = points((10, 10), (10, 20), (11, 30), (12, 40), (12, 50), (12, 60), (12, 70), (13, 80))


def test_example_1_windows_begin_where_the_system_says():
    assert averages(EXAMPLE_1, hr.sliding("3 ticks"))[:2] == [15, 40]  # Flink
    assert averages(EXAMPLE_1, hr.sliding("3 ticks", starting="first"))[:2] == [20, 50]  # Oracle CEP
    assert averages(EXAMPLE_1, hr.sliding("3 ticks", starting=10))[:2] == [20, 50]  # Flink, with a start time


def test_example_2_windows_are_evaluated_when_time_passes_or_when_they_change():
    of = [("tuple", [10, 15, 15, 15, 15, 20]), ("time", [10, 15, 20]), ("batch", [10, 15, 20])]
    for tick, expected in of:
        found = averages(EXAMPLE_2, hr.sliding("5 ticks", every="1 tick", tick=tick))  # type: ignore[arg-type]
        assert found[: len(expected)] == expected, tick  # Flink, Oracle CEP, Coral8


def test_example_3_systems_react_to_tuples_or_to_times():
    each = [10, 20, 30, 40, 50, 60, 70, 80]
    assert averages(EXAMPLE_3, hr.sliding(1)) == each  # Flink
    assert averages(EXAMPLE_3, hr.sliding(1, tick="time")) == [20, 30, 70, 80]  # Oracle CEP
    assert averages(EXAMPLE_3, hr.sliding(1, tick="batch")) == each  # Coral8


def test_a_batch_is_a_time_and_a_value():
    stream = hr.events("""
        le | re | v  | b
        10 | 11 | 10 | 1
        10 | 11 | 20 | 1
        10 | 11 | 30 | 2
        12 | 13 | 40 | 2
    """)
    found = stream.window(hr.sliding(1, tick="batch", batch="b")).aggregate(a=hr.max("v")).cht()
    assert sorted(found.column("a").to_pylist()) == [20, 30, 40]


# --- chapter 2: windows in pictures -----------------------------------------------------------------------------------

#: Transactions s1 .. s8, at half past the hours of the figures.
HOURS = points((1, 1), (2, 2), (2, 3), (3, 4), (3, 5), (4, 6), (4, 7), (5, 8))


def test_figure_2_3_a_landmark():
    found = hr.landmark(1, every="1 tick")
    assert contents(HOURS, found)[:3] == [[1], [1, 2, 3], [1, 2, 3, 4, 5]]
    assert {(row["le"]) for row in HOURS.window(found).aggregate(n=hr.count()).cht().to_pylist()} == {1}


def test_figure_2_4_a_sliding_count():
    assert contents(HOURS, hr.sliding(3, every=1))[:5] == [[1], [1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]


def test_figure_2_5_a_tumbling_count():
    assert contents(HOURS, hr.sliding(2))[:3] == [[1, 2], [3, 4], [5, 6]]


def test_figure_2_6_a_jumping_count():
    assert contents(HOURS, hr.sliding(2, every=4)) == [[3, 4], [7, 8]]


def test_figure_2_7_a_delta():
    stream = points((1, 10), (2, 14), (3, 20), (4, 22))
    assert contents(stream, hr.delta(col("v") - col("first.v"), 10)) == [[10, 14, 20], [22]]
    late = points((1, 10), (2, 14), (3, 20), (4, 22), late=True)
    assert contents(late, hr.delta(col("v") - col("first.v"), 10)) == [[10, 14, 20], [22]]


def test_an_open_run_goes_on_behind_the_cti_from_its_own_first_tuple():
    """Though others that start with it are kept as well."""
    stream = hr.events("""
        kind   | le | re | re_new | v
        insert | 0  | 1  |        | 5
        insert | 1  | 2  |        | 10
        insert | 1  | 2  |        | 30
        cti    | 2  |    |        |
        insert | 3  | 4  |        | 35
        cti    | 4  |    |        |
        insert | 5  | 6  |        | 36
    """, batches=[1] * 7)  # fmt: skip
    run = stream.window(hr.delta(col("v") - col("first.v"), 10)).aggregate(all=hr.collect("v")).run()
    assert sorted(row["all"] for row in run.cht().to_pylist()) == [[5, 10], [30, 35, 36]]
    check_output(run.events())


def test_a_fixed_window_is_one():
    found = HOURS.window(hr.fixed(2, 4)).aggregate(n=hr.count()).cht().to_pylist()
    assert found == [{"le": 2, "re": 4, "n": 4}]


# --- the nine pairs ---------------------------------------------------------------------------------------------------


def test_the_size_may_be_that_of_a_column():
    stream = hr.events("""
        le | re | v | at
        1  | 2  | 1 | 10
        2  | 3  | 2 | 13
        3  | 4  | 3 | 11
        4  | 5  | 4 |
        5  | 6  | 5 | 15
    """)
    found = stream.window(hr.sliding(hr.by("at", 3), every=1)).aggregate(all=hr.collect("v")).cht().to_pylist()
    assert [row["all"] for row in sorted(found, key=lambda row: row["re"])] == [[1], [2], [2, 3], [2, 3], [2, 5]]


def test_a_late_tuple_is_put_where_it_belongs_and_later_answers_are_corrected():
    stream = hr.events("""
        kind   | le | re | re_new | v
        insert | 1  | 2  |        | 1
        insert | 5  | 6  |        | 5
        insert | 3  | 4  |        | 3
        cti    | 6  |    |        |
    """, batches=[1, 1, 1, 1])  # fmt: skip
    run = stream.window(hr.sliding(2, every=1)).aggregate(s=hr.sum("v")).run()
    assert sorted(row["s"] for row in run.cht().to_pylist()) == [1, 4, 8]
    kinds = [row["kind"] for row in run.events().to_pylist() if row["kind"] != "cti"]
    assert kinds.count("retract") == 1


def test_equal_lifetimes_are_different_windows():
    found = points((1, 7), (1, 7), (1, 7)).window(hr.sliding(1)).aggregate(n=hr.count()).cht()
    assert found.to_pylist() == [{"le": 1, "re": 2, "n": 1}] * 3


def test_arrival_decides_among_tuples_of_one_time_and_else_their_columns():
    rows = [{"kind": "insert", "le": 10, "re": 11, "re_new": None, "v": v} for v in (20, 10, 15)]
    window = hr.sliding(2, every=1)
    assert contents(hr.events(rows, "v LONG"), window) == [[10, 15], [20], [20, 10]]
    found = hr.events(rows, "v LONG").over(rows=1).aggregate(s=hr.sum("v")).cht().to_pylist()
    assert sorted((row["v"], row["s"]) for row in found) == [(10, 30), (15, 25), (20, 20)]
    # What is retracted has no arrival of its own.
    retracted = [*rows, rows[0] | {"v": 0}, {"kind": "retract", "le": 10, "re": 11, "re_new": 10, "v": 0}]
    assert contents(hr.events(retracted, "v LONG"), window) == [[10], [10, 15], [15, 20]]


def test_a_tuple_that_left_at_the_slide_before_is_no_change():
    """What is kept behind the CTI must tell whether a slide changes anything."""
    stream = hr.events("""
        kind   | le | re | re_new | v
        insert | 1  | 2  |        | 1
        insert | 4  | 5  |        | 4
        cti    | 6  |    |        |
        cti    | 7  |    |        |
        cti    | 8  |    |        |
        cti    | 9  |    |        |
    """, batches=[1] * 6)  # fmt: skip
    found = stream.window(hr.sliding("4 ticks", every="1 tick", tick="time")).aggregate(all=hr.collect("v")).cht()
    bounds = [(row["le"], row["re"], row["all"]) for row in found.to_pylist()]
    assert bounds == [(-2, 2, [1]), (1, 5, [1, 4]), (2, 6, [4])]


# --- what precedes ----------------------------------------------------------------------------------------------------


def test_over_gives_each_tuple_with_what_precedes_it():
    stream = points((1, 1), (2, 2), (4, 4), (8, 8))
    for frame, sums in (({"rows": 1}, [1, 3, 6, 12]), ({"range": "2 ticks"}, [1, 3, 6, 8]), ({}, [1, 3, 7, 15])):
        found = stream.over(**frame).aggregate(s=hr.sum("v")).cht().to_pylist()
        assert [(row["le"], row["v"], row["s"]) for row in found] == list(zip((1, 2, 4, 8), (1, 2, 4, 8), sums))  # noqa: B905


def test_over_lets_ends_move():
    stream = hr.events("""
        kind    | le | re | re_new | v
        insert  | 1  | ∞  |        | 1
        insert  | 2  | ∞  |        | 2
        cti     | 5  |    |        |
        retract | 1  | ∞  | 7      | 1
    """, batches=[1, 1, 1, 1])  # fmt: skip
    found = stream.over(rows=0).aggregate(n=hr.count()).run()
    assert [(row["le"], row["re"]) for row in found.cht().to_pylist()] == [(1, 7), (2, hr.INFINITY)]
    ctis = [row["le"] for row in found.events().to_pylist() if row["kind"] == "cti"]
    assert 5 in ctis


@pytest.mark.parametrize("frame", [{"rows": 1}, {"range": 3}, {}])
def test_of_equal_tuples_the_one_that_ends_first_comes_first(frame: dict[str, int]):
    """Whichever end moves, and however settled what precedes them is."""
    stream = hr.events("""
        kind    | le | re | re_new | v
        insert  | 1  | ∞  |        | 1
        insert  | 1  | 8  |        | 1
        cti     | 5  |    |        |
        retract | 1  | ∞  | 6      | 1
        insert  | 5  | 6  |        | 2
    """, batches=[1] * 5)  # fmt: skip
    run = stream.over(**frame).aggregate(n=hr.count()).run()
    found = [(row["le"], row["re"], row["n"]) for row in run.cht().to_pylist()]
    assert found == [(1, 6, 1), (1, 8, 2), (5, 6, {"rows": 2, "range": 1}.get(next(iter(frame), ""), 3))]
    check_output(run.events())


# --- what is written and what is refused -----------------------------------------------------------------------------


def test_time_by_time_is_a_grid():
    assert hr.sliding("10 ticks", every="5 ticks", starting=2) == Hopping(10, 5, 2)
    assert hr.sliding("3 ticks") == Hopping(3, 3, 0)
    assert hr.sliding("3 ticks", tick="time") == Slides(Time(3), Time(3), "time")
    assert hr.sliding(hr.arrival("1 s"), every=3) == Slides(By("__arrival", 1_000_000), Tuples(3))


ONE = points((1, 1))
REFUSED = [
    lambda: hr.sliding(0),
    lambda: hr.sliding(3, every=-1),
    lambda: hr.sliding(3, every=hr.arrival("1 s")),
    lambda: hr.sliding(3.5),
    lambda: hr.sliding(3, tick="often"),
    lambda: hr.sliding(3, batch="v"),
    lambda: hr.sliding(3, starting="first"),
    lambda: hr.fixed(4, 2),
    lambda: hr.by("v", 0),
    lambda: hr.delta("v", 3),
    lambda: ONE.window(hr.sliding(hr.by("nothing", 3), every=1)).aggregate(n=hr.count()),
    lambda: ONE.window(hr.sliding(hr.by("v", 0.5), every=1)).aggregate(n=hr.count()),
    lambda: ONE.window(hr.sliding(1, tick="batch", batch="nothing")).aggregate(n=hr.count()),
    lambda: ONE.window(hr.delta(col("v") - col("first.w"), 3)).aggregate(n=hr.count()),
    lambda: ONE.window(hr.delta(col("v") > 1, 3)).aggregate(n=hr.count()),
    lambda: ONE.over(rows=-1),
    lambda: ONE.over(rows=1, range=2),
    lambda: ONE.over(rows=1).aggregate(v=hr.count()),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_makes_no_sense_is_refused(number: int):
    with pytest.raises(HeadraceError):
        REFUSED[number]()


def test_slides_of_arrival_say_what_to_write_instead():
    with pytest.raises(PlanError, match="timed by arrival"):
        hr.sliding(3, every=hr.arrival("1 s"))


def test_windows_that_differ_have_different_fingerprints():
    windows = [
        hr.sliding(3), hr.sliding(3, every=1), hr.sliding(3, tick="time"), hr.sliding(3, tick="batch"),
        hr.sliding(3, tick="batch", batch="v"), hr.sliding(3, every="3 ticks"), hr.sliding("3 ticks", every=3),
        hr.sliding(3, every="3 ticks", starting=1), hr.sliding(3, every="3 ticks", starting="first"),
        hr.sliding(hr.by("v", 3), every=1), hr.landmark(1, 1), hr.landmark(1, "1 tick"), hr.landmark(2, 1),
        hr.fixed(1, 2), hr.fixed(1, 3), hr.delta(col("v"), 1), hr.delta(col("v"), 2),
    ]  # fmt: skip
    stream = points((1, 1))
    prints = {stream.window(window).aggregate(n=hr.count()).node.fingerprint for window in windows}
    frames: list[dict[str, Any]] = [{"rows": 1}, {"rows": 2}, {"range": 1}, {}]
    prints |= {stream.over(**frame).aggregate(n=hr.count()).node.fingerprint for frame in frames}
    assert len(prints) == len(windows) + 4


def test_explain_says_what_is_kept():
    text = points((1, 1)).window(hr.landmark(1, "1 tick")).aggregate(n=hr.count()).explain(liveliness=True)
    assert "all tuples since the landmark" in text
    assert "the CTI never passes the landmark" in text
    assert "the last 3 tuples of each group" in points((1, 1)).window(hr.sliding(3)).aggregate(n=hr.count()).explain()
    assert "state: all tuples" in points((1, 1)).over().aggregate(m=hr.max("v")).explain()
    assert "state: a total of each group" in points((1, 1)).over().aggregate(n=hr.count()).explain()


@pytest.mark.parametrize("rows", [3, 5, 500])
def test_frames_of_many_tuples_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch, rows: int):
    """All pairs of a tuple and its frame would take more memory than there is."""
    values = [7, 3, 9, 1, 4, 4, 8, 2, 6, 5]
    events = [{"le": 10 * i, "v": v} for i, v in enumerate(values)]
    query = hr.events([*events[1:], events[0]]).over(rows=rows).aggregate(m=hr.max("v"), d=hr.collect("v"))
    whole = query.cht().to_pylist()
    assert [row["m"] for row in whole] == [max(values[max(0, i - rows) : i + 1]) for i in range(len(values))]
    for most in (1, 4, 9):
        monkeypatch.setattr(ordered_kernel, "_MOST_PAIRS", most)
        assert query.cht().to_pylist() == whole
