"""Joins equal their twin, batch by batch, whatever the splits, the buckets and the corrections (rule 4)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import PlanError, UnknownColumn
from headrace.testing.strategies import SCHEMA, batch_sizes, buckets, physical_streams, tables
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY

CONDITIONS = (None, col("i") > col("i_right"), col("x").is_null() | (col("x") <= col("x_right")))


def _stream(events: list, sizes: tuple[int, ...]) -> hr.Stream:
    return hr.events(tables(events), SCHEMA, batches=sizes)


@st.composite
def streams(draw: st.DrawFn) -> hr.Stream:
    events = draw(physical_streams(max_events=9))
    return _stream(events, draw(batch_sizes(len(events))))


@given(streams(), streams(), st.sampled_from(["k", ("k", "i"), "x", ()]), st.sampled_from(CONDITIONS[:1]), buckets())
def test_differential_join(left: hr.Stream, right: hr.Stream, on: object, where: object, n: int):
    differential_reference(left.join(right, on, where).node, buckets=n)


@settings(max_examples=max(5, settings().max_examples // 2))
@given(streams(), streams(), st.sampled_from(CONDITIONS), buckets())
def test_differential_join_with_a_condition(left: hr.Stream, right: hr.Stream, where: object, n: int):
    differential_reference(left.join(right, "k", where).node, buckets=n)


@settings(max_examples=max(5, settings().max_examples // 2))
@given(streams(), st.integers(-4, 4), buckets())
def test_differential_self_join(stream: hr.Stream, by: int, n: int):
    differential_reference(stream.join(stream.shift(by), "k").node, buckets=n)


@settings(max_examples=max(5, settings().max_examples // 2))
@given(streams(), streams(), buckets())
def test_differential_windows_over_a_join_over_windows(left: hr.Stream, right: hr.Stream, n: int):
    counted = right.group_by("k").window(hr.tumbling(4)).aggregate(n=hr.count(), top=hr.max("x"))
    joined = left.join(counted, "k").group_by("n").window(hr.hopping(6, every=3)).aggregate(c=hr.count(), s=hr.sum("i"))
    differential_reference(joined.node, buckets=n)


def test_state_is_forgotten_when_the_other_side_has_passed():
    rows = [
        row for t in range(60) for row in ({"kind": "insert", "le": t, "re": t + 3, "k": 1}, {"kind": "cti", "le": t})
    ]
    left, right = (
        hr.events(rows, batches=[2] * 60),
        hr.events([*rows, {"kind": "cti", "le": 61}], batches=[2] * 59 + [3]),
    )
    run = left.join(right, "k").run(finish=False)
    held = [op for batch in run.statistics for part in batch for op in part["operators"].values()]
    assert max(op["rows"] for op in held if op["operator"].startswith("Join")) <= 12


def test_lifetimes_intersect_and_names_that_are_taken_get_a_suffix():
    left = hr.events("le | re | k | x \n 1 | 10 | a | 1 \n 3 | ∞ | b | 2")
    right = hr.events("le | re | k | x \n 5 | 20 | a | 7 \n 4 | 6 | b | 8 \n 10 | 12 | a | 9")
    assert left.join(right, "k").cht().to_pylist() == [
        {"le": 4, "re": 6, "k": "b", "x": 2, "x_right": 8},
        {"le": 5, "re": 10, "k": "a", "x": 1, "x_right": 7},
    ]


def test_endless_events_meet_for_ever():
    left = hr.events("le | re | k \n 1 | ∞ | 1")
    assert left.join(left.shift(4), {"k": "k"}).cht().to_pylist() == [{"le": 5, "re": INFINITY, "k": 1}]


def test_what_makes_no_sense_is_refused_when_it_is_built():
    left, right = hr.events("le | k \n 1 | 2"), hr.events("le | k \n 1 | b")
    with pytest.raises(PlanError, match="same type"):
        left.join(right, "k")
    with pytest.raises(UnknownColumn):
        left.join(left, "kk")
    with pytest.raises(PlanError, match="BOOLEAN"):
        left.join(left, "k", where=col("k") + 1)
