"""Left and anti joins equal their twins, batch by batch, and forget what both CTIs have passed (rule 4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.paced import paced_streams

import headrace as hr
from headrace import col, lit
from headrace.errors import PlanError
from headrace.testing.strategies import SCHEMA, batch_sizes, buckets, physical_streams, tables
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY

KEYS = ("k", ("k", "i"), "x", {"k": "k", "i": "i"}, ())
CONDITIONS = (
    None, col("i") > col("i_right"), col("x").is_null() | (col("x") <= col("x_right")), col("i_right") > 0,
    col("i") > 0, lit(True), lit(False),
)  # fmt: skip
HALF = settings(max_examples=max(5, settings().max_examples // 2))
Pair = tuple[hr.Stream, hr.Stream]
kinds = st.sampled_from(["left", "anti"])


@st.composite
def streams(draw: st.DrawFn, max_events: int = 10) -> hr.Stream:
    """Physical streams, now and then all of one key, so that much overlaps."""
    events = draw(physical_streams(max_events=max_events))
    if draw(st.booleans()):
        events = [event | {"k": "a", "i": 1} if event["kind"] != "cti" else event for event in events]
    return hr.events(tables(events), SCHEMA, batches=draw(batch_sizes(len(events))))


def joined(kind: str, left: hr.Stream, right: hr.Stream, on: Any = "k", where: Any = None) -> hr.Stream:
    return left.left_join(right, on, where) if kind == "left" else left.anti_join(right, on, where)


@given(kinds, paced_streams(), st.sampled_from(["k", "k", (), ("k", "i")]), buckets())
def test_differential_while_both_ctis_advance(kind: str, pair: Pair, on: Any, n: int):
    differential_reference(joined(kind, *pair, on).node, buckets=n)


@HALF
@given(kinds, paced_streams(), st.sampled_from(CONDITIONS), buckets())
def test_differential_with_a_condition_while_both_ctis_advance(kind: str, pair: Pair, where: Any, n: int):
    differential_reference(joined(kind, *pair, "k", where).node, buckets=n)


@given(kinds, streams(), streams(), st.sampled_from(KEYS), buckets())
def test_differential_left_and_anti_join(kind: str, left: hr.Stream, right: hr.Stream, on: Any, n: int):
    differential_reference(joined(kind, left, right, on).node, buckets=n)


@HALF
@given(kinds, streams(), streams(), st.sampled_from(CONDITIONS), buckets())
def test_differential_with_a_condition(kind: str, left: hr.Stream, right: hr.Stream, where: Any, n: int):
    differential_reference(joined(kind, left, right, "k", where).node, buckets=n)


@HALF
@given(kinds, streams(14), st.integers(-4, 4), st.sampled_from(["k", (), {"i": "i"}]), buckets())
def test_differential_self_join(kind: str, stream: hr.Stream, by: int, on: Any, n: int):
    differential_reference(joined(kind, stream, stream.shift(by) if by else stream, on).node, buckets=n)


@HALF
@given(kinds, kinds, paced_streams(3, max_rounds=6), buckets())
def test_differential_join_over_join(first: str, second: str, three: tuple[hr.Stream, ...], n: int):
    below = joined(first, three[0], three[1]).select("k", "i", "x")
    differential_reference(joined(second, below, three[2]).node, buckets=n)
    differential_reference(joined(second, three[2], below, "k", col("i") <= col("i_right")).node, buckets=n)


@HALF
@given(kinds, paced_streams(max_rounds=6), buckets())
def test_differential_final_and_windows(kind: str, pair: Pair, n: int):
    counted = pair[1].group_by("k").window(hr.tumbling(4)).aggregate(n=hr.count())
    alone = joined(kind, pair[0], counted, "k")
    differential_reference(alone.final().node, buckets=n)
    differential_reference(alone.window(hr.hopping(6, every=3)).aggregate(c=hr.count(), s=hr.sum("i")).node, buckets=n)


# --- state -----------------------------------------------------------------------------------------------------------


def rows_held(stream: hr.Stream, operator: str) -> list[int]:
    """How many rows the operator remembers after each batch."""
    run = stream.run(finish=False)
    return [
        sum(op["rows"] for part in parts for op in part["operators"].values() if op["operator"].startswith(operator))
        for parts in run.statistics
    ]


def ticking(rounds: int, **payload: Any) -> hr.Stream:
    """In every round an event of three ticks, and a CTI."""
    rows = []
    for t in range(rounds):
        rows += [{"kind": "insert", "le": t, "re": t + 3, **payload}, {"kind": "cti", "le": t}]
    return hr.events(rows, batches=[2] * rounds)


def lasting(rounds: int, events: int, end: int | None = None) -> hr.Stream:
    """Events that never end, or are corrected to end a little later in every round, and a CTI a round."""
    rows: list[dict[str, Any]] = []
    sizes = []
    for t in range(rounds):
        before = len(rows)
        if t == 0:
            rows += [{"kind": "insert", "le": 0, "re": end or INFINITY, "k": 1, "i": i} for i in range(events)]
        elif end is not None:
            times = {"le": 0, "re": end + t - 1, "re_new": end + t}
            rows += [{"kind": "retract", **times, "k": 1, "i": i} for i in range(events)]
        rows.append({"kind": "cti", "le": t})
        sizes.append(len(rows) - before)
    return hr.events(rows, "k LONG, i LONG", batches=sizes)


@pytest.mark.parametrize("kind", ["left", "anti"])
def test_state_is_forgotten_when_both_sides_have_passed(kind: str):
    stream = joined(kind, ticking(80, k=1, i=1), ticking(80, k=1, i=2))
    held = rows_held(stream, "LeftJoin" if kind == "left" else "AntiJoin")
    assert max(held) <= 16
    assert stream.run().statistics[-1][0]["operators"].popitem()[1]["rows"] == 0


@pytest.mark.parametrize("kind", ["left", "anti"])
@pytest.mark.parametrize("end", [None, 5], ids=["endless", "extended every round"])
def test_left_events_that_last_do_not_gather_the_matches_of_all_time(kind: str, end: int | None):
    stream = joined(kind, lasting(150, 8, end), ticking(150, k=1, j=2))
    held = rows_held(stream, "LeftJoin" if kind == "left" else "AntiJoin")
    assert max(held[100:]) <= max(held[10:50]) <= 60
    differential_reference(joined(kind, lasting(40, 2, end), ticking(40, k=1, j=2)).node)


def test_a_side_that_lags_holds_state_and_gives_it_up_when_it_catches_up():
    rows = [{"kind": "insert", "le": t, "re": t + 1, "k": 1} for t in range(50)]
    ahead = hr.events([*rows, {"kind": "cti", "le": 50}], batches=[51])
    behind = hr.events([{"kind": "cti", "le": 1}, {"kind": "cti", "le": 50}], "k LONG", batches=[1, 1])
    assert rows_held(behind.anti_join(ahead, "k"), "AntiJoin") == [50, 1]
    assert rows_held(ahead.anti_join(behind, "k"), "AntiJoin") == [50, 1]


def test_what_can_match_nothing_is_not_remembered():
    keyless = hr.events("le | re | k \n 1 | ∞ | \n 2 | ∞ | ", "k LONG")
    for stream in (keyless.left_join(keyless, "k"), keyless.anti_join(keyless, "k"), keyless.join(keyless, "k")):
        differential_reference(stream.node)
        assert rows_held(stream, "")[-1] == 2, "by Admit, until they end"


# --- drawn streams ---------------------------------------------------------------------------------------------------


def given_by(stream: hr.Stream) -> list[tuple[Any, ...]]:
    differential_reference(stream.node)
    return [tuple(row.values()) for row in stream.cht().to_pylist()]


def test_the_parts_without_a_match():
    left = hr.events("le | re | k | x \n 1 | 9 | a | 1 \n 3 | ∞ | b | 2 \n 0 | 4 | | 3")
    right = hr.events("le | re | k | x \n 3 | 5 | a | 7 \n 5 | 6 | a | 7 \n 2 | 6 | b | 8 \n 0 | 9 | | 9")
    alone = [(0, 4, None, 3), (1, 3, "a", 1), (6, 9, "a", 1), (6, INFINITY, "b", 2)]
    pairs = [(3, 5, "a", 1, 7), (5, 6, "a", 1, 7), (3, 6, "b", 2, 8)]
    assert given_by(left.anti_join(right, "k")) == alone
    assert given_by(left.left_join(right, "k")) == sorted(
        [*pairs, *((*row, None) for row in alone)], key=lambda row: (row[0], row[1])
    )


def test_an_unknown_condition_is_no_match():
    left = hr.events("le | re | x \n 1 | 9 | 1", "x LONG")
    right = hr.events("le | re | y \n 2 | 4 | 3 \n 5 | 6 | \n 7 | 8 | 0", "y LONG")
    assert given_by(left.anti_join(right, where=col("x") < col("y"))) == [(1, 2, 1), (4, 9, 1)]


def test_an_event_ending_exactly_at_the_cti_may_still_be_extended_on_either_side():
    left = hr.events(
        "kind | le | re | re_new | k \n insert | 0 | 6 | | a \n cti | 6 | | | \n retract | 0 | 6 | 9 | a",
        batches=[1, 1, 1],
    )
    right = hr.events(
        "kind | le | re | re_new | k \n insert | 1 | 3 | | a \n insert | 4 | 6 | | a \n cti | 6 | | | "
        "\n retract | 4 | 6 | 7 | a",
        batches=[2, 1, 1],
    )
    assert given_by(left.anti_join(right, "k")) == [(0, 1, "a"), (3, 4, "a"), (7, 9, "a")]


def test_equal_left_events_with_different_ends_are_settled_alike():
    left = hr.events(
        """
        kind    | le | re | re_new | k
        insert  | 0  | 9  |        | a
        insert  | 0  | 20 |        | a
        insert  | 0  | 20 |        | a
        cti     | 8  |    |        |
        retract | 0  | 9  | 20     | a
        retract | 0  | 20 | 30     | a
        """,
        batches=[4, 1, 1],
    )
    right = hr.events("kind | le | re | k \n insert | 2 | 5 | a \n cti | 8 | | ", batches=[1, 1])
    assert given_by(left.anti_join(right, "k")) == [(0, 2, "a")] * 3 + [(5, 20, "a")] * 2 + [(5, 30, "a")]


def test_a_correction_is_one_retraction_and_keeps_the_promise():
    left = hr.events("kind | le | re | k \n insert | 0 | 20 | a \n cti | 4 | | ", batches=[2])
    right = hr.events("kind | le | re | k \n cti | 4 | | \n insert | 6 | 8 | a", batches=[1, 1])
    events = left.anti_join(right, "k").run().events().to_pylist()
    assert [tuple(event.values())[:4] for event in events if event["kind"] != "cti"] == [
        ("insert", 0, 20, None), ("retract", 0, 20, 6), ("insert", 8, 20, None)
    ]  # fmt: skip


def test_the_columns_and_what_is_promised_of_them():
    left, right = hr.events("le | k | x \n 1 | a | 2"), hr.events("le | k | x \n 1 | a | 2")
    assert left.anti_join(right, "k").schema.names == ("k", "x")
    assert left.left_join(right, "k").schema.names == ("k", "x", "x_right")
    points = left.point_at_start().final().join(right.set_duration(2).final(), "k")
    assert points.node.properties.settled
    for kind in ("left", "anti"):
        known = joined(kind, left.final(), right.final(), "k").node.properties
        assert not known.settled
        assert not known.insert_only
    with pytest.raises(PlanError, match="BOOLEAN"):
        left.anti_join(right, "k", where=col("x_right") + 1)
    with pytest.raises(PlanError, match="not a stream"):
        left.left_join("right")
