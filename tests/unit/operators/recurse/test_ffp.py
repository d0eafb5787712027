"""Flying fixed-point, message by message: the paper's illustrations, and its promise under any order of events (9.2).

A loop is played here with queues: the union and the join of figure 1, each with an input from outside, and FFP behind
them. What an event derives is a matter of a table; which of several queues is served next is drawn.
"""

from __future__ import annotations

from typing import get_args

import pytest
from benchmarks.ffp_loop import RESULT, Flying, Placed, Work
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.operators.recurse.ffp import Definite, External, FlyingFixedPoint, Gate, LoopEvent, Message, Speculative
from headrace.plan.recurse import LoopProgress
from headrace.time import INFINITY, NEG_INFINITY

STRATEGIES = get_args(LoopProgress)


class Pass(Work):
    """What comes goes on."""

    def take(self, side: int, event: LoopEvent) -> list[Message]:  # noqa: ARG002 - all inputs alike
        return [event]


class Derive(Work):
    """An event says how much later than itself each of the events is that come of it, one after the other."""

    def take(self, side: int, event: LoopEvent) -> list[Message]:  # noqa: ARG002 - all inputs alike
        later, *others = event.payload or (0,)
        return [LoopEvent(event.time + later, (*others,))] if others else []


def ring(strategy: LoopProgress) -> Flying:
    """Figure 1: FFP → union with sources → join with links → FFP."""
    return Flying(
        [Placed("union", Pass(), (RESULT, "sources")), Placed("join", Derive(), ("union", "links"))], strategy
    )


# --- the paper's illustrations, with times that say "nothing before": the paper's are one less -----------------------


def test_hwm_lodges_at_the_join_until_links_have_come_so_far():
    """FFP speculates after (3, n3, n2, 1110); the links have promised 2, then (4, n3, n4) and the promise of 4 come."""
    ffp, join = FlyingFixedPoint("hwm", definite=3), Gate("hwm", sure=3)
    sent = ffp.take(LoopEvent(3, "n3 n2 1110"))
    assert sent.loop == [LoopEvent(3, "n3 n2 1110"), Speculative(4)]
    assert ffp.take(LoopEvent(3, "n2 n3 0110")).loop == [LoopEvent(3, "n2 n3 0110")], "one guess at a time"
    assert join.take(Speculative(4)) == []
    assert join.set_sure(5) == [Speculative(4)]
    assert ffp.take(LoopEvent(4, "n3 n4 0011")).loop == [LoopEvent(4, "n3 n4 0011")]
    home = ffp.take(Speculative(4))
    assert (home.out, home.loop) == ([], [Speculative(4)]), "not converged: once more"
    assert join.take(Speculative(4)) == [Speculative(4)], "this time it does not lodge"
    home = ffp.take(Speculative(4))
    assert home.out == [Definite(4)]
    assert home.loop == [Definite(4), Speculative(5)], "and it starts over again at the highest time"


def test_hwm_does_not_guess_what_it_has_promised():
    ffp = FlyingFixedPoint("hwm")
    assert ffp.begin().loop == []
    assert ffp.take(LoopEvent(5)).loop == [LoopEvent(5), Speculative(6)]
    assert ffp.take(Speculative(6)).loop == [Definite(6)]
    assert ffp.take(External(100)).loop == [], "it learns nothing from promises"


def test_probing_is_lowered_by_each_operator():
    """The nodes have promised 5, the links 2: the guess comes home as 2."""
    ffp, union, join = FlyingFixedPoint("probing"), Gate("probing", sure=6), Gate("probing", sure=3)
    assert ffp.begin().loop == [Speculative(INFINITY)]
    ffp.take(LoopEvent(3, "n2 n3 0110"))
    (lowered,) = union.take(Speculative(INFINITY))
    assert lowered == Speculative(6)
    (lowered,) = join.take(lowered)
    assert lowered == Speculative(3)
    home = ffp.take(lowered)
    assert home.out == [Definite(3)]
    assert home.loop == [Definite(3), Speculative(INFINITY)]
    again = ffp.take(Speculative(3))
    assert (again.out, again.loop) == ([], [Speculative(INFINITY)]), "no promise twice, but another guess"


