"""The W query on a loop that runs freely, on a simulated clock: what the evaluation of flying fixed-point measures.

The query is the paper's: `U D+ U+ D+ U+` over coin tosses, with as many ups as downs after the first, within 30 events.
Its loop is figure 4: what is matched so far joins the next symbol, guards and counters follow, every symbol is also the
start of a match, and FFP closes the loop. FFP is the engine's, and so are the gates that guesses pass; queues between
operators are those of `ffp_loop.py`; the join and the guard are small ones of dictionaries and lists, so that a run has
many events.

Time is simulated, so that a run is the same on every machine. There is one processor. It serves the message that has
waited longest, and a tick of its clock is one event or one punctuation that one operator handles. Input comes at ticks
that are given in advance. When nothing waits, the clock goes on to the next input; with Probing a guess always waits.

What is measured, as the paper defines it:

- lag: application time between what could be promised (the earliest of all events that are still to leave the loop) and
  what is promised, on average over the clock;
- state: rows in the synopses of the join, on average over the clock;
- unresponsiveness: the longest time on the clock in which nothing left the loop, no event and no promise;
- guesses that set out, and promises that left the loop.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from benchmarks.ffp_loop import RESULT, Flying, Placed, Work
from headrace.operators.recurse.ffp import Definite, LoopEvent, Message
from headrace.plan.recurse import LoopProgress

__all__ = ["Found", "Setting", "arrivals", "matches", "run"]

WINDOW = 30
#: state, symbol → the next state and what is added to the balance of downs and ups.
TRANSITIONS = {
    ("start", "U"): ("first", 0),
    ("first", "D"): ("down", 1),
    ("down", "D"): ("down", 1),
    ("down", "U"): ("up", -1),
    ("up", "U"): ("up", -1),
    ("up", "D"): ("down again", 1),
    ("down again", "D"): ("down again", 1),
    ("down again", "U"): ("end", -1),
    ("end", "U"): ("end", -1),
}
#: When it starts, when it ends, what it is.
Row = tuple[int, int, Any]


def _posted(rows: list[Row]) -> list[Message]:
    return [LoopEvent(min(r[0] for r in rows), rows, max(r[0] for r in rows))] if rows else []


class Synopsis:
    """Rows by a key, forgotten when a time has passed their end."""

    def __init__(self) -> None:
        self.rows: dict[int, list[Row]] = {}
        self.ends: list[tuple[int, int]] = []

    def add(self, key: int, row: Row) -> None:
        self.rows.setdefault(key, []).append(row)
        heapq.heappush(self.ends, (row[1], key))

    def forget(self, time: int) -> None:
        while self.ends and self.ends[0][0] <= time:
            end, key = heapq.heappop(self.ends)
            kept = [row for row in self.rows.get(key, ()) if row[1] != end]
            if kept:
                self.rows[key] = kept
            else:
                self.rows.pop(key, None)


class NextSymbol(Work):
    """Joins what is matched so far, which ends at a place, with the symbol at the next place."""

    def __init__(self) -> None:
        self.sides = Synopsis(), Synopsis()

    def take(self, side: int, event: LoopEvent) -> list[Message]:
        own, other = self.sides[side], self.sides[1 - side]
        given = []
        for row in event.payload:
            # A match is (its start, the place of its last symbol, state, balance); a symbol is (its place, the letter).
            key = row[2][1] + 1 if side == 0 else row[2][0]
            own.add(key, row)
            for met in other.rows.get(key, ()):
                le, re = max(row[0], met[0]), min(row[1], met[1])
                if le < re:
                    match, symbol = (row[2], met[2]) if side == 0 else (met[2], row[2])
                    given.append((le, re, (match, symbol)))
        return _posted(given)

    def hear(self, promised: Sequence[int]) -> list[Message]:
        for side, synopsis in enumerate(self.sides):
            synopsis.forget(promised[1 - side])
        return []

    @property
    def rows(self) -> int:
        return sum(len(synopsis.ends) for synopsis in self.sides)


class Follow(Work):
    """Where there is a transition and its guard holds, the match that is one symbol longer."""

    def take(self, side: int, event: LoopEvent) -> list[Message]:  # noqa: ARG002 - it has one input
        given = []
        for le, re, ((begin, _, state, balance), (place, letter)) in event.payload:
            following, change = TRANSITIONS.get((state, letter), ("", 0))
            # On the last way up the balance must not pass zero, or it never comes back.
            if following and (following != "end" or balance + change >= 0):
                given.append((le, re, (begin, place, following, balance + change)))
        return _posted(given)


class Together(Work):
    """What is derived, and the starts."""

    def take(self, side: int, event: LoopEvent) -> list[Message]:  # noqa: ARG002 - all inputs alike
        return [event]


# --- input ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """An experiment: one symbol for each unit of application time, with promises between them."""

    symbols: int = 4_000
    #: Symbols in a message, and between promises.
    batch: int = 10
    every: int = 100
    #: Ticks of the clock in which as many symbols come as between two promises.
    interval: int = 2_000
    #: By how many promises every 100th event comes early.
    early: int = 0
    #: How likely all events between two promises are missing.
    lull: float = 0.0
    seed: int = 7


@dataclass(frozen=True)
class Arrival:
    """At a tick of the clock: symbols, or the promise of a time."""

    at: int
    symbols: tuple[tuple[int, str], ...] = ()
    promise: int | None = None


def arrivals(setting: Setting) -> list[Arrival]:
    """What comes in, and when."""
    toss = random.Random(setting.seed)  # noqa: S311 - coin tosses that are the same every time
    letters = [toss.choice("UD") for _ in range(setting.symbols)]
    kept = [toss.random() >= setting.lull for _ in range(0, setting.symbols, setting.every)]
    slots: dict[int, list[tuple[int, str]]] = {}
    for time, letter in enumerate(letters):
        if kept[time // setting.every]:
            early = setting.early * setting.every if time % 100 == 99 else 0
            slots.setdefault(max(0, time - early) // setting.batch, []).append((time, letter))
    found = []
    for slot in range(-(-setting.symbols // setting.batch)):
        end = (slot + 1) * setting.batch
        at = end * setting.interval // setting.every
        found.append(Arrival(at, tuple(slots.get(slot, ()))))
        if end % setting.every == 0:
            found.append(Arrival(at, promise=end))
    return found


def _feed(loop: Flying, arrival: Arrival) -> None:
    if arrival.promise is not None:
        loop.feed("symbols", Definite(arrival.promise))
        loop.feed("starts", Definite(arrival.promise))
    if arrival.symbols:
        times = [place for place, _ in arrival.symbols]
        symbols = [(t, t + WINDOW, (t, letter)) for t, letter in arrival.symbols]
        starts = [(t, t + WINDOW, (t, t - 1, "start", 0)) for t in times]
        loop.feed("symbols", LoopEvent(min(times), symbols, max(times)))
        loop.feed("starts", LoopEvent(min(times), starts, max(times)))


# --- a run ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What a run has shown; times of the clock are ticks, of the application one for each symbol."""

    lag: float
    state: float
    unresponsive: int
    guesses: int
    promises: int
    #: The share of the clock in which an operator was at work on an event or a promise.
    busy: float
    out: list[tuple[int, Message]] = field(repr=False)


