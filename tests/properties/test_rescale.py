"""The law of rescaling: divided among other buckets after any batch, a query gives what an undisturbed run gives."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.test_driven import Dies, Query, rows
from tests.strategies.ordered import frames, long_streams, ordered_windows
from tests.strategies.paced import paced_streams
from tests.strategies.patterns import measures, patterns
from tests.strategies.plans import plans
from tests.unit.operators.recurse.loops import closure, edges, reached, seeds

import headrace as hr
from headrace import col
from headrace.errors import CheckpointError, Superseded
from headrace.host.saved.rescaling import rescaled
from headrace.plan.nodes import EdgeLifetimes, PointAtStart
from headrace.stages.cut import cut
from headrace.stages.declared import declared
from headrace.store.log import Commit, Log
from headrace.testing.same import assert_same_history
from headrace.testing.strategies import buckets

EXAMPLES = max(5, settings().max_examples // 4)
COUNTS = st.dictionaries(st.integers(1, 7), st.integers(1, 5), min_size=1, max_size=4)


def in_order(query: Query) -> list[tuple[list[str], object]]:
    """What left, one batch after the other."""
    found = query.batches()
    return [found[number] for number in sorted(found)]


def rescaling_does_not_show(stream: hr.Stream, n: int, counts: dict[int, int]) -> None:
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as place:
        undisturbed = Query(stream, n, Path(whole), 1)
        undisturbed.run()
        disturbed = Query(stream, n, Path(place), 1)
        disturbed.run_rescaled(counts)
        assert in_order(disturbed) == in_order(undisturbed)
        assert rows(disturbed.files()) == rows(undisturbed.files())


@settings(max_examples=EXAMPLES)
@given(plans(max_events=10), buckets(), COUNTS)
def test_random_plans(stream: hr.Stream, n: int, counts: dict[int, int]):
    rescaling_does_not_show(stream, n, counts)


@settings(max_examples=EXAMPLES)
@given(paced_streams(), st.sampled_from(["join", "left_join", "anti_join", "clip"]), buckets(), COUNTS)
def test_streams_that_meet(pair: tuple[hr.Stream, ...], name: str, n: int, counts: dict[int, int]):
    left, right = pair
    meets = {
        "join": lambda: left.join(right, "k"),
        "left_join": lambda: left.left_join(right, "k"),
        "anti_join": lambda: left.anti_join(right, "k", where=col("i") >= col("i_right")),
        "clip": lambda: left.clip(right, "k"),
    }
    rescaling_does_not_show(meets[name](), n, counts)


class Summed(hr.IncrementalAggregate):
    """A sum whose state is pickled."""

    input = "value LONG"
    output = "LONG"

    def initial(self) -> int:
        return 0

    def add(self, state: int, values: list[int]) -> int:
        return state + sum(value or 0 for value in values)

    def remove(self, state: int, values: list[int]) -> int:
        return state - sum(value or 0 for value in values)

    def compute(self, state: int) -> int:
        return state % 1000


class Onwards(hr.Operator):
    """Each event from its own start for two ticks."""

    time_sensitive = True
    input = "a LONG"
    output = "a LONG"

    def compute(self, events: list[Any], window: Any) -> Any:
        for event in events:
            if window.le <= event.le:
                yield self.event(event.le, event.le + 2, event.a)


def edged(stream: hr.Stream, *, latest: bool) -> hr.Stream:
    return hr.Stream(EdgeLifetimes(PointAtStart(stream.node), ("k",), latest=latest))


GROUPED: dict[str, Callable[[hr.Stream], hr.Stream]] = {
    "session": lambda s: s.group_by("k").window(hr.session(3)).aggregate(n=hr.sum("i")),
    "session, two keys": lambda s: s.group_by("k", "i").window(hr.session(3)).aggregate(n=hr.count()),
    "count": lambda s: s.group_by("k").window(hr.count_by_start(2)).aggregate(n=hr.collect("i")),
    "count by end": lambda s: s.group_by("k").window(hr.count_by_end(2)).aggregate(n=hr.max("i")),
    "snapshot sums": lambda s: s.group_by("k").window(hr.snapshot()).aggregate(n=hr.sum("i")),
    "snapshot, a key by another name": lambda s: (
        s.group_by(key=col("k")).window(hr.snapshot()).aggregate(n=hr.count(), i=hr.sum("i"))
    ),
    "snapshot bags": lambda s: s.group_by("k").window(hr.snapshot()).aggregate(n=hr.max("i")),
    "sliding sums": lambda s: s.group_by("k").window(hr.hopping(9, every=2)).aggregate(n=hr.sum("i")),
    "pickled": lambda s: s.group_by("k").window(hr.session(4)).aggregate(n=Summed().of("i")),
    "pickled, tumbling": lambda s: (
        s.group_by("k").window(hr.tumbling(6)).aggregate(n=Summed().of("i"), c=hr.count(), m=hr.max("i"))
    ),
    "pickled, hopping": lambda s: s.group_by("k").window(hr.hopping(9, every=2)).aggregate(n=Summed().of("i")),
    "pickled, snapshot": lambda s: s.group_by("k").window(hr.snapshot()).aggregate(n=Summed().of("i"), m=hr.min("i")),
    "top at instants": lambda s: s.group_by("k").top(2, by="i"),
    "pickled, merged": lambda s: s.group_by("k").over(rows=2, slide=3).aggregate(n=Summed().of("i")),
    "a module": lambda s: s.group_by("k").window(hr.tumbling(6)).operate(Onwards(), a="i"),
    "time bound": lambda s: (
        s.group_by("k").window(hr.tumbling(6), timestamping="time_bound").operate(Onwards(), a="i")
    ),
    "top": lambda s: s.group_by("k").window(hr.tumbling(6)).top(1, by="i"),
    "contents": lambda s: s.window(hr.tumbling(6)).contents(),
    "numbers": lambda s: s.group_by("k").over().aggregate(n=hr.count()),
    "edge": lambda s: edged(s, latest=False),
    "latest": lambda s: edged(s, latest=True),
    "no key": lambda s: s.window(hr.snapshot()).aggregate(n=hr.sum("i")),
    "one after the other": lambda s: (
        s.group_by("k").window(hr.snapshot()).aggregate(i=hr.sum("i")).group_by("k", "i").window(hr.session(2))
        .aggregate(n=hr.count()).coalesce()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPED)
@settings(max_examples=max(2, EXAMPLES // 4))
@given(stream=long_streams(), n=buckets(), counts=COUNTS)
def test_grouped(name: str, stream: hr.Stream, n: int, counts: dict[int, int]):
    rescaling_does_not_show(GROUPED[name](stream), n, counts)


@settings(max_examples=EXAMPLES)
@given(long_streams(), ordered_windows(), frames(), st.booleans(), buckets(), COUNTS)
def test_windows_of_tuples(
    stream: hr.Stream, window: Any, frame: dict[str, Any], over: bool, n: int, counts: dict[int, int]
):
    grouped = stream.group_by("k")
    named = {"n": hr.sum("i"), "all": hr.collect("i")}
    found = grouped.over(**frame).aggregate(**named) if over else grouped.window(window).aggregate(**named)
    rescaling_does_not_show(found, n, counts)


@settings(max_examples=EXAMPLES)
@given(long_streams(), patterns(), buckets(), COUNTS, st.data())
def test_matches(stream: hr.Stream, pattern: Any, n: int, counts: dict[int, int], data: st.DataObject):
    rescaling_does_not_show(stream.group_by("k").match(pattern, **data.draw(measures(pattern))), n, counts)


SEVERAL = st.dictionaries(st.integers(1, 9), st.integers(2, 5), min_size=1, max_size=5)


@settings(max_examples=EXAMPLES)
@given(
    seeds(),
    edges(),
    st.integers(2, 4),
    SEVERAL,
    st.sampled_from(["reached", "closure", "bag"]),
    st.sampled_from([1, 2, None]),
)
def test_loops_that_go_across_buckets(
    seed: hr.Stream, links: hr.Stream, n: int, counts: dict[int, int], kind: str, trips: int | None
):
    """While something circulates, too; a promise may come a little later than it would."""
    loops = {
        "reached": lambda: reached(seed, links),
        "closure": lambda: closure(links),
        "bag": lambda: closure(links.where(col("src") < col("dst")), distinct=False),
    }
    query = loops[kind]()
    with tempfile.TemporaryDirectory() as place:
        disturbed = Query(query, n, Path(place), 1, max_trips=trips)
        assert disturbed.line.loops
        disturbed.run_rescaled(counts)
        assert_same_history(disturbed.files(), query.cht())
        assert_same_history(disturbed.history(), query.cht())


# --- what is refused -------------------------------------------------------------------------------------------------

LINKS = hr.events("kind | le | re | src | dst\ninsert | 1 | 9 | 1 | 2\ninsert | 2 | 8 | 2 | 3", batches=[1, 1])


def refused(query: hr.Stream, n: int, count: int, place: Path) -> CheckpointError:
    driven = Query(query, n, place, 1)
    with pytest.raises(CheckpointError, match="the state cannot be divided among other buckets: ") as caught:
        driven.run_rescaled({1: count})
    batches = driven.driver.log.batches()
    assert batches == list(range(len(batches)))
    driven.driver = driven.start()
    driven.run()  # nothing has happened
    assert_same_history(driven.files(), query.cht())
    return caught.value


def test_a_loop_is_another_operator_in_one_bucket(tmp_path: Path):
    assert "only one bucket" in refused(closure(LINKS), 2, 1, tmp_path / "a").message
    assert "does not declare how its state is divided" in refused(closure(LINKS), 1, 2, tmp_path / "b").message


def test_a_row_in_a_bucket_where_it_should_not_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What an operator says is checked against its rows."""
    stream = hr.events("kind | le | re | a | b\n" + "\n".join(f"insert | 1 | 9 | {i} | {i % 2}" for i in range(8)))
    query = stream.group_by("a").window(hr.session(3)).aggregate(b=hr.sum("b"))

    def wrong(line: Any) -> dict[str, Any]:
        found = declared(line)
        for said in found.values():
            if said["operator"].startswith("Aggregate"):
                said["routes"] = {name: ["arg0"] for name in said["routes"]}
        return found

    monkeypatch.setattr("tests.properties.test_driven.declared", wrong)
    assert "Aggregate b = sum(b)" in refused(query, 2, 3, tmp_path).message


