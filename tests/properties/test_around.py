"""Frames of a ranking equal their twin, batch by batch, and SQL over the history; restarts do not show."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import sources

import headrace as hr
from headrace import col
from headrace.api.ranking import ranked_node
from headrace.plan.around import Around
from headrace.testing.batches import check_same_batches
from headrace.testing.strategies import batch_sizes, buckets, physical_streams
from headrace.testing.verify.checks import live, restarted
from headrace.testing.verify.differential import differential_reference

SHARE = max(5, settings().max_examples // 2)

CALLS = [
    hr.count(), hr.count("i"), hr.sum("i"), hr.sum("x"), hr.avg("i"), hr.stddev("x"), hr.min("x"), hr.max("i"),
    hr.min("k"), hr.max("x"), hr.median("x"), hr.distinct_count("i"), hr.first("i"), hr.last("x"), hr.collect("i"),
]  # fmt: skip
VALUES = [col("i"), col("x") * 2, col("k")]


@st.composite
def relations(draw: st.DrawFn, max_events: int = 9) -> hr.Stream:
    events = draw(physical_streams(max_events=max_events))
    return sources(events, draw(batch_sizes(len(events))))


@st.composite
def arounds(draw: st.DrawFn, *, measured: bool = True) -> Around:
    unit: Any = draw(st.sampled_from(["rows", "range"]))
    sizes = st.integers(-3, 3) if unit == "rows" or measured else st.just(0)
    start, end = sorted((draw(sizes), draw(sizes)))
    start, end = draw(st.sampled_from([start, None])), draw(st.sampled_from([end, None]))
    if draw(st.booleans()):
        return Around(draw(st.sampled_from(CALLS)), unit, start, end)
    return Around(draw(st.sampled_from(VALUES)), unit, start, end, draw(st.sampled_from([1, 2, -1, -2])))


@st.composite
def plans(draw: st.DrawFn) -> Any:
    """A ranking with two answers."""
    stream = draw(relations())
    measured = draw(st.booleans())
    by = [col(draw(st.sampled_from(["i", "x"])))] if measured else [col("k"), col("i")][: draw(st.integers(1, 2))]
    keys = (("k", col("k")),) if draw(st.booleans()) else ()
    answers = {name: draw(arounds(measured=measured)) for name in ("one", "two")}
    return ranked_node(stream.node, keys, by, draw(st.booleans()), answers)


@given(plans(), buckets())
def test_differential_frames(node: Any, n: int):
    differential_reference(node, buckets=n)


@settings(max_examples=SHARE)
@given(plans(), buckets())
def test_frames_equal_sql_over_the_history(node: Any, n: int):
    stream = hr.Stream(node)
    assert hr.history_diff(stream.cht(buckets=n), stream.history("duckdb").cht()) == ""


@settings(max_examples=SHARE)
@given(plans(), buckets())
def test_restarts_do_not_show(node: Any, n: int):
    check_same_batches(restarted(node, n), live(node, n), "restarted after every batch")
