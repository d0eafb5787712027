"""Loops that run freely: random graphs in any order equal the drained loop, and no promise is broken (9.2 and 9.3)."""

from __future__ import annotations

import random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.recurse.loops import FEW, HALF, edges, seeds
from tests.unit.recurse.test_paper import CYCLE, LINKS, SOURCES, TIME_2, TIME_3, TIME_4, nodes, paths

import headrace as hr
from headrace import col
from headrace.changes import Changes
from headrace.events import history, history_diff
from headrace.operators.recurse.ffp import Event, Speculative
from headrace.operators.recurse.flying import RESULT, Flying, Placed
from headrace.operators.recurse.works import FlyingLoop, Kernels, Linear, Together, Waves, event_of
from headrace.operators.registry import kernel_of
from headrace.plan.nodes import Coalesce, Join, Select, walk
from headrace.plan.recurse import LoopProgress, Recurse
from headrace.time import INFINITY, NEG_INFINITY

STRATEGIES = get_args(LoopProgress)
choices = st.randoms(use_true_random=False)
strategies = st.sampled_from(STRATEGIES)


def loop_in(query: hr.Stream) -> Recurse:
    return next(node for node in walk(query.node) if isinstance(node, Recurse))


def sharp(stream: hr.Stream) -> list[tuple[Changes, int]]:
    """The changes of a stream, batch by batch, each with the most that can be promised after it."""
    found, least = [], INFINITY
    for changes, _ in reversed(stream.run().results["out"].batches):
        found.append((changes, least))
        least = min(least, int(changes.sync_times().min(initial=INFINITY)))
    return found[::-1]


def inputs_of(loop: Recurse) -> list[list[tuple[Changes, int]]]:
    """For every input of a loop: its changes and promises."""
    return [sharp(hr.Stream(node)) for node in loop.inputs]


def fly(loop: Recurse, choose: random.Random) -> FlyingLoop:
    """Feed the inputs and serve queues in a drawn order, then let the loop come to rest."""
    flying = FlyingLoop(loop, kernel_of)
    left = {number: batches for number, batches in enumerate(inputs_of(loop)) if batches}
    while left:
        waiting = flying.flying.waiting()
        if waiting and choose.random() < 0.7:
            flying.flying.serve(choose.choice(waiting))
            continue
        number = choose.choice(list(left))
        changes, cti = left[number].pop(0)
        left = {n: batches for n, batches in left.items() if batches}
        flying.feed(number, changes)
        flying.promise(number, cti)
    assert flying.flying.rest(20_000)
    return flying


def check(query: hr.Stream, strategy: LoopProgress, choose: random.Random) -> None:
    """What has left the loop is what the drained loop gives, and kept all promises; in the end all is promised."""
    flying = fly(loop_in(query), choose)
    promised, parts = NEG_INFINITY, [Changes.empty(query.schema)]
    for changes, definite in flying.given():
        assert not len(changes) or changes.sync_times().min() >= promised
        assert definite >= promised
        promised = definite
        parts.append(changes)
    assert history_diff(history(Changes.concat(parts)), query.cht()) == ""
    high = flying.flying.ffp.high
    assert promised > high or high == NEG_INFINITY if strategy == "hwm" else promised == INFINITY
    assert all(isinstance(message, Speculative) for message in flying.flying.circulating())
    assert strategy == "hwm" or sum(flying.flying.rows().values()) == 0, "all is promised, nothing is remembered"


@settings(max_examples=HALF)
@given(seeds(), edges(), strategies, choices)
def test_differential_reachability(seed: hr.Stream, links: hr.Stream, strategy: LoopProgress, choose: random.Random):
    step = lambda found: found.join(links, on={"node": "src"}).select(node=col("dst"))  # noqa: E731
    check(hr.recurse(seed, step, progress=strategy), strategy, choose)


@settings(max_examples=FEW)
@given(edges(9), edges(5), strategies, choices)
def test_differential_the_result_read_several_times(
    links: hr.Stream, more: hr.Stream, strategy: LoopProgress, choose: random.Random
):
    """A guess goes round on several ways, and operators wait until it has come on all of them."""

    def body(found: hr.Stream) -> hr.Stream:
        twice = found.join(found, on={"dst": "src"}).select("src", dst=col("dst_right"))
        back = found.where(col("src") != col("dst")).select(src=col("dst"), dst=col("src"))
        return twice.union(back, more.where(col("src") < 2))

    check(hr.recurse(links, body, progress=strategy), strategy, choose)


@settings(max_examples=HALF)
@given(edges(8), edges(8), st.integers(0, 2), strategies, choices)
def test_differential_all_derivations(
    links: hr.Stream, start: hr.Stream, by: int, strategy: LoopProgress, choose: random.Random
):
    """Without `distinct`, on graphs without cycles; a chain makes sure that much is derived. Some of it comes later."""
    chain = hr.events("le | re | src | dst\n0 | ∞ | -1 | 0\n0 | ∞ | 0 | 1\n0 | ∞ | 1 | 2\n0 | ∞ | 2 | 7\n0 | ∞ | 7 | 8")
    forward = links.where(col("src") < col("dst")).union(chain)

    def longer(found: hr.Stream) -> hr.Stream:
        return found.join(forward, on={"dst": "src"}).select("src", dst=col("dst_right")).shift(by).cap_duration(6)

    check(hr.recurse(start, longer, distinct=False, progress=strategy), strategy, choose)


# --- the paper's walk-through ----------------------------------------------------------------------------------------


