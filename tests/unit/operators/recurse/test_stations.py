"""Operators on a loop are speculation-friendly: S1 to S3 of the paper, for each (rule 9.3)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.ffp_loop import Station, Work
from benchmarks.ffp_runs import Together
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operators.recurse.loops import FEW, edges

import headrace as hr
from headrace import col
from headrace.changes import Changes
from headrace.operators.recurse.ffp import Definite, External, LoopEvent, Message, Speculative
from headrace.operators.registry import kernel_of
from headrace.operators.span import LINEAR
from headrace.plan.base import Node
from headrace.plan.recurse import LoopInput, LoopProgress
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.time import INFINITY, NEG_INFINITY

SCHEMA = Schema.of("src LONG, dst LONG")
FOUND, LINKS = (hr.Stream(LoopInput(SCHEMA, name)) for name in ("result", "outside 1"))
NODES = {
    "where": FOUND.where(col("src") < 2),
    "select": FOUND.select(src=col("dst"), dst=col("src") + 1),
    "shift": FOUND.shift(3),
    "cap_duration": FOUND.cap_duration(4),
    "union": FOUND.union(LINKS),
    "join": FOUND.join(LINKS, on={"dst": "src"}),
    "join with itself": FOUND.join(FOUND, on={"dst": "src"}),
    "anti join": FOUND.anti_join(LINKS, on={"dst": "src"}),
    "distinct": FOUND.distinct(),
    "aggregate": FOUND.group_by("src").window(hr.snapshot()).aggregate(n=hr.count(), least=hr.min("dst")),
}
WORKS: dict[str, Callable[[], tuple[Work, tuple[bool, ...]]]] = {
    **{name: lambda stream=stream: _placed(stream) for name, stream in NODES.items()},  # type: ignore[misc]
    "together": lambda: (Together(), (True, False)),
}
each = pytest.mark.parametrize("name", WORKS)


def event_of(changes: Changes) -> LoopEvent:
    """Changes as a message that says which times they alter."""
    times = changes.sync_times()
    return LoopEvent(int(times.min()), changes, int(times.max()))


def posted(changes: Changes) -> list[Message]:
    changes = changes.consolidate()
    return [event_of(changes)] if len(changes) else []


class Linear(Work):
    """An operator without state."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def take(self, side: int, event: LoopEvent) -> list[Message]:  # noqa: ARG002 - all inputs alike
        return posted(LINEAR[type(self.node)](self.node, event.payload))

    def reached(self, promised: Sequence[int]) -> int:
        return self.node.progress([Progress(time, time) for time in promised]).cti


class Kernels(Work):
    """An operator with state. It is told no more promises than it was given, and shows all that it has seen."""

    def __init__(self, node: Node) -> None:
        self.node, self.kernel = node, kernel_of(node)
        self.promised = [NEG_INFINITY] * len(node.inputs)
        self.high = NEG_INFINITY

    def take(self, side: int, event: LoopEvent) -> list[Message]:
        changes: Changes = event.payload
        ends = changes.re[changes.re < INFINITY]
        # A result that waits for time to pass would wait for a promise: so time is as late as any end that is known.
        self.high = max(self.high, int(changes.le.max()), int(ends.max(initial=NEG_INFINITY)))
        return self._step({side: changes})

    def hear(self, promised: Sequence[int]) -> list[Message]:
        self.promised = list(promised)
        return self._step({})

    def reached(self, promised: Sequence[int]) -> int:
        return self.node.progress([Progress(time, time) for time in promised]).cti

    def _step(self, fed: dict[int, Changes]) -> list[Message]:
        inputs = [fed.get(side, Changes.empty(child.schema)) for side, child in enumerate(self.node.inputs)]
        changes, _ = self.kernel.step(inputs, [Progress(time, self.high) for time in self.promised])
        return posted(changes)


def sharp(stream: hr.Stream) -> list[tuple[Changes, int]]:
    """The changes of a stream, batch by batch, each with the most that can be promised after it."""
    found, least = [], INFINITY
    for changes, _ in reversed(stream.run().results["out"].batches):
        found.append((changes, least))
        least = min(least, int(changes.sync_times().min(initial=INFINITY)))
    return found[::-1]


def _placed(stream: hr.Stream) -> tuple[Work, tuple[bool, ...]]:
    node = stream.node
    work = Linear(node) if node.linear else Kernels(node)
    return work, tuple(child == FOUND.node for child in node.inputs)