def run(setting: Setting, strategy: LoopProgress) -> Found:
    """Play an experiment to its end."""
    join = NextSymbol()
    loop = Flying(
        [
            Placed("join", join, (RESULT, "symbols")),
            Placed("follow", Follow(), ("join",)),
            Placed("together", Together(), ("follow", "starts")),
        ],
        strategy,
    )
    coming = arrivals(setting)
    last = coming[-1].at
    end = last + setting.interval  # time enough to come to rest
    clock = next_ = working = 0
    state = 0.0
    out: list[tuple[int, Message]] = []
    while True:
        while next_ < len(coming) and coming[next_].at <= clock:
            _feed(loop, coming[next_])
            next_ += 1
        edge = loop.oldest()
        if clock >= end and (edge is None or next_ == len(coming)):
            break
        if edge is None:
            then = coming[next_].at if next_ < len(coming) else end
            state, clock = state + join.rows * (then - clock), then
            continue
        message = loop.serve(edge)
        cost = len(message.payload) if isinstance(message, LoopEvent) else 1
        state, clock = state + join.rows * cost, clock + cost
        working += cost if isinstance(message, (LoopEvent, Definite)) else 0
        out += [(clock, given) for given in loop.out[len(out) :]]
    given = [at for at, _ in out if at < last]
    unresponsive = max(b - a for a, b in pairwise([*given, last]))
    return Found(_lag(out), state / clock, unresponsive, loop.guesses, len(loop.promises), working / clock, out)


def _lag(out: Sequence[tuple[int, Message]]) -> float:
    """The mean distance between what could be promised and what is, up to the last event."""
    last = max(n for n, (_, message) in enumerate(out) if isinstance(message, LoopEvent))
    possible, least = [0] * (last + 1), None
    for n in range(last, -1, -1):
        possible[n] = least if least is not None else out[last][1].time
        if isinstance(message := out[n][1], LoopEvent):
            least = message.time if least is None else min(least, message.time)
    total = promised = 0.0
    for n in range(last):
        if isinstance(message := out[n][1], Definite):
            promised = message.time
        total += (possible[n] - promised) * (out[n + 1][0] - out[n][0])
    return total / (out[last][0] - out[0][0])


def matches(found: Found) -> list[tuple[int, int]]:
    """The complete matches: first and last place."""
    rows = [row for _, message in found.out if isinstance(message, LoopEvent) for row in message.payload]
    return sorted((begin, last) for _, _, (begin, last, state, balance) in rows if state == "end" and balance == 0)
