"""Flying fixed-point: how progress is found on a loop that never stops for it (rule 9.2).

A loop that runs freely takes in new input while older changes still circulate. Ordinary CTIs cannot pass it: an
operator with an input from the loop waits for a promise that depends on its own. So the operator at the end of the
loop guesses. It sends a *speculative* punctuation round, at most one at a time, and watches the events that pass
meanwhile. Everything on the loop at the start of the guess is ahead of it. So when the guess returns, later events can
follow only from those seen since, or come from outside. No operator moves anything back in time. So no event can come
any more before both the guess and the earliest event seen: that time is *definite*.

An operator with an input from outside can lower or delay a guess, because the guess does not know what that input may
still bring: `Gate` is the part of such an operator that lets guesses pass.

- `hwm` guesses the highest time seen. A `Gate` that is not open up to that time keeps the guess until it is. If an
  event before the guess was seen meanwhile, the guess goes round once more; else it becomes definite.
- `probing` guesses that nothing more will come. A `Gate` lowers the guess to the time that is sure there, and lets it
  pass at once. The returned guess becomes definite, or the earliest event seen meanwhile if that is less; and the next
  guess starts.
- `hybrid` does the same, but only if it can raise the promise: *external progress* events report that the inputs from
  outside are further than the definite time. The least of these inputs decides, for no guess passes it. (The paper
  takes the latest event of any input. Then one silent input, while another continues, would keep useless guesses going
  round.)

These are automata over messages, independent of the transport: trips of a batch on every host (`trips.py`), queues
between operators in the paper's evaluation (`benchmarks/ffp_loop.py`). A punctuation at t means the same as a CTI:
nothing before t will come. (The paper's punctuation at t means: nothing at t or before. Its numbers are one chronon
less.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headrace.plan.recurse import LoopProgress
from headrace.time import CHRONON, INFINITY, NEG_INFINITY, add_one

__all__ = ["Definite", "External", "FlyingFixedPoint", "Gate", "LoopEvent", "Message", "Outgoing", "Speculative"]


@dataclass(frozen=True)
class LoopEvent:
    """Changes that go round together: the earliest instant they alter, the changes, and the latest instant if it
    differs.

    The instant that a change alters first is its sync time.
    """

    time: int
    payload: Any = None
    latest: int = NEG_INFINITY


@dataclass(frozen=True)
class Definite:
    """A promise: nothing from before this time will follow."""

    time: int


@dataclass(frozen=True)
class Speculative:
    """A guess at such a promise, which goes round the loop."""

    time: int


@dataclass(frozen=True)
class External:
    """The promise of the inputs from outside of one operator, by its number."""

    time: int
    origin: int = 0


Message: TypeAlias = LoopEvent | Definite | Speculative | External


@dataclass
class Outgoing:
    """The messages of an operator: out of the loop, and round it."""

    out: list[Message] = field(default_factory=list)
    loop: list[Message] = field(default_factory=list)

    def both(self, message: Message) -> None:
        self.out.append(message)
        self.loop.append(message)


@dataclass
class FlyingFixedPoint:
    """The operator through which everything on the loop passes, and through which progress leaves it."""

    strategy: LoopProgress = "hybrid"
    #: The number of operators on the loop with inputs from outside, and their reported promises.
    origins: int = 1
    external_times: dict[int, int] = field(default_factory=dict)
    #: The latest promise made, and the highest time seen.
    definite: int = NEG_INFINITY
    high: int = NEG_INFINITY
    #: The guess that goes round, and the earliest event seen since its start.
    guess: int | None = None
    earliest: int = INFINITY

    def begin(self) -> Outgoing:
        """The messages at the start."""
        outgoing = Outgoing()
        self._set_out(outgoing)
        return outgoing

    def take(self, message: Message) -> Outgoing:
        """Process one message of the loop; the messages to send."""
        outgoing = Outgoing()
        if isinstance(message, LoopEvent):
            self.high = max(self.high, message.time, message.latest)
            self.earliest = min(self.earliest, message.time)
            outgoing.both(message)
        elif isinstance(message, External):
            self.external_times[message.origin] = max(self.external(message.origin), message.time)
        elif isinstance(message, Speculative):
            self._home(message, outgoing)
        if self.guess is None:
            self._set_out(outgoing)
        return outgoing

    def end(self) -> Outgoing:
        """End the loop: nothing is on it, and nothing will come from outside."""
        outgoing = Outgoing()
        self.guess = None
        if self.definite < INFINITY:
            self.definite = INFINITY
            outgoing.both(Definite(INFINITY))
        return outgoing

    def external(self, origin: int) -> int:
        """The known promise of the inputs from outside of an operator."""
        return self.external_times.get(origin, NEG_INFINITY)

    def _home(self, back: Speculative, outgoing: Outgoing) -> None:
        """Process the returned guess."""
        if self.strategy == "hwm" and self.guess is not None and self.earliest < self.guess:
            # Not converged: the events seen may still cause others before the guess.
            outgoing.loop.append(Speculative(self.guess))
            self.earliest = INFINITY
            return
        self.guess = None
        proved = min(back.time, self.earliest)
        if proved > self.definite:
            self.definite = proved
            outgoing.both(Definite(proved))

    def _set_out(self, outgoing: Outgoing) -> None:
        """Send the next guess, if it can raise the promise."""
        guess, known = INFINITY, INFINITY
        if self.strategy == "hwm":
            guess = known = add_one(self.high, CHRONON)
        elif self.strategy == "hybrid":
            known = min(self.external(origin) for origin in range(self.origins))
        if known > self.definite:
            self.guess, self.earliest = guess, INFINITY
            outgoing.loop.append(Speculative(guess))


@dataclass
class Gate:
    """The part of an operator with inputs from outside that lets guesses pass."""

    strategy: LoopProgress = "hybrid"
    #: Nothing before this time will be added here.
    sure: int = NEG_INFINITY
    #: A guess that waits for `sure` to reach it.
    lodged: Speculative | None = None

    def take(self, guess: Speculative) -> list[Speculative]:
        """Process a guess of the loop; the guesses to send."""
        if self.strategy != "hwm":
            return [Speculative(min(guess.time, self.sure))]
        self.lodged = guess
        return self.set_sure(self.sure)

    def set_sure(self, sure: int) -> list[Speculative]:
        """Set the sure time; a guess that waited for it may pass."""
        self.sure = sure
        if self.lodged is None or self.lodged.time > sure:
            return []
        released, self.lodged = self.lodged, None
        return [released]
