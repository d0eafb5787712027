"""Progress of a loop that is spread over buckets: what each bucket knows of the others, one trip after the other.

What a loop gives in one *trip* comes round in the next, of the same batch or of the next one. Buckets hear of each
other once a trip, from the reports that travel along. All hear the same and come to the same conclusions, so there is
nobody who decides.

**Promises.** A guess rides along with every trip, since it costs nothing there: it sets out at infinity, every operator
on the loop lowers it to what it is sure of, and what comes home says what may still come from outside. Whatever else
may come follows from changes that circulate, or from such as are held back at the end of the loop. The least of the
three is definite (`ffp.py` has the reasons), and known one trip later. Strategies differ in what they make of it:

- `probing` and `hybrid` promise all that is proved. If nothing circulates, a trip is made for the guess alone when its
  coming home would teach something. (A probing loop that never stopped would keep a cluster busy for nothing.)
- `hwm` promises the highest time that was seen when the guess set out, once all of it is proved, and no more.

**Turns.** Where every payload counts once, derivations are worked off by rounds (`levels.py`), in *waves*: within one,
rounds only go up. Which round has its turn in a trip, all buckets know: the lowest that some bucket has in hand, or
the one above the last, if something was given that is on its way. What comes too late for its round waits for the
next wave, as in `works.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from headrace.errors import HostError
from headrace.plan.recurse import LoopProgress
from headrace.time import CHRONON, INFINITY, NEG_INFINITY, add_one

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
    #: What is promised, and the highest time seen.
    definite: int = NEG_INFINITY
    high: int = NEG_INFINITY
    #: What `hwm` waits for.
    guess: int = NEG_INFINITY
    #: The round that has its turn, and whether a wave begins with it.
    turn: int = 0
    fresh: bool = True
    #: Whether something waits for the next wave.
    waits: bool = False

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
            self._promise(told)
        self._take_turns(told)

    def _promise(self, told: list[TripReport]) -> None:
        self.high = max(self.high, *(report.latest for report in told))
        proved = min(min(report.home, report.earliest, report.held) for report in told)
        self.definite = max(self.definite, self._promised(proved))
        if proved >= self.guess:
            self.guess = add_one(self.high, CHRONON)

    def _promised(self, proved: int) -> int:
        """How much of what is proved is promised."""
        if self.strategy != "hwm" or proved == INFINITY:
            return proved
        return self.guess if proved >= self.guess else NEG_INFINITY

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
        """Whether it is worth a trip to tell that a guess came home like this, if nothing else moves."""
        return self._promised(home) > self.definite

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
