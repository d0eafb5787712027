"""The store alone in simulated worlds: two or three drivers that only claim, plan, write, commit, publish and clean up.

Runs are short, so there can be many: rare meetings happen too, such as a driver that sleeps between looking for a newer
one and creating its commit until that commit is long cleaned up.
"""

from __future__ import annotations

import os
import random

import pytest
from tests.unit.store.simulated import install
from tests.unit.store.world import Broken, Chaos, MemoryDirectory, MemoryObjects, MemoryStorage, World

from headrace.errors import Superseded
from headrace.store.blocks import BlockReader, Ledger, write_blocks
from headrace.store.cleanup import Cleaner
from headrace.store.log import Commit, Log

FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
RUNS = 50_000 if FUZZ else 1_500
FIRST = random.randrange(10**9) if FUZZ else 0
BATCHES = 3
ALIVE = 2


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


class Rival:
    """A driver without a query: the state of a batch is a block that lives for two batches."""

    def __init__(self, world: World, storage: type[MemoryStorage]) -> None:
        self.world, self.storage = world, storage(world)
        self.log = Log(self.storage)
        self.cleaner = Cleaner(self.log, kept=2)

    def run(self) -> None:
        self.log.claim()
        with self.log.owned():
            last = self.log.last()
            if last is not None:
                self.publish(last)
            while last is None or last.batch + 1 < BATCHES:
                last = self.batch(last)

    def batch(self, last: Commit | None) -> Commit:
        number = last.batch + 1 if last is not None else 0
        plan = self.log.plan(number, {"by": self.log.epoch})
        if last is not None:
            reader = BlockReader(self.storage, self.log.read(last.batch))
            assert [reader.block(name).to_pybytes() for name in last.blocks] == [b"x"] * len(last.blocks)
        ledger = Ledger.of(last)
        ledger.add(write_blocks(self.storage, number, self.log.epoch, {str(number): b"x"}, inline=0))
        ledger.keep(map(str, range(number - ALIVE + 1, number + 1)))
        part = MemoryDirectory("out").stage(number, self.log.epoch)
        record = {"outputs": [{"parts": [part]}], "plan": plan}
        commit = Commit(number, self.log.epoch, record, ledger.files, ledger.blocks)
        own = self.log.commit(commit)
        if not own:
            commit = self.log.read(number)
        self.publish(commit)
        if own:
            self.cleaner.clean_up(commit)
        return commit

    def publish(self, commit: Commit) -> None:
        MemoryDirectory("out").commit(commit.batch, commit.record["outputs"][0]["parts"])


def simulate(seed: int, storage: type[MemoryStorage] = MemoryStorage) -> dict[str, int]:
    """A run with several drivers, and one at last that goes on alone; what happened in it."""
    unheard = 0.05 if storage is MemoryObjects else 0.0
    world = World(seed, Chaos(crash=0.003, sleep=0.02, stay=0.5, unheard=unheard))
    rivals = [world.spawn(f"driver {i}", Rival(world, storage).run) for i in range(world.random.choice([2, 2, 3]))]
    try:
        world.run()
        world.chaos = Chaos()
        rivals.append(world.spawn("the last", Rival(world, storage).run))
        world.run()
        check(world, rivals)
    except Broken as error:
        error.add_note(f"seed {seed}")
        raise
    finally:
        world.close()
    return {
        "late": sum(actor.late for actor in rivals),
        "crashed": sum(actor.dead for actor in rivals),
        "superseded": sum(isinstance(actor.error, Superseded) for actor in rivals),
        "adopted": sum(commit.epoch < newest for commit, newest in world.claims),
    }


def check(world: World, rivals: list) -> None:
    for actor in rivals:
        if not (actor.error is None or actor.hurt or isinstance(actor.error, Superseded)):
            raise Broken(f"{actor.name} failed") from actor.error
        if actor.late and not actor.dead and actor.error is None:
            raise Broken(f"{actor.name} made a commit that does not count, and did not notice")
    if rivals[-1].error is not None:
        raise Broken("the last driver failed") from rivals[-1].error
    if not sorted(world.counted) == sorted(world.published) == list(range(BATCHES)):
        raise Broken(f"committed: {sorted(world.counted)}, published: {sorted(world.published)}")
    for batch, content in world.published.items():
        if content != [world.counted[batch].epoch]:
            raise Broken(f"batch {batch} is published as {content}")


@pytest.mark.slow
@pytest.mark.parametrize("storage", [MemoryStorage, MemoryObjects])
def test_rivals_break_no_promise(storage: type[MemoryStorage]):
    """And the worst does happen: they are superseded, adopt the batch of another, crash, and commit when it is late."""
    seen = [simulate(seed, storage) for seed in range(FIRST, FIRST + RUNS)]
    total = {what: sum(run[what] for run in seen) for what in seen[0]}
    assert min(total.values()) > 0, total


def test_a_late_commit_that_counted_would_be_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Log, "floor", lambda _: 0)
    with pytest.raises(Broken):
        test_rivals_break_no_promise(MemoryStorage)
