"""The real driver in simulated worlds: whatever happens to it, the answer is that of an undisturbed run.

`make fuzz` draws other seeds, and many more.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from tests.unit.store.simulated import Query, install, simulate
from tests.unit.store.world import Chaos

from headrace.host.driving import driver as driver_module

FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
RUNS = 20_000 if FUZZ else 400
FIRST = random.randrange(10**9) if FUZZ else 0


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setattr(driver_module, "_CLEANED_EVERY", 1)


def undisturbed(query: Query) -> None:
    query.start()
    query.world.run()


def crashes(query: Query) -> None:
    """Drivers, one after the other; each may crash at any call."""
    query.world.chaos = Chaos(crash=0.01, stay=0.5)
    for _ in range(4):
        driver = query.start()
        query.world.run(until=lambda driver=driver: driver.done)


def zombies(query: Query) -> None:
    """New drivers start while the old ones go on, some of them after a long sleep; a reader reads all the while."""
    query.items = 10
    query.world.chaos = Chaos(crash=0.002, sleep=0.03, stay=0.6)
    for _ in range(3):
        query.start()
        query.world.spawn("reader", query.read)
        calls = query.world.calls + query.world.random.randrange(250)
        query.world.run(until=lambda calls=calls: query.world.calls >= calls)
    query.world.run()


def broken_store(query: Query) -> None:
    """Calls fail, or happen and say that they failed; two drivers at once."""
    query.world.chaos = Chaos(crash=0.002, fail=0.01, lost=0.01, sleep=0.01)
    for _ in range(4):
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


@pytest.mark.parametrize("scenario", [undisturbed, crashes, zombies, broken_store, full_disk])
def test_whatever_happens_the_answer_is_the_same(scenario: Callable[[Query], None]):
    for seed in range(FIRST, FIRST + RUNS):
        simulate(seed, scenario)
