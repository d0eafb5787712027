"""The real driver in simulated worlds: whatever happens to it, the answer is that of an undisturbed run.

`make fuzz` draws other seeds, and many more. A failure says the seed; `simulate(seed, scenario)` does it again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import settings
from tests.unit.store.simulated import SINK, Query, install, simulate
from tests.unit.store.world import Broken, Chaos, MemoryObjects, MemoryStorage

from headrace.host.driving.publish import Publisher
from headrace.store import cleanup
from headrace.store.cleanup import Cleaner
from headrace.store.log import Log, number_of
from headrace.store.remote import RemoteStorage

FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
RUNS = 5_000 if FUZZ else max(15, settings().max_examples * 3 // 5)
FIRST = random.randrange(10**9) if FUZZ else 0


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setattr(cleanup, "_EVERY", 1)


# --- what happens ----------------------------------------------------------------------------------------------------


def undisturbed(query: Query) -> None:
    query.start()
    query.world.run()


def crashes(query: Query) -> None:
    """Drivers, one after the other; they and their tasks may crash at any call."""
    query.world.chaos = Chaos(crash=0.01, stay=0.5)
    for _ in range(4):
        driver = query.start()
        query.world.run(until=lambda driver=driver: driver.done)


def zombies(query: Query) -> None:
    """New drivers start while the old ones go on, some of them after a long sleep; a reader reads all the while."""
    query.items = 8
    query.world.chaos = Chaos(crash=0.002, sleep=0.03, stay=0.6)
    for _ in range(3):
        query.start()
        query.world.spawn("reader", query.read)
        calls = query.world.calls + query.world.random.randrange(250)
        query.world.run(until=lambda calls=calls: query.world.calls >= calls)
    query.world.run()


def failing_calls(query: Query) -> None:
    """Calls fail, or happen and say that they failed; two drivers at once."""
    query.world.chaos = Chaos(crash=0.002, fail=0.01, lost=0.01, sleep=0.01)
    for _ in range(3):
        query.start()
        query.start()
        query.world.run()


def full_disk(query: Query) -> None:
    """For a while nothing can be written."""
    begin = query.world.random.randrange(150)
    query.world.chaos = Chaos(full=(begin, begin + query.world.random.randrange(100)))
    for _ in range(3):
        driver = query.start()
        query.world.run(until=lambda driver=driver: driver.done)


def lost_answers(query: Query) -> None:
    """On an object store: writes get no answer, drivers crash and sleep, two at once; listings come in pages."""
    query.items, query.storage = 8, MemoryObjects(query.world)
    query.world.chaos = Chaos(crash=0.002, sleep=0.02, unheard=0.1)
    for _ in range(3):
        query.start()
        query.start()
        query.world.run()


def simulate_all(runs: int, scenario: Callable[[Query], None]) -> None:
    for seed in range(FIRST, FIRST + runs):
        simulate(seed, scenario)


SCENARIOS = [undisturbed, crashes, zombies, failing_calls, full_disk, lost_answers]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_whatever_happens_the_answer_is_the_same(scenario: Callable[[Query], None]):
    simulate_all(RUNS, scenario)


def test_a_seed_does_the_same_again():
    for seed in range(5):
        first, again = simulate(seed, zombies), simulate(seed, zombies)
        assert first.world.calls == again.world.calls
        assert first.world.published == again.world.published
        assert list(first.world.files) == list(again.world.files)


def test_an_idle_driver_asks_the_store_once_and_then_no_more():
    query, calls = Query(0), list[str]()
    driver = query.driver()
    driver.open()
    query.world.fate = lambda _, what: calls.append(what) or ""  # type: ignore[func-returns-value]
    assert [driver.plan() for _ in range(3)] == [None] * 3
    assert calls == ["read plans/000000000000"]


# --- every call ------------------------------------------------------------------------------------------------------


def calls_of_one_driver() -> int:
    query = Query(0, items=4)
    query.start()
    query.world.run()
    query.world.close()
    return query.world.calls


@pytest.mark.slow
@pytest.mark.parametrize("fate", ["fail", "lost", "again", "crash"])
def test_any_one_call_may_fail(fate: str):
    """The k-th call fails, or its answer is lost, or it is made again, or the driver or task crashes: for every k."""
    for k in range(1, calls_of_one_driver() + 1):

        def kth_call(query: Query, k: int = k) -> None:
            query.items = 4
            query.world.fate = lambda call, _: fate if call == k else ""
            query.start()
            query.world.run()

        simulate(0, kth_call)


@pytest.mark.slow
@pytest.mark.parametrize("fate", ["fail", "lost", "late"])
def test_a_driver_goes_on_after_any_one_lost_answer(fate: str):
    """The k-th write to an object store gets no answer, whether it happened, happens later, or never: nobody fails."""
    lost: list[str] = []

    def kth_write(query: Query) -> None:
        query.items, query.inline, query.storage = 8, 0, MemoryObjects(query.world)
        writes, k = count(), len(lost)

        def chosen(_: int, what: str) -> str:
            if not what.startswith("create") or next(writes) != k:
                return ""
            lost.append(what.removeprefix("create ").split("/")[0])
            return fate

        query.world.fate = chosen
        driver = query.start()
        query.world.run()
        assert driver.error is None

    before = -1
    while before < len(lost):  # until there is no further write
        before = len(lost)
        simulate(0, kth_write)
    assert set(lost) == {"epochs", "plans", "data", "commits", "floors"}


@pytest.mark.slow
@pytest.mark.parametrize("fates", [("crash", "crash"), ("lost", "crash"), ("fail", "lost")])
def test_any_two_calls_may_fail(fates: tuple[str, str]):
    """The same for two calls: of one driver, or of it and the one that goes on."""
    calls = calls_of_one_driver()
    step = 3 if FUZZ else 17
    for first in range(1, calls + 1, step):
        for second in range(first + 1, calls + 40, step):

            def two_calls(query: Query, first: int = first, second: int = second) -> None:
                query.items = 4
                at = {first: fates[0], second: fates[1]}
                query.world.fate = lambda call, _: at.get(call, "")
                for _ in range(2):
                    query.start()
                    query.world.run()

            simulate(0, two_calls)


# --- what the simulation notices -------------------------------------------------------------------------------------


def no_owner(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "check_owner", lambda _: None)


def overwritten(patch: pytest.MonkeyPatch) -> None:
    create = MemoryStorage._create

    def overwrite(self: MemoryStorage, key: str, data: bytes) -> bool:
        if key.startswith("commits/"):
            self.files.pop(key, None)
        return create(self, key, data)

    patch.setattr(MemoryStorage, "_create", overwrite)


def published_first(patch: pytest.MonkeyPatch) -> None:
    commit = Log.commit

    def publish_first(self: Log, made: object) -> bool:
        Publisher([None], [SINK], self.storage).publish(made)
        return commit(self, made)

    patch.setattr(Log, "commit", publish_first)


def not_resumed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publisher, "resume", lambda *_: None)


def replanned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "planned", lambda *_: None)
    patch.setattr(Log, "plan", lambda _, __, plan: plan)


def no_floor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "floor", lambda _: 0)


def cleaned_first(patch: pytest.MonkeyPatch) -> None:
    commit = Log.commit

    def clean_first(self: Log, made: object) -> bool:
        for key in self.storage.keys("data"):
            if number_of(key) <= made.batch and key not in made.files:
                self.storage.remove(key)
        return commit(self, made)

    patch.setattr(Log, "commit", clean_first)


def pins_ignored(patch: pytest.MonkeyPatch) -> None:
    keys = MemoryStorage.keys
    patch.setattr(MemoryStorage, "keys", lambda self, folder, *a: [] if folder == "pins" else keys(self, folder, *a))


def answer_ignored(patch: pytest.MonkeyPatch) -> None:
    commit = Log.commit
    patch.setattr(Log, "commit", lambda self, made: commit(self, made) or True)


def one_kept(patch: pytest.MonkeyPatch) -> None:
    begin = Query.__init__

    def keep_one(self: Query, seed: int) -> None:
        begin(self, seed)
        self.kept = 1

    patch.setattr(Query, "__init__", keep_one)


def nothing_recognised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemoteStorage, "_holds", lambda *_: False)


def all_recognised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemoteStorage, "_holds", lambda *_: True)


def litter_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cleaner, "clean_up", lambda *_: None)


FAULTS = {
    no_owner: zombies, overwritten: zombies, published_first: zombies, not_resumed: crashes, replanned: zombies,
    no_floor: zombies, cleaned_first: zombies, pins_ignored: zombies, answer_ignored: zombies, litter_stays: crashes,
    one_kept: zombies, nothing_recognised: lost_answers, all_recognised: lost_answers,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "scenario"), FAULTS.items())
def test_a_planted_fault_is_noticed(
    fault: Callable[[pytest.MonkeyPatch], None], scenario: Callable[[Query], None], monkeypatch: pytest.MonkeyPatch
):
    fault(monkeypatch)
    with pytest.raises(Broken) as broken:
        simulate_all(1_000, scenario)
    assert f"of {scenario.__name__}" in broken.value.__notes__[-1]
