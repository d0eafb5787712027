"""Random streams that keep pace with each other: in every round each brings a few events and most move their CTI on.

Streams of `strategies` are drawn one by one, so that the promises of two of them seldom say anything about the same
events. These do: CTIs stay close to the events and to each other, lifetimes reach over several rounds and are corrected
right at the CTI. That is what tries the state of operators with two inputs. A round is a batch.
"""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from headrace.api.inputs import events
from headrace.api.stream import Stream
from headrace.testing.strategies import SCHEMA, Event, tables
from headrace.time import INFINITY

__all__ = ["paced_rounds", "paced_streams", "random_rounds"]

#: One key, so that everything overlaps, or several.
_KEYS = (("a",), ("a", "a", "a", "b", None))
_DURATIONS = (1, 2, 3, 5, 9, None)
#: New ends, counted from the earliest that is legal; None never ends, -1 deletes the event where that is legal.
_ENDS = (0, 1, 2, 4, 7, None, -1)
Step = tuple[int, int, int, int, Event]


class _Paced:
    """Turns numbers into one stream of legal events."""

    def __init__(self) -> None:
        self.cti = 0
        self._alive: list[tuple[int, int, Event]] = []

    def round(self, steps: list[Step], advance: int) -> list[Event]:
        """A batch: events, then a CTI unless it stays where it is."""
        batch = []
        for correct, which, offset, choice, payload in steps:
            if correct < 2 and self._alive:
                batch += self._retract(which % len(self._alive), choice)
            else:
                batch += self._insert(self.cti + offset, _DURATIONS[choice % len(_DURATIONS)], payload)
        if advance:
            self.cti += advance
            self._alive = [event for event in self._alive if event[1] >= self.cti]
            nothing = {"re": None, "re_new": None, **dict.fromkeys(SCHEMA.names)}
            batch.append({"kind": "cti", "le": self.cti, **nothing})
        return batch

    def _insert(self, le: int, duration: int | None, payload: Event) -> list[Event]:
        re = INFINITY if duration is None else le + duration
        self._alive.append((le, re, payload))
        return [{"kind": "insert", "le": le, "re": re, "re_new": None, **payload}]

    def _retract(self, which: int, choice: int) -> list[Event]:
        le, re, payload = self._alive[which]
        later = _ENDS[choice]
        if later == -1 and le >= self.cti:
            re_new = le
        else:
            re_new = INFINITY if later is None else max(le + 1, self.cti) + max(later, 0)
        if re_new == re:
            return []
        self._alive[which : which + 1] = [(le, re_new, payload)] if re_new > le else []
        return [{"kind": "retract", "le": le, "re": re, "re_new": re_new, **payload}]


def random_rounds(seed: int, count: int = 2, max_rounds: int = 14) -> list[tuple[list[Event], ...]]:
    """As `paced_rounds`, from a seed: many more can be tried in the same time, but a failing one does not shrink."""
    random = Random(seed)
    keys = random.choice(_KEYS)
    drawn = [_Paced() for _ in range(count)]

    def step() -> Step:
        i = random.choice((0, 1, 1, 2, None)) if random.random() < 0.5 else 1
        payload = {"k": random.choice(keys), "i": i, "x": 0.5}
        number, ends = random.randint, len(_ENDS) - 1
        return number(0, 4), number(0, 6), number(0, 4), number(0, ends), payload

    return [
        tuple(
            stream.round([step() for _ in range(random.randint(0, 2))], random.choice((0, 1, 1, 2, 3)))
            for stream in drawn
        )
        for _ in range(random.randint(2, max_rounds))
    ]


@st.composite
def paced_rounds(draw: st.DrawFn, count: int = 2, max_rounds: int = 12) -> list[tuple[list[Event], ...]]:
    """What so many streams of physical events bring, round by round."""
    payload = st.builds(
        lambda k, i: {"k": k, "i": i, "x": None if i is None else i / 2},
        st.sampled_from(draw(st.sampled_from(_KEYS))),
        st.sampled_from((1, 0, 1, 2, None)),
    )
    number = st.integers(0, len(_ENDS) - 1)
    steps = st.lists(st.tuples(st.integers(0, 4), number, st.integers(0, 4), number, payload), max_size=2)
    drawn = [_Paced() for _ in range(count)]
    rounds = draw(st.integers(1, max_rounds))
    return [tuple(stream.round(draw(steps), draw(st.integers(0, 3))) for stream in drawn) for _ in range(rounds)]


@st.composite
def paced_streams(draw: st.DrawFn, count: int = 2, max_rounds: int = 12) -> tuple[Stream, ...]:
    """So many streams of physical events that keep pace."""
    rounds = draw(paced_rounds(count, max_rounds))
    batches = [[turn[number] for turn in rounds] for number in range(count)]
    return tuple(
        events(tables([event for batch in part for event in batch]), SCHEMA.arrow, batches=[len(b) for b in part])
        for part in batches
    )
