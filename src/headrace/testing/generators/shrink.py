"""Find the smallest streams that still fail: delta debugging over stories.

The search is greedy and deterministic. Passes propose simpler streams; one that is legal, of less weight and still
fails replaces the best so far. The search ends when no pass finds a simpler one, or when the time is up. Weight (fewer
rows, then plainer batches, then smaller times, …) only ever falls, so no two passes undo each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from time import monotonic
from typing import Any

from headrace.testing.generators.stories import Promise, Step, Story, StoryStream
from headrace.testing.generators.values import plain_value, plain_values
from headrace.time import CHRONON, INFINITY

__all__ = ["shrink"]

Streams = tuple[StoryStream, ...]
#: The weight of an endless lifetime: more than a point, less than a time in real units.
_ENDLESS = 50
#: With at most this many rows, one row per batch is easy to read.
_FEW_ROWS = 8
#: The number of earliest and of closest instants to try for a time.
_FEW = 4


def shrink(
    streams: Streams,
    fails: Callable[[Streams], bool],
    *,
    seconds: float = 20.0,
    tell: Callable[[int], None] | None = None,
) -> Streams:
    """A smallest set of legal streams for which `fails` is still true; `streams` itself if nothing can be removed.

    `tell` is called with the number of rows left whenever it falls.
    """
    search = _Shrinking(tuple(streams), fails, seconds, tell)
    _merge_batches(search, coarsely=True)  # first, because the time of a run grows with its batches
    _drop_together(search)
    before = None
    while before is not search.best and not search.timed_out:
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
    """The simplest failing streams found so far."""

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
    def timed_out(self) -> bool:
        return monotonic() >= self._until

    def accept(self, streams: Streams) -> bool:
        """Make these streams the best if they are simpler and still fail; return whether they are."""
        mark = repr([(stream.stories, stream.steps, stream.cuts) for stream in streams])  # payloads hold lists and NaN
        if self.timed_out or mark in self._tried:
            return False
        self._tried.add(mark)
        if not all(stream.is_legal() for stream in streams) or (weight := _weight(streams)) >= self._weight:
            return False
        if not self._fails(streams):
            return False
        fewer = weight[0] < self._weight[0]
        self.best, self._weight = streams, weight
        if fewer and self._tell is not None:
            self._tell(weight[0])
        return True

    def accept_one(self, number: int, stream: StoryStream) -> bool:
        """The same with one of the streams replaced."""
        return self.accept((*self.best[:number], stream, *self.best[number + 1 :]))


# --- weight ---------------------------------------------------------------------------------------------------------


def _weight(streams: Streams) -> tuple[int, ...]:
    each = [(_batches(stream), _times(stream), _inversions(stream), *_strangeness(stream)) for stream in streams]
    return (sum(map(len, streams)), *map(sum, zip(*each, strict=True)))


def _batches(stream: StoryStream) -> int:
    """The plainest is one batch, then, for few rows, one batch per row."""
    if len(stream.cuts) <= 1:
        return 0
    return 1 if len(stream.cuts) == len(stream.steps) <= _FEW_ROWS else len(stream.cuts)


def _times(stream: StoryStream) -> int:
    promises = sum(abs(step.time) for step in stream.steps if isinstance(step, Promise))
    ends = ((end - story.le) if end != INFINITY else _ENDLESS for story in stream.stories for end in story.ends)
    return promises + sum(ends) + sum(abs(story.le) for story in stream.stories)


def _inversions(stream: StoryStream) -> int:
    syncs = _syncs(stream)
    return sum(a > b for place, a in enumerate(syncs) for b in syncs[place + 1 :])


def _syncs(stream: StoryStream) -> list[int]:
    return [
        step.time if isinstance(step, Promise) else stream.stories[step[0]].sync(step[1])
        for step in stream.numbered_steps()
    ]


def _strangeness(stream: StoryStream) -> tuple[int, int, int]:
    """The number of values that are not the plainest, the number of distinct values, and their length."""
    odd = distinct = length = 0
    for field in stream.schema:
        values = [repr(story.payload[field.name]) for story in stream.stories]
        odd += sum(value != repr(plain_value(field.type)) for value in values)
        distinct += len(set(values))
        length += sum(map(len, values))
    return odd, distinct, length


# --- removal --------------------------------------------------------------------------------------------------------


def _without(stream: StoryStream, places: Collection[int], stories: tuple[Story, ...] | None = None) -> StoryStream:
    """The stream without the steps at these places, and without stories that have no steps left."""
    all_stories = stream.stories if stories is None else stories
    steps = [step for place, step in enumerate(stream.steps) if place not in places]
    used = {step for step in steps if not isinstance(step, Promise)}
    names = {old: new for new, old in enumerate(sorted(used))}
    renamed: tuple[Step, ...] = tuple(step if isinstance(step, Promise) else names[step] for step in steps)
    return replace(
        stream,
        stories=tuple(story for number, story in enumerate(all_stories) if number in used),
        steps=renamed,
        cuts=_cuts_without(stream, places),
    )


def _cuts_without(stream: StoryStream, places: Collection[int]) -> tuple[int, ...]:
    sizes, at = [], 0
    for size in stream.cuts:
        sizes.append(sum(place not in places for place in range(at, at + size)))
        at += size
    remaining = tuple(size for size in sizes if size)
    return remaining if len(remaining) > 1 else ()


def _reduce(count: Callable[[], int], drop: Callable[[range], bool], least: int = 1) -> None:
    """Try to drop all items, then halves, then quarters, …; the last first."""
    size = count()
    while size >= least:
        at = count() - size
        while at > -size:
            drop(range(max(at, 0), at + size))
            at -= size
        size //= 2


def _drop_together(search: _Shrinking) -> None:
    """Drop large parts of all streams at once, by time: a story is mostly needed for one of about the same time."""

    def starts() -> list[int]:
        return sorted(story.le for stream in search.best for story in stream.stories)

    def drop(gone: range) -> bool:
        times = starts()[gone.start : gone.stop]
        if not times:
            return False
        first, last = times[0], times[-1]
        kept = [[n for n, story in enumerate(t.stories) if not first <= story.le <= last] for t in search.best]
        return search.accept(tuple(_only(t, names) for t, names in zip(search.best, kept, strict=True)))

    _reduce(lambda: len(starts()), drop, least=max(1, len(starts()) // 8))


def _only(stream: StoryStream, names: Collection[int]) -> StoryStream:
    """The stream with only these stories, and all promises."""
    gone = {place for place, step in enumerate(stream.steps) if not isinstance(step, Promise) and step not in names}
    return _without(stream, gone)


def _drop_stories(search: _Shrinking, number: int) -> None:
    def drop(gone: range) -> bool:
        stream = search.best[number]
        return search.accept_one(number, _only(stream, [n for n in range(len(stream.stories)) if n not in gone]))

    _reduce(lambda: len(search.best[number].stories), drop)


def _drop_promises(search: _Shrinking, number: int) -> None:
    def promises() -> list[int]:
        return [place for place, step in enumerate(search.best[number].steps) if isinstance(step, Promise)]

    def drop(gone: range) -> bool:
        return search.accept_one(number, _without(search.best[number], set(promises()[gone.start : gone.stop])))

    _reduce(lambda: len(promises()), drop)


def _drop_corrections(search: _Shrinking, number: int) -> None:
    """Keep only the last end of stories, many at once; then only the first; then drop single ends."""

    def corrected() -> list[int]:
        return [name for name, story in enumerate(search.best[number].stories) if len(story.ends) > 1]

    def drop(gone: range) -> bool:
        stream = search.best[number]
        for name in corrected()[gone.start : gone.stop]:
            stream = _without_ends(stream, name, range(len(stream.stories[name].ends) - 1))
        return search.accept_one(number, stream)

    _reduce(lambda: len(corrected()), drop)
    for name in reversed(corrected()):
        stream = search.best[number]
        if not search.accept_one(number, _without_ends(stream, name, range(1, len(stream.stories[name].ends)))):
            _drop_ends(search, number, name)


def _drop_ends(search: _Shrinking, number: int, name: int) -> None:
    for end in reversed(range(len(search.best[number].stories[name].ends))):
        stream = search.best[number]
        if len(stream.stories[name].ends) > 1:
            search.accept_one(number, _without_ends(stream, name, [end]))


def _without_ends(stream: StoryStream, name: int, gone: Collection[int]) -> StoryStream:
    story = stream.stories[name]
    places = [place for place, step in enumerate(stream.steps) if step == name]
    ends = tuple(end for place, end in enumerate(story.ends) if place not in gone)
    return _without(stream, {places[end] for end in gone}, _replaced(stream, name, replace(story, ends=ends)))


def _merge_batches(search: _Shrinking, *, coarsely: bool = False) -> None:
    """Try fewer batches in all streams at once, then in each."""
    for most in (1, 2, 4, 8):
        if search.accept(tuple(_in_at_most(stream, most) for stream in search.best)):
            break
    if coarsely:
        return
    for number in range(len(search.best)):
        search.accept_one(number, search.best[number].in_batches((1,) * len(search.best[number])))
        _merge_neighbours(search, number)


def _in_at_most(stream: StoryStream, batches: int) -> StoryStream:
    """The stream in at most this many batches."""
    if len(stream.cuts) <= batches:
        return stream
    ends = [len(stream) * number // batches for number in range(batches + 1)]
    return stream.in_batches([b - a for a, b in pairwise(ends)] if batches > 1 else ())


def _merge_neighbours(search: _Shrinking, number: int) -> None:
    def merge(gone: range) -> bool:
        stream = search.best[number]
        ends = list(accumulate(stream.cuts, initial=0))
        kept = [end for place, end in enumerate(ends) if place - 1 not in gone]
        return search.accept_one(number, stream.in_batches([b - a for a, b in pairwise(kept)]))

    _reduce(lambda: max(0, len(search.best[number].cuts) - 1), merge)


# --- times ----------------------------------------------------------------------------------------------------------


def _replaced(stream: StoryStream, name: int, story: Story) -> tuple[Story, ...]:
    return (*stream.stories[:name], story, *stream.stories[name + 1 :])


def _instants(streams: Streams) -> list[int]:
    """All finite times in the streams."""
    stories = [story for stream in streams for story in stream.stories]
    promises = [step.time for stream in streams for step in stream.steps if isinstance(step, Promise)]
    return sorted({*promises, *(time for story in stories for time in (story.le, *story.ends))} - {INFINITY})


def _moved(stream: StoryStream, since: int, by: int) -> StoryStream:
    """The stream with all times from `since` on moved."""

    def move(time: int) -> int:
        return time + by if since <= time != INFINITY else time

    return replace(
        stream,
        stories=tuple(replace(s, le=move(s.le), ends=tuple(map(move, s.ends))) for s in stream.stories),
        steps=tuple(Promise(move(step.time)) if isinstance(step, Promise) else step for step in stream.steps),
    )


def _close_gaps(search: _Shrinking) -> None:
    """Move everything towards 0, then make every gap between two instants smaller, in all streams at once."""
    instants = _instants(search.best)
    if instants and instants[0] != 0:
        for to in (0, *_smaller(abs(instants[0]))):
            by = (to if instants[0] > 0 else -to) - instants[0]
            if search.accept(tuple(_moved(stream, instants[0], by) for stream in search.best)):
                break
    place = 1
    while place < len(instants := _instants(search.best)) and not search.timed_out:
        gap = instants[place] - instants[place - 1]
        closer = (
            tuple(_moved(stream, instants[place], size - gap) for stream in search.best) for size in _smaller(gap)
        )
        if not any(map(search.accept, closer)):
            place += 1


def _smaller(size: int) -> Iterator[int]:
    """Smaller sizes to try: zero, a tick, a round number, a half, one less."""
    round_one = 10 ** (len(str(size)) - 1)
    few = (size - 1,) if size <= 64 else ()  # with real units, tick by tick takes too long
    yield from (other for other in dict.fromkeys((0, CHRONON, round_one, size // 2, *few)) if other < size)


def _shorten(search: _Shrinking, number: int) -> None:
    """Move every end and every promise to an earlier instant of the streams, or to one tick after the start."""
    for name in range(len(search.best[number].stories)):
        for end in range(len(search.best[number].stories[name].ends)):
            story = search.best[number].stories[name]
            for time in _earlier(search, story.ends[end], (story.le + CHRONON,)):
                ends = (*story.ends[:end], time, *story.ends[end + 1 :])
                stream = search.best[number]
                if search.accept_one(
                    number, replace(stream, stories=_replaced(stream, name, replace(story, ends=ends)))
                ):
                    break
    for place, step in enumerate(search.best[number].steps):
        if isinstance(step, Promise):
            stream = search.best[number]
            lower = (Promise(time) for time in _earlier(search, step.time))
            any(search.accept_one(number, _with_step(stream, place, promise)) for promise in lower)


def _with_step(stream: StoryStream, place: int, step: Step) -> StoryStream:
    return replace(stream, steps=(*stream.steps[:place], step, *stream.steps[place + 1 :]))


def _earlier(search: _Shrinking, time: int, first: tuple[int, ...] = ()) -> list[int]:
    known = _instants(search.best)
    near = sorted(t for t in {*known, *(instant + CHRONON for instant in known)} if t < time)
    # Not all of them: the rest become the closest once the others have moved.
    return [t for t in dict.fromkeys((*first, *near[:_FEW], *near[-_FEW:])) if t < time]


def _move_earlier(search: _Shrinking, number: int) -> None:
    """Move entire stories to where others start or end."""
    for name in range(len(search.best[number].stories)):
        story = search.best[number].stories[name]
        for time in _earlier(search, story.le, (0,)):
            stream, by = search.best[number], time - story.le
            ends = tuple(end if end == INFINITY else end + by for end in story.ends)
            moved = replace(story, le=time, ends=ends)
            if search.accept_one(number, replace(stream, stories=_replaced(stream, name, moved))):
                break


def _put_in_order(search: _Shrinking, number: int) -> None:
    """Sort by sync time, at once or, if that does not fail, by swapping neighbours."""
    stream = search.best[number]
    if _inversions(stream) == 0:
        return
    syncs = _syncs(stream)
    order = sorted(range(len(syncs)), key=syncs.__getitem__)
    if search.accept_one(number, replace(stream, steps=tuple(stream.steps[place] for place in order))):
        return
    place = 0
    while place + 1 < len(stream.steps) and not search.timed_out:
        steps = list(search.best[number].steps)
        steps[place : place + 2] = steps[place + 1], steps[place]
        swapped = search.accept_one(number, replace(search.best[number], steps=tuple(steps)))
        place = max(place - 1, 0) if swapped else place + 1


# --- payloads -------------------------------------------------------------------------------------------------------


def _make_plain(search: _Shrinking, number: int) -> None:
    """Make every column plain in all stories, else each value plain, or equal to another."""
    for field in search.best[number].schema:
        stream = search.best[number]
        plain = tuple(_with_value(story, field.name, plain_value(field.type)) for story in stream.stories)
        if search.accept_one(number, replace(stream, stories=plain)):
            continue
        for name in range(len(stream.stories)):
            story = search.best[number].stories[name]
            others = [other.payload[field.name] for other in search.best[number].stories]
            for value in (*plain_values(field.type), None, *others):
                stream = search.best[number]
                changed = _replaced(stream, name, _with_value(story, field.name, value))
                if search.accept_one(number, replace(stream, stories=changed)):
                    break


def _rename(search: _Shrinking) -> None:
    """Replace a value in all streams: keys that must be equal in two streams cannot change one by one."""
    known = {
        (field, repr(story.payload[field.name])): None
        for stream in search.best
        for field in stream.schema
        for story in stream.stories
    }
    for field, text in known:
        for value in plain_values(field.type):
            if search.accept(tuple(_renamed(stream, field.name, text, value) for stream in search.best)):
                break


def _renamed(stream: StoryStream, column: str, text: str, value: Any) -> StoryStream:
    stories = (
        _with_value(story, column, value) if repr(story.payload.get(column)) == text else story
        for story in stream.stories
    )
    return replace(stream, stories=tuple(stories)) if column in stream.schema else stream


def _with_value(story: Story, name: str, value: Any) -> Story:
    return replace(story, payload={**story.payload, name: value})