class Driven:
    """A station, what it was given and what it gave."""

    def __init__(self, name: str, strategy: LoopProgress = "probing") -> None:
        work, on_loop = WORKS[name]()
        self.station = Station(work, on_loop, strategy)
        self.given: list[Message] = []

    def take(self, side: int, message: Message) -> list[Message]:
        given = self.station.take(side, message)
        self.given += given
        return given

    def loop(self, message: Message) -> list[Message]:
        """A message that comes round: on all inputs that read the loop."""
        return [m for side, mine in enumerate(self.station.on_loop) if mine for m in self.take(side, message)]

    def changes(self, side: int, changes: Changes) -> list[Message]:
        """Changes of an input, if there are any."""
        return self.take(side, event_of(changes)) if len(changes) else []

    @property
    def net(self) -> list[str]:
        """The changes it gave, summed up."""
        parts = [m.payload for m in self.given if isinstance(m, LoopEvent)]
        if not parts:
            return []
        return sorted(map(repr, Changes.concat(parts).consolidate().to_table().to_pylist()))


def feeds(name: str, streams: list[hr.Stream], choose: random.Random) -> list[tuple[int, Changes, int]]:
    """Batches of all inputs of a station in a drawn order: which input, changes, promise."""
    left = {side: sharp(streams[side]) for side in range(len(WORKS[name]()[1]))}
    order = []
    while left:
        side = choose.choice(list(left))
        order.append((side, *left[side].pop(0)))
        left = {s: b for s, b in left.items() if b}
    return order


drawn = st.lists(edges(8), min_size=2, max_size=2)
choices = st.randoms(use_true_random=False)


@each
@settings(max_examples=FEW)
@given(drawn, choices, st.sampled_from(get_args(LoopProgress)))
def test_s1_speculates_correctly(name: str, streams: list[hr.Stream], choose: random.Random, strategy: LoopProgress):
    """A guess that holds is answered by one that holds, that is not beyond it, and not before what was promised."""
    driven = Driven(name, strategy)
    on_loop = driven.station.on_loop
    later = 3 if name == "shift" else 0
    held = [NEG_INFINITY] * len(on_loop)  # what each input is known to hold, said or not
    asked: int | None = None
    answered = promised = NEG_INFINITY
    for side, changes, cti in feeds(name, streams, choose):
        given = driven.changes(side, changes)
        held[side] = max(held[side], cti)
        if not on_loop[side]:
            given += driven.take(side, Definite(cti))
        elif asked is None and choose.random() < 0.6:
            asked = min(h for h, mine in zip(held, on_loop, strict=True) if mine)
            given += driven.loop(Speculative(asked))
            assert strategy == "hwm" or any(isinstance(m, Speculative) for m in given), "it does not wait"
        for message in given:
            if isinstance(message, LoopEvent):
                assert message.time >= answered
            elif isinstance(message, Definite):
                promised = max(promised, message.time)
            elif isinstance(message, Speculative):
                assert asked is not None
                assert min(asked, promised) <= message.time <= min(INFINITY, asked + later)
                answered, asked = max(answered, message.time), None
    assert asked is None or not any(on_loop), "when all is promised, no guess is left waiting"


@each
@settings(max_examples=FEW)
@given(drawn, choices)
def test_s2_does_not_block_on_definite_punctuation(name: str, streams: list[hr.Stream], choose: random.Random):
    """With and without promises the events are the same, and they are given before any promise."""
    with_promises, without = Driven(name), Driven(name)
    for side, changes, cti in feeds(name, streams, choose):
        with_promises.changes(side, changes)
        without.changes(side, changes)
        assert with_promises.net == without.net
        if choose.random() < 0.7:
            with_promises.take(side, Definite(cti))
    assert with_promises.net == without.net
    assert any(isinstance(m, External) for m in with_promises.given) <= with_promises.station.meets


@each
@settings(max_examples=FEW)
@given(drawn, choices)
def test_s3_is_forward_moving(name: str, streams: list[hr.Stream], choose: random.Random):
    driven = Driven(name)
    for side, changes, cti in feeds(name, streams, choose):
        given = driven.changes(side, changes)
        assert all(m.time >= changes.sync_times().min() for m in given if isinstance(m, LoopEvent))
        driven.take(side, Definite(cti))


@pytest.mark.parametrize("name", ["union", "join", "together", "anti join"])
def test_where_the_loop_meets_a_stream_from_outside_progress_is_told_at_once(name: str):
    driven = Driven(name)
    assert External(5) in driven.take(1, Definite(5))
    assert driven.take(0, External(9, 3)) == [External(9, 3)], "others' go on as data"
    lodging = Driven(name, "hwm")
    lodging.take(1, Definite(5))
    assert lodging.loop(Speculative(7)) == []
    assert lodging.take(1, Definite(6)) == [External(6)]
    assert Speculative(7) in lodging.take(1, Definite(8))


def test_a_guess_that_comes_on_several_ways_waits_for_the_last():
    """What is ahead of it on one of them may still give something from before it."""
    driven = Driven("join with itself")
    fact = Changes.inserts(np.array([3]), np.array([9]), pa.table({"src": [1], "dst": [1]}))
    driven.changes(0, fact)
    assert driven.take(0, Speculative(5)) == []
    (pair,) = driven.changes(1, fact)
    assert isinstance(pair, LoopEvent)
    assert pair.time == 3
    assert driven.take(1, Speculative(5)) == [Speculative(5)]
