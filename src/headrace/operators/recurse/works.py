"""The operators of a query's loop, for a loop that runs freely: kernels that take a message at a time, and `distinct`.

Every message is a batch of changes of one input; the others get nothing. A change and the change that it takes back
travel in one message, so that the earliest instant they alter together is known.

`Waves` is `distinct`. Facts have levels, and these have to be worked off upwards (see `levels.py`), or an event and its
retraction would chase each other round a cycle for ever. So derivations that come in are worked off in *waves*. Within
a wave, the turn of a round comes when all that came of the rounds before is back: a mark follows what was given, round
the loop, and says so. Derivations that come from outside meanwhile belong to this wave if the turn of their round is
still to come, and wait for the next wave if not. The rest of the loop does not wait.

A wave comes to its end. Each payload comes and goes at most once in it at an instant: it comes at a round only if no
lower one has it. And when nothing comes from outside any more, no wave follows the last: then every level is what the
derivations say, and the derivations are what the body gives for the levels, which is the fixed point.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.changes import Changes
from headrace.columnar import to_numpy
from headrace.operators.coalesce import CoalesceKernel
from headrace.operators.recurse.body import KernelOf
from headrace.operators.recurse.ffp import Definite, Event, Message
from headrace.operators.recurse.flying import RESULT, Flying, Placed, Posted, Turn, Work
from headrace.operators.recurse.levels import Levels, Turns
from headrace.operators.recurse.rounds import with_rounds
from headrace.operators.span import LINEAR
from headrace.plan.nodes import Coalesce, Node, walk
from headrace.plan.recurse import LoopInput, Recurse
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["FlyingLoop", "Kernels", "Linear", "Together", "Waves", "event_of"]

SEED = "seed"
_END = "end"


def event_of(changes: Changes) -> Event:
    """Changes as a message that says which times they alter."""
    times = changes.sync_times()
    return Event(int(times.min()), changes, int(times.max()))


def _posted(changes: Changes) -> list[Posted]:
    changes = changes.consolidate()
    return [event_of(changes)] if len(changes) else []


class Linear(Work):
    """An operator without state."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def take(self, side: int, event: Event) -> list[Posted]:  # noqa: ARG002 - all inputs alike
        return _posted(LINEAR[type(self.node)](self.node, event.payload))

    def reached(self, promised: Sequence[int]) -> int:
        return self.node.progress([Progress(time, time) for time in promised]).cti


class Together(Work):
    """What several inputs give, as it is."""

    def take(self, side: int, event: Event) -> list[Posted]:  # noqa: ARG002 - all inputs alike
        return [event]


class Kernels(Work):
    """An operator with state. It is told no more promises than it was given, and shows all that it has seen."""

    def __init__(self, node: Node, kernel_of: KernelOf) -> None:
        self.node, self.kernel = node, kernel_of(node)
        self.promised = [NEG_INFINITY] * len(node.inputs)
        self.high = NEG_INFINITY

    def take(self, side: int, event: Event) -> list[Posted]:
        changes: Changes = event.payload
        ends = changes.re[changes.re < INFINITY]
        # A result that waits for time to pass would wait for a promise: so time is as late as any end that is known.
        self.high = max(self.high, int(changes.le.max()), int(ends.max(initial=NEG_INFINITY)))
        return self._step({side: changes})

    def hear(self, promised: Sequence[int]) -> list[Posted]:
        self.promised = list(promised)
        return self._step({})

    def reached(self, promised: Sequence[int]) -> int:
        return self.node.progress([Progress(time, time) for time in promised]).cti

    def _step(self, fed: dict[int, Changes]) -> list[Posted]:
        inputs = [fed.get(side, Changes.empty(child.schema)) for side, child in enumerate(self.node.inputs)]
        changes, _ = self.kernel.step(inputs, [Progress(time, self.high) for time in self.promised])
        return _posted(changes)

    @property
    def rows(self) -> int:
        return sum(trace.rows for trace in self.kernel.traces.values())


