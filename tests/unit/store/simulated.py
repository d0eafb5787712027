"""A query in a simulated world: the real driver, log, clean-up, publisher and blocks over tasks that only add up.

The input is a row of numbered items. A task has those of its bucket, reads what its bucket has had before from the last
commit, and stages both: so an output is right only if every batch had the state it should have, and every item once.
Most items go round a loop, too: each of them so many times, and from one bucket to the other.

The query may change while it runs: `changing.py` divides its state among other buckets, upgrades it to another version,
and adds a published stream.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.store.world import Actor, Broken, Chaos, MemoryDirectory, MemoryStorage, World, version_of

from headrace.errors import HeadraceError, Superseded
from headrace.host.driving import driver as driver_module
from headrace.host.driving import publish as publish_module
from headrace.host.driving.delivery import deliver, deliveries_of
from headrace.host.driving.driver import Driver
from headrace.host.driving.plan import Batch, Executor, Job
from headrace.host.driving.publish import Publisher
from headrace.io.adapter import SinkAdapter
from headrace.io.files import ListedFile
from headrace.io.formats import Format
from headrace.io.origins import Files
from headrace.io.sinks import FileSink
from headrace.progress import Progress
from headrace.stages import egress as egress_module
from headrace.stages.message import FEEDBACK, REPORTS, RESULT, STATE, Message
from headrace.store import blocks as blocks_module
from headrace.store import cleanup as cleanup_module
from headrace.store import log as log_module
from headrace.store.blocks import BlockReader, write_blocks
from headrace.store.cleanup import Cleaner, pinned
from headrace.store.log import Commit, Log

BUCKETS = 2
MOST_SEGMENTS = 3
Items_ = Sequence[tuple[int, int]]
SOURCE = SimpleNamespace(origin=Files("input", Format("csv")), fingerprint="source", policy=None, lifetime=None)
SINK = FileSink("final", (), "output")


def line_of(version: int = 0, *, outputs: int = 1) -> Any:
    """The plan of a version of the query."""
    found = tuple(SimpleNamespace(fingerprint=f"out {i}", name=f"out {i}", schema=()) for i in range(outputs))
    return SimpleNamespace(
        sources=(SOURCE,), outputs=found, depth=1, at=lambda _: (), fingerprint=f"version {version}"
    )  # fmt: skip


class Items:
    """Positions in the world's input; takes the place of `FilePositions`."""

    def __init__(self, source: object, most: int | None = None) -> None:
        assert source is SOURCE
        self.most, self.next = most, 0
        self.seen = SimpleNamespace(segments=())
        self.news: dict[str, int] = {}

    #: Batches are as large as `most` says, whatever the pace.
    waiting = 0

    def pending(self, most_bytes: int, *, thorough: bool) -> list[ListedFile]:  # noqa: ARG002 - see `waiting`
        return [ListedFile(i, "item", 1) for i in range(self.next, World.current.arrived)][: self.most]

    def take(self, files: Sequence[ListedFile], batch: int) -> None:  # noqa: ARG002 - as the driver calls it
        if [file.modified for file in files] != list(range(self.next, self.next + len(files))):
            raise Broken(f"{files} are taken, {self.next} is next")
        self.next += len(files)

    def saved(self) -> dict[str, Any]:
        return {"scalars": {"next": self.next}, "traces": {}}

    def restore(self, saved: dict[str, Any], held: object) -> None:
        assert not held
        self.next = saved["scalars"]["next"]


def install(patch: pytest.MonkeyPatch) -> None:
    """Put the world's parts where the driver looks for its own."""
    names = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=World.current.name()))
    patch.setattr(driver_module, "FilePositions", Items)
    patch.setattr(publish_module, "batches_at", MemoryDirectory)
    patch.setattr(egress_module, "batches_at", MemoryDirectory)
    patch.setattr(blocks_module, "uuid", names)
    patch.setattr(cleanup_module, "uuid", names)
    patch.setattr(log_module, "uuid", names)


# --- tasks -----------------------------------------------------------------------------------------------------------


def trips_of(item: int) -> int:
    """How often an item goes round."""
    return item % 4


