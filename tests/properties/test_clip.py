"""Clipping equals its twin, batch by batch, and forgets what is cut for good (rule 4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.paced import paced_streams

import headrace as hr
from headrace.errors import PlanError, UnknownColumn
from headrace.testing.strategies import SCHEMA, batch_sizes, buckets, physical_streams, tables
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY

KEYS = ("k", "k", ("k", "i"), {"i": "i"}, "x", ())
HALF = settings(max_examples=max(5, settings().max_examples // 2))
Pair = tuple[hr.Stream, hr.Stream]


@st.composite
def streams(draw: st.DrawFn) -> hr.Stream:
    events = draw(physical_streams(max_events=10))
    return hr.events(tables(events), SCHEMA, batches=draw(batch_sizes(len(events))))


@given(paced_streams(), st.sampled_from(KEYS), buckets())
def test_differential_while_both_ctis_advance(pair: Pair, on: Any, n: int):
    differential_reference(pair[0].clip(pair[1], on).node, buckets=n)


@given(streams(), streams(), st.sampled_from(KEYS), buckets())
def test_differential_clip(stream: hr.Stream, by: hr.Stream, on: Any, n: int):
    differential_reference(stream.clip(by, on).node, buckets=n)


@HALF
@given(streams(), st.integers(-4, 4), buckets())
def test_differential_clip_by_itself(stream: hr.Stream, shift: int, n: int):
    differential_reference(stream.clip(stream.shift(shift) if shift else stream, "k").node, buckets=n)


@HALF
@given(paced_streams(3, max_rounds=6), buckets())
def test_differential_clip_over_joins_and_under_windows(three: tuple[hr.Stream, ...], n: int):
    a, b, c = three
    clipped = a.clip(b.anti_join(c, "k"), "k")
    differential_reference(clipped.left_join(c, "k").node, buckets=n)
    counted = clipped.group_by("k").window(hr.hopping(6, every=3)).aggregate(n=hr.count(), s=hr.sum("i"))
    differential_reference(counted.node, buckets=n)
    differential_reference(clipped.final().node, buckets=n)


# --- state -----------------------------------------------------------------------------------------------------------


def test_what_is_cut_for_good_is_forgotten():
    """A signal: every event never ends, and the next one cuts it."""
    rounds = 200
    rows: list[dict[str, Any]] = []
    for t in range(rounds):
        rows += [{"kind": "insert", "le": t, "re": INFINITY, "k": t % 3}, {"kind": "cti", "le": t}]
    stream = hr.events(rows, batches=[2] * rounds)
    run = stream.clip(stream, "k").run(finish=False)
    held = [
        sum(op["rows"] for part in parts for op in part["operators"].values() if op["operator"].startswith("Clip"))
        for parts in run.statistics
    ]
    assert max(held) <= 24
    expected = [(t, t + 3 if t + 3 < rounds else INFINITY, t % 3) for t in range(rounds)]
    assert [tuple(row.values()) for row in run.cht().to_pylist()] == expected


# --- drawn streams ---------------------------------------------------------------------------------------------------


def given_by(stream: hr.Stream) -> list[tuple[Any, ...]]:
    differential_reference(stream.node)
    return [tuple(row.values()) for row in stream.cht().to_pylist()]


def test_the_first_start_strictly_inside_ends_it():
    stream = hr.events("le | re | k | x \n 1 | 9 | a | 1 \n 1 | 9 | b | 2 \n 1 | ∞ | c | 3 \n 1 | 9 | | 4")
    by = hr.events(
        "le | re | k \n 1 | 3 | a \n 7 | 8 | a \n 5 | 20 | a \n 9 | 10 | b \n 0 | 5 | b \n 4 | 5 | c \n 3 | 4 | "
    )
    assert given_by(stream.clip(by, "k")) == [(1, 4, "c", 3), (1, 5, "a", 1), (1, 9, "b", 2), (1, 9, None, 4)]
    assert given_by(stream.clip(by)) == [(1, 3, k, x) for k, x in [("a", 1), ("b", 2), ("c", 3), (None, 4)]]


def test_corrections_behind_a_cut_change_nothing():
    stream = hr.events(
        """
        kind    | le | re | re_new | k
        insert  | 0  | ∞  |        | a
        cti     | 6  |    |        |
        retract | 0  | ∞  | 9      | a
        retract | 0  | 9  | 12     | a
        """,
        batches=[1, 1, 1, 1],
    )
    by = hr.events("kind | le | re | k \n insert | 2 | 3 | a \n cti | 6 | | ", batches=[1, 1])
    clipped = stream.clip(by, "k")
    assert given_by(clipped) == [(0, 2, "a")]
    assert [e["kind"] for e in clipped.run().events().to_pylist() if e["kind"] != "cti"] == ["insert"]


def test_an_event_ending_exactly_at_the_cti_may_still_be_extended():
    stream = hr.events(
        "kind | le | re | re_new | k \n insert | 0 | 6 | | a \n cti | 6 | | | \n retract | 0 | 6 | 9 | a",
        batches=[1, 1, 1],
    )
    by = hr.events("kind | le | re | k \n cti | 6 | | \n insert | 6 | 7 | a \n insert | 8 | 9 | a", batches=[1, 1, 1])
    assert given_by(stream.clip(by, "k")) == [(0, 6, "a")]
    assert given_by(stream.clip(by.where(hr.lit(False)), "k")) == [(0, 9, "a")]


def test_a_start_that_is_taken_back_gives_the_end_back():
    stream = hr.events("le | re | k \n 0 | 10 | a")
    by = hr.events(
        "kind | le | re | re_new | k \n insert | 4 | 6 | | a \n retract | 4 | 6 | 8 | a \n retract | 4 | 8 | 4 | a"
        "\n insert | 7 | 8 | | a",
        batches=[1, 1, 1, 1],
    )
    clipped = stream.clip(by, "k")
    assert given_by(clipped) == [(0, 7, "a")]
    moves = [(e["re"], e["re_new"]) for e in clipped.run().events().to_pylist() if e["kind"] == "retract"]
    assert moves == [(4, 10), (10, 7)], "a new end of the other event is no change"


def test_what_makes_no_sense_is_refused_when_it_is_built():
    left, right = hr.events("le | k \n 1 | 2"), hr.events("le | k \n 1 | b")
    with pytest.raises(PlanError, match="same type"):
        left.clip(right, "k")
    with pytest.raises(UnknownColumn):
        left.clip(left, "kk")
    with pytest.raises(PlanError, match="not a stream"):
        left.clip("right", "k")
