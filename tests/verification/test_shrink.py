"""What is left after shrinking still fails, is legal, and is as small as it can be."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from headrace.schema import Schema
from headrace.testing.generators.generate import generate
from headrace.testing.generators.shrink import shrink
from headrace.testing.generators.stories import Promise, Story, StoryStream
from headrace.testing.generators.traits import DIMENSIONS
from headrace.time import INFINITY

SCHEMA = Schema.of("k STRING, i LONG, x DOUBLE")
WILD = {
    "duration": "all_durations",
    "overlap": "medium_overlap",
    "boundary": "any_ends",
    "disorder": "out_of_order",
    "ctis": "regular_ctis",
    "speculation": "revised",
    "lulls": "lulls",
    "payload": "zipf",
}
Streams = tuple[StoryStream, ...]


def smallest(fails: Callable[[StoryStream], bool], *, unit: int = 1, **setting: str) -> StoryStream:
    """The shrunken form of the first generated stream that fails."""
    for seed in range(300):
        told = generate(SCHEMA, {**WILD, **setting}, seed, unit=unit)
        if fails(told):
            (left,) = shrink((told,), lambda streams: fails(streams[0]), seconds=30)
            assert left.is_legal()
            assert fails(left)
            return left
    raise AssertionError("no generated stream fails")


def deletes(told: StoryStream) -> bool:
    return any(story.re == story.le for story in told.stories)


def comes_late(told: StoryStream) -> bool:
    starts = [event["le"] for event in told.events() if event["kind"] == "insert"]
    return any(b < a for a, b in pairwise(starts))


def never_ends_with_this_key(told: StoryStream) -> bool:
    return any(re == INFINITY and payload["k"] == "b" for _, re, payload in told.history())


def corrected_after_a_promise(told: StoryStream) -> bool:
    rows = told.events()
    ctis = [place for place, row in enumerate(rows) if row["kind"] == "cti"]
    return bool(ctis) and any(row["kind"] == "retract" for row in rows[ctis[0] :])


def two_meet(told: StoryStream) -> bool:
    return any(a[1] == b[0] for a in told.history() for b in told.history())


def three_batches(told: StoryStream) -> bool:
    return len(told.cuts) >= 3


def test_what_always_fails_needs_nothing():
    (left,) = shrink((generate(SCHEMA, WILD, 1),), lambda _: True)
    assert left == StoryStream(SCHEMA, (), (), ())


def test_a_deletion():
    left = smallest(deletes)
    assert left == StoryStream(SCHEMA, (Story(0, (1, 0), {"k": "a", "i": 0, "x": 0.0}),), (0, 0))


def test_an_event_that_comes_late():
    left = smallest(comes_late)
    assert [(row["kind"], row["le"], row["re"]) for row in left.events()] == [("insert", 1, 2), ("insert", 0, 1)]


def test_a_payload_that_matters_stays():
    left = smallest(never_ends_with_this_key)
    assert [story.payload for story in left.stories] == [{"k": "b", "i": 0, "x": 0.0}]
    assert left.stories[0].ends == (INFINITY,)
    assert left.stories[0].le == 0


def test_a_promise_that_matters_stays():
    left = smallest(corrected_after_a_promise)
    assert sorted(row["kind"] for row in left.events()) == ["cti", "insert", "retract"]
    assert max(story.le for story in left.stories) <= 1


def test_events_that_must_meet_still_do():
    left = smallest(two_meet, unit=1_000_000, boundary="back_to_back")
    assert sorted((le, re) for le, re, _ in left.history()) == [(0, 1), (1, 2)]


def test_batches_that_matter_stay():
    assert smallest(three_batches).cuts == (1, 1, 1)


@pytest.mark.parametrize("seed", range(8))
def test_windows_of_real_units_shrink_too(seed: int):
    second = 1_000_000

    def fails(streams: Streams) -> bool:
        return len({le // (10 * second) for le, _, _ in streams[0].history()}) >= 3

    told = generate(SCHEMA, {**WILD, "overlap": "low_overlap"}, seed, unit=second)
    (left,) = shrink((told,), fails)
    assert len(left.steps) == 3
    assert fails((left,))


def test_several_streams_shrink_together():
    def joined(streams: Streams) -> bool:
        a, b = (told.history() for told in streams)
        return any(max(x[0], y[0]) < min(x[1], y[1]) and x[2]["k"] == y[2]["k"] and x[0] != y[0] for x in a for y in b)

    told: list[int] = []
    pair = (generate(SCHEMA, WILD, 1), generate(SCHEMA, WILD, 2))
    assert joined(pair)
    left = shrink(pair, joined, tell=told.append)
    assert joined(left)
    assert [len(one.steps) for one in left] == [1, 1]
    assert sorted((s.le, *s.ends) for one in left for s in one.stories) == [(0, 2), (1, 2)]
    assert {s.payload["k"] for one in left for s in one.stories} == {"a"}
    assert told == sorted(set(told), reverse=True)
    assert told[-1] == 2


@pytest.mark.parametrize("seed", range(12))
def test_every_proposal_is_legal_and_the_result_fails(seed: int):
    chance = random.Random(seed)
    setting = {name: chance.choice(values) for name, values in DIMENSIONS.items()}
    given = (generate(SCHEMA, setting, seed, size=12), generate(SCHEMA, setting, seed + 1, size=12))
    calls = 0

    def fails(streams: Streams) -> bool:
        nonlocal calls
        calls += 1
        assert all(told.is_legal() for told in streams)
        return sum(len(told.steps) * 7 + sum(story.le for story in told.stories) for told in streams) % 3 == seed % 3

    left = shrink(given, fails)
    assert left == given or fails(left)
    assert repr(shrink(given, fails)) == repr(left)
    assert 0 < calls < 20_000


def test_nothing_is_tried_when_there_is_no_time():
    given = (generate(SCHEMA, WILD, 1),)
    assert shrink(given, lambda _: pytest.fail("called"), seconds=0) is not None
    assert shrink(given, lambda _: False) == given


def test_odd_payloads_become_plain():
    left = smallest(lambda told: len(told.history()) >= 2, payload="extremes")
    assert all(story.payload == {"k": "a", "i": 0, "x": 0.0} for story in left.stories)
    assert not any(isinstance(step, Promise) for step in left.steps)
