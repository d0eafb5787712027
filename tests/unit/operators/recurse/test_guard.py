"""Loops that never come to rest are stopped, whichever way they run, and told (rule 9.3).

What `max_rounds` counts is how deep a derivation is. So neither batches nor their order show in it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, permutations

import pytest
from tests.unit.operators.recurse.loops import restarts_do_not_show

import headrace as hr
from headrace import col
from headrace.errors import Diverged
from headrace.testing.verify.differential import differential_reference

SEED = hr.events("le | re | node\n1 | ∞ | 1")
CHAIN = ["1 | 9 | 1 | 2", "1 | 9 | 2 | 3", "1 | 9 | 3 | 4", "1 | 9 | 4 | 5"]
Loop = Callable[..., hr.Stream]


def links(rows: list[str], batches: list[int]) -> hr.Stream:
    return hr.events("\n".join(["le | re | src | dst", *rows]), batches=batches)


def by_levels(edges: hr.Stream, **options: int) -> hr.Stream:
    return hr.recurse(SEED, lambda f: f.join(edges, on={"node": "src"}).select(node=col("dst")), **options)  # type: ignore[call-overload,no-any-return]


def all_events(edges: hr.Stream, **options: int) -> hr.Stream:
    return by_levels(edges, distinct=False, **options)


def unrolled(edges: hr.Stream, **options: int) -> hr.Stream:
    nowhere = SEED.select(node=hr.lit(-1).cast("LONG"))

    def body(found: hr.Stream) -> hr.Stream:
        return found.anti_join(nowhere, on="node").join(edges, on={"node": "src"}).select(node=col("dst"))

    return hr.recurse(SEED, body, **options)  # type: ignore[call-overload,no-any-return]


LOOPS = pytest.mark.parametrize("loop", [by_levels, all_events, unrolled])


@pytest.mark.slow
@LOOPS
@pytest.mark.parametrize("batches", [[4], [1, 1, 1, 1], [1, 3]])
def test_the_bound_is_a_matter_of_depth_and_not_of_batches(loop: Loop, batches: list[int]):
    """Node 5 is four links away: five rounds, however few of them a batch needs and in whatever order links come."""
    for rows in list(permutations(CHAIN))[::5]:
        edges = links(list(rows), batches)
        assert loop(edges, max_rounds=5).cht().num_rows == 5
        with pytest.raises(Diverged, match="has not come to rest after 4 rounds"):
            loop(edges, max_rounds=4).cht()


@LOOPS
def test_the_history_counts_alike(loop: Loop):
    edges = links(CHAIN, [4])
    assert loop(edges, max_rounds=5).history(engine="duckdb").cht().num_rows == 5
    with pytest.raises(Diverged, match="has not come to rest after 4 rounds"):
        loop(edges, max_rounds=4).history(engine="duckdb").cht()


def counting(kind: str, **options: int) -> hr.Stream:
    """Two more of every one, for ever; beside it a branch that gives one of each."""

    def body(found: hr.Stream) -> hr.Stream:
        grown = found.select(node=col("node") * 2).union(found.select(node=col("node") * 2 + 1))
        one = found.where(col("node") > 4).select(node=col("node") * -1)
        return grown.union(one) if kind != "unrolled" else grown.anti_join(none, on="node").union(one)

    none = SEED.select(node=hr.lit(0).cast("LONG"))
    return hr.recurse(SEED, body, distinct=kind != "all", **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("kind", ["levels", "all", "unrolled"])
def test_the_error_names_the_operator_and_the_growth(kind: str):
    with pytest.raises(Diverged, match="has not come to rest after 8 rounds") as caught:
        counting(kind, max_rounds=8).cht()
    error = caught.value
    assert "keeps giving something new" in str(error)
    named = "AntiJoin on node = node" if kind == "unrolled" else "Select node = "
    assert named in str(error).splitlines()[0]
    assert "round_" not in str(error), "it is told as the user wrote it"
    growth = [int(n.replace(",", "")) for n in str(error.given).rpartition("rounds: ")[2].split(" → ")]
    assert len(growth) == 5
    assert all(later > 1.4 * earlier for earlier, later in pairwise(growth))
    assert error.allowed
    assert error.instead


@pytest.mark.parametrize("kind", ["levels", "all"])
def test_growth_beyond_all_bounds_is_stopped_before_the_rounds_are_used_up(kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.operators.recurse.guard._MOST_ROWS", 1000)
    with pytest.raises(Diverged, match="grows beyond all bounds"):
        counting(kind).cht()


def test_copies_beyond_all_bounds_are_stopped():
    """A payload that is derived twice from itself is there 2⁴⁰ times soon."""
    with pytest.raises(Diverged, match="the loop grows beyond all bounds: Select node keeps"):
        hr.recurse(SEED, lambda f: f.select("node").union(f.select("node")), distinct=False).cht()


def test_operators_that_only_all_events_allow_pass_the_depth_on():
    edges = links(CHAIN, [2, 2]).select("src", "dst", w=hr.lit(2).cast("LONG"))

    def body(found: hr.Stream) -> hr.Stream:
        step = found.join(edges, on={"node": "src"}).select(node=col("dst")).shift(1).cap_duration(6)
        half = step.group_by("node").apply(lambda g: g.where(col("node") % 2 == 0)).set_duration(3).extend(1)
        ends = step.where(col("node") == 5).point_at_end().union(step.where(col("node") == 4).point_at_start())
        return step.union(half, ends, edges.where(col("src") == 3).select(node=col("src")))

    query = hr.recurse(SEED, body, distinct=False, max_rounds=9)
    differential_reference(query.node, buckets=1)
    restarts_do_not_show(query, 1)


# --- what is shown to end --------------------------------------------------------------------------------------------


def test_a_loop_that_computes_nothing_always_ends():
    edges = links(CHAIN, [4])
    both = hr.recurse(
        {"a": SEED, "b": edges}, lambda a, b: {"a": b.select(node=col("dst")), "b": a.join(edges, on={"node": "src"})
                                               .select(src=col("node"), dst=col("dst"))}
    )  # fmt: skip
    for loop in (by_levels(edges), both["a"]):
        assert "until a round derives nothing new; always ends" in loop.explain()


@pytest.mark.parametrize(
    ("loop", "why"),
    [
        (all_events(links(CHAIN, [4])), "stopped after 1,000 rounds, since every derivation counts"),
        (unrolled(links(CHAIN, [4])), "stopped after 10,000 rounds, since its body may take back what it gave"),
        (hr.recurse(SEED, lambda f: f.shift(2)), "since Shift by 2 ticks gives ever later times"),
        (
            hr.recurse(SEED, lambda f: f.select(node=col("node") + 1), max_rounds=7),
            "stopped after 7 rounds, since Select node = node + 1 computes values",
        ),
    ],
)
def test_other_loops_say_why_they_may_not(loop: hr.Stream, why: str):
    assert why in loop.explain()
