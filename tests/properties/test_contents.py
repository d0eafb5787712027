"""The content of windows equals its twin, batch by batch, and batch SQL over the history (rules 5, 8.4 and 10.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.events import history_diff
from headrace.history.duckdb import DuckDBHistory
from headrace.testing.strategies import SCHEMA, batch_sizes, buckets, physical_streams, tables
from headrace.testing.verify.differential import differential_reference

HALF = settings(max_examples=max(5, settings().max_examples // 2))
FEW = settings(max_examples=max(5, settings().max_examples // 4))
DUCK = DuckDBHistory()
KEYS: tuple[Callable[[hr.Stream], Any], ...] = (
    lambda s: s,
    lambda s: s.group_by("k"),
    lambda s: s.group_by("x"),
    lambda s: s.group_by("k", up=col("i") > 0),
    lambda s: s.group_by(other=col("k")),
)
STARTS = st.sampled_from([None, "w"])


@st.composite
def streams(draw: st.DrawFn, max_events: int = 10) -> hr.Stream:
    """Events as they are, or all of which end."""
    events = draw(physical_streams(max_events=max_events))
    stream = hr.events(tables(events), SCHEMA, batches=draw(batch_sizes(len(events))))
    return draw(st.sampled_from([stream, stream.cap_duration(7), stream.set_duration(3)]))


def grids() -> st.SearchStrategy[Any]:
    return st.builds(hr.hopping, st.integers(1, 9), st.integers(1, 9), st.integers(-3, 3))


def windows() -> st.SearchStrategy[Any]:
    return st.one_of(
        grids(),
        st.just(hr.snapshot()),
        st.builds(hr.count_by_start, st.integers(1, 4)),
        st.builds(hr.count_by_end, st.integers(1, 4)),
        st.builds(hr.session, st.integers(1, 8)),
    )


@given(streams(), windows(), st.sampled_from(KEYS), STARTS, buckets())
def test_differential_contents(stream: hr.Stream, window: Any, keys: Callable, start: str | None, n: int):
    differential_reference(keys(stream).window(window).contents(start).node, buckets=n)


@HALF
@given(streams(), windows(), st.sampled_from(KEYS), STARTS)
def test_oracle_contents(stream: hr.Stream, window: Any, keys: Callable, start: str | None):
    out = keys(stream).window(window).contents(start)
    assert history_diff(out.cht(), DUCK.cht(out.node), names=("live", "batch")) == ""


ON_TOP: tuple[Callable[[hr.Stream, hr.Stream], hr.Stream], ...] = (
    lambda one, _: one.where((col("i") > 0) & (col("k") == "a")),
    lambda one, _: one.where(col("w") > 2).select("i"),
    lambda one, _: one.select("w"),
    lambda one, _: one.group_by("k").window(hr.tumbling(6)).aggregate(s=hr.sum("w"), low=hr.min("x")),
    lambda one, _: one.group_by("w").window(hr.snapshot()).aggregate(n=hr.count(), m=hr.median("i")),
    lambda one, other: one.join(other, ("w", "k")).select("i", "w", "i_right"),
    lambda one, other: one.left_join(other, ("w", "i")),
    lambda one, other: one.union(other).coalesce(),
    lambda one, _: one.window(hr.hopping(5, 2)).contents("again"),
)


@HALF
@given(streams(7), streams(4), windows(), st.sampled_from(KEYS[:2]), st.sampled_from(ON_TOP), buckets())
def test_differential_what_is_made_of_contents(
    one: hr.Stream, other: hr.Stream, window: Any, keys: Callable, on_top: Callable, n: int
):
    """Columns may be left out, filters may come first, rows are where they are said to be."""
    made = on_top(keys(one).window(window).contents("w"), other.window(window).contents("w"))
    differential_reference(made.node, buckets=n)


@FEW
@given(streams(7), streams(4), windows(), st.sampled_from(ON_TOP))
def test_oracle_what_is_made_of_contents(one: hr.Stream, other: hr.Stream, window: Any, on_top: Callable):
    made = on_top(one.window(window).contents("w"), other.window(window).contents("w"))
    assert history_diff(made.cht(), DUCK.cht(made.node), names=("live", "batch")) == ""


@FEW
@given(streams(8), windows(), st.sampled_from(KEYS), STARTS, buckets())
def test_differential_contents_of_groups_of_their_own(
    stream: hr.Stream, window: Any, keys: Callable, start: str | None, n: int
):
    applied = stream.group_by("i").apply(lambda group: keys(group).window(window).contents(start))
    differential_reference(applied.node, buckets=n)