def run_task(query: Query, version: int, batch: Batch, bucket: int, buckets: int) -> list[Message]:
    """Read the state of the last commit or trip, add the items of a batch to it, stage both; feed some back.

    An item stands with how often it has been round.
    """
    storage, inline = query.storage, query.inline
    read = [(file.modified, 0) for files in batch.plan.files.values() for file in files]
    segments: dict[str, list[tuple[int, int]]] = {}
    if batch.number or batch.trip:
        log = Log(storage)
        last = log.after_trip(batch.number, batch.epoch, batch.trip - 1) if batch.trip else log.read(batch.number - 1)
        reader = BlockReader(storage, last)
        names = last.record["state"]["sum"][str(bucket)]["traces"]["items"]["segments"]
        blocks = {name: reader.block(name).to_pybytes() for name in [*names, *last.record["feedback"]]}
        found = {name: [tuple(pair) for pair in json.loads(text)] for name, text in blocks.items()}
        segments = {name: found[name] for name in names}
        read += [pair for name in last.record["feedback"] for pair in found[name]]
    items = [(item, times) for item, times in read if (item + times) % buckets == bucket]
    before = [item for segment in segments.values() for item in segment]
    merged = len(segments) >= MOST_SEGMENTS
    new = World.current.name()
    blocks = {new: json.dumps(before + items if merged else items).encode()}
    written = write_blocks(storage, batch.number, batch.epoch, blocks, inline)
    staged = MemoryDirectory("output").stage(batch.number, (buckets, bucket, before, items))
    alive = [new] if merged else [*segments, new]
    state = {
        "level": 1, "bucket": bucket, "token": new, "trips": {}, "written": written.to_json(),
        "operators": {
            "sum": {"scalars": {}, "traces": {"items": {"floor": 0, "segments": alive}}},
            f"version {version}": {"scalars": {}, "traces": {}},
        },
    }  # fmt: skip
    messages = [Message(bucket, STATE, extra=state), Message(bucket, RESULT, None, Progress(), {"staged": [staged]})]
    messages += query.more_rows(batch, bucket, items)
    if bucket == 0:
        messages.append(Message(0, REPORTS, extra={"files": {"source": len(items)}}))
    if again := [(item, times + 1) for item, times in items if times < trips_of(item)]:
        name = World.current.name()
        written = write_blocks(storage, batch.number, batch.epoch, {name: json.dumps(again).encode()}, inline)
        about = {"blocks": [name], "busy": True, "written": written.to_json()}
        messages.append(Message(bucket, FEEDBACK, extra=about))
    return messages


class Tasks(Executor):
    """Runs a task for each bucket as an actor of its own, some of them twice, and those that fail again."""

    def __init__(self, query: Query, job: Job, version: int) -> None:
        self.query, self.world, self.job, self.version = query, query.world, job, version

    def deliver(self, commit: Commit) -> None:
        for part in deliveries_of(self.job, commit):
            deliver(self.job, commit, part)

    def run(self, batch: Batch) -> list[Message]:
        world = self.world
        plan = batch.plan.to_json()
        first = world.attempted.setdefault(batch.number, plan) if batch.trip == 0 else plan
        if plan != first and batch.number >= world.floor():
            raise Broken(f"batch {batch.number} is tried with another plan")
        found: dict[int, list[Message]] = {}
        buckets = self.job.buckets
        for bucket in range(buckets):
            self._attempts(batch, bucket, found)
        world.wait(lambda: len(found) == buckets)
        failed = next((error for error in found.values() if isinstance(error, Exception)), None)
        if failed is not None:
            raise failed
        return [message for bucket in range(buckets) for message in found[bucket]]

    def _attempts(self, batch: Batch, bucket: int, found: dict[int, Any]) -> None:
        world, driver = self.world, self.world.actor
        left = 1 + (world.random.random() < self.query.twice)

        def attempt() -> None:
            nonlocal left
            actor = world.actor
            try:
                result = run_task(self.query, self.version, batch, bucket, self.job.buckets)
                found.setdefault(bucket, result)
            except (HeadraceError, FileNotFoundError) as error:
                driver.hurt |= actor.hurt
                if left == 1:
                    found.setdefault(bucket, error)
            finally:
                left -= 1
                if actor.dead and left == 0 and bucket not in found and not world.closing:
                    left = 1  # a lost task is run again
                    world.spawn(f"task {bucket}", attempt, task=True)

        for _ in range(left):
            world.spawn(f"task {bucket}", attempt, task=True)


# --- the query -------------------------------------------------------------------------------------------------------


