"""The figures of "The Extensibility Framework in Microsoft StreamInsight", drawn from what its text says of them.

Events have the names of the paper, times are chosen so that the sentences about each figure hold. Every figure is asked
at once, row by row, and of the slow twin.
"""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace import INFINITY, col
from headrace.testing.verify.differential import differential_reference


class Names(hr.Aggregate):
    """Who is in the window."""

    input = "name STRING"
    output = "STRING"

    def compute(self, names: list[str]) -> str:
        return " ".join(sorted(names))


class Sees(hr.Operator):
    """Gives every event just as it sees it."""

    input = "name STRING"
    output = "name STRING"
    time_sensitive = True

    def compute(self, events: list[Any], _window: Any) -> list[Any]:
        return [self.event(e.le, e.re, e.name) for e in events]


class Stretches(Sees):
    """Gives every event two instants longer on both sides."""

    def compute(self, events: list[Any], _window: Any) -> list[Any]:
        return [self.event(e.le - 2, e.re + 2, e.name) for e in events]


def rows(stream: hr.Stream) -> list[tuple]:
    at_once = [tuple(row.values()) for row in stream.cht().to_pylist()]
    assert [tuple(row.values()) for row in stream.cht(batch_rows=1).to_pylist()] == at_once
    differential_reference(stream.node)
    return at_once


def drawn(text: str) -> list[tuple]:
    return [tuple(row.values()) for row in hr.events(text).cht().to_pylist()]


def content(text: str, window: Any) -> list[tuple]:
    return rows(hr.events(text).window(window).aggregate(names=Names()))


# --- section 2: streams and events ----------------------------------------------------------------------------------


def test_tables_1_and_2_a_history_and_a_physical_stream_of_it():
    physical = hr.events("""
        kind    | le | re | re_new | payload
        insert  | 1  | ∞  |        | P1
        retract | 1  | ∞  | 10     | P1
        retract | 1  | 10 | 5      | P1
        insert  | 4  | 9  |        | P2
    """)
    assert rows(physical) == [(1, 5, "P1"), (4, 9, "P2")]


FIGURE_2 = """
    le | re | name | value
    1  | 4  | e1   | 10
    3  | 12 | e2   | 3
    6  | 8  | e3   | 20
"""


def test_figure_2a_a_filter_keeps_the_entire_span_of_an_event():
    assert rows(hr.events(FIGURE_2).where(col("value") >= 10).select("name")) == [(1, 4, "e1"), (6, 8, "e3")]


def test_figure_2b_count_over_a_tumbling_window_of_5():
    """One output for every window, over all events whose lifetimes overlap it, as long as the window."""
    assert rows(hr.events(FIGURE_2).window(hr.tumbling(5)).aggregate(n=hr.count())) == [
        (0, 5, 2),
        (5, 10, 2),
        (10, 15, 1),
    ]


# --- section 3: windows ---------------------------------------------------------------------------------------------

THREE = """
    le | re | name
    2  | 6  | e1
    4  | 13 | e2
    11 | 12 | e3
"""


def test_figure_3_hopping_windows():
    """For every H a new window of size S; events that span a boundary are members of every window they overlap."""
    assert content(THREE, hr.hopping(10, every=5)) == drawn("""
        le | re | names
        -5 | 5  | e1 e2
        0  | 10 | e1 e2
        5  | 15 | e1 e2 e3
        10 | 20 | e2 e3
    """)


def test_figure_4_tumbling_windows_are_hopping_ones_without_gap_or_overlap():
    expected = drawn("""
        le | re | names
        0  | 5  | e1 e2
        5  | 10 | e1 e2
        10 | 15 | e2 e3
    """)
    assert content(THREE, hr.tumbling(5)) == content(THREE, hr.hopping(5, every=5)) == expected


def test_figure_5_snapshot_windows():
    """Only e1 is in the first snapshot; e1 and e2 overlap and are both in the second."""
    found = content(THREE, hr.snapshot())
    assert found == drawn("""
        le | re | names
        2  | 4  | e1
        4  | 6  | e1 e2
        6  | 11 | e2
        11 | 12 | e2 e3
        12 | 13 | e2
    """)
    ends = {2, 4, 6, 11, 12, 13}
    assert not any(le < time < re for le, re, _ in found for time in ends), "no endpoint falls inside a window"


