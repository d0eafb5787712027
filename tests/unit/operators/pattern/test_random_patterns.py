"""Random patterns over random streams: the same matches and promises as the twin, batch by batch, the same as history,
through restarts, and when only final answers leave (rules 1.5 and 9.4).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.ordered import long_streams
from tests.strategies.patterns import measures, patterns

import headrace as hr
from headrace import col
from headrace.plan.nodes import Final
from headrace.testing.batches import check_same_batches
from headrace.testing.checks import check_output
from headrace.testing.verify.checks import live, restarted
from headrace.testing.verify.differential import differential_reference

SOME = settings(max_examples=max(5, settings().max_examples // 2))
FEW = settings(max_examples=max(5, settings().max_examples // 10))
KEYS = st.sampled_from([None, None, "computed", "k", "x"])
BUCKETS = st.integers(1, 3)


def grouped(stream: hr.Stream, key: str | None) -> Any:
    if key == "computed":
        return stream.group_by(positive=col("i") > 0)
    return stream.group_by(key) if key else stream


@st.composite
def queries(draw: st.DrawFn, max_events: int = 12) -> hr.Stream:
    stream, pattern = draw(long_streams(max_events)), draw(patterns())
    rows = draw(st.sampled_from(["one", "one", "all"]))
    named = {f"m_{name}": expr for name, expr in draw(measures(pattern)).items()}
    return grouped(stream, draw(KEYS)).match(pattern, rows=rows, **named)


@pytest.mark.slow
@SOME
@given(queries(), BUCKETS)
def test_differential_patterns(query: hr.Stream, buckets: int):
    differential_reference(query.node, buckets=buckets)


@pytest.mark.slow
@FEW
@given(queries())
def test_oracle_history_says_the_same(query: hr.Stream):
    assert hr.history_diff(query.cht(), query.history("duckdb").cht()) == ""


@pytest.mark.slow
@FEW
@given(queries(), BUCKETS)
def test_restarts_do_not_show(query: hr.Stream, buckets: int):
    check_same_batches(restarted(query.node, buckets), live(query.node, buckets), "restarted after every batch")


@pytest.mark.slow
@FEW
@given(queries())
def test_final_answers_are_the_same(query: hr.Stream):
    result = live(Final(query.node), 2)
    check_output(result.events())
    assert hr.same_history(result.cht(), query.cht())


@FEW
@given(queries(8), st.sampled_from([hr.count(), hr.max("le_")]))
def test_differential_matches_of_matches(query: hr.Stream, measure: Any):
    """A pattern over what another one found."""
    below = query.select(le_=hr.lit(1))
    differential_reference(below.match("A A", n=hr.count(), m=measure).node)
