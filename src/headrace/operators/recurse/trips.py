"""Progress of a loop that is spread over buckets: what each bucket knows of the others, one trip after the other.

What a loop gives in one *trip* comes round in the next, of the same batch or of the next one. Buckets hear of each
other once a trip, from the reports that travel along. All hear the same and come to the same conclusions, so there is
nobody who decides.

**Promises** are those of the flying fixed-point operator (`ffp.py`). All buckets have the same one, and tell it what
came past in a trip: the changes that were given, and the guess. A guess rides along with every trip, since it costs
nothing there. It sets out behind what was fed back; every operator on the loop lowers it to what it is sure of, and
what is held back at the end of the loop lowers it, too: that is a gate, which the guess passes before it is home. So a
guess takes one trip, and what it proves is known at the start of the next.

What the strategies differ in is `hwm`, whose guess waits at the gate, and what nobody needs: a trip for a guess alone,
when nothing circulates. It is made only if its coming home would teach something, with `probing` as with `hybrid`. (A
probing loop that never stopped would keep a cluster busy for nothing.)

**Turns.** Where every payload counts once, derivations are worked off by rounds (`levels.py`), in *waves*: within one,
rounds only go up. Which round has its turn in a trip, all buckets know: the lowest that some bucket has in hand, or
the one above the last, if something was given that is on its way. What comes too late for its round waits for the
next wave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from headrace.errors import HostError
from headrace.operators.recurse.ffp import FlyingFixedPoint, Gate, LoopEvent, Speculative
from headrace.plan.recurse import LoopProgress
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["TripReport", "Trips"]


@dataclass(frozen=True)
class TripReport:
    """What a bucket tells all others after a trip."""

    trip: int
    #: The guess as it came home: nothing from before it will come from outside.
    home: int
    #: The changes that now circulate: how many, and the first and last instants that they alter.
    rows: int = 0
    earliest: int = INFINITY
    latest: int = NEG_INFINITY
    #: The first instant that what is held back here may alter.
    held: int = INFINITY
    #: The lowest rounds of what is in hand: in this wave, and for the next.
    pending: int = INFINITY
    later: int = INFINITY

    @property
    def busy(self) -> bool:
        """Whether there is anything left to do."""
        return self.rows > 0 or min(self.pending, self.later) < INFINITY


@dataclass
class Trips:
    """What all buckets know of a loop at the start of a trip."""

    strategy: LoopProgress
    #: How many trips there were, and how many changes the last one brought.
    trip: int = 0
    circulating: int = 0
    #: The round that has its turn, and whether a wave begins with it.
    turn: int = 0
    fresh: bool = True
    #: Whether something waits for the next wave.
    waits: bool = False
    ffp: FlyingFixedPoint = field(init=False)

    def __post_init__(self) -> None:
        # Riding along, a guess costs nothing: Hybrid has no reason to keep it back.
        self.ffp = FlyingFixedPoint("hwm" if self.strategy == "hwm" else "probing")
        self.ffp.begin()

    @property
    def definite(self) -> int:
        """What is promised."""
        return self.ffp.definite

    @property
    def high(self) -> int:
        """The highest time seen."""
        return self.ffp.high

    def hear(self, reports: Iterable[TripReport]) -> None:
        """Another trip begins, with what was told at the end of the last. Who has nothing to say is silent."""
        told = list(reports)
        if any(report.trip != self.trip for report in told):
            raise HostError(
                "what went round a loop was lost, or has come twice",
                given=f"reports of trips {sorted({report.trip for report in told})} after trip {self.trip}",
                instead="a checkpoint that nothing else has written to",
            )
        self.trip += 1
        self.circulating = sum(report.rows for report in told)
        if told:
            self._pass(told)
        self._take_turns(told)

    def _pass(self, told: list[TripReport]) -> None:
        """What came past in the last trip: changes, and behind them the guess, if it set out before that trip."""
        rode, alone = self.ffp.guess is not None, not self.circulating
        for report in told:
            if report.rows:
                self.ffp.take(LoopEvent(report.earliest, latest=report.latest))
        if rode or alone:
            _come_home(self.ffp, min(min(report.home, report.held) for report in told), alone=alone)

    def _take_turns(self, told: list[TripReport]) -> None:
        pending = min((report.pending for report in told), default=INFINITY)
        on_its_way = self.turn + 1 if self.circulating else INFINITY
        later = min((report.later for report in told), default=INFINITY)
        self.turn = min(pending, on_its_way)
        self.fresh = self.turn == INFINITY
        self.waits = not self.fresh and later < INFINITY
        if self.fresh:
            self.turn = later if later < INFINITY else 0

    def teaches(self, home: int) -> bool:
        """Whether it is worth a trip to tell that a guess came home like this, if nothing else moves.

        A guess that has waited while something came past goes round once more before anything is promised.
        """
        later = replace(self.ffp)
        for _ in range(2):
            _come_home(later, home, alone=True)
        return later.definite > self.definite

    def to_json(self) -> dict[str, Any]:
        known = {name: getattr(self.ffp, name) for name in _KNOWN}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init} | {"ffp": known}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trips:
        trips = cls(**{name: value for name, value in data.items() if name != "ffp"})
        trips.ffp = replace(trips.ffp, **data["ffp"])
        return trips


#: What the operator that finds progress remembers.
_KNOWN = ("definite", "high", "guess", "earliest")


def _come_home(ffp: FlyingFixedPoint, sure: int, *, alone: bool) -> None:
    """The guess has gone round, and nothing from before `sure` will be added; `alone` says that it met nothing."""
    if alone and sure == INFINITY:
        ffp.end()
    elif ffp.guess is not None:
        for guess in Gate(ffp.strategy, sure).take(Speculative(ffp.guess)):
            ffp.take(guess)