class Query:
    """One query in a world, driven by one driver after the other, or several at once."""

    def __init__(self, seed: int, chaos: Chaos | None = None, items: int = 6) -> None:
        self.world = World(seed, chaos)
        self.world.arrived, self.world.closing = 0, False
        self.storage = MemoryStorage(self.world)
        self.items = items
        pick = self.world.random.choice
        self.kept, self.inline = pick([2, 2, 3]), pick([0, 0, 1_000])
        self.twice = pick([0.0, 0.3])
        self.max_trips = [1, 2, None]
        self.drivers: list[Actor] = []
        #: The sinks beside the directory, by output.
        self.services: dict[int, SinkAdapter] = {}

    def driver(self) -> Driver:
        buckets, version = self.found()
        line = line_of(version, outputs=1 + len(self.services))
        job = Job("job", line, buckets, self.storage, (SINK,), adapters=self.services, owner="query")
        tasks = Tasks(self, job, version)
        publisher = Publisher(line.outputs, [SINK, *self.services.values()], self.storage, tasks)
        trips = self.world.random.choice(self.max_trips)
        driver = Driver(job, tasks, publisher, lambda: 0, files_per_batch=2, max_trips=trips, trip_seconds=math.inf)
        driver.cleaner = Cleaner(driver.log, self.kept)
        return driver

    def found(self) -> tuple[int, int]:
        """The number of buckets and the version with which a driver starts: those of the last commit now."""
        last = Log(self.storage).last() if self.world.folders["commits"] else None
        return (BUCKETS, 0) if last is None else (last.record["buckets"], version_of(last))

    def more_rows(self, batch: Batch, bucket: int, items: Items_) -> list[Message]:  # noqa: ARG002 - see `changing.py`
        """The messages of a task for outputs beside the directory."""
        return []

    def drive(self) -> None:
        """What a driver does: all there is."""
        driver = self.driver()
        driver.open()
        while driver.positions["source"].next < self.items or driver.circulating:
            plan = driver.plan()
            if plan is None:
                self.arrive()
                self.world.pause()
            else:
                driver.run(plan)

    def arrive(self) -> None:
        world = self.world
        world.arrived = min(self.items, world.arrived + world.random.randint(1, 3))

    def read(self) -> None:
        """What a reader does: everything the newest commit names must be there."""
        for _ in range(4):
            with pinned(Log(self.storage)) as commit:
                if commit is not None:
                    with self.world.reads(commit.batch):
                        reader = BlockReader(self.storage, commit)
                        for name in [*commit.blocks, *commit.inline]:
                            reader.block(name)
            self.world.pause()

    def start(self) -> Actor:
        self.drivers.append(self.world.spawn(f"driver {len(self.drivers)}", self.drive))
        return self.drivers[-1]

    # --- judging -----------------------------------------------------------------------------------------------------

    def check_ends(self) -> None:
        """Drivers end because they are done, crashed, superseded, or because the world made a call of theirs fail."""
        for actor in self.drivers:
            if actor.late and not (actor.dead or isinstance(actor.error, Superseded) or actor.hurt):
                raise Broken(f"{actor.name} made a commit that does not count, and did not notice")
            fine = actor.error is None or isinstance(actor.error, HeadraceError if actor.hurt else Superseded)
            if not fine:
                raise Broken(f"{actor.name} failed: {actor.error!r}") from actor.error

    def finish(self) -> None:
        """A last driver, alone and undisturbed; then everything must be there, once, and nothing else."""
        world = self.world
        world.closing = True
        world.run()
        self.check_ends()
        world.chaos, world.fate = Chaos(), lambda _, __: ""
        self.items, self.twice = self.items + 1, 0.0  # so that it commits and cleans up
        world.arrived = self.items
        self.start()
        world.run()
        if self.drivers[-1].error is not None:
            raise Broken("the last driver failed") from self.drivers[-1].error
        self.check_ends()
        self.check_output()
        self.check_litter()

    def check_output(self) -> None:
        world, had = self.world, list[tuple[int, int]]()
        wanted = [batch for batch in sorted(world.counted) if world.has_parts(batch)]
        if sorted(world.published) != wanted:
            raise Broken(f"published: {sorted(world.published)}, committed: {wanted}")
        for batch in sorted(world.published):
            for buckets, bucket, before, items in world.published[batch]:
                own = [pair for pair in had if sum(pair) % buckets == bucket]
                if sorted(before) != sorted(own):
                    raise Broken(f"batch {batch} began with {before}, and {own} came before")
                had += items
        if sorted(had) != self.everything():
            raise Broken(f"the answer is {sorted(had)}, not {self.everything()}")

    def everything(self) -> list[tuple[int, int]]:
        """All items, with how often they have been round."""
        return sorted((item, times) for item in range(self.items) for times in range(trips_of(item) + 1))

    def check_litter(self) -> None:
        world = self.world
        log = Log(self.storage)
        named = {file for batch in log.batches() for file in log.read(batch).files}
        if litter := set(self.storage.keys("data")) - named:
            raise Broken(f"{litter} stay for ever")
        pins = len({key.split("-")[0] for key in self.storage.keys("pins")})
        for folder, most in {"epochs": 1, "floors": 2, "commits": self.kept + pins, "plans": self.kept + 1}.items():
            if len(self.storage.keys(folder)) > most:
                raise Broken(f"{self.storage.keys(folder)} stay for ever")
        assert not world.actors


def simulate(seed: int, scenario: Callable[[Any], None], kind: type[Query] = Query) -> Query:
    """A whole run; a failure says its seed."""
    query = kind(seed)
    try:
        scenario(query)
        query.finish()
    except Broken as error:
        error.add_note(f"seed {seed} of {scenario.__name__}")
        raise
    finally:
        query.world.closing = True
        query.world.close()
    return query