# --- while it happens ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
def test_who_dies_while_rescaling_has_rescaled_or_not(tmp_path: Path, after: bool):
    """At any call of the store: the last commit says how many buckets there are, and the query goes on with those."""
    rows_ = [f"insert | {t} | {t + 5} | {'abcd'[t % 4]} | {t}" for t in range(12)]
    stream = hr.events("\n".join(["kind | le | re | k | i", *rows_]), batches=[4, 4, 4])
    query = stream.group_by("k").window(hr.session(3)).aggregate(n=hr.sum("i"))
    found = set()
    for call in range(1, 30):
        driven = Query(query, 2, tmp_path / f"{call}", 1)
        driven.driver.open()
        driven.driver.run(driven.driver.plan())
        driven.storage.left, driven.storage.after = call, after
        with suppress(Dies):
            driven.driver.log.claim()
            assert rescaled(driven.driver.log, declared(driven.line), 3)
        driven.storage.left = -1
        count = driven.driver.log.last().record["buckets"]
        found.add(count)
        driven.n = count
        driven.driver = driven.start()
        driven.run()
        assert_same_history(driven.files(), query.cht())
    assert found == {2, 3}


def test_a_driver_with_the_old_number_of_buckets_ends(tmp_path: Path):
    """It has taken over while the state was divided, and finds the commit that it was about to make."""
    query = closure(LINKS)
    driven = Query(query, 2, tmp_path, 1, max_trips=1)
    driven.driver.open()
    driven.driver.run(driven.driver.plan())
    rescaler = Log(driven.storage)
    rescaler.claim()
    newer = driven.start()
    newer.open()
    plan = newer.plan()
    rescaler.check_owner = lambda: None  # it has looked for newer ones just before these came
    assert rescaled(rescaler, declared(driven.line), 3)
    with pytest.raises(Superseded, match="divided among other buckets"):
        newer.run(plan)
    driven.n, driven.line = 3, cut(driven.outputs, 3)
    driven.driver = driven.start()
    driven.run()
    assert_same_history(driven.files(), query.cht())


def test_a_driver_that_is_faster_is_not_undone(tmp_path: Path):
    """The batch that was to be the division is committed by another: the division begins anew from there."""
    driven = Query(closure(LINKS), 2, tmp_path, 1, max_trips=1)
    driven.driver.open()
    driven.driver.run(driven.driver.plan())
    driven.driver.log.claim()
    log = driven.driver.log
    last, batch = log.last(), driven.driver.number
    outputs = [{k: v for k, v in one.items() if k not in ("parts", "moved", "rows")} for one in last.record["outputs"]]
    commit = Commit(batch, log.epoch, {**last.record, "outputs": outputs}, last.files, last.blocks, last.inline)
    log.last, read = lambda: last, log.last
    assert log.commit(commit)
    assert not rescaled(log, declared(driven.line), 3)
    log.last = read
    assert rescaled(log, declared(driven.line), 3)
    assert log.last().batch == batch + 1
    assert log.last().record["buckets"] == 3
