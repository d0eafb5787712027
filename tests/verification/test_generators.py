"""Every value of every dimension is measured on generated streams; stories are compared with what the engine reads."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from statistics import fmean
from typing import Any

import pytest

from headrace.errors import IntentError
from headrace.events import events_table, history, same_history, to_changes
from headrace.schema import Schema, Type
from headrace.testing.checks import check_output, output_violations
from headrace.testing.generators.generate import (
    duplicate_retractions,
    generate,
    make_speculative,
    speculated,
)
from headrace.testing.generators.stories import Promise, Story, StoryStream
from headrace.testing.generators.traits import DIMENSIONS
from headrace.testing.generators.values import Payloads, plain_value
from headrace.time import INFINITY

SCHEMA = Schema.of("k STRING, i LONG, x DOUBLE")
KINDS = [*Type.PLAIN, *(kind.array for kind in Type.PLAIN)]
EVERY = Schema.of(", ".join(f"c{number} {kind.value}" for number, kind in enumerate(KINDS)))
PLAIN = {name: values[0] for name, values in DIMENSIONS.items()}
SEEDS = range(25)


def made(seed: int = 0, *, schema: Schema = SCHEMA, size: int = 24, unit: int = 1, **setting: str) -> StoryStream:
    return generate(schema, {**PLAIN, "duration": "short", **setting}, seed, size=size, unit=unit)


def mean(measure: Callable[[StoryStream], float], **setting: str) -> float:
    return fmean(measure(made(seed, **setting)) for seed in SEEDS)


def settings(count: int, seed: int = 0) -> Iterator[dict[str, str]]:
    chance = random.Random(seed)
    for _ in range(count):
        yield {name: chance.choice(values) for name, values in DIMENSIONS.items()}


# --- stories --------------------------------------------------------------------------------------------------------


def seed_example() -> StoryStream:
    first, second = Story(1, (INFINITY, 10, 5), {"p": "P1"}), Story(4, (9,), {"p": "P2"})
    return StoryStream(Schema.of("p STRING"), (first, second), (0, 0, 0, 1))


def test_the_example_of_the_semantics():
    told = seed_example()
    assert told.is_legal()
    assert told.history() == [(1, 5, {"p": "P1"}), (4, 9, {"p": "P2"})]
    assert [(e["kind"], e["re"], e["re_new"]) for e in told.events()] == [
        ("insert", INFINITY, None),
        ("retract", INFINITY, 10),
        ("retract", 10, 5),
        ("insert", 9, None),
    ]


@pytest.mark.parametrize(
    ("stories", "steps", "cuts"),
    [
        (((1, (5,)),), (Promise(2), 0), ()),  # late
        (((1, (5, 3)),), (0, Promise(4), 0), ()),  # a late correction
        (((1, (5, 9)),), (0, Promise(6), 0), ()),  # an end that is promised
        (((1, (1,)),), (0,), ()),  # empty
        (((1, (5, 5)),), (0, 0), ()),  # a correction that changes nothing
        (((1, (5, 1, 3)),), (0, 0, 0), ()),  # alive again
        (((1, (5, 3)),), (0,), ()),  # not told to its end
        (((1, (5,)),), (0, 0), ()),
        (((1, (5,)),), (), ()),
        (((1, (5,)),), (Promise(1), Promise(1), 0), ()),  # CTIs that do not rise
        (((1, (5,)),), (0,), (2,)),
        (((2**61, (INFINITY,)),), (0,), ()),
    ],
)
def test_illegal_streams_are_told(stories: Any, steps: Any, cuts: Any):
    told = StoryStream(Schema.of("p STRING"), tuple(Story(le, ends, {"p": "a"}) for le, ends in stories), steps, cuts)
    assert not told.is_legal()


def test_a_correction_exactly_at_the_cti_is_legal():
    told = StoryStream(Schema.of("p STRING"), (Story(1, (5, 9, 5), {"p": "a"}),), (0, Promise(5), 0, 0))
    assert told.is_legal()
    check_output(told.table())


def test_stories_tell_what_the_engine_reads():
    for number, setting in enumerate(settings(150)):
        told = generate(SCHEMA, setting, number, size=number % 30)
        table = told.table()
        assert told.is_legal()
        assert len(told.stories) == number % 30
        assert list(output_violations(table)) == []
        left = [{"kind": "insert", "le": le, "re": re, **payload} for le, re, payload in told.history()]
        of_stories = history(to_changes(events_table(left, SCHEMA), SCHEMA))
        assert same_history(history(to_changes(table, SCHEMA)), of_stories)


def test_streams_run_in_their_batches():
    for number, setting in enumerate(settings(6, seed=1)):
        told = generate(SCHEMA, setting, number, size=10)
        assert same_history(told.stream().cht(), history(to_changes(told.table(), SCHEMA)))


@pytest.mark.parametrize("payload", DIMENSIONS["payload"])
def test_drawn_text_reads_back(payload: str):
    for seed in range(12):
        told = made(seed, schema=EVERY, size=8, payload=payload, speculation="revised", ctis="regular_ctis")
        text = told.drawn()
        names = {"date": date, "datetime": datetime, "float": float, "time": time, "timedelta": timedelta}
        data = eval(text, names) if text.startswith("[") else text  # noqa: S307 - what a person would paste
        assert repr(events_table(data, EVERY).to_pylist()) == repr(told.table().to_pylist())


def test_usual_streams_are_drawn_as_tables():
    assert made(payload="nulls").drawn().startswith("kind")
    assert made(payload="extremes").drawn().startswith("kind")


# --- the generator --------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_stream():
    for number, setting in enumerate(settings(20)):
        one, two = (generate(EVERY, setting, number) for _ in range(2))
        assert repr(one) == repr(two)
    assert repr(made(1)) != repr(made(2))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 60])
def test_any_size(size: int):
    for number, setting in enumerate(settings(60, seed=size)):
        told = generate(SCHEMA, setting, number, size=size)
        assert told.is_legal()
        assert len(told.stories) == size


def test_unknown_settings_are_refused():
    with pytest.raises(IntentError, match="short"):
        generate(SCHEMA, {**PLAIN, "duration": "shrt"}, 0)
    with pytest.raises(IntentError, match="overlap"):
        generate(SCHEMA, {"overlp": "low_overlap"}, 0)


def durations(told: StoryStream) -> list[int]:
    return [story.re - story.le for story in told.stories if story.re != INFINITY]


def endless(told: StoryStream) -> float:
    return fmean(story.re == INFINITY for story in told.stories)


def test_durations():
    for seed in SEEDS:
        assert set(durations(made(seed, duration="points", unit=1000))) == {1}
        assert all(1 <= d <= 4 for d in durations(made(seed, duration="short")))
        assert all(8 <= d <= 16 for d in durations(made(seed, duration="long")))
        assert endless(made(seed, duration="long")) == 0
        assert endless(made(seed, duration="infinite")) > 0.4
    assert mean(endless, duration="infinite") == pytest.approx(0.75, abs=0.1)
    mixed = [d for seed in SEEDS for d in durations(made(seed, duration="all_durations"))]
    assert {1, 2, 3, 4} < set(mixed)
    assert max(mixed) > 8
    assert 0 < mean(endless, duration="all_durations") < 0.4


def alive(told: StoryStream) -> float:
    """How many events are alive when one starts, on average."""
    lives = [(le, re) for le, re, _ in told.history()]
    return fmean(sum(le <= start < re for le, re in lives) for start, _ in lives)


@pytest.mark.parametrize("duration", DIMENSIONS["duration"])
@pytest.mark.parametrize("boundary", ["any_ends", "duplicates"])
def test_overlap(duration: str, boundary: str):
    low, medium, high = (mean(alive, duration=duration, boundary=boundary, overlap=o) for o in DIMENSIONS["overlap"])
    assert low < medium < high
    if duration in ("points", "short", "long"):
        assert low < 3.5
        assert medium > 1.7 * low
        assert high > 1.5 * medium


@pytest.mark.parametrize("duration", DIMENSIONS["duration"])
@pytest.mark.parametrize("overlap", DIMENSIONS["overlap"])
@pytest.mark.parametrize("unit", [1, 1000])
def test_disjoint(duration: str, overlap: str, unit: int):
    for seed in SEEDS:
        for speculation in ("certain", "revised"):
            told = made(
                seed, duration=duration, overlap=overlap, unit=unit, boundary="disjoint", speculation=speculation
            )
            lives = sorted((le, re) for le, re, _ in told.history())
            assert all(re < le for (_, re), (le, _) in pairwise(lives))


def one_tick(told: StoryStream) -> float:
    """The share of events with an end one tick from an end of another."""
    lives = [(le, re) for le, re, _ in told.history()]
    near = 0
    for number, life in enumerate(lives):
        others = {end for other, ends in enumerate(lives) if other != number for end in ends}
        near += any(end - 1 in others or end + 1 in others for end in life if end != INFINITY)
    return near / len(lives)


def meeting(told: StoryStream) -> float:
    """The share of events that start where another ends."""
    ends = {re for _, re, _ in told.history()}
    return fmean(le in ends for le, _, _ in told.history())


@pytest.mark.parametrize("duration", DIMENSIONS["duration"])
def test_boundaries_that_nearly_and_just_meet(duration: str):
    for unit in (1, 1000):
        for seed in SEEDS:
            assert one_tick(made(seed, duration=duration, boundary="one_tick_apart", unit=unit)) > 0.8
            assert meeting(made(seed, duration=duration, boundary="back_to_back", unit=unit)) > 0.8


def test_other_boundaries_seldom_meet():
    for measure in (one_tick, meeting):
        assert fmean(measure(made(seed, unit=1000, boundary="disjoint")) for seed in SEEDS) < 0.3


def test_duplicates():
    for seed in SEEDS:
        for payload in ("uniform", "extremes"):
            told = made(seed, boundary="duplicates", payload=payload)
            assert min(Counter(map(repr, told.history())).values()) >= 2
        revised = made(seed, boundary="duplicates", speculation="revised")
        assert max(Counter(map(repr, revised.history())).values()) >= 2


def lateness(told: StoryStream) -> tuple[float, float]:
    """The share of inserts that come after a later one, and after how many later ones on average."""
    seen: list[int] = []
    behind: list[int] = []
    for event in told.events():
        if event["kind"] == "insert":
            behind.append(sum(le > event["le"] for le in seen))
            seen.append(event["le"])
    return fmean(b > 0 for b in behind), fmean(behind)


@pytest.mark.parametrize("overlap", DIMENSIONS["overlap"])
@pytest.mark.parametrize("lulls", DIMENSIONS["lulls"])
def test_disorder(overlap: str, lulls: str):
    degrees = [
        [lateness(made(seed, disorder=disorder, overlap=overlap, lulls=lulls)) for seed in SEEDS]
        for disorder in DIMENSIONS["disorder"]
    ]
    shares = [fmean(share for share, _ in degree) for degree in degrees]
    far = [fmean(distance for _, distance in degree) for degree in degrees]
    assert shares[0] == far[0] == 0
    assert 0 < shares[1] < 0.25
    assert shares[1] < shares[2] < shares[3]
    assert 0 < far[1] < 0.75 * far[2] < 0.75 * 0.9 * far[3]


def test_streams_in_order_are_fully_in_order():
    for seed in SEEDS:
        told = made(seed, disorder="in_order", speculation="revised", ctis="eager_ctis", duration="all_durations")
        syncs = [s.time if isinstance(s, Promise) else told.stories[s[0]].sync(s[1]) for s in told.numbered_steps()]
        assert syncs == sorted(syncs)


@pytest.mark.parametrize("speculation", ["made_speculative", "duplicate_retractions"])
def test_streams_to_be_made_speculative_are_never_in_order(speculation: str):
    assert mean(lambda told: lateness(told)[0], speculation=speculation, disorder="in_order") > 0.2


def promises(told: StoryStream) -> list[int]:
    return [step.time for step in told.steps if isinstance(step, Promise)]


def staleness(told: StoryStream) -> float:
    """How far behind the least sync time still to come the latest CTI is when an event comes, on average."""
    syncs = [s.time if isinstance(s, Promise) else told.stories[s[0]].sync(s[1]) for s in told.numbered_steps()]
    cti, behind = min(syncs) - 10, []
    for place, step in enumerate(told.steps):
        if isinstance(step, Promise):
            cti = step.time
        else:
            rest = [
                sync for sync, s in zip(syncs[place:], told.steps[place:], strict=True) if not isinstance(s, Promise)
            ]
            behind.append(min(rest) - cti)
    return fmean(behind)


@pytest.mark.parametrize("disorder", DIMENSIONS["disorder"])
@pytest.mark.parametrize("speculation", ["certain", "revised"])
def test_ctis(disorder: str, speculation: str):
    how = {"disorder": disorder, "speculation": speculation}
    none, rare, regular, eager = (mean(lambda t: len(promises(t)), ctis=c, **how) for c in DIMENSIONS["ctis"])
    assert none == 0
    assert 1 <= rare <= 3
    assert rare < regular < eager
    _, rarely, regularly, eagerly = (mean(staleness, ctis=c, **how) for c in DIMENSIONS["ctis"])
    assert eagerly == 0
    assert regularly < rarely
    assert all(promises(made(seed, ctis="rare_ctis", **how)) for seed in SEEDS)


@pytest.mark.parametrize("disorder", DIMENSIONS["disorder"])
@pytest.mark.parametrize("ctis", DIMENSIONS["ctis"])
def test_lulls_have_ctis_and_nothing_else(disorder: str, ctis: str):
    for seed in SEEDS:
        told = made(seed, lulls="lulls", disorder=disorder, ctis=ctis, speculation="revised")
        starts = sorted(story.le for story in told.stories)
        gaps = sorted(((b - a, a, b) for a, b in pairwise(starts)), reverse=True)[:2]
        assert all(gap >= 30 for gap, _, _ in gaps)
        for _, before, after in gaps:
            assert sum(before + 4 < time < after for time in promises(told)) >= (ctis != "no_ctis")
        steady = sorted(story.le for story in made(seed, disorder=disorder, ctis=ctis).stories)
        assert max(b - a for a, b in pairwise(steady)) < 30


def test_revisions():
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        told = made(seed, speculation="revised", ctis="eager_ctis", disorder="out_of_order", duration="all_durations")
        cti = None
        for step in told.numbered_steps():
            if isinstance(step, Promise):
                cti = step.time
                continue
            story, number = told.stories[step[0]], step[1]
            if number:
                old, new = story.ends[number - 1 : number + 1]
                seen["deleted" if new == story.le else "shorter" if new < old else "longer"] += 1
                seen["to infinity"] += new == INFINITY
                seen["from infinity"] += old == INFINITY
                seen["at the cti"] += story.sync(number) == cti
                seen["after its start is promised"] += cti is not None and story.le < cti
                seen["chain"] += number > 1
    assert min(seen.values()) >= 10, seen
    assert all(len(story.ends) == 1 for story in made(speculation="certain").stories)


def test_units():
    times = [
        t for seed in SEEDS for le, re, _ in made(seed, unit=1000, duration="all_durations").history() for t in (le, re)
    ]
    off = [time % 1000 for time in times if time != INFINITY]
    assert fmean(o == 0 for o in off) > 0.3
    assert fmean(o in (1, 999) for o in off) > 0.1
    assert max(abs(time) for time in times if time != INFINITY) > 10_000


def test_patterns():
    told = generate(
        SCHEMA,
        {**PLAIN, "disorder": "out_of_order", "speculation": "revised"},
        3,
        unit=10,
        pattern=lambda chance, size: ((n * n, n * n + chance.randint(1, 2)) for n in range(size)),
    )
    assert told.is_legal()
    assert [story.le for story in told.stories] == [n * n * 10 for n in range(24)]
    endless = generate(SCHEMA, PLAIN, 3, size=2, unit=10, pattern=lambda _, size: [(n, INFINITY) for n in range(size)])
    assert [(le, re) for le, re, _ in endless.history()] == [(0, INFINITY), (10, INFINITY)]
    with pytest.raises(IntentError, match="empty lifetime"):
        generate(SCHEMA, PLAIN, 3, pattern=lambda *_: [(2, 2)])


# --- payloads -------------------------------------------------------------------------------------------------------


def column(kind: Type, payload: str, *, count: int = 400, seed: int = 0, pool: Any = ()) -> list[Any]:
    draws = Payloads(random.Random(seed), Schema.of(f"c {kind.value}"), payload, {"c": pool})
    return [draws.draw()["c"] for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_payloads_of_every_type(kind: Type):
    uniform = Counter(map(repr, column(kind, "uniform")))
    assert 2 <= len(uniform) <= 4
    assert max(uniform.values()) < 3 * min(uniform.values())
    zipf = Counter(map(repr, column(kind, "zipf")))
    ranked = [count for _, count in zipf.most_common()]
    assert ranked[0] > 1.8 * ranked[1]
    assert 0.4 < fmean(value is None for value in column(kind, "nulls")) < 0.6
    assert None not in column(kind, "uniform")
    assert type(plain_value(kind)) in {type(value) for value in column(kind, "uniform")}


def test_extremes():
    for kind, bits in ((Type.BYTE, 8), (Type.SHORT, 16), (Type.INT, 32), (Type.LONG, 64)):
        assert {2 ** (bits - 1) - 1, -(2 ** (bits - 1))} <= set(column(kind, "extremes"))
    doubles = column(Type.DOUBLE, "extremes")
    assert {"nan", "inf", "-inf", "-0.0", "5e-324", "1e+300"} <= set(map(repr, doubles))
    assert any(value is not None and math.isnan(value) for value in column(Type.FLOAT, "extremes"))
    assert "" in column(Type.STRING, "extremes")
    assert datetime(1970, 1, 1, tzinfo=UTC) in column(Type.DATETIME, "extremes")


def test_unicode():
    texts = {text for seed in range(20) for text in column(Type.STRING, "unicode", seed=seed)}
    assert {"é", "e\u0301", "🙂", "שלום", '"quoted"', "a|b"} <= texts
    assert not any("\n" in text for text in texts)
    assert all(len(text) == 1 for text in column(Type.CHAR, "unicode"))


def test_pools():
    for payload in DIMENSIONS["payload"]:
        assert {41, 42, 43} <= set(column(Type.LONG, payload, pool=[41, 42, 43]))
        assert {41.0, 41.5} <= set(column(Type.DOUBLE, payload, pool=[41, 41.5]))
    assert 300 not in column(Type.BYTE, "uniform", pool=[300, "x"])  # what a column cannot hold is left out
    assert {"zz"} < set(made_with_pool())


def made_with_pool() -> list[str]:
    return [story.payload["k"] for story in generate(SCHEMA, PLAIN, 0, pools={"k": ["zz"]}).stories]


# --- speculation made by the query ----------------------------------------------------------------------------------


def retractions(events: Any) -> int:
    return sum(kind == "retract" for kind in events.column("kind").to_pylist())


def test_the_fragment_speculates():
    told = made(3, disorder="highly_out_of_order", overlap="medium_overlap").in_batches([1] * 24)
    source = told.stream()
    fragment = make_speculative(source, "k")
    assert fragment.schema == source.schema
    events = fragment.run().events()
    check_output(events)
    once = retractions(events)
    assert once > 5
    twice = duplicate_retractions(fragment).run().events()
    check_output(twice)
    assert retractions(twice) == 2 * once


def test_the_fragment_keeps_any_order_of_columns():
    source = made(schema=Schema.of("v ARRAY<LONG>, x DOUBLE, k STRING")).stream()
    assert make_speculative(source, "k", 2).schema == source.schema
    alone = made(schema=Schema.of("k STRING")).stream()
    assert make_speculative(alone, "k").schema == alone.schema


def test_speculated_does_what_the_setting_says():
    source = made().stream()
    assert speculated(source, {**PLAIN, "speculation": "certain"}, "k") is source
    assert speculated(source, {**PLAIN, "speculation": "revised"}, "k") is source
    made_so = speculated(source, {**PLAIN, "speculation": "made_speculative"}, "k")
    doubled = speculated(source, {**PLAIN, "speculation": "duplicate_retractions"}, "k")
    assert doubled.cht().num_rows == 2 * made_so.cht().num_rows > 0