def test_a_snapshot_is_split_and_merged_again_by_what_comes_later():
    split = hr.events(THREE + "    8 | 9 | e4").window(hr.snapshot()).aggregate(names=Names())
    assert (8, 9, "e2 e4") in rows(split)
    merged = hr.events("""
        kind    | le | re | re_new | name
        insert  | 2  | 6  |        | e1
        insert  | 3  | 5  |        | e2
        retract | 3  | 5  | 3      | e2
    """)
    assert rows(merged.window(hr.snapshot()).aggregate(names=Names())) == [(2, 6, "e1")]


def test_figure_6_count_windows_of_two_start_times():
    """Each start opens a window of N starts; with fewer than N there is none."""
    assert content(THREE, hr.count_by_start(2)) == drawn("""
        le | re | names
        2  | 5  | e1 e2
        4  | 12 | e2 e3
    """)
    assert content(THREE, hr.count_by_start(4)) == []


def test_figure_6_events_with_the_same_start_are_counted_once_and_all_contained():
    assert content(THREE + "    4 | 20 | e4", hr.count_by_start(2)) == drawn("""
        le | re | names
        2  | 5  | e1 e2 e4
        4  | 12 | e2 e3 e4
    """)


def test_figure_6_count_by_end_times_is_the_same_over_ends():
    assert content(THREE, hr.count_by_end(2)) == drawn("""
        le | re | names
        6  | 13 | e1 e3
        12 | 14 | e2 e3
    """)


# --- section 3.3: clipping and timestamping -------------------------------------------------------------------------

LONG = "le | re | name \n 3 | 17 | e1"


def seen(module: Any, **policy: Any) -> list[tuple]:
    """What a module says of e1 = [3, 17) in the windows [0, 10), [10, 20)."""
    return rows(hr.events(LONG).window(hr.tumbling(10), **policy).operate(module))


@pytest.mark.parametrize(
    ("clipping", "first", "second"),
    [
        ("none", (3, 17), (3, 17)),
        ("left", (3, 17), (10, 17)),
        ("right", (3, 10), (3, 17)),
        ("full", (3, 10), (10, 17)),
    ],
)
def test_figure_7_input_clipping(clipping: Any, first: tuple[int, int], second: tuple[int, int]):
    class Tells(Sees):
        """Writes down the lifetimes it sees."""

        output = "name STRING, le_seen LONG, re_seen LONG"

        def compute(self, events: list[Any], window: Any) -> list[Any]:
            return [self.event(window.le, window.re, e.name, e.le, e.re) for e in events]

    assert seen(Tells(), clipping=clipping) == [(0, 10, "e1", *first), (10, 20, "e1", *second)]


@pytest.mark.parametrize(
    ("timestamping", "expected"),
    [
        ("align", [(0, 10), (10, 20)]),
        ("unchanged", [(3, 10), (10, 17)]),
        ("clip", [(3, 10), (10, 17)]),
    ],
)
def test_figure_7_output_timestamping(timestamping: Any, expected: list[tuple[int, int]]):
    assert seen(Sees(), clipping="full", timestamping=timestamping) == [(*life, "e1") for life in expected]


def test_figure_7_output_that_stretches_beyond_the_window_is_clipped():
    assert seen(Stretches(), clipping="full", timestamping="clip") == [(1, 10, "e1"), (10, 19, "e1")]


def test_figure_7_output_in_the_past_is_refused():
    with pytest.raises(hr.HeadraceError, match="before its window"):
        seen(Stretches(), clipping="full", timestamping="unchanged")
    with pytest.raises(hr.HeadraceError, match="before its window"):
        seen(Sees(), clipping="none", timestamping="unchanged")  # e1 starts before the second window


def test_figure_8_tumbling_windows_with_fully_clipped_events():
    stream = hr.events(THREE).window(hr.tumbling(5), clipping="full").operate(Sees())
    assert rows(stream) == drawn("""
        le | re | name
        2  | 5  | e1
        4  | 5  | e2
        5  | 6  | e1
        5  | 10 | e2
        10 | 13 | e2
        11 | 12 | e3
    """)


@pytest.mark.parametrize(("clipping", "cti"), [("none", 0), ("left", 0), ("right", 10), ("full", 10)])
def test_without_right_clipping_the_output_waits_until_events_have_ended(clipping: Any, cti: int):
    """An event that ends t after its window holds the output's progress back by t (section 3.3)."""
    stream = hr.events("""
        kind   | le | re | name
        insert | 3  | 17 | e1
        cti    | 12 |    |
    """)
    seen_ = stream.window(hr.tumbling(10), clipping=clipping, timestamping="align").operate(Sees())
    assert seen_.run(finish=False).cti() == cti


