"""The flying fixed-point paper's reachability query, time by time, and the cases it warns of (rules 9.1 and 9.3)."""

from __future__ import annotations

from typing import get_args

import pytest

import headrace as hr
from headrace import col
from headrace.errors import Diverged
from headrace.events import history_diff
from headrace.plan.recurse import LoopProgress
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY, NEG_INFINITY

# Figure 2: nodes n2 and n3 are sources from time 1 on; a path is a set of bits, n1 the highest of four.
SOURCES = """
    kind   | le | re | re_new | node | bit
    insert | 1  | ∞  |        | 2    | 4
    insert | 1  | ∞  |        | 3    | 2
"""
LINKS = """
    kind    | le | re | re_new | src | dst | bit
    insert  | 2  | ∞  |        | 3   | 1   | 8
    insert  | 3  | ∞  |        | 1   | 2   | 4
    insert  | 3  | ∞  |        | 2   | 3   | 2
    insert  | 4  | ∞  |        | 3   | 4   | 1
"""
TIME_2 = [(2, 3, 1, "1010")]
TIME_3 = [(3, 3, 2, "1110"), (3, 2, 3, "0110"), (3, 2, 1, "1110")]
TIME_4 = [(4, 3, 4, "0011"), (4, 2, 4, "0111")]


def paths(sources: hr.Stream, links: hr.Stream, progress: LoopProgress = "hybrid") -> hr.Stream:
    """Figure 1: all paths from sources that meet no node twice. The operators have bag semantics."""
    start = sources.select(origin=col("node"), node=col("node"), bv=col("bit"))

    def further(found: hr.Stream) -> hr.Stream:
        step = found.join(links, on={"node": "src"}).where(col("bv").bit_and(col("bit")) == 0)
        return step.select("origin", node=col("dst"), bv=col("bv").bit_or(col("bit")))

    return hr.recurse(start, further, distinct=False, progress=progress)


def lines(run: hr.Run, batch: int | None = None) -> list[tuple[int, int, int, str]]:
    """`(LE, from, to, bits)` of the paths with a link that a batch gave, or all of them."""
    batches = run.results["out"].batches
    rows = [r for c, _ in (batches if batch is None else [batches[batch]]) for r in c.to_table().to_pylist()]
    longer = [r for r in rows if r["origin"] != r["node"]]
    assert all(r["__weight"] == 1 and r["__re"] == INFINITY for r in longer)
    return sorted((r["__le"], r["origin"], r["node"], f"{r['bv']:04b}") for r in longer)


@pytest.mark.parametrize("progress", get_args(LoopProgress))
def test_times_1_to_4_across_buckets_with_a_promise_after_each(progress: LoopProgress):
    """What came round is promised as far as both inputs have promised, by whichever strategy."""
    sources = hr.events(SOURCES + "\ncti | 6 | | | |", batches=[3, 0, 0, 0])
    rows = [*LINKS.strip().splitlines()]
    links = hr.events("\n".join([*rows[:2], "cti | 3 | | | | |", *rows[2:], "cti | 5 | | | | |"]), batches=[0, 2, 2, 2])
    run = paths(sources, links, progress).run(buckets=3, finish=False)
    assert [lines(run, batch) for batch in range(4)] == [[], sorted(TIME_2), sorted(TIME_3), sorted(TIME_4)]
    promised = [reached.cti for _, reached in run.results["out"].batches]
    assert promised == [NEG_INFINITY, 3, 3, 5]


def test_times_1_to_4_one_after_the_other():
    query = paths(hr.events(SOURCES, batches=[2, 0, 0, 0]), hr.events(LINKS, batches=[0, 1, 2, 1]))
    run = query.run()
    assert [lines(run, batch) for batch in range(4)] == [[], sorted(TIME_2), sorted(TIME_3), sorted(TIME_4)]
    circulated = [
        operator["circulated"]
        for batch in run.statistics[:4]
        for part in batch
        for operator in part["operators"].values()
        if operator["operator"].startswith("Recurse") and operator["rows"]
    ]
    # At time 3 two paths come up in the first round and one more in the second; what would close a cycle is dropped.
    assert circulated == [[2], [1], [2, 1], [2]]


@pytest.mark.parametrize("sizes", [[4], [1, 1, 1, 1], [3, 1]])
@pytest.mark.parametrize("backwards", [False, True])
def test_new_input_may_come_in_any_order_and_before_the_loop_is_at_rest(sizes: list[int], backwards: bool):
    head, *rows = LINKS.strip().splitlines()
    links = hr.events("\n".join([head, *(reversed(rows) if backwards else rows)]), batches=sizes)
    query = paths(hr.events(SOURCES), links)
    assert lines(query.run()) == sorted(TIME_2 + TIME_3 + TIME_4)
    differential_reference(query.node, buckets=3)