def test_probing_promises_no_more_than_the_earliest_event_seen_meanwhile():
    ffp = FlyingFixedPoint("probing")
    ffp.begin()
    ffp.take(LoopEvent(7))
    ffp.take(LoopEvent(5))
    assert ffp.take(Speculative(9)).out == [Definite(5)]
    assert ffp.take(Speculative(9)).out == [Definite(9)]


def test_hybrid_guesses_only_when_there_is_something_to_learn():
    ffp = FlyingFixedPoint("hybrid", definite=2)
    assert ffp.begin().loop == []
    assert ffp.take(LoopEvent(3)).loop == [LoopEvent(3)]
    assert ffp.take(External(2)).loop == []
    assert ffp.take(External(4)).loop == [Speculative(INFINITY)]
    assert ffp.take(External(5)).loop == [], "one guess at a time"
    home = ffp.take(Speculative(4))
    assert (home.out, home.loop) == ([Definite(4)], [Definite(4), Speculative(INFINITY)])
    assert ffp.take(Speculative(5)).loop == [Definite(5)], "nothing more is known outside: the loop is quiet"


def test_hybrid_is_quiet_while_one_input_from_outside_says_nothing():
    ffp = FlyingFixedPoint("hybrid", origins=2)
    assert ffp.take(External(4, 0)).loop == []
    assert ffp.take(External(INFINITY, 0)).loop == []
    assert ffp.take(External(3, 1)).loop == [Speculative(INFINITY)]
    assert ffp.take(Speculative(3)).loop == [Definite(3)]


# --- the whole loop --------------------------------------------------------------------------------------------------


def promise(loop: Flying, time: int) -> None:
    loop.feed("sources", Definite(time))
    loop.feed("links", Definite(time))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_times_1_to_4(strategy: LoopProgress):
    """Each time step's input, then the promises of both inputs: what has left the loop is promised."""
    loop = ring(strategy)
    for time, lives in ((1, [0, 0]), (2, [0, 1]), (3, [0, 0, 0]), (4, [0, 0])):
        loop.feed("sources", LoopEvent(time, tuple(lives)))
        assert loop.rest()
        promise(loop, time + 1)
        assert loop.rest()
    assert loop.promises == sorted(set(loop.promises))
    assert loop.promises[-1] == 5
    assert len(list(loop.circulating())) == (1 if strategy == "probing" else 0)


def test_a_lull_stops_hwm_and_makes_probing_busy():
    """Promises without events: hwm learns nothing; probing keeps guessing; hybrid guesses a few times for each."""
    found = {}
    for strategy in STRATEGIES:
        loop = ring(strategy)
        for time in range(1, 6):
            promise(loop, time)
            loop.rest()
        found[strategy] = loop.promises[-1:], loop.guesses
    assert found["hwm"] == ([], 0)
    assert found["probing"][0] == found["hybrid"][0] == [5]
    assert found["hybrid"][1] <= 10 < found["probing"][1]


Moves = list[tuple[int, int, list[int]]]
moves: st.SearchStrategy[Moves] = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 3), st.lists(st.integers(0, 2), min_size=1, max_size=5)), max_size=60
)


@settings(max_examples=3 * settings().max_examples)
@given(st.sampled_from(STRATEGIES), moves)
def test_no_promise_is_broken_and_all_is_promised_in_the_end(strategy: LoopProgress, moves: Moves):
    """Events enter at any time that is not promised away, and derive others; queues are served in any order."""
    loop = ring(strategy)
    promised = {"sources": 0, "links": 0}
    highest = 0
    for kind, by, lives in moves:
        waiting = loop.waiting()
        if kind < 5 and waiting:
            loop.serve(waiting[kind % len(waiting)])
            assert sum(isinstance(message, Speculative) for message in loop.circulating()) <= 1
        elif kind == 5:
            for name, time in promised.items():
                loop.feed(name, LoopEvent(time + by, tuple(lives)))
                highest = max(highest, time + by)
        elif kind > 5:
            name = ("sources", "links")[kind - 6]
            promised[name] += by
            loop.feed(name, Definite(promised[name]))
    promise(loop, highest + 20)
    assert loop.rest()
    reached = NEG_INFINITY
    for message in loop.out:
        if isinstance(message, Definite):
            assert message.time > reached
            reached = message.time
        else:
            assert message.time >= reached
    if strategy == "hwm":
        assert reached == (loop.ffp.high + 1 if loop.ffp.high > NEG_INFINITY else NEG_INFINITY)
    else:
        assert reached == highest + 20
