"""The content of windows as a stream (rule 8.4), drawn; and what is known of it before it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.api.running import outputs_of
from headrace.errors import HeadraceError, PlanError, SchemaError
from headrace.optimizer import optimize
from headrace.plan.contents import always_ends
from headrace.plan.nodes import Contents, Source, Where, walk

TICKS = hr.events("""
    kind   | le | re | k | x
    insert | 1  | 2  | a | 1
    insert | 3  | 6  | b | 2
    insert | 3  | 6  | b | 2
    insert | 9  | 10 | a | 3
""")
POINTS = hr.read_csv("ticks/*.csv", schema="k STRING, ts DATETIME, x INT", lifetime=hr.point("ts"))


def rows(stream: hr.Stream) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in stream.cht().to_pylist()]


def test_an_event_is_there_once_for_every_window_it_belongs_to():
    assert rows(TICKS.window(hr.tumbling(4)).contents()) == [
        (0, 4, "a", 1), (0, 4, "b", 2), (0, 4, "b", 2), (4, 8, "b", 2), (4, 8, "b", 2), (8, 12, "a", 3),
    ]  # fmt: skip
    assert rows(TICKS.where(col("k") == "a").window(hr.hopping(4, 2)).contents("w")) == [
        (-2, 2, "a", 1, -2), (0, 4, "a", 1, 0), (6, 10, "a", 3, 6), (8, 12, "a", 3, 8),
    ]  # fmt: skip
    assert rows(TICKS.window(hr.hopping(1, every=8)).contents("w")) == []


def test_windows_belong_to_their_group():
    whole = TICKS.window(hr.snapshot()).contents()
    assert {row[:2] for row in rows(whole)} == {(1, 2), (3, 6), (9, 10)}
    late = hr.events("le | re | k | x\n1 | 5 | a | 1\n3 | 9 | b | 2")
    assert rows(late.window(hr.snapshot()).contents("w")) == [
        (1, 3, "a", 1, 1), (3, 5, "a", 1, 3), (3, 5, "b", 2, 3), (5, 9, "b", 2, 5),
    ]  # fmt: skip
    assert rows(late.group_by("k").window(hr.snapshot()).contents("w")) == [(1, 5, "a", 1, 1), (3, 9, "b", 2, 3)]
    assert rows(late.group_by("k").window(hr.session(4)).contents()) == [(1, 5, "a", 1), (3, 7, "b", 2)]


def test_a_late_event_joins_its_window_and_a_retraction_leaves_it():
    late = hr.events(
        """
        kind    | le | re | re_new | k
        insert  | 1  | 2  |        | a
        insert  | 5  | 9  |        | b
        insert  | 2  | 3  |        | c
        retract | 5  | 9  | 5      | b
        """,
        batches=[2, 1, 1],
    )
    given = late.window(hr.tumbling(4)).contents().run().events().to_pylist()
    told = [(e["kind"], e["le"], e["re"], e["re_new"], e["k"]) for e in given if e["kind"] != "cti"]
    assert told == [("insert", 0, 4, None, "a"), ("insert", 0, 4, None, "c")]


def test_streams_are_joined_window_by_window():
    left = hr.events("le | re | k | x\n1 | 2 | a | 1\n5 | 6 | a | 2")
    right = hr.events("le | re | k | y\n3 | 4 | a | 10\n4 | 5 | a | 20")
    window = hr.hopping(4, every=2)
    same = left.window(window).contents("w").join(right.window(window).contents("w"), ["w", "k"])
    assert rows(same.select("w", "x", "y")) == [(0, 4, 0, 1, 10), (2, 6, 2, 2, 10), (2, 6, 2, 2, 20), (4, 8, 4, 2, 20)]
    # Without the start, windows that only overlap would do.
    any_two = left.window(window).contents().join(right.window(window).contents(), "k")
    assert any_two.cht().num_rows > 4


def test_keys_that_are_no_columns_come_first():
    grouped = TICKS.group_by(large=col("x") > 1).window(hr.tumbling(4)).contents("w")
    assert grouped.schema.names == ("large", "k", "x", "w")
    assert rows(grouped)[:2] == [(0, 4, False, "a", 1, 0), (0, 4, True, "b", 2, 0)]
    both = TICKS.group_by("k", large=col("x") > 1).window(hr.tumbling(4))
    for stream in (both.contents(), both.top(1, "x")):
        assert stream.schema.names == ("large", "k", "x")
        assert stream.cht().column_names == ["le", "re", "large", "k", "x"]


# --- what is known of it ---------------------------------------------------------------------------------------------

ENDING: dict[str, Callable[[hr.Stream], hr.Stream]] = {
    "points": lambda _: POINTS,
    "durations": lambda s: s.set_duration(5).where(col("x") > 1),
    "windows": lambda s: s.window(hr.session(5)).contents(),
    "capped parts": lambda s: s.cap_duration(2).union(s.point_at_end()).coalesce().shift(3),
}
ENDLESS: dict[str, Callable[[hr.Stream], hr.Stream]] = {
    "physical events": lambda s: s,
    "snapshots": lambda s: s.window(hr.snapshot()).contents(),
    "one part": lambda s: s.union(s.point_at_start()),
    "longer than time": lambda s: s.set_duration(2**62),
    "extended": lambda s: s.point_at_start().extend(4),
}


@pytest.mark.parametrize("name", [*ENDING, *ENDLESS])
def test_whether_events_always_end(name: str):
    stream = (ENDING | ENDLESS)[name](TICKS)
    assert always_ends(stream.node) is (name in ENDING)
    contents = stream.window(hr.tumbling(4)).contents().node
    assert contents.needs == (stream.schema.names if name in ENDING else ())
    # Where windows depend on other events, these must be there.
    assert stream.window(hr.snapshot()).contents().node.needs == ()
    assert stream.group_by("k").window(hr.tumbling(4)).contents().node.needs == ("k",)


def test_points_in_a_grid_are_never_taken_back():
    assert POINTS.window(hr.tumbling(4)).contents().node.properties.insert_only
    assert not POINTS.window(hr.session(4)).contents().node.properties.insert_only
    assert not TICKS.window(hr.tumbling(4)).contents().node.properties.insert_only


def plan(stream: hr.Stream) -> list[Any]:
    return list(walk(*optimize(outputs_of({"out": stream.node}))))


def test_filters_come_first_where_events_are_looked_at_alone():
    filtered = plan(TICKS.set_duration(2).window(hr.tumbling(4)).contents("w").where((col("x") > 1) & (col("w") > 0)))
    kinds = [type(node) for node in filtered if isinstance(node, (Where, Contents))]
    assert kinds == [Where, Contents, Where]
    kept = plan(TICKS.window(hr.tumbling(4)).contents("w").where(col("x") > 1))
    assert [type(node) for node in kept if isinstance(node, (Where, Contents))] == [Contents, Where]


def test_columns_that_nobody_reads_are_not_read():
    (source,) = [
        node for node in plan(POINTS.window(hr.tumbling(4)).contents("w").select("x", "w")) if isinstance(node, Source)
    ]
    assert source.schema.names == ("x",)


def test_it_says_what_it_does():
    said = TICKS.group_by("k").window(hr.tumbling(4)).contents("w").explain()
    assert "Contents with start as w over tumbling(4 ticks) per k" in said


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda w: w.contents("x"), PlanError, ["column 'x' already", "x_of_window"]),
        (lambda w: w.contents("le"), SchemaError, ["'le'"]),
        (lambda w: w.contents(3), PlanError, ["column's name", "window_start"]),
        (lambda w: w.contents(""), PlanError, ["column's name"]),
    ],
)
def test_names_that_cannot_be(wrong: Callable[[Any], Any], error: type[HeadraceError], words: list[str]):
    with pytest.raises(error) as caught:
        wrong(TICKS.window(hr.tumbling(4)))
    assert all(word in str(caught.value) for word in words)


def test_a_key_may_not_hide_a_column_and_policies_are_for_modules():
    with pytest.raises(PlanError, match="hides a column"):
        TICKS.group_by(x=col("x") + 1).window(hr.tumbling(4)).contents()
    with pytest.raises(PlanError, match="column 'big' already"):
        TICKS.group_by(big=col("x") > 1).window(hr.tumbling(4)).contents("big")
    with pytest.raises(PlanError, match="clipping is for time-sensitive"):
        TICKS.window(hr.tumbling(4), clipping="full").contents()