class Waves(Work):
    """`distinct`: derivations with their rounds from the loop, and the seed, give the changes of facts by level."""

    def __init__(self, schema: Schema, round_column: str) -> None:
        self.levels = Levels(schema, round_column)
        self.turns: Turns | None = None
        #: The turn that was had last, the earliest time of the wave, and what waits for the next: rounds and changes.
        self.round, self.since = -1, INFINITY
        self.later: list[tuple[int, Changes]] = []
        #: Whether a mark is on its way.
        self.away = False
        self.promise = NEG_INFINITY

    def take(self, side: int, event: Event) -> list[Posted]:
        changes: Changes = event.payload
        self.later += [(0, changes)] if side else _by_round(changes)
        self._admit()
        return [] if self.away else self._go_on()

    def turn(self) -> list[Posted]:
        self.away = False
        return self._go_on()

    def hear(self, promised: Sequence[int]) -> list[Posted]:
        self.promise = min(promised)
        if self.turns is None:
            self.levels.settle(self.promise)
        return []

    @property
    def held(self) -> int:
        waiting = (int(changes.sync_times().min()) for _, changes in self.later)
        return min((self.since, *waiting))

    @property
    def rows(self) -> int:
        return sum(trace.rows for trace in self.levels.traces.values())

    def _admit(self) -> None:
        """What comes in time for its turn is part of the wave."""
        if self.turns is None:
            self.turns, self.round, self.since = Turns(self.levels), -1, INFINITY
        for rounds, changes in self.later:
            if rounds > self.round:
                self.turns.add(changes, rounds)
                self.since = min(self.since, int(changes.sync_times().min()))
        self.later = [(rounds, changes) for rounds, changes in self.later if rounds <= self.round]

    def _go_on(self) -> list[Posted]:
        """Take turns until one gives something, or there is nothing left to do."""
        while self.turns is not None:
            rounds = self.turns.next()
            if rounds is None:
                self._end()
                continue
            self.round = rounds
            changes = self.turns.take(rounds)
            if len(changes):
                self.away = True
                return [*_posted(self.levels.stamped(changes, rounds)), Turn()]
        return []

    def _end(self) -> None:
        """The wave is over; what has waited is the next."""
        if self.turns is not None:
            self.turns.finish()
        self.turns, self.since = None, INFINITY
        self.levels.settle(self.promise)
        if self.later:
            self._admit()


def _by_round(changes: Changes) -> list[tuple[int, Changes]]:
    """Derivations by the round they count in: the one after that of the facts they rest on."""
    rounds = to_numpy(changes.payload.column(0)) + 1
    bare = changes.with_payload(changes.payload.remove_column(0))
    return [(number, bare.filter(rounds == number)) for number in np.unique(rounds).tolist()]


class FlyingLoop:
    """A `Recurse` that runs freely. Changes and promises of its inputs go in, changes of its result come out."""

    def __init__(self, node: Recurse, kernel_of: KernelOf) -> None:
        self.node = node
        body, result, column = (node.body, node.ports[0], "")
        if node.distinct:
            body, result, column = with_rounds(node.body, node.ports[0])
        #: The names under which the inputs are read, the seed first.
        self.names = (SEED, *(port.fingerprint for port in node.ports[1:]))
        placed = [_placed(each, result, kernel_of) for each in walk(body) if not isinstance(each, LoopInput)]
        last: Work = Waves(node.schema, column) if node.distinct else Together()
        inputs = (RESULT if body.fingerprint == result.fingerprint else body.fingerprint, SEED)
        self.flying = Flying([*placed, Placed(_END, last, inputs)], node.strategy)
        self.united = CoalesceKernel(Coalesce(node.seed)) if node.distinct else None
        self.definite = NEG_INFINITY
        self._taken = 0

    def feed(self, number: int, changes: Changes) -> None:
        """Changes of an input."""
        if len(changes := changes.consolidate()):
            self.flying.feed(self.names[number], event_of(changes))

    def promise(self, number: int, cti: int) -> None:
        """A promise of an input."""
        self.flying.feed(self.names[number], Definite(cti))

    def given(self) -> list[tuple[Changes, int]]:
        """What has left the loop since this was last asked: changes, and what is promised after them."""
        fresh = self.flying.out[self._taken :]
        self._taken = len(self.flying.out)
        return [(self._result(message), self.definite) for message in fresh]

    def _result(self, message: Message) -> Changes:
        changes = Changes.empty(self.node.schema)
        if isinstance(message, Event):
            changes = message.payload
        elif isinstance(message, Definite):
            self.definite = message.time
        if self.united is None:
            return changes
        if isinstance(message, Event):
            changes = changes.with_payload(changes.payload.remove_column(0))
        return self.united.step([changes], [Progress(self.definite, self.definite)])[0]


def _placed(node: Node, result: LoopInput, kernel_of: KernelOf) -> Placed:
    work = Linear(node) if node.linear else Kernels(node, kernel_of)
    inputs = (RESULT if child.fingerprint == result.fingerprint else child.fingerprint for child in node.inputs)
    return Placed(node.fingerprint, work, tuple(inputs))
