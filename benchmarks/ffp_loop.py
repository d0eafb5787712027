"""A loop that runs freely, as the paper has it: operators connected by queues, and FFP where the loop closes.

FFP and the gates that guesses pass are those that run on every host (`operators/recurse/ffp.py`). There a guess rides
along with a trip and all operators take their turns; here, messages are handled one by one, on a clock.

Messages wait in a queue for each input of each operator, first in, first out, and any queue may be served next. New
input enters while older changes circulate. Whatever is served when, the changes that leave the loop add up to the
same; only how soon progress is known depends on it.

A `Station` is an operator on the loop. What it computes is its `Work`; what it does with punctuations is the same for
all, and makes them speculation-friendly:

- A guess passes a `Gate`, which knows what outer inputs have promised. Then it is answered as if
  it were a promise: the operator's own rule for CTIs says what it would promise itself.
- An operator that reads the loop several times waits until the guess has come on every way, since what is ahead of it
  on one may still give something. Then all that was ahead has been seen.
- Events are computed on as soon as they come. Promises only make state smaller.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.operators.recurse.ffp import Definite, External, FlyingFixedPoint, Gate, LoopEvent, Message, Speculative
from headrace.plan.recurse import LoopProgress
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["RESULT", "Flying", "Placed", "Station", "Work"]

#: The input that the loop itself feeds.
RESULT = "result"


class Work(ABC):
    """What an operator computes."""

    @abstractmethod
    def take(self, side: int, event: LoopEvent) -> list[Message]:
        """What comes of an event of an input."""

    def hear(self, promised: Sequence[int]) -> list[Message]:  # noqa: ARG002 - most give nothing for it
        """The promises of all inputs: state may go."""
        return []

    def reached(self, promised: Sequence[int]) -> int:
        """What may be promised if the inputs promise this."""
        return min(promised)

    @property
    def rows(self) -> int:
        """How much is remembered."""
        return 0


@dataclass
class Station:
    """An operator with its inputs, some of which come from the loop."""

    work: Work
    on_loop: tuple[bool, ...]
    strategy: LoopProgress = "hybrid"
    number: int = 0
    #: What each input has promised, and what has been promised because of it.
    promised: list[int] = field(init=False)
    given: int = NEG_INFINITY
    gate: Gate = field(init=False)
    #: The guess as it has come, by input.
    _waiting: dict[int, Speculative] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.promised = [NEG_INFINITY] * len(self.on_loop)
        self.gate = Gate(self.strategy, self._outer())

    @property
    def meets(self) -> bool:
        """Whether the loop meets an input from outside here."""
        return any(self.on_loop) and not all(self.on_loop)

    def take(self, side: int, message: Message) -> list[Message]:
        """One message of an input: what goes on."""
        if isinstance(message, LoopEvent):
            given = self.work.take(side, message)
        elif isinstance(message, Definite):
            given = self._promise(side, message)
        elif isinstance(message, External):
            given = [message]
        else:
            given = self._guess(side, message)
        return given + [self._answered(guess) for guess in self.gate.set_sure(self._outer())]

    def _promise(self, side: int, promise: Definite) -> list[Message]:
        before = self._outer()
        self.promised[side] = max(self.promised[side], promise.time)
        given = self.work.hear(self.promised)
        if self.meets and self._outer() > before:
            given.append(External(self._outer(), self.number))
        reached = self.work.reached(self.promised)
        if reached > self.given:
            self.given = reached
            given.append(Definite(reached))
        return given

    def _guess(self, side: int, guess: Speculative) -> list[Message]:
        self._waiting[side] = guess
        if len(self._waiting) < sum(self.on_loop):
            return []
        least = min(guess.time for guess in self._waiting.values())
        self._waiting = {}
        self.gate.sure = self._outer()
        return [self._answered(guess) for guess in self.gate.take(Speculative(least))]

    def _answered(self, guess: Speculative) -> Message:
        """What the operator would promise if the guess were a promise."""
        return Speculative(self.work.reached([guess.time] * len(self.on_loop)))

    def _outer(self) -> int:
        outer = [p for p, is_inner in zip(self.promised, self.on_loop, strict=True) if not is_inner]
        return min(outer, default=INFINITY)


@dataclass(frozen=True)
class Placed:
    """An operator of a loop by name, and the names of what it reads: others, `RESULT`, or streams from outside."""

    name: str
    work: Work
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Edge:
    """Where messages wait: an input of an operator, or (without a name) FFP."""

    to: str
    side: int


class Flying:
    """A loop of operators, each after those it reads; the last one gives what FFP sees."""

    def __init__(self, operators: Sequence[Placed], strategy: LoopProgress = "hybrid") -> None:
        loop = {RESULT}
        self.stations: dict[str, Station] = {}
        self.edges: dict[str, list[Edge]] = {operators[-1].name: [Edge("", 0)]}
        for placed in operators:
            on_loop = tuple(name in loop for name in placed.inputs)
            loop |= {placed.name} if any(on_loop) else set()
            station = Station(placed.work, on_loop, strategy)
            self.stations[placed.name] = station
            for side, name in enumerate(placed.inputs):
                self.edges.setdefault(name, []).append(Edge(placed.name, side))
        meeting = [station for station in self.stations.values() if station.meets]
        for number, station in enumerate(meeting):
            station.number = number
        self.ffp = FlyingFixedPoint(strategy, origins=len(meeting))
        self.queues: dict[Edge, deque[tuple[int, Message]]] = {
            edge: deque() for edges in self.edges.values() for edge in edges
        }
        #: What has left the loop, and how many guesses have set out.
        self.out: list[Message] = []
        self.guesses = self._sent = 0
        self._round(self.ffp.begin().loop)

    # --- messages ----------------------------------------------------------------------------------------------------

    def feed(self, name: str, message: LoopEvent | Definite) -> None:
        """An event or a promise of a stream from outside."""
        self._post(name, [message])

    def waiting(self) -> list[Edge]:
        """The queues that have something."""
        return [edge for edge, queue in self.queues.items() if queue]

    def oldest(self) -> Edge | None:
        """The queue whose next message has waited longest."""
        return min(self.waiting(), key=lambda edge: self.queues[edge][0][0], default=None)

    def serve(self, edge: Edge) -> Message:
        """Hand over the oldest message of a queue."""
        _, message = self.queues[edge].popleft()
        if edge.to:
            self._post(edge.to, self.stations[edge.to].take(edge.side, message))
        else:
            given = self.ffp.take(message)
            self.out += given.out
            self._round(given.loop)
        return message

    def rest(self, most: int = 1_000_000) -> bool:
        """Serve the oldest messages until only useless guesses move; whether that state is reached.

        Two guesses that come home in a row without news have learnt what there was.
        """
        idle = 0
        for _ in range(most):
            edge = self.oldest()
            if edge is None or idle == 2 * len(self.queues) + 2:
                return True
            before = self.ffp.definite
            message = self.serve(edge)
            idle = idle + 1 if isinstance(message, Speculative) and self.ffp.definite == before else 0
        return False

    def _round(self, messages: Sequence[Message]) -> None:
        self.guesses += sum(isinstance(message, Speculative) for message in messages)
        self._post(RESULT, messages)

    def _post(self, name: str, messages: Sequence[Message]) -> None:
        for message in messages:
            for edge in self.edges.get(name, ()):
                self._sent += 1
                self.queues[edge].append((self._sent, message))

    # --- what is there -----------------------------------------------------------------------------------------------

    @property
    def promises(self) -> list[int]:
        """The promises that have left the loop."""
        return [message.time for message in self.out if isinstance(message, Definite)]

    def rows(self) -> Mapping[str, int]:
        """How much each operator remembers."""
        return {name: station.work.rows for name, station in self.stations.items()}

    def circulating(self) -> Iterator[Message]:
        """All that waits in queues."""
        return (message for queue in self.queues.values() for _, message in queue)