def test_lifetimes_are_those_of_all_that_contributes():
    sources = hr.events("le | re | node | bit\n1 | 6 | 3 | 2")
    links = hr.events("le | re | src | dst | bit\n2 | 8 | 3 | 1 | 8\n3 | 10 | 1 | 2 | 4")
    found = [(r["le"], r["re"], r["node"], f"{r['bv']:04b}") for r in paths(sources, links).cht().to_pylist()]
    assert sorted(found) == [(1, 6, 3, "0010"), (2, 6, 1, "1010"), (3, 6, 2, "1110")]


def test_a_retraction_ripples_through_all_that_was_derived():
    """At time 5 the link from n3 to n1 is retracted, and with it what went that way."""
    links = LINKS + "    cti     | 5  |    |        |     |     |    \n    retract | 2  | ∞  | 5      | 3   | 1   | 8"
    run = paths(hr.events(SOURCES + "    cti | 5 | | | | "), hr.events(links, batches=[5, 1])).run()
    events = [r for r in run.events().to_pylist() if r["kind"] == "retract"]
    gone = {(r["le"], r["re_new"], r["origin"], r["node"]) for r in events}
    assert gone == {(2, 5, 3, 1), (3, 5, 3, 2), (3, 5, 2, 1)}


def test_a_link_that_never_was_takes_everything_with_it():
    links = LINKS + "    retract | 2  | ∞  | 2      | 3   | 1   | 8"
    found = paths(hr.events(SOURCES), hr.events(links, batches=[4, 1])).cht().to_pylist()
    assert sorted((r["origin"], r["node"]) for r in found) == [(2, 2), (2, 3), (2, 4), (3, 3), (3, 4)]


# --- section 6: what goes round in circles ---------------------------------------------------------------------------

CYCLE = """
    kind    | le | re | re_new | src | dst
    insert  | 1  | ∞  |        | 1   | 2
    insert  | 1  | ∞  |        | 2   | 3
    insert  | 1  | ∞  |        | 3   | 2
    retract | 1  | ∞  | 7      | 1   | 2
"""


def nodes(links: hr.Stream, **options: object) -> hr.Stream:
    seed = hr.events("le | re | node\n1 | ∞ | 1")
    step = lambda found: found.join(links, on={"node": "src"}).select(node=col("dst"))  # noqa: E731
    return hr.recurse(seed, step, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("sizes", [[4], [3, 1], [1, 1, 1, 1]])
def test_facts_on_a_cycle_do_not_hold_each_other_up(sizes: list[int]):
    """Historical divergence: an event and its retraction would chase each other round the cycle for ever."""
    run = nodes(hr.events(CYCLE, batches=sizes)).run()
    assert [(r["le"], r["re"], r["node"]) for r in run.cht().to_pylist()] == [(1, 7, 2), (1, 7, 3), (1, INFINITY, 1)]
    rounds = [op["rounds"] for b in run.statistics for part in b for op in part["operators"].values() if "rounds" in op]
    assert max(rounds) <= 3


@pytest.mark.slow
def test_without_distinct_a_cycle_is_stopped_and_told():
    with pytest.raises(Diverged, match="keeps giving something new") as caught:
        nodes(hr.events(CYCLE), distinct=False).cht()
    assert "Select node = dst" in str(caught.value)
    with pytest.raises(Diverged, match="not come to rest after 9 rounds") as caught:
        nodes(hr.events(CYCLE), distinct=False, max_rounds=9).cht()
    assert "1 → 1 → 1 → 1 → 1" in str(caught.value)


def test_a_body_that_counts_for_ever_is_stopped():
    seed = hr.events("le | re | n\n1 | 5 | 0")
    with pytest.raises(Diverged, match="after 30 rounds"):
        hr.recurse(seed, lambda found: found.select(n=col("n") + 1), max_rounds=30).cht()
    upto = hr.recurse(seed, lambda found: found.where(col("n") < 30).select(n=col("n") + 1), max_rounds=31)
    assert upto.cht().num_rows == 31


def test_the_history_of_a_loop_is_the_same_and_is_stopped_too():
    query = nodes(hr.events(CYCLE))
    assert history_diff(query.cht(), query.history(engine="duckdb").cht()) == ""
    with pytest.raises(Diverged, match="has not come to rest after 5 rounds"):
        nodes(hr.events(CYCLE), distinct=False, max_rounds=5).history(engine="duckdb").cht()
