"""The smallest streams for which something still goes wrong: delta debugging over stories.

Greedy and deterministic. Passes propose simpler streams; one that is legal, of less weight and still fails takes the
place of the one before. When all passes together find nothing more, or the time is up, what is left is the answer.
Weight (fewer rows, then plainer batches, then smaller times, …) only ever falls, so no two passes undo each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from time import monotonic
from typing import Any

from headrace.testing.generators.stories import Promise, Step, Story, Told
from headrace.testing.generators.values import plain_value, plain_values
from headrace.time import CHRONON, INFINITY

__all__ = ["shrink"]

Streams = tuple[Told, ...]
#: An endless lifetime counts as so long: more than a point, less than a time in real units.
_ENDLESS = 50
#: So many rows a person reads one by one.
_FEW_ROWS = 8
#: How many of the earliest and of the closest instants are tried for a time.
_FEW = 4


def shrink(
    streams: Streams,
    fails: Callable[[Streams], bool],
    *,
    seconds: float = 20.0,
    tell: Callable[[int], None] | None = None,
) -> Streams:
    """A smallest set of legal streams for which `fails` is still true; the given ones when nothing can go.

    `tell` is called with the number of rows left whenever it falls.
    """
    search = _Shrinking(tuple(streams), fails, seconds, tell)
    _merge_batches(search, coarsely=True)  # first of all, because a run takes as long as it has batches
    _drop_together(search)
    before = None
    while before is not search.best and not search.late:
        before = search.best
        for number in range(len(streams)):
            _drop_stories(search, number)
            _drop_promises(search, number)
            _drop_corrections(search, number)
        _merge_batches(search)
        _close_gaps(search)
        for number in range(len(streams)):
            _shorten(search, number)
            _move_earlier(search, number)
            _put_in_order(search, number)
            _make_plain(search, number)
        _rename(search)
    return search.best


class _Shrinking:
    """The simplest streams so far that fail."""

    def __init__(
        self,
        streams: Streams,
        fails: Callable[[Streams], bool],
        seconds: float,
        tell: Callable[[int], None] | None,
    ) -> None:
        self.best, self._weight = streams, _weight(streams)
        self._fails, self._tell = fails, tell
        self._until = monotonic() + seconds
        self._tried: set[str] = set()

    @property
    def late(self) -> bool:
        return monotonic() >= self._until

    def accept(self, streams: Streams) -> bool:
        """Whether these are simpler and still fail; then they are the best."""
        mark = repr([(told.stories, told.steps, told.cuts) for told in streams])  # payloads hold lists and NaN
        if self.late or mark in self._tried:
            return False
        self._tried.add(mark)
        if not all(told.legal() for told in streams) or (weight := _weight(streams)) >= self._weight:
            return False
        if not self._fails(streams):
            return False
        fewer = weight[0] < self._weight[0]
        self.best, self._weight = streams, weight
        if fewer and self._tell is not None:
            self._tell(weight[0])
        return True

    def accept_one(self, number: int, told: Told) -> bool:
        """The same for one of the streams, the others being as they are."""
        return self.accept((*self.best[:number], told, *self.best[number + 1 :]))


# --- weight ---------------------------------------------------------------------------------------------------------


def _weight(streams: Streams) -> tuple[int, ...]:
    each = [(_batches(told), _times(told), _inversions(told), *_strangeness(told)) for told in streams]
    return (sum(map(len, streams)), *map(sum, zip(*each, strict=True)))


def _batches(told: Told) -> int:
    """All in one batch is plainest, then, where rows are few, each in its own."""
    if len(told.cuts) <= 1:
        return 0
    return 1 if len(told.cuts) == len(told.steps) <= _FEW_ROWS else len(told.cuts)


def _times(told: Told) -> int:
    promises = sum(abs(step.time) for step in told.steps if isinstance(step, Promise))
    ends = ((end - story.le) if end != INFINITY else _ENDLESS for story in told.stories for end in story.ends)
    return promises + sum(ends) + sum(abs(story.le) for story in told.stories)


def _inversions(told: Told) -> int:
    syncs = _syncs(told)
    return sum(a > b for place, a in enumerate(syncs) for b in syncs[place + 1 :])


def _syncs(told: Told) -> list[int]:
    return [step.time if isinstance(step, Promise) else told.stories[step[0]].sync(step[1]) for step in told.told()]


def _strangeness(told: Told) -> tuple[int, int, int]:
    """How many values are not the plainest, how many differ, how long they are."""
    odd = distinct = length = 0
    for field in told.schema:
        values = [repr(story.payload[field.name]) for story in told.stories]
        odd += sum(value != repr(plain_value(field.type)) for value in values)
        distinct += len(set(values))
        length += sum(map(len, values))
    return odd, distinct, length


# --- taking away ----------------------------------------------------------------------------------------------------


def _without(told: Told, places: Collection[int], stories: tuple[Story, ...] | None = None) -> Told:
    """Without the steps at these places, and without the stories that are told no more."""
    kept = told.stories if stories is None else stories
    steps = [step for place, step in enumerate(told.steps) if place not in places]
    still = {step for step in steps if not isinstance(step, Promise)}
    names = {old: new for new, old in enumerate(sorted(still))}
    renamed: tuple[Step, ...] = tuple(step if isinstance(step, Promise) else names[step] for step in steps)
    return replace(
        told,
        stories=tuple(story for number, story in enumerate(kept) if number in still),
        steps=renamed,
        cuts=_cuts_without(told, places),
    )


def _cuts_without(told: Told, places: Collection[int]) -> tuple[int, ...]:
    sizes, at = [], 0
    for size in told.cuts:
        sizes.append(sum(place not in places for place in range(at, at + size)))
        at += size
    left = tuple(size for size in sizes if size)
    return left if len(left) > 1 else ()


def _reduce(count: Callable[[], int], drop: Callable[[range], bool], least: int = 1) -> None:
    """Try to drop all of what is counted, then halves, then quarters, …; the last first."""
    size = count()
    while size >= least:
        at = count() - size
        while at > -size:
            drop(range(max(at, 0), at + size))
            at -= size
        size //= 2


def _drop_together(search: _Shrinking) -> None:
    """Large parts of all streams at once, by time: what must stay in one of them mostly stays for one in the other."""

    def starts() -> list[int]:
        return sorted(story.le for told in search.best for story in told.stories)

    def drop(gone: range) -> bool:
        times = starts()[gone.start : gone.stop]
        if not times:
            return False
        first, last = times[0], times[-1]
        kept = [[n for n, story in enumerate(t.stories) if not first <= story.le <= last] for t in search.best]
        return search.accept(tuple(_only(t, names) for t, names in zip(search.best, kept, strict=True)))

    _reduce(lambda: len(starts()), drop, least=max(1, len(starts()) // 8))


def _only(told: Told, names: Collection[int]) -> Told:
    """These stories, and all promises."""
    gone = {place for place, step in enumerate(told.steps) if not isinstance(step, Promise) and step not in names}
    return _without(told, gone)


def _drop_stories(search: _Shrinking, number: int) -> None:
    def drop(gone: range) -> bool:
        told = search.best[number]
        return search.accept_one(number, _only(told, [n for n in range(len(told.stories)) if n not in gone]))

    _reduce(lambda: len(search.best[number].stories), drop)


def _drop_promises(search: _Shrinking, number: int) -> None:
    def promises() -> list[int]:
        return [place for place, step in enumerate(search.best[number].steps) if isinstance(step, Promise)]

    def drop(gone: range) -> bool:
        return search.accept_one(number, _without(search.best[number], set(promises()[gone.start : gone.stop])))

    _reduce(lambda: len(promises()), drop)


def _drop_corrections(search: _Shrinking, number: int) -> None:
    """Stories with their last end alone, many at once; then with their first, then with one end less."""

    def corrected() -> list[int]:
        return [name for name, story in enumerate(search.best[number].stories) if len(story.ends) > 1]

    def drop(gone: range) -> bool:
        told = search.best[number]
        for name in corrected()[gone.start : gone.stop]:
            told = _without_ends(told, name, range(len(told.stories[name].ends) - 1))
        return search.accept_one(number, told)

    _reduce(lambda: len(corrected()), drop)
    for name in reversed(corrected()):
        told = search.best[number]
        if not search.accept_one(number, _without_ends(told, name, range(1, len(told.stories[name].ends)))):
            _drop_ends(search, number, name)


def _drop_ends(search: _Shrinking, number: int, name: int) -> None:
    for end in reversed(range(len(search.best[number].stories[name].ends))):
        told = search.best[number]
        if len(told.stories[name].ends) > 1:
            search.accept_one(number, _without_ends(told, name, [end]))


def _without_ends(told: Told, name: int, gone: Collection[int]) -> Told:
    story = told.stories[name]
    places = [place for place, step in enumerate(told.steps) if step == name]
    ends = tuple(end for place, end in enumerate(story.ends) if place not in gone)
    return _without(told, {places[end] for end in gone}, _replaced(told, name, replace(story, ends=ends)))


def _merge_batches(search: _Shrinking, *, coarsely: bool = False) -> None:
    """Fewer batches in all streams at once, then in each."""
    for most in (1, 2, 4, 8):
        if search.accept(tuple(_in_at_most(told, most) for told in search.best)):
            break
    if coarsely:
        return
    for number in range(len(search.best)):
        search.accept_one(number, search.best[number].in_batches((1,) * len(search.best[number])))
        _merge_neighbours(search, number)


def _in_at_most(told: Told, batches: int) -> Told:
    """The same in so many batches, if it has more."""
    if len(told.cuts) <= batches:
        return told
    ends = [len(told) * number // batches for number in range(batches + 1)]
    return told.in_batches([b - a for a, b in pairwise(ends)] if batches > 1 else ())


def _merge_neighbours(search: _Shrinking, number: int) -> None:
    def merge(gone: range) -> bool:
        told = search.best[number]
        ends = list(accumulate(told.cuts, initial=0))
        kept = [end for place, end in enumerate(ends) if place - 1 not in gone]
        return search.accept_one(number, told.in_batches([b - a for a, b in pairwise(kept)]))

    _reduce(lambda: max(0, len(search.best[number].cuts) - 1), merge)


# --- times ----------------------------------------------------------------------------------------------------------


def _replaced(told: Told, name: int, story: Story) -> tuple[Story, ...]:
    return (*told.stories[:name], story, *told.stories[name + 1 :])


def _instants(streams: Streams) -> list[int]:
    """All times that are named, endlessness apart."""
    stories = [story for told in streams for story in told.stories]
    promises = [step.time for told in streams for step in told.steps if isinstance(step, Promise)]
    return sorted({*promises, *(time for story in stories for time in (story.le, *story.ends))} - {INFINITY})


def _moved(told: Told, since: int, by: int) -> Told:
    """All times from `since` on are moved."""

    def move(time: int) -> int:
        return time + by if since <= time != INFINITY else time

    return replace(
        told,
        stories=tuple(replace(s, le=move(s.le), ends=tuple(map(move, s.ends))) for s in told.stories),
        steps=tuple(Promise(move(step.time)) if isinstance(step, Promise) else step for step in told.steps),
    )


def _close_gaps(search: _Shrinking) -> None:
    """Everything towards 0, then every gap between two instants smaller, in all streams at once."""
    instants = _instants(search.best)
    if instants and instants[0] != 0:
        for to in (0, *_smaller(abs(instants[0]))):
            by = (to if instants[0] > 0 else -to) - instants[0]
            if search.accept(tuple(_moved(told, instants[0], by) for told in search.best)):
                break
    place = 1
    while place < len(instants := _instants(search.best)) and not search.late:
        gap = instants[place] - instants[place - 1]
        closer = (tuple(_moved(told, instants[place], size - gap) for told in search.best) for size in _smaller(gap))
        if not any(map(search.accept, closer)):
            place += 1


def _smaller(size: int) -> Iterator[int]:
    """Sizes to try instead of this one: nothing, a tick, a round one, a half, a little less."""
    round_one = 10 ** (len(str(size)) - 1)
    few = (size - 1,) if size <= 64 else ()  # with real units, tick by tick would take for ever
    yield from (other for other in dict.fromkeys((0, CHRONON, round_one, size // 2, *few)) if other < size)


def _shorten(search: _Shrinking, number: int) -> None:
    """Every end, and every promise, at an earlier instant that is named anyway; or one tick after the start."""
    for name in range(len(search.best[number].stories)):
        for end in range(len(search.best[number].stories[name].ends)):
            story = search.best[number].stories[name]
            for time in _earlier(search, story.ends[end], (story.le + CHRONON,)):
                ends = (*story.ends[:end], time, *story.ends[end + 1 :])
                told = search.best[number]
                if search.accept_one(number, replace(told, stories=_replaced(told, name, replace(story, ends=ends)))):
                    break
    for place, step in enumerate(search.best[number].steps):
        if isinstance(step, Promise):
            told = search.best[number]
            lower = (Promise(time) for time in _earlier(search, step.time))
            any(search.accept_one(number, _with_step(told, place, promise)) for promise in lower)


def _with_step(told: Told, place: int, step: Step) -> Told:
    return replace(told, steps=(*told.steps[:place], step, *told.steps[place + 1 :]))


def _earlier(search: _Shrinking, time: int, first: tuple[int, ...] = ()) -> list[int]:
    known = _instants(search.best)
    near = sorted(t for t in {*known, *(instant + CHRONON for instant in known)} if t < time)
    # Not all of them: what is left out now is among the closest once the others have moved.
    return [t for t in dict.fromkeys((*first, *near[:_FEW], *near[-_FEW:])) if t < time]


def _move_earlier(search: _Shrinking, number: int) -> None:
    """Whole stories to where others start or end."""
    for name in range(len(search.best[number].stories)):
        story = search.best[number].stories[name]
        for time in _earlier(search, story.le, (0,)):
            told, by = search.best[number], time - story.le
            ends = tuple(end if end == INFINITY else end + by for end in story.ends)
            moved = replace(story, le=time, ends=ends)
            if search.accept_one(number, replace(told, stories=_replaced(told, name, moved))):
                break


def _put_in_order(search: _Shrinking, number: int) -> None:
    """By sync time, at once or, if that is too much, by neighbours that change places."""
    told = search.best[number]
    if _inversions(told) == 0:
        return
    syncs = _syncs(told)
    order = sorted(range(len(syncs)), key=syncs.__getitem__)
    if search.accept_one(number, replace(told, steps=tuple(told.steps[place] for place in order))):
        return
    place = 0
    while place + 1 < len(told.steps) and not search.late:
        steps = list(search.best[number].steps)
        steps[place : place + 2] = steps[place + 1], steps[place]
        swapped = search.accept_one(number, replace(search.best[number], steps=tuple(steps)))
        place = max(place - 1, 0) if swapped else place + 1


# --- payloads -------------------------------------------------------------------------------------------------------


def _make_plain(search: _Shrinking, number: int) -> None:
    """Every column plain in all stories, else each value plain, else equal to another, else short."""
    for field in search.best[number].schema:
        told = search.best[number]
        plain = tuple(_with_value(story, field.name, plain_value(field.type)) for story in told.stories)
        if search.accept_one(number, replace(told, stories=plain)):
            continue
        for name in range(len(told.stories)):
            story = search.best[number].stories[name]
            others = [other.payload[field.name] for other in search.best[number].stories]
            for value in (*plain_values(field.type), None, *others):
                told = search.best[number]
                changed = _replaced(told, name, _with_value(story, field.name, value))
                if search.accept_one(number, replace(told, stories=changed)):
                    break


def _rename(search: _Shrinking) -> None:
    """A value plain wherever it is: keys that must be equal in two streams cannot change one by one."""
    known = {
        (field, repr(story.payload[field.name])): None
        for told in search.best
        for field in told.schema
        for story in told.stories
    }
    for field, text in known:
        for value in plain_values(field.type):
            if search.accept(tuple(_renamed(told, field.name, text, value) for told in search.best)):
                break


def _renamed(told: Told, column: str, text: str, value: Any) -> Told:
    stories = (
        _with_value(story, column, value) if repr(story.payload.get(column)) == text else story
        for story in told.stories
    )
    return replace(told, stories=tuple(stories)) if column in told.schema else told


def _with_value(story: Story, name: str, value: Any) -> Story:
    return replace(story, payload={**story.payload, name: value})
