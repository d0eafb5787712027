"""Queries that are rescaled, upgraded or have a published stream, in simulated worlds: the answer stays the same.

`make simulate` runs many more, and counts them. A failure says the seed.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable

import pytest
from hypothesis import settings
from tests.unit.store.changing import ChangingQuery, install
from tests.unit.store.simulated import simulate
from tests.unit.store.world import Broken, Chaos

from headrace.host.driving.driver import Driver
from headrace.host.driving.publish import Publisher
from headrace.host.saved import rescaling
from headrace.server.published import LogSink
from headrace.store import cleanup
from headrace.store.log import Log

FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
RUNS = 5_000 if FUZZ else max(15, settings().max_examples * 3 // 5)
FIRST = random.randrange(10**9) if FUZZ else 0


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setattr(cleanup, "_EVERY", 1)


def _some_calls(query: ChangingQuery, most: int) -> None:
    calls = query.world.calls + query.world.random.randrange(most)
    query.world.run(until=lambda: query.world.calls >= calls)


def changed_between_runs(query: ChangingQuery) -> None:
    """A driver, then a change, and so on; each may crash at any call."""
    query.world.chaos = Chaos(crash=0.004, stay=0.5)
    for _ in range(3):
        query.start()
        _some_calls(query, 300)
        for actor in query.drivers:
            actor.dead = True
        query.world.run()
        query.change(query.world.random.choice([query.rescale, query.upgrade]))
        query.world.run()


def changed_while_running(query: ChangingQuery) -> None:
    """Changes and drivers at the same time, which crash and sleep."""
    query.items = 8
    query.world.chaos = Chaos(crash=0.002, sleep=0.03, stay=0.6)
    for _ in range(3):
        query.start()
        _some_calls(query, 250)
        query.change(query.world.random.choice([query.rescale, query.upgrade]))
        _some_calls(query, 150)
    query.world.run()


def published_stream(query: ChangingQuery) -> None:
    """Drivers, one after the other, deliver to a log beside the next batch; calls fail, and processes crash."""
    query.publish_stream()
    query.world.chaos = Chaos(crash=0.005, fail=0.003, lost=0.003, stay=0.5)
    for _ in range(4):
        driver = query.start()
        query.world.run(until=lambda driver=driver: driver.done)
        driver.dead = True  # its threads end, too
        query.world.run()
    query.check_ends()


def simulate_all(runs: int, scenario: Callable[[ChangingQuery], None]) -> None:
    for seed in range(FIRST, FIRST + runs):
        simulate(seed, scenario, ChangingQuery)


SCENARIOS = [changed_between_runs, changed_while_running, published_stream]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_whatever_changes_the_answer_is_the_same(scenario: Callable[[ChangingQuery], None]):
    simulate_all(RUNS, scenario)


def test_changes_do_happen():
    """A query has had other buckets, another version, and items that went round while it changed."""
    seen, circulating = set(), False
    for seed in range(30):
        query = simulate(seed, changed_while_running, ChangingQuery)
        assert isinstance(query, ChangingQuery)
        seen |= query.seen()
        commits = [query.world.counted[n] for n in sorted(query.world.counted)]
        pairs = itertools.pairwise(commits)
        circulating |= any(
            before.record["feedback"] and before.record["buckets"] != after.record["buckets"] for before, after in pairs
        )
    assert len({buckets for buckets, _ in seen}) == 3
    assert len({version for _, version in seen}) > 1
    assert circulating


#: Runs that have found mistakes. 51: a driver that looked at the checkpoint before an upgrade, and claimed it after
#: that, went on with the state of the new version.
FOUND = {changed_while_running: [51]}


def test_what_was_found_stays_right():
    for scenario, seeds in FOUND.items():
        for seed in seeds:
            simulate(seed, scenario, ChangingQuery)


# --- what the simulation notices -------------------------------------------------------------------------------------


def buckets_ignored(patch: pytest.MonkeyPatch) -> None:
    """A driver continues with a state that is divided among other buckets."""
    load = Driver._load

    def careless(self: Driver, commit: object) -> None:
        if commit is not None:
            commit.record["buckets"] = self.job.buckets
        load(self, commit)

    patch.setattr(Driver, "_load", careless)


def version_ignored(patch: pytest.MonkeyPatch) -> None:
    """A driver continues with the state of another version."""
    load = Driver._load

    def careless(self: Driver, commit: object) -> None:
        if commit is not None:
            commit.record.pop("query", None)
        load(self, commit)

    patch.setattr(Driver, "_load", careless)


def rescaled_unpublished(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rescaling, "check_published", lambda *_: None)


def change_without_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "check_owner", lambda _: None)


def marks_ignored(patch: pytest.MonkeyPatch) -> None:
    """A delivery that is repeated is appended again."""
    deliver = LogSink.deliver

    def again(self: LogSink, delivery: object, rows: object) -> None:
        log = self.log
        assert log is not None
        log.marks.clear()  # type: ignore[attr-defined]
        deliver(self, delivery, rows)  # type: ignore[arg-type]

    patch.setattr(LogSink, "deliver", again)


def not_settled(patch: pytest.MonkeyPatch) -> None:
    """The next batch is committed before the last one is delivered."""
    patch.setattr(Publisher, "settle", lambda _: None)


FAULTS = {
    buckets_ignored: changed_while_running, version_ignored: changed_while_running,
    rescaled_unpublished: changed_between_runs, change_without_epoch: changed_while_running,
    marks_ignored: published_stream, not_settled: published_stream,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "scenario"), FAULTS.items())
def test_a_planted_fault_is_noticed(
    fault: Callable[[pytest.MonkeyPatch], None],
    scenario: Callable[[ChangingQuery], None],
    monkeypatch: pytest.MonkeyPatch,
):
    fault(monkeypatch)
    with pytest.raises(Broken):
        simulate_all(1_000, scenario)


def test_of_two_upgrades_at_once_the_slower_one_does_not_undo_the_other(monkeypatch: pytest.MonkeyPatch):
    """A seed that `make simulate` found."""
    install(monkeypatch)
    monkeypatch.setattr(cleanup, "_EVERY", 1)
    simulate(269, changed_while_running, ChangingQuery)