# --- section 4: the modules of the paper ----------------------------------------------------------------------------


class MyAverage(hr.Aggregate):
    input = "value DOUBLE"
    output = "DOUBLE"

    def compute(self, payloads: list[float]) -> float:
        return sum(payloads) / len(payloads)


class MyTimeWeightedAverage(hr.Aggregate):
    input = "value DOUBLE"
    output = "DOUBLE"
    time_sensitive = True

    def compute(self, events: list[Any], window: Any) -> float:
        return sum(e.value * (e.re - e.le) for e in events) / (window.re - window.le)


SIGNAL = """
    le | re | value
    0  | 4  | 10.0
    4  | 14 | 20.0
    14 | ∞  | 5.0
"""


def test_my_average():
    stream = hr.events(SIGNAL).where(col("value") > 5.0).window(hr.tumbling(10)).aggregate(a=MyAverage())
    assert rows(stream) == [(0, 10, 15.0), (10, 20, 20.0)]


def test_my_time_weighted_average_needs_clipped_events():
    signal = hr.events(SIGNAL).where(col("value") > 5.0)
    clipped = signal.window(hr.tumbling(10), clipping="full").aggregate(a=MyTimeWeightedAverage())
    assert rows(clipped) == [(0, 10, (4 * 10 + 6 * 20) / 10), (10, 20, 4 * 20 / 10)]
    whole = signal.window(hr.tumbling(10)).aggregate(a=MyTimeWeightedAverage())
    assert rows(whole) == [(0, 10, (4 * 10 + 10 * 20) / 10), (10, 20, 10 * 20 / 10)]


# --- section 5: what the system does --------------------------------------------------------------------------------


def told(stream: hr.Stream) -> list[tuple]:
    events = stream.run(batch_rows=1).events().to_pylist()
    return [(e["kind"], e["le"], e["re"], e["re_new"], e["names"]) for e in events if e["kind"] != "cti"]


def test_a_changed_window_is_retracted_in_full_and_given_anew():
    stream = hr.events("""
        kind    | le | re | re_new | name
        insert  | 1  | 3  |        | e1
        insert  | 12 | 13 |        | e2
        insert  | 4  | 7  |        | e3
        retract | 12 | 13 | 12     | e2
        cti     | 30 |    |        |
    """)
    assert told(stream.window(hr.tumbling(10)).aggregate(names=Names())) == [
        ("insert", 0, 10, None, "e1"),
        ("retract", 0, 10, 0, "e1"),
        ("insert", 0, 10, None, "e1 e3"),
    ]


def test_windows_that_a_changed_end_does_not_touch_are_left_alone():
    """Affected are the windows that overlap the changed part of the lifetime, and no others."""
    stream = hr.events("""
        kind    | le | re | re_new | name
        insert  | 1  | 18 |        | e1
        insert  | 25 | 26 |        | e2
        retract | 1  | 18 | 9      | e1
        cti     | 9  |    |        |
    """)
    assert told(stream.window(hr.tumbling(10)).aggregate(names=Names())) == [
        ("insert", 0, 10, None, "e1"),
        ("insert", 10, 20, None, "e1"),
        ("retract", 10, 20, 10, "e1"),
        ("insert", 20, 30, None, "e2"),
    ]


def test_a_window_without_events_gives_no_output():
    assert [le for le, _, _ in content("le | re | name \n 1 | 2 | e1 \n 31 | 32 | e2", hr.tumbling(10))] == [0, 30]


def test_an_event_that_never_ends_holds_its_window_unless_it_is_clipped():
    """Section 5.6: with an infinite lifetime in a window, no CTI beyond its start, without right clipping."""
    stream = hr.events(f"kind | le | re | name \n insert | 3 | {INFINITY} | e1 \n cti | 55 | | ")
    open_, clipped = (stream.window(hr.tumbling(10), clipping=c, timestamping="align") for c in ("none", "right"))
    assert open_.operate(Sees()).run(finish=False).cti() == 0
    assert clipped.operate(Sees()).run(finish=False).cti() == 50
    bound = stream.window(hr.tumbling(10), clipping="full", timestamping="time_bound").operate(Sees())
    assert bound.run(finish=False).cti() == 55
