"""Flying fixed-point: how progress is found on a loop that never stops for it (rule 9.2).

A loop that runs freely takes in new input while older changes still go round. Ordinary CTIs cannot pass it: an
operator with an input from the loop waits for a promise that depends on its own. So the operator at the end of the
loop guesses. It sends a *speculative* punctuation round, at most one at a time, and watches what comes past
meanwhile. Everything that was on the loop when the guess set out is ahead of it, so when the guess is back, whatever
may still come round follows from what was seen since, or from outside. No operator moves anything back in time. So
nothing can come any more from before the guess and from before the earliest event that was seen: that much is
*definite*.

Whoever reads an input from outside has a say in it, because the guess knows nothing of what that input may still bring:
`Gate` is the part of such an operator that lets guesses pass.

- `hwm` guesses the highest time seen. A `Gate` that is not open so far keeps the guess until it is. If an event from
  before the guess was seen meanwhile, the guess goes round once more; else it becomes definite.
- `probing` guesses that there is nothing more at all. A `Gate` lowers the guess to what is sure there, and lets it go
  on at once. What comes home becomes definite, or the earliest event seen meanwhile if that is less; and the next
  guess sets out.
- `hybrid` does the same, but only if there is something to learn: *external progress* events have told that the
  inputs from outside have come further than what is definite. The one that has come least far decides, for no guess
  gets past it. (The paper looks at the latest event, whoever sent it. Then one input that is silent, while another goes
  on, would keep guesses going round that teach nothing.)

These are automata over messages and know nothing of what carries them: trips of a batch on every host (`trips.py`),
queues between operators in the paper's evaluation (`benchmarks/ffp_loop.py`). A time t of a punctuation says what a CTI
says: nothing before t will come. (The paper's punctuation at t says: nothing at t or before. Its numbers are one
chronon less.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headrace.plan.recurse import LoopProgress
from headrace.time import CHRONON, INFINITY, NEG_INFINITY, add_one

__all__ = ["Definite", "External", "FlyingFixedPoint", "Gate", "Given", "LoopEvent", "Message", "Speculative"]


@dataclass(frozen=True)
class LoopEvent:
    """Changes that go round together: the earliest instant they alter, what they are, and the latest if it is another.

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
    """A guess at such a promise, on its way round."""

    time: int


@dataclass(frozen=True)
class External:
    """The inputs from outside of one operator, which goes by a number, have promised this much."""

    time: int
    origin: int = 0


Message: TypeAlias = LoopEvent | Definite | Speculative | External


@dataclass
class Given:
    """What an operator sends: out of the loop, and round it."""

    out: list[Message] = field(default_factory=list)
    loop: list[Message] = field(default_factory=list)

    def both(self, message: Message) -> None:
        self.out.append(message)
        self.loop.append(message)


@dataclass
class FlyingFixedPoint:
    """The operator through which everything on the loop passes, and through which progress leaves it."""

    strategy: LoopProgress = "hybrid"
    #: How many operators on the loop have inputs from outside, and how far each has told to be.
    origins: int = 1
    told: dict[int, int] = field(default_factory=dict)
    #: The latest promise made, and the highest time seen.
    definite: int = NEG_INFINITY
    high: int = NEG_INFINITY
    #: The guess that is on its way, and the earliest event seen since it set out.
    guess: int | None = None
    earliest: int = INFINITY

    def begin(self) -> Given:
        """What is sent before anything has come."""
        given = Given()
        self._set_out(given)
        return given

    def take(self, message: Message) -> Given:
        """One message that came round: what leaves the loop, and what goes round again."""
        given = Given()
        if isinstance(message, LoopEvent):
            self.high = max(self.high, message.time, message.latest)
            self.earliest = min(self.earliest, message.time)
            given.both(message)
        elif isinstance(message, External):
            self.told[message.origin] = max(self.external(message.origin), message.time)
        elif isinstance(message, Speculative):
            self._home(message, given)
        if self.guess is None:
            self._set_out(given)
        return given

    def end(self) -> Given:
        """Nothing is on the loop, and nothing will come from outside: there is nothing left to guess."""
        given = Given()
        self.guess = None
        if self.definite < INFINITY:
            self.definite = INFINITY
            given.both(Definite(INFINITY))
        return given

    def external(self, origin: int) -> int:
        """How far the inputs from outside of an operator are known to be."""
        return self.told.get(origin, NEG_INFINITY)

    def _home(self, back: Speculative, given: Given) -> None:
        """The guess has come home."""
        if self.strategy == "hwm" and self.guess is not None and self.earliest < self.guess:
            # Not converged: what was seen may still give more from before the guess.
            given.loop.append(Speculative(self.guess))
            self.earliest = INFINITY
            return
        self.guess = None
        proved = min(back.time, self.earliest)
        if proved > self.definite:
            self.definite = proved
            given.both(Definite(proved))

    def _set_out(self, given: Given) -> None:
        """Send the next guess, if there is something to be learnt."""
        guess, known = INFINITY, INFINITY
        if self.strategy == "hwm":
            guess = known = add_one(self.high, CHRONON)
        elif self.strategy == "hybrid":
            known = min(self.external(origin) for origin in range(self.origins))
        if known > self.definite:
            self.guess, self.earliest = guess, INFINITY
            given.loop.append(Speculative(guess))


@dataclass
class Gate:
    """Where guesses pass an operator on the loop that knows more than they do."""

    strategy: LoopProgress = "hybrid"
    #: Nothing from before this time will be added here to what comes round.
    sure: int = NEG_INFINITY
    #: A guess that has to wait until that is enough.
    lodged: Speculative | None = None

    def take(self, guess: Speculative) -> list[Speculative]:
        """A guess that came round."""
        if self.strategy != "hwm":
            return [Speculative(min(guess.time, self.sure))]
        self.lodged = guess
        return self.moved(self.sure)

    def moved(self, sure: int) -> list[Speculative]:
        """What is sure is this now: a guess that waited for it may go on."""
        self.sure = sure
        if self.lodged is None or self.lodged.time > sure:
            return []
        released, self.lodged = self.lodged, None
        return [released]
