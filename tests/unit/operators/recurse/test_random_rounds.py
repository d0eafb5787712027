"""Loops whose bodies take back what they gave, round by round, equal their twins (rule 9.3)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operators.recurse.loops import FEW, HALF, edges, restarts_do_not_show, seeds

import headrace as hr
from headrace import col
from headrace.testing.strategies import buckets, streams
from headrace.testing.verify.differential import differential_reference

COSTS = "src LONG, dst LONG, cost LONG"


def cheapest(seed: hr.Stream, links: hr.Stream) -> hr.Stream:
    """The least cost at which each node is reached: of several, only the cheapest goes on."""

    def body(found: hr.Stream) -> hr.Stream:
        further = found.join(links, on={"node": "src"}).select(node=col("dst"), cost=col("cost") + col("cost_right"))
        return _least(further.union(start))

    start = seed.select("node", cost=hr.lit(0).cast("LONG"))
    return _least(hr.recurse(_least(start), body, max_rounds=50))


def _least(found: hr.Stream) -> hr.Stream:
    return found.group_by("node").window(hr.snapshot()).aggregate(cost=hr.min("cost")).coalesce()


def costly(max_events: int = 9) -> st.SearchStrategy[hr.Stream]:
    return streams(COSTS, max_events=max_events, odd=False).map(
        lambda links: links.where(col("src").is_not_null()).select("src", "dst", cost=col("cost").coalesce(2).abs() + 1)
    )


@pytest.mark.slow
@settings(max_examples=HALF)
@given(seeds(3), costly(), buckets())
def test_differential_cheapest_paths(seed: hr.Stream, links: hr.Stream, n: int):
    differential_reference(cheapest(seed, links).node, buckets=n)


@settings(max_examples=HALF)
@given(seeds(3), edges(8), seeds(3), buckets())
def test_differential_what_is_closed_stops_the_way(seed: hr.Stream, links: hr.Stream, closed: hr.Stream, n: int):
    def body(found: hr.Stream) -> hr.Stream:
        return found.join(links, on={"node": "src"}).select(node=col("dst")).anti_join(closed, on="node")

    differential_reference(hr.recurse(seed, body).node, buckets=n)


class Least(hr.Aggregate):
    """The least of some numbers, as a user would write it."""

    input = "value LONG"
    output = "LONG"

    def compute(self, values: list[int]) -> int:
        return min(values)


@settings(max_examples=FEW)
@given(seeds(2), costly(6), buckets())
def test_differential_modules_and_rankings_in_the_body(seed: hr.Stream, links: hr.Stream, n: int):
    start = seed.select("node", cost=hr.lit(0).cast("LONG"))

    def body(found: hr.Stream) -> hr.Stream:
        further = found.join(links, on={"node": "src"}).select(node=col("dst"), cost=col("cost") + col("cost_right"))
        best = further.union(start).group_by("node").top(1, by="cost", descending=False)
        return best.group_by("node").window(hr.snapshot()).aggregate(cost=Least().of("cost"))

    differential_reference(hr.recurse(start, body, max_rounds=40).node, buckets=n)


@pytest.mark.slow
@settings(max_examples=FEW)
@given(seeds(3), edges(8), st.booleans())
def test_a_restored_loop_of_rounds_continues_as_if_nothing_had_happened(seed: hr.Stream, links: hr.Stream, n: bool):
    costs = links.select("src", "dst", cost=hr.lit(1).cast("LONG"))
    restarts_do_not_show(cheapest(seed, costs), 1 + n)
