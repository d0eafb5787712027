"""Progress of a loop that is spread over buckets, trip by trip.

The output of a loop in one *trip* is its input in the next, in the same batch or the next one. Buckets learn of each
other once per trip, from reports that travel with the changes. All buckets get the same reports and draw the same
conclusions, so none of them has to decide for the others.

**Promises** are those of the flying fixed-point operator (`ffp.py`). All buckets have the same one, and pass to it the
changes and the guess of each trip. Every trip carries a guess, since that costs nothing. The guess follows the changes;
every operator on the loop lowers it to what is sure there, and so do the changes held back at the end of the loop: that
is a gate, the last one. So a guess takes one trip, and its result is known at the start of the next.

The strategies differ in two ways: the guess of `hwm` waits at the gate; and when nothing circulates, a trip for a guess
alone is made only if it can raise the promise, with `probing` as with `hybrid`. (A probing loop that never stopped
would keep a cluster busy for nothing.)

**Turns.** Where every payload counts once, derivations are processed by rounds (`levels.py`), in *waves*: within a
wave, rounds only go up. All buckets know which round has its turn in a trip: the lowest that some bucket has pending,
or the one above the last, if changes circulate. Changes that are too late for their round wait for the next wave.
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
    """The report of a bucket to all others after a trip."""

    trip: int
    #: The guess at its return: nothing before it will come from outside.
    home: int
    #: The number of changes that circulate, and the first and last instants that they alter.
    rows: int = 0
    earliest: int = INFINITY
    latest: int = NEG_INFINITY
    #: The first instant that changes held back here may alter.
    held: int = INFINITY
    #: The lowest pending rounds: in this wave, and for the next.
    pending: int = INFINITY
    later: int = INFINITY

    @property
    def busy(self) -> bool:
        """Whether there is work left."""
        return self.rows > 0 or min(self.pending, self.later) < INFINITY


@dataclass
class Trips:
    """The knowledge of all buckets about a loop at the start of a trip."""

    strategy: LoopProgress
    #: The number of trips, and of changes in the last one.
    trip: int = 0
    circulating: int = 0
    #: The round that has its turn, and whether a wave begins with it.
    turn: int = 0
    fresh: bool = True
    #: Whether something waits for the next wave.
    waits: bool = False
    ffp: FlyingFixedPoint = field(init=False)

    def __post_init__(self) -> None:
        # A guess costs nothing here, so Hybrid has no reason to hold it back.
        self.ffp = FlyingFixedPoint("hwm" if self.strategy == "hwm" else "probing")
        self.ffp.begin()

    @property
    def definite(self) -> int:
        """The promise."""
        return self.ffp.definite

    @property
    def high(self) -> int:
        """The highest time seen."""
        return self.ffp.high

    def hear(self, reports: Iterable[TripReport]) -> None:
        """Start the next trip from the last one's reports; idle buckets send none."""
        received = list(reports)
        if any(report.trip != self.trip for report in received):
            raise HostError(
                "changes of a loop are lost, or arrived twice",
                given=f"reports of trips {sorted({report.trip for report in received})} after trip {self.trip}",
                instead="a checkpoint that nothing else has written to",
            )
        self.trip += 1
        self.circulating = sum(report.rows for report in received)
        if received:
            self._pass(received)
        self._take_turns(received)

    def _pass(self, reports: list[TripReport]) -> None:
        """Pass on the changes of the last trip, and after them the guess, if it started before that trip."""
        carried, alone = self.ffp.guess is not None, not self.circulating
        for report in reports:
            if report.rows:
                self.ffp.take(LoopEvent(report.earliest, latest=report.latest))
        if carried or alone:
            _return_guess(self.ffp, min(min(report.home, report.held) for report in reports), alone=alone)

    def _take_turns(self, reports: list[TripReport]) -> None:
        pending = min((report.pending for report in reports), default=INFINITY)
        on_its_way = self.turn + 1 if self.circulating else INFINITY
        later = min((report.later for report in reports), default=INFINITY)
        self.turn = min(pending, on_its_way)
        self.fresh = self.turn == INFINITY
        self.waits = not self.fresh and later < INFINITY
        if self.fresh:
            self.turn = later if later < INFINITY else 0

    def teaches(self, home: int) -> bool:
        """Whether the return of a guess at this time can raise the promise, if nothing else moves.

        A guess that has waited while changes passed goes round once more before it becomes a promise.
        """
        later = replace(self.ffp)
        for _ in range(2):
            _return_guess(later, home, alone=True)
        return later.definite > self.definite

    def to_json(self) -> dict[str, Any]:
        known = {name: getattr(self.ffp, name) for name in _KNOWN}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init} | {"ffp": known}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trips:
        trips = cls(**{name: value for name, value in data.items() if name != "ffp"})
        trips.ffp = replace(trips.ffp, **data["ffp"])
        return trips


#: The state of the operator that finds progress.
_KNOWN = ("definite", "high", "guess", "earliest")


def _return_guess(ffp: FlyingFixedPoint, sure: int, *, alone: bool) -> None:
    """Return the guess to the operator; nothing before `sure` will be added. `alone`: it met no changes."""
    if alone and sure == INFINITY:
        ffp.end()
    elif ffp.guess is not None:
        for guess in Gate(ffp.strategy, sure).take(Speculative(ffp.guess)):
            ffp.take(guess)
