"""Streams drawn from a setting: lifetimes first, then corrections, then the order of arrival, then CTIs and batches.

Each step handles one or two dimensions and keeps the results of the earlier steps, so every dimension keeps its meaning
beside any other: a revised stream of disjoint events is disjoint after all corrections. Where two values conflict, the
boundary shape wins over duration and overlap: of disjoint events only the last can be endless.

Everything comes from one `random.Random(seed)`: the same arguments give the same stream.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from types import MappingProxyType
from typing import Any

from headrace.api.stream import Stream
from headrace.errors import IntentError, nearest
from headrace.plan.windows import Snapshot
from headrace.schema import Schema
from headrace.testing.generators.stories import Promise, Step, Story, StoryStream
from headrace.testing.generators.traits import DIMENSIONS, Setting
from headrace.testing.generators.values import Payloads
from headrace.time import CHRONON, INFINITY

__all__ = ["Pattern", "duplicate_retractions", "generate", "make_speculative", "speculated"]

Life = tuple[int, int]
#: A user's own generator of lifetimes: a given number of (LE, RE), in units; RE may be `INFINITY`.
Pattern = Callable[[Random, int], Iterable[Life]]

#: In units: the shortest and the longest lifetime. Points last one tick in any unit.
_SHORT, _LONG = (1, 4), (8, 16)
#: In units: the length of a wrong lifetime that is far too long.
_FAR = (32, 96)
_MEAN = {"points": 1, "short": 2.5, "long": 12, "infinite": 8, "all_durations": 6}
#: The approximate number of other events alive when one starts.
_ALIVE = {"low_overlap": 1, "medium_overlap": 4, "high_overlap": 10}
#: The share of delayed steps, and their greatest delay: a number of instants, or a share of all instants.
_DELAYED = {
    "in_order": (0.0, 0, 0.0),
    "slightly_out_of_order": (0.2, 1, 0.0),
    "out_of_order": (0.45, 3, 0.3),
    "highly_out_of_order": (0.8, 5, 1.0),
}
_LULL = 30
_NO_POOLS: Mapping[str, Sequence[Any]] = MappingProxyType({})


def generate(
    schema: Schema,
    setting: Setting,
    seed: int,
    *,
    size: int = 24,
    unit: int = 1,
    pools: Mapping[str, Sequence[Any]] = _NO_POOLS,
    pattern: Pattern | None = None,
) -> StoryStream:
    """A legal stream of `size` events with this setting; a dimension that it leaves out has its first value.

    Lifetimes are counted in units of `unit` ticks, and with longer units some are one tick off. `pools` adds
    values by column. A `pattern` gives the lifetimes and overrides duration, overlap, boundary and lulls.
    """
    chosen = _complete_setting(setting)
    random = Random(seed)  # noqa: S311 - test data
    bursts = [_patterned(pattern, random, size, unit)] if pattern else _lives(random, chosen, size, unit)
    stories = _stories(random, bursts, Payloads(random, schema, chosen["payload"], pools), chosen, unit)
    starts = [min(le for le, _ in burst) for burst in bursts[1:]]
    steps = _with_promises(random, stories, _arrival(random, stories, chosen, starts), chosen, starts, unit)
    return StoryStream(schema, tuple(stories), tuple(steps), _cuts(random, len(steps)))


def _complete_setting(setting: Setting) -> dict[str, str]:
    for name, value in setting.items():
        allowed = DIMENSIONS.get(name, ())
        if value not in allowed:
            known = allowed or tuple(DIMENSIONS)
            raise IntentError(
                f"a stream has no {name} {value!r}" if allowed else f"a stream has no {name!r}",
                given=f"{name}: {value}",
                allowed=", ".join(known),
                instead=nearest(value if allowed else name, known) or known[0],
            )
    chosen = {name: setting.get(name, values[0]) for name, values in DIMENSIONS.items()}
    if chosen["speculation"] in ("made_speculative", "duplicate_retractions") and chosen["disorder"] == "in_order":
        chosen["disorder"] = "out_of_order"  # the fragment speculates only on late events
    return chosen


# --- lifetimes ------------------------------------------------------------------------------------------------------


def _patterned(pattern: Pattern, random: Random, size: int, unit: int) -> list[Life]:
    lives = [(le * unit, re if re == INFINITY else re * unit) for le, re in pattern(random, size)]
    for le, re in lives:
        if le >= re:
            raise IntentError(
                "a pattern gave an empty lifetime", given=(le // unit, re // unit), allowed="(LE, RE) with LE < RE"
            )
    return lives


def _lives(random: Random, chosen: Setting, size: int, unit: int) -> list[list[Life]]:
    """Lifetimes in bursts; without lulls there is one burst."""
    count = min(3, size) if chosen["lulls"] == "lulls" else 1
    sizes = [size // count + (number < size % count) for number in range(count)] if size else []
    at = _origin(random, size, chosen)
    bursts: list[list[Life]] = []
    for burst_size in sizes:
        shape = _Shape(random, chosen, burst_size, unit, at, last=len(bursts) == len(sizes) - 1)
        bursts.append(shape.lives())
        at = max((re for _, re in shape.lives_made if re != INFINITY), default=0) // unit + _LULL + random.randint(0, 9)
    return bursts


def _origin(random: Random, size: int, chosen: Setting) -> int:
    """Mostly 0; sometimes half of the stream is before 0, where division rounds the other way."""
    return 0 if random.random() < 5 / 6 else -int(_span(chosen, size) / 2)


def _span(chosen: Setting, size: int) -> float:
    """The number of units over which events start, so that enough of them are alive at once."""
    return size * _MEAN[chosen["duration"]] / _ALIVE[chosen["overlap"]]


class _Shape:
    """The lifetimes of one burst, from `at` on (in units)."""

    def __init__(self, random: Random, chosen: Setting, size: int, unit: int, at: int, *, last: bool) -> None:
        self._random, self._chosen, self._size, self._unit, self._last = random, chosen, size, unit, last
        self._at = at
        self.lives_made: list[Life] = []

    def lives(self) -> list[Life]:
        """The lifetimes, by start."""
        make = {"disjoint": self._disjoint, "duplicates": self._duplicates}.get(self._chosen["boundary"], self._free)
        make()
        self.lives_made.sort()
        return self.lives_made

    def _free(self) -> None:
        snap = {"one_tick_apart": self._one_tick_apart, "back_to_back": self._back_to_back}
        change = snap.get(self._chosen["boundary"])
        for start in self._starts(self._size):
            life = self._life(self._placed(start))
            self.lives_made.append(life if change is None else change(*life))

    def _starts(self, count: int) -> list[int]:
        span = _span(self._chosen, self._size)
        if self._chosen["overlap"] == "low_overlap":  # evenly: random starts would often coincide
            return [self._at + int((place + self._random.random() / 2) * span / count) for place in range(count)]
        return sorted(self._at + int(self._random.random() * max(1.0, span)) for _ in range(count))

    def _placed(self, units: int) -> int:
        """A time in ticks, on the boundary of a unit or a tick beside it, seldom elsewhere."""
        if self._unit == 1:
            return units
        off = (0, 0, 0, 0, 0, CHRONON, -CHRONON, self._random.randrange(self._unit))
        return units * self._unit + self._random.choice(off)

    def _life(self, le: int) -> Life:
        duration = self._duration()
        if duration == INFINITY:
            return le, INFINITY
        return le, max(le + CHRONON, self._placed(duration) + le) if duration else le + CHRONON

    def _duration(self) -> int:
        """In units; 0 is a point."""
        kind = self._chosen["duration"]
        if kind == "all_durations":
            kind = self._random.choice(("points", "short", "short", "long", "infinite"))
        elif kind == "infinite" and self._random.random() < 1 / 4:
            kind = "short"  # other events need some finite ends
        if kind == "infinite":
            return INFINITY
        return 0 if kind == "points" else self._random.randint(*(_SHORT if kind == "short" else _LONG))

    def _disjoint(self) -> None:
        gaps = {"low_overlap": (2, 5), "medium_overlap": (1, 2), "high_overlap": (0, 0)}[self._chosen["overlap"]]
        at = self._placed(self._at)
        for number in range(self._size):
            le, re = self._life(at)
            if re == INFINITY and not (self._last and number == self._size - 1):
                re = le + self._random.randint(*_LONG) * self._unit
            self.lives_made.append((le, re))
            at = re if re == INFINITY else re + max(CHRONON, self._placed(self._random.randint(*gaps)))

    def _duplicates(self) -> None:
        """Add each lifetime twice, rarely three times; `_stories` gives equal payloads to equal neighbours."""
        for start in self._starts((self._size + 1) // 2):
            left = self._size - len(self.lives_made)
            copies = left if left <= 3 else 3 if left != 4 and self._random.random() < 1 / 6 else 2
            self.lives_made += [self._life(self._placed(start))] * copies

    def _one_tick_apart(self, le: int, re: int) -> Life:
        """The same lifetime with one end a tick beside an end of another."""
        ends = [end for life in self.lives_made for end in life if end != INFINITY]
        if not ends:
            return le, re
        if re != INFINITY and re > le + CHRONON and self._random.random() < 1 / 2:
            beside = _closest(ends, re) + self._random.choice((CHRONON, -CHRONON))
            if beside > le:
                return le, beside
        start = _closest(ends, le) + self._random.choice((CHRONON, -CHRONON))
        return start, re if re == INFINITY else start + (re - le)

    def _back_to_back(self, le: int, re: int) -> Life:
        """The same lifetime, moved to where another ends."""
        ends = [end for _, end in self.lives_made if end != INFINITY]
        if not ends:  # the first must end, or no event can follow it
            return le, re if re != INFINITY else le + self._random.randint(*_SHORT) * self._unit
        start = _closest(ends, le)
        return start, re if re == INFINITY else start + (re - le)


def _closest(times: Sequence[int], to: int) -> int:
    return min(times, key=lambda time: (abs(time - to), time))


# --- corrections ----------------------------------------------------------------------------------------------------


def _stories(
    random: Random, bursts: Sequence[Sequence[Life]], payloads: Payloads, chosen: Setting, unit: int
) -> list[Story]:
    stories: list[Story] = []
    alike = chosen["boundary"] == "duplicates"
    for le, re in (life for burst in bursts for life in burst):
        again = alike and stories and (stories[-1].le, stories[-1].re) == (le, re)
        stories.append(Story(le, (re,), stories[-1].payload if again else payloads.draw()))
    if chosen["speculation"] != "revised":
        return stories
    return [Story(s.le, _revised(random, s.le, s.re, chosen, unit), s.payload) for s in stories]


def _revised(random: Random, le: int, re: int, chosen: Setting, unit: int) -> tuple[int, ...]:
    """Some wrong ends, then the right one; sometimes a deletion."""
    ends = [re]
    if random.random() < 2 / 3:
        ends = [*(_wrong(random, le, re, unit) for _ in range(random.choice((1, 1, 2, 3)))), re]
    if random.random() < 1 / 8:
        ends.append(le)
    ends = [end for number, end in enumerate(ends) if number == 0 or end != ends[number - 1]]
    return tuple(_rising(le, ends) if chosen["disorder"] == "in_order" else ends)


def _wrong(random: Random, le: int, re: int, unit: int) -> int:
    """A wrong end: never, far away, one tick beside the right one, a few units before or after it, a point."""
    kind = random.randrange(7)
    if kind == 0:
        return INFINITY
    if kind == 1:
        return le + CHRONON
    if kind == 6:
        return le + random.randint(*_FAR) * unit
    near = re if re != INFINITY else le + random.randint(*_SHORT) * unit
    by = CHRONON if kind == 2 else random.randint(*_SHORT) * unit
    return max(le + CHRONON, near + random.choice((by, -by)))


def _rising(le: int, ends: list[int]) -> list[int]:
    """The ends without those that would make a correction reach further back than the one before it."""
    kept = list(ends)
    number = 2
    while number < len(kept):
        story = Story(le, tuple(kept), {})
        if story.sync(number) < story.sync(number - 1):
            del kept[number - 1]
            number = 2
        else:
            number += 1
    return kept


# --- arrival --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Due:
    """A step and its arrival: the instant of the stream, and the place among the steps of that instant."""

    place: float
    among: float
    story: int


def _arrival(random: Random, stories: Sequence[Story], chosen: Setting, starts: Sequence[int]) -> list[int]:
    """The order in which the stories arrive: by sync time, with some delayed.

    No delay passes a lull, so that promises can be made in it.
    """
    due_times = [_due_times(story) for story in stories]
    instants = sorted({time for times in due_times for time in times})
    lasts = [bisect_left(instants, start) - 1 for start in starts] + [len(instants) - 1]
    share, least, reach = _DELAYED[chosen["disorder"]]
    far = max(least, int(reach * len(instants)))
    due: list[_Due] = []
    for number, times in enumerate(due_times):
        place, among = -1.0, 0.0
        for time in times:
            rank = bisect_left(instants, time)
            if random.random() < share:
                delayed = min(rank + random.randint(1, far), lasts[bisect_right(starts, time)]) + 0.5
            else:
                delayed = float(rank)
            among = random.uniform(among, 1.0) if delayed <= place else random.random()
            place = max(place, delayed)
            due.append(_Due(place, among, number))
    return [due_step.story for due_step in sorted(due, key=lambda due_step: (due_step.place, due_step.among))]


def _due_times(story: Story) -> list[int]:
    """The time at which each end is due: its sync time, or earlier if a later correction reaches further back."""
    syncs = [story.sync(number) for number in range(len(story.ends))]
    return [min(syncs[number:]) for number in range(len(syncs))]


def _with_promises(
    random: Random, stories: Sequence[Story], order: Sequence[int], chosen: Setting, starts: Sequence[int], unit: int
) -> list[Step]:
    """The steps with CTIs between them; no CTI is later than the least sync time of a later step."""
    ordered = StoryStream(Schema(()), tuple(stories), tuple(order))
    syncs = [stories[step[0]].sync(step[1]) for step in ordered.numbered_steps() if not isinstance(step, Promise)]
    ends = [end for story in stories for end in (story.le, story.re) if end != INFINITY]
    least = [max(ends, default=0) + unit]  # a last promise may be after the whole history
    for sync in reversed(syncs):
        least.append(min(sync, least[-1]))
    least.reverse()
    promises = _Promises(random, chosen["ctis"], unit, len(order))
    steps: list[Step] = []
    for number, step in enumerate([*order, None]):
        lull = next((start for start in starts if number and least[number - 1] < start <= least[number]), None)
        if lull is not None:
            steps += promises.inside(lull)
        steps += promises.before(number, least[number])
        if step is not None:
            steps.append(step)
    return steps


class _Promises:
    """Makes CTIs; the eagerness decides how often, and how close to the least later sync time."""

    def __init__(self, random: Random, eagerness: str, unit: int, count: int) -> None:
        self._random, self._eagerness, self._unit, self._count = random, eagerness, unit, count
        self._latest: int | None = None

    def before(self, number: int, least: int) -> list[Promise]:
        """The CTI before this step, if any; it is at most `least`."""
        if self._eagerness == "eager_ctis":
            return self._make(least)
        if self._eagerness == "regular_ctis" and number % 4 == 3:
            return self._make(least - self._unit * self._random.choice((0, 0, 0, 2)))
        last = number == self._count and self._latest is None
        if self._eagerness == "rare_ctis" and (last or self._random.random() < 1.5 / self._count):
            return self._make(least - self._unit * self._random.choice((0, 0, 1, 6)))
        return []

    def inside(self, start: int) -> list[Promise]:
        """CTIs in the lull that ends here."""
        count = {"no_ctis": 0, "rare_ctis": 1, "regular_ctis": 2, "eager_ctis": 4}[self._eagerness]
        times = [start - _LULL * self._unit * place // (count + 1) for place in range(count, 0, -1)]
        return [promise for time in times for promise in self._make(time)]

    def _make(self, time: int) -> list[Promise]:
        if self._latest is not None and time <= self._latest:
            return []
        self._latest = time
        return [Promise(time)]


def _cuts(random: Random, count: int) -> tuple[int, ...]:
    """All rows in one batch, each in its own, or cut anywhere."""
    if count < 2 or random.random() < 1 / 4:
        return ()
    if random.random() < 1 / 3:
        return (1,) * count
    places = sorted(random.sample(range(1, count), random.randint(1, min(count - 1, 8))))
    return tuple(b - a for a, b in pairwise([0, *places, count]))


# --- speculation made by the query ----------------------------------------------------------------------------------


def make_speculative(stream: Stream, key: str, k: int = 1) -> Stream:
    """The best `k` events of each group at every instant, which late events correct.

    The result has the columns of the stream, and as many retractions as the stream has disorder.
    """
    names = list(stream.schema.names)
    ordered = [field.name for field in stream.schema if field.name != key and not field.type.is_array] or [key]
    best = stream.group_by(key).apply(lambda group: group.window(Snapshot()).top(k, by=ordered[-1]))
    return best.select(*names)


def duplicate_retractions(stream: Stream) -> Stream:
    """The union of a stream with itself: every event and correction twice."""
    return stream.union(stream)


def speculated(stream: Stream, setting: Setting, key: str) -> Stream:
    """The stream with the setting's `speculation`."""
    kind = _complete_setting(setting)["speculation"]
    if kind == "made_speculative":
        return make_speculative(stream, key)
    return duplicate_retractions(make_speculative(stream, key)) if kind == "duplicate_retractions" else stream
