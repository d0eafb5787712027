"""Loops over random graphs, with random corrections, batches and buckets, equal their twins after every batch (9.1)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operators.recurse.loops import FEW, HALF, closure, edges, reached, restarts_do_not_show, seeds

import headrace as hr
from headrace import col
from headrace.testing.strategies import buckets, streams
from headrace.testing.verify.differential import differential_reference


@given(seeds(), edges(), buckets())
def test_differential_reachability(seed: hr.Stream, links: hr.Stream, n: int):
    differential_reference(reached(seed, links).node, buckets=n)


@settings(max_examples=HALF)
@given(edges(), buckets())
def test_differential_closure_by_doubling(links: hr.Stream, n: int):
    differential_reference(closure(links).node, buckets=n)


@pytest.mark.slow
@settings(max_examples=HALF)
@given(edges(10), edges(5), buckets())
def test_differential_bodies_of_several_parts(links: hr.Stream, more: hr.Stream, n: int):
    """Two ways round, events from outside in the body, a filter, duplicates dropped, all in one loop."""

    def body(paths: hr.Stream) -> hr.Stream:
        forth = paths.join(links, on={"dst": "src"}).select("src", dst=col("dst_right"))
        back = paths.where(col("src") != col("dst")).select(src=col("dst"), dst=col("src")).distinct()
        return forth.union(back, more.where(col("src") < 2))

    differential_reference(hr.recurse(links, body).node, buckets=n)


@settings(max_examples=HALF)
@given(edges(10), buckets())
def test_differential_all_derivations_without_cycles(links: hr.Stream, n: int):
    forward = links.where(col("src") < col("dst"))
    differential_reference(closure(forward, distinct=False).node, buckets=n)

    def longer(paths: hr.Stream) -> hr.Stream:
        return paths.join(forward, on={"dst": "src"}).select("src", dst=col("dst_right")).shift(2).cap_duration(6)

    differential_reference(hr.recurse(forward, longer, distinct=False).node, buckets=n)


@pytest.mark.slow
@settings(max_examples=HALF)
@given(edges(9), st.integers(1, 9), buckets())
def test_differential_delayed_facts(links: hr.Stream, by: int, n: int):
    """What is passed on arrives later; on a cycle it is filtered, since it would go round for ever."""
    forward = links.where(col("src") <= col("dst"))
    passed = hr.recurse(
        forward,
        lambda paths: (
            paths.where(col("src") < col("dst"))
            .join(forward.where(col("src") < col("dst")), on={"dst": "src"})
            .select("src", dst=col("dst_right"))
            .shift(by)
        ),
    )
    differential_reference(passed.node, buckets=n)


@pytest.mark.slow
@settings(max_examples=FEW)
@given(seeds(3), edges(10), buckets())
def test_a_restored_loop_continues_as_if_nothing_had_happened(seed: hr.Stream, links: hr.Stream, n: int):
    restarts_do_not_show(reached(seed, links), n)
    restarts_do_not_show(closure(links.where(col("src") < col("dst")), distinct=False), n)


@pytest.mark.slow
@settings(max_examples=FEW)
@given(seeds(4), edges(10), buckets())
def test_differential_relations_made_from_each_other(seed: hr.Stream, links: hr.Stream, n: int):
    """Nodes an even and nodes an odd number of steps away, the latter with another name for the node and its type."""
    named = links.select("src", "dst", name=col("dst").cast("STRING"))
    none = named.where(hr.lit(False)).select(node=col("name"), at=col("dst"))

    def body(even: hr.Stream, odd: hr.Stream) -> dict[str, hr.Stream]:
        return {
            "even": odd.join(links, on={"at": "src"}).select(node=col("dst")),
            "odd": even.join(named, on={"node": "src"}).select(node=col("name"), at=col("dst")),
        }

    found = hr.recurse({"even": seed, "odd": none}, body)
    assert found["odd"].schema == none.schema
    differential_reference(found["even"].node, buckets=n)
    differential_reference(found["odd"].node, buckets=n)


@pytest.mark.slow
@settings(max_examples=FEW)
@given(edges(8), buckets())
def test_differential_loops_in_groups(links: hr.Stream, n: int):
    """Within a group everything is there that is needed, so groups may be in different buckets."""
    marked = links.select("src", "dst", half=(col("src") + col("dst")) % 2)
    found = marked.group_by("half").apply(lambda group: closure(group.select("src", "dst")))
    differential_reference(found.node, buckets=n)
    from_outside = marked.group_by("half").apply(lambda group: reached(group.select(node=col("src")), links))
    differential_reference(from_outside.node, buckets=n)


@settings(max_examples=FEW)
@given(
    streams("t LONG, src LONG, dst LONG", max_events=12, odd=False),
    streams("t LONG, node LONG", max_events=4, odd=False),
    buckets(),
)
def test_differential_loops_that_stay_inside_a_key(links: hr.Stream, starts: hr.Stream, n: int):
    """Both bodies pass the tenant on, and all that is met has it too: rows are spread by it."""

    def step(found: hr.Stream) -> hr.Stream:
        further = found.join(links, on={"t": "t", "node": "src"}).select("t", node=col("dst"))
        return further.union(starts.where(col("node") > 1), found.select("t", node=col("node") % 3).distinct())

    query = hr.recurse(starts, step)
    assert [query.node.need(i) for i in range(3)] == [("t",)] * 3
    differential_reference(query.node, buckets=n)

    def twice(paths: hr.Stream) -> hr.Stream:
        pairs = paths.select(u=col("t"), mid=col("src"), end=col("dst"))
        return paths.join(pairs, on={"dst": "mid", "t": "u"}).select(t=col("u"), src=col("src"), dst=col("end"))

    query = hr.recurse(links, twice)
    assert query.node.need(0) == ("t",)
    differential_reference(query.node, buckets=n)