def walk_through(strategy: LoopProgress) -> tuple[FlyingLoop, list[Changes]]:
    """Figure 1 with the sources of figure 2, which promise time 5; and the links of figure 2, one by one."""
    query = paths(hr.events(SOURCES), hr.events(LINKS, batches=[1, 1, 1, 1]))
    loop = next(n for n in walk(query.node) if isinstance(n, Recurse))
    loop = hr.recurse(hr.Stream(loop.seed), lambda found: _further(found, loop), distinct=False, progress=strategy).node  # type: ignore[assignment]
    flying = FlyingLoop(loop, kernel_of)
    sources, links = inputs_of(loop)
    flying.feed(0, sources[0][0])
    flying.promise(0, 6)
    return flying, [changes for changes, _ in links if len(changes)]


def _further(found: hr.Stream, loop: Recurse) -> hr.Stream:
    links = hr.Stream(loop.outside[0])
    step = found.join(links, on={"node": "src"}).where(col("bv").bit_and(col("bit")) == 0)
    return step.select("origin", node=col("dst"), bv=col("bv").bit_or(col("bit")))


def lines(flying: FlyingLoop) -> list[tuple[int, int, int, str]]:
    """The paths with a link that have left the loop since the last look."""
    rows = [row for changes, _ in flying.given() for row in changes.to_table().to_pylist()]
    return sorted((r["__le"], r["origin"], r["node"], f"{r['bv']:04b}") for r in rows if r["origin"] != r["node"])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_times_1_to_4(strategy: LoopProgress):
    flying, links = walk_through(strategy)
    for expected, fresh in (([], []), (TIME_2, links[:1]), (TIME_3, links[1:3]), (TIME_4, links[3:])):
        for changes in fresh:
            flying.feed(1, changes)
        assert flying.flying.rest()
        assert lines(flying) == sorted(expected)
    flying.promise(1, 5)
    assert flying.flying.rest()
    assert flying.flying.promises[-1] == 5


def test_the_papers_story_of_hwm():
    """Section 3.5, with promises that say "nothing before": the paper's are one less."""
    flying, links = walk_through("hwm")
    join = next(station for station in flying.flying.stations.values() if isinstance(station.work, Kernels))
    flying.feed(1, links[0])
    flying.promise(1, 3)
    assert flying.flying.rest()
    assert flying.flying.promises == [2, 3]
    flying.feed(1, links[1])
    flying.feed(1, links[2])
    assert flying.flying.rest()
    assert lines(flying) == sorted(TIME_2 + TIME_3), "events go on while the guess is lodged"
    assert join.gate.lodged == Speculative(4)
    assert flying.flying.ffp.earliest == 3, "not converged"
    sent = flying.flying.guesses
    flying.feed(1, links[3])
    flying.promise(1, 5)
    assert flying.flying.rest()
    assert flying.flying.promises == [2, 3, 4, 5]
    assert flying.flying.guesses == sent + 2, "the one at 3 once more, then one at 4"


def test_the_papers_story_of_probing():
    flying, links = walk_through("probing")
    flying.feed(1, links[0])
    assert flying.flying.rest()
    assert flying.flying.promises == [], "nothing is known of the links"
    flying.promise(1, 3)
    flying.feed(1, links[1])
    flying.feed(1, links[2])
    assert flying.flying.rest()
    assert flying.flying.promises == [3], "the links' promise, and only once however often it is found"
    assert flying.flying.guesses > 2


# --- section 6: historical divergence --------------------------------------------------------------------------------


def test_an_event_and_its_retraction_do_not_chase_each_other():
    """A link and its retraction enter one right behind the other, at a cycle."""
    loop = loop_in(nodes(hr.events(CYCLE, batches=[1, 1, 1, 1])))
    seed, links = inputs_of(loop)
    link, *cycle, retraction = [changes for changes, _ in links[:4]]

    def enter(flying: Flying, names: tuple[str, ...]) -> None:
        flying.feed(names[0], event_of(seed[0][0]))
        for changes in cycle:
            flying.feed(names[1], event_of(changes))
        assert flying.rest()
        for changes in (link, retraction):
            flying.feed(names[1], event_of(changes))

    by_level = FlyingLoop(loop, kernel_of)
    enter(by_level.flying, by_level.names)
    assert by_level.flying.rest(200)
    found = history(Changes.concat([changes for changes, _ in by_level.given()])).to_pylist()
    assert sorted((r["node"], r["le"], r["re"]) for r in found) == [(1, 1, INFINITY), (2, 1, 7), (3, 1, 7)]

    join, select = (next(n for n in walk(loop.body) if isinstance(n, kind)) for kind in (Join, Select))
    naive = Flying(
        [
            Placed("join", Kernels(join, kernel_of), (RESULT, "links")),
            Placed("select", Linear(select), ("join",)),
            Placed("union", Together(), ("select", "seed")),
            Placed("distinct", Kernels(Coalesce(loop.seed), kernel_of), ("union",)),
        ]
    )
    enter(naive, ("seed", "links"))
    assert not naive.rest(2000), "an operator that only counts lets them go round for ever"
    assert any(isinstance(message, Event) for message in naive.circulating())


def test_waves_wait_for_nobody_outside():
    """While a wave is on its way, links that come later go into the join at once."""
    loop = loop_in(nodes(hr.events(CYCLE, batches=[2, 1, 1])))
    flying = FlyingLoop(loop, kernel_of)
    (seed, *_), links = inputs_of(loop)
    flying.feed(1, links[0][0])
    flying.feed(0, seed[0])
    waves = next(s.work for s in flying.flying.stations.values() if isinstance(s.work, Waves))
    while not waves.away:
        flying.flying.serve(flying.flying.waiting()[0])
    join = next(s.work for s in flying.flying.stations.values() if isinstance(s.work, Kernels))
    before = join.rows
    flying.feed(1, links[1][0])
    flying.flying.serve(next(e for e in flying.flying.waiting() if flying.flying.stations.get(e.to) and e.side == 1))
    assert waves.away
    assert join.rows > before
