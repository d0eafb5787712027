"""A world to simulate: actors that run one at a time, a store in memory, and a scheduler that chooses who is next.

Every call of the store is a point at which another actor may go on instead, or the actor may crash. A world is made
from a seed and does the same again for the same seed. It watches the store: whatever breaks the promises of the
protocol raises `Broken` at the call that breaks them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import pyarrow as pa
from greenlet import GreenletExit, greenlet

from headrace.errors import SinkError, StoreError
from headrace.io.removed import RemovedBatches
from headrace.pieces import Data, joined
from headrace.store.log import Commit, number_of
from headrace.store.remote import RemoteStorage, Unanswered
from headrace.store.storage import Storage


class Broken(AssertionError):
    """A promise of the protocol is broken."""


@dataclass(eq=False)
class Actor:
    name: str
    run: greenlet
    #: Until then it is not chosen.
    asleep: int = 0
    #: What it waits for.
    ready: Callable[[], bool] | None = None
    dead: bool = False
    done: bool = False
    error: Exception | None = None
    #: Whether the world has made one of its calls fail, and whether it has made a commit that does not count.
    hurt: bool = False
    late: bool = False
    task: bool = False
    #: A thread of another actor ends with it.
    process: Actor | None = None

    @property
    def killed(self) -> bool:
        return self.dead or (self.process is not None and self.process.dead)


@dataclass
class Chaos:
    """How wild a world is: chances per call."""

    crash: float = 0.0
    sleep: float = 0.0
    fail: float = 0.0
    lost: float = 0.0
    #: Writes without an answer: they happen at once, or later, or never.
    unheard: float = 0.0
    #: The chance that the actor of the call before goes on.
    stay: float = 0.7
    #: How long sleepers sleep at most, in calls.
    longest: int = 400
    #: Calls from and to which the disk is full.
    full: tuple[int, int] = (0, 0)


def version_of(commit: Commit) -> int:
    """The version of the query that has made a commit."""
    versions = [name for name in commit.record.get("state", ()) if name.startswith("version ")]
    return max((int(name.split()[1]) for name in versions), default=0)


class World:
    """Actors, files, and what must be true of them."""

    current: ClassVar[World]

    def __init__(self, seed: int, chaos: Chaos | None = None) -> None:
        World.current = self
        self.seed, self.random, self.chaos = seed, random.Random(seed), chaos or Chaos()
        self.files: dict[str, bytes] = {}
        self.folders: defaultdict[str, set[str]] = defaultdict(set)
        self.actors: list[Actor] = []
        self.actor: Actor | None = None
        self.calls = 0
        self.made = 0
        #: Called before every call with its number; gives what becomes of it: "", "fail", "lost", "late", "again",
        #: "crash".
        self.fate: Callable[[int, str], str] = lambda _, __: ""
        self.hub = greenlet.getcurrent()
        # What the promises are about.
        self.counted: dict[int, Commit] = {}
        self.reading: dict[int, int] = {}
        self.published: dict[int, list[Any]] = {}
        self.staged: dict[str, Any] = {}
        self.attempted: dict[int, Any] = {}
        #: Every commit, and the newest epoch when it was made.
        self.claims: list[tuple[Commit, int]] = []

    # --- actors ------------------------------------------------------------------------------------------------------

    def spawn(self, name: str, function: Callable[[], None], *, task: bool = False) -> Actor:
        def body() -> None:
            try:
                function()
            except GreenletExit:
                actor.dead = True
            except Broken:
                raise
            except Exception as error:  # noqa: BLE001 - judged by whoever started it
                actor.error = error
            actor.done = True

        actor = Actor(name, greenlet(body, self.hub), task=task)
        self.actors.append(actor)
        return actor

    def pause(self, *, at_commit: bool = False) -> None:
        """A point at which others may go on. Outside of actors nothing happens."""
        actor = self.actor
        if actor is None:
            return
        if actor.killed:
            actor.dead = True
            raise GreenletExit
        self.calls += 1
        roll = self.random.random()
        chaos = self.chaos
        if roll < chaos.crash:
            self._crash(actor)
        if roll < chaos.crash + chaos.sleep * (10 if at_commit else 1):
            actor.asleep = self.calls + self.random.randrange(chaos.longest)
            self.hub.switch()
        elif self.random.random() >= chaos.stay:
            self.hub.switch()

    def _crash(self, actor: Actor) -> NoReturn:
        """End an actor; a thread does not crash alone."""
        actor.dead = True
        if actor.process is not None:
            actor.process.dead = True
        raise GreenletExit

    def wait(self, ready: Callable[[], bool]) -> None:
        """Let others go on until something is so."""
        actor = self.actor
        assert actor is not None
        actor.ready = ready
        self.hub.switch()
        actor.ready = None
        if actor.killed:
            raise GreenletExit

    def run(self, *, until: Callable[[], bool] = lambda: False) -> None:
        """Let actors go on, one call each, until all are done."""
        while not until():
            alive = [a for a in self.actors if not a.done]
            waiting = [a for a in alive if a.ready is None or a.ready()]
            if not waiting:
                if alive:
                    raise Broken(f"all wait: {[a.name for a in alive]}")
                return
            awake = [a for a in waiting if a.asleep <= self.calls]
            if not awake:
                self.calls = min(a.asleep for a in waiting)
                continue
            self.resume(self.random.choice(awake))
            self.actors = [a for a in self.actors if not a.done]

    def resume(self, actor: Actor) -> None:
        self.actor = actor
        try:
            actor.run.switch()
        finally:
            self.actor = None

    def close(self) -> None:
        """End all actors."""
        for actor in self.actors:
            actor.dead = True
            if actor.run:
                self.actor = actor
                actor.run.throw(GreenletExit)
        self.actor = None

    def name(self) -> str:
        """A name that nobody else has."""
        self.made += 1
        return f"{self.random.getrandbits(16):04x}{self.made:x}"

    # --- calls of the store ------------------------------------------------------------------------------------------

    def call(self, what: str, effect: Callable[[], Any]) -> Any:
        """A call: it happens or not, and the caller hears of it or not."""
        self.pause(at_commit=what.startswith("create commits"))
        fate = self._fate(what)
        if fate == "crash":
            assert self.actor is not None
            self._crash(self.actor)
        if fate == "fail":
            raise self._hurt(f"{what} fails")
        if fate == "late":
            self._later(effect)
            raise self._hurt(f"the answer to {what} is lost")
        found = effect()
        if fate == "lost":
            raise self._hurt(f"the answer to {what} is lost")
        if fate == "again" and what.startswith("create"):  # as if the call was repeated because its answer was lost
            self._hurt(what)
            return effect()
        return found

    def _later(self, effect: Callable[[], Any]) -> None:
        """A call is under way; it happens even if its caller does not live any more."""
        call = self.spawn("a late call", lambda: effect() and None, task=True)
        call.asleep = self.calls + self.random.randrange(self.chaos.longest)

    def _hurt(self, what: str) -> StoreError:
        if self.actor is not None:
            self.actor.hurt = True
        return StoreError(what)

    def _fate(self, what: str) -> str:
        chaos = self.chaos
        if chaos.full[0] <= self.calls < chaos.full[1] and what.startswith(("create", "stage")):
            return "fail"
        if self.chaos.unheard and what.startswith("create") and self.random.random() < chaos.unheard:
            return self.random.choice(["lost", "late", "fail"])
        if chaos.fail or chaos.lost:
            roll = self.random.random()
            if roll < chaos.fail:
                return "fail"
            if roll < chaos.fail + chaos.lost:
                return "lost"
        return self.fate(self.calls, what)

    # --- promises ----------------------------------------------------------------------------------------------------

    def floor(self) -> int:
        return max(map(number_of, self.folders["floors"]), default=0)

    def has_created(self, key: str) -> None:
        if not key.startswith("commits/"):
            return
        batch = number_of(key)
        if batch < self.floor():
            if self.actor is not None:
                self.actor.late = True
            return
        if batch in self.counted:
            raise Broken(f"batch {batch} is committed twice")
        commit = Commit.unpacked(key, pa.py_buffer(self.files[key]))
        if batch != len(self.counted):
            raise Broken(f"batch {batch} is committed after {len(self.counted) - 1}")
        if batch and commit.epoch < self.counted[batch - 1].epoch:
            raise Broken(f"epoch {commit.epoch} commits after {self.counted[batch - 1].epoch}")
        for file, (length, _) in commit.files.items():
            if len(self.files.get(file, b"")) != length:
                raise Broken(f"commit {batch} names {file}, which is not there")
        before = version_of(self.counted[batch - 1]) if batch else 0
        if version_of(commit) < before:
            raise Broken(f"version {version_of(commit)} commits batch {batch} after {before}")
        self.counted[batch] = commit
        self.claims.append((commit, max(map(number_of, self.folders["epochs"]))))

    def has_removed(self, key: str) -> None:
        if key.startswith("commits/"):
            batch = number_of(key)
            if batch >= self.floor() or self.reading.get(batch):
                raise Broken(f"{key} is removed and in use")
        if key.startswith("data/"):
            floor = self.floor()
            alive = [n for n in map(number_of, self.folders["commits"]) if n >= floor]
            for batch in [*alive, *(n for n, readers in self.reading.items() if readers)]:
                if key in self.counted[batch].files:
                    raise Broken(f"{key} is removed, and commit {batch} names it")

    def has_published(self, batch: int, parts: list[str]) -> None:
        if batch in self.published:
            raise Broken(f"batch {batch} is published twice")
        if batch not in self.counted:
            raise Broken(f"batch {batch} is published before its commit")
        if self.actor is not None and self.actor.late:
            raise Broken(f"batch {batch} is published by a commit that does not count")
        if parts != self.counted[batch].record["outputs"][0]["parts"]:
            raise Broken(f"batch {batch} is published with other parts than its commit has")
        before = next((n for n in range(batch - 1, -1, -1) if self.has_parts(n)), None)
        if before is not None and before not in self.published:
            raise Broken(f"batch {batch} is published before batch {before}")

    def has_parts(self, batch: int) -> bool:
        """Whether a committed batch has something to publish; one that only changes the state has not."""
        return bool(self.counted[batch].record["outputs"][0]["parts"])

    @contextmanager
    def reads(self, batch: int) -> Iterator[None]:
        """A reader uses a commit."""
        self.reading[batch] = self.reading.get(batch, 0) + 1
        try:
            yield
        finally:
            self.reading[batch] -= 1


class MemoryStorage(Storage):
    """A store in a world. A listing is no instant: what changes meanwhile may be in it or not."""

    place = "memory"

    def __init__(self, world: World) -> None:
        self.world, self.files = world, world.files

    def create(self, key: str, data: Data, *, lasting: bool = True) -> bool:  # noqa: ARG002 - all lasts
        return self.world.call(f"create {key}", lambda: self._create(key, bytes(joined(data))))

    def _create(self, key: str, data: bytes) -> bool:
        if key in self.files:
            return False
        self.files[key] = data
        self.world.folders[key.partition("/")[0]].add(key)
        self.world.has_created(key)
        return True

    def read(self, key: str) -> pa.Buffer:
        return self.world.call(f"read {key}", lambda: pa.py_buffer(self._read(key)))

    def length(self, key: str) -> int:
        return self.world.call(f"length {key}", lambda: len(self._read(key)))

    def _read(self, key: str) -> bytes:
        if key not in self.files:
            raise FileNotFoundError(key)
        return self.files[key]

    def keys(self, folder: str, after: str = "") -> list[str]:
        begun = self.world.call(f"list {folder}", self.world.folders[folder].copy)
        self.world.pause()
        ended = self.world.folders[folder]
        if begun != ended:
            coin = self.world.random.random
            begun = (begun & ended) | {key for key in sorted(begun ^ ended) if coin() < 0.5}
        return sorted(key for key in begun if key > after)

    def sizes(self, folder: str = "") -> dict[str, int]:
        found = self.world.call(f"list {folder}", lambda: sorted(k for k in self.files if k.startswith(f"{folder}/")))
        return {key: len(self.files[key]) for key in found if key in self.files}

    def remove(self, key: str) -> None:
        self.world.call(f"remove {key}", lambda: self._remove(key))

    def _remove(self, key: str) -> None:
        if self.files.pop(key, None) is not None:
            self.world.folders[key.partition("/")[0]].remove(key)
            self.world.has_removed(key)


class MemoryObjects(RemoteStorage, MemoryStorage):
    """The same as an object store would be: answers get lost, and a listing comes in pages.

    Only those of `create` are lost here: the client of a real store repeats the other calls by itself.
    """

    place = "objects in memory"

    def put(self, key: str, data: Data) -> bool:
        actor = self.world.actor
        hurt = actor is not None and actor.hurt
        try:
            return MemoryStorage.create(self, key, data)
        except StoreError as error:
            if actor is not None:
                actor.hurt = hurt
            raise Unanswered(str(error)) from error

    def create(self, key: str, data: Data, *, lasting: bool = True) -> bool:
        try:
            return RemoteStorage.create(self, key, data, lasting=lasting)
        except StoreError:  # every attempt was lost
            if self.world.actor is not None:
                self.world.actor.hurt = True
            raise

    def keys(self, folder: str, after: str = "") -> list[str]:
        found: list[str] = []
        while True:
            last = found[-1] if found else after
            self.world.pause()
            page = sorted(key for key in self.world.folders[folder] if key > last)[:2]
            found += page
            if len(page) < 2:
                return found


class MemoryDirectory:
    """What `BatchDirectory` does, in a world: staged parts become a batch in one instant, once."""

    def __init__(self, path: str) -> None:
        assert path
        self.world = World.current

    def stage(self, batch: int, content: object) -> str:
        name = f"{batch}/{self.world.name()}"
        return self.world.call(f"stage {batch}", lambda: self.world.staged.__setitem__(name, content) or name)

    def commit(self, batch: int, staged: list[str], extra: object = None) -> bool:
        world = self.world
        assert not extra
        fresh = not world.call("look", lambda: batch in world.published)
        if fresh:
            linked = world.call("link", lambda: [world.staged.get(part) for part in staged])
            fresh = world.call("rename", lambda: self._publish(batch, staged, linked))
        for name in [name for name in world.staged if int(name.split("/")[0]) <= batch]:
            world.call("sweep", lambda name=name: world.staged.pop(name, None))
        return fresh

    def _publish(self, batch: int, staged: list[str], linked: list[Any]) -> bool:
        if batch in self.world.published:
            return False
        if None in linked:
            raise SinkError(f"some of {staged} are not there")
        self.world.has_published(batch, staged)
        self.world.published[batch] = linked
        return True

    def claim(self, owner: str, *, begun: bool) -> None:  # noqa: ARG002 - the directory has one query
        self.world.pause()

    def removed(self) -> RemovedBatches:
        """Nothing: no batch is removed on purpose here."""
        self.world.pause()
        return RemovedBatches()

    def committed(self) -> list[int]:
        return self.world.call("committed", lambda: sorted(self.world.published))
