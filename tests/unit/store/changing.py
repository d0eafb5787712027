"""A query that changes while it runs, in a simulated world: rescaled, upgraded, with a published stream.

The real code runs: `rescaled`, `keep`, the deliveries and the sink of a published stream. Only what depends on real
plans has a stand-in: how items are divided among buckets, and how a version of the plan is compared with another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.store import simulated
from tests.unit.store.simulated import SINK, Items_, Query, line_of
from tests.unit.store.world import Actor, Broken, World, version_of

from headrace.errors import CheckpointError, HeadraceError, Superseded
from headrace.host.driving import publish as publish_module
from headrace.host.driving import upgrade as upgrade_module
from headrace.host.driving.plan import Batch
from headrace.host.saved import rescaling
from headrace.host.saved.rescaling import rescaled
from headrace.pieces import ipc_pieces, joined
from headrace.progress import Progress
from headrace.server.published import LogSink
from headrace.stages.message import RESULT, Message
from headrace.store.blocks import write_blocks
from headrace.store.log import Commit, Log

__all__ = ["ChangingQuery", "install"]


def install(patch: pytest.MonkeyPatch) -> None:
    """Put the world's parts where a changing query looks for its own."""
    simulated.install(patch)
    patch.setattr(rescaling._Division, "_operator", divided)
    patch.setattr(upgrade_module, "carried", carried)
    patch.setattr(upgrade_module, "replace_about", lambda *_: World.current.pause())
    patch.setattr(publish_module, "ThreadPoolExecutor", WorldThreads)


# --- what depends on plans -------------------------------------------------------------------------------------------


def divided(self: Any, fingerprint: str, states: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The items of all buckets, in the new ones; takes the place of `_Division._operator`."""
    empty = {str(bucket): {"scalars": {}, "traces": {}} for bucket in range(self.buckets)}
    if fingerprint != "sum":
        return empty
    names = [name for bucket in sorted(states) for name in states[bucket]["traces"]["items"]["segments"]]
    pairs = [tuple(pair) for name in names for pair in json.loads(self.reader.block(name).to_pybytes())]
    found: dict[str, Any] = {}
    for bucket in range(self.buckets):
        name = World.current.name()
        own = json.dumps([pair for pair in pairs if sum(pair) % self.buckets == bucket]).encode()
        self.ledger.add(write_blocks(self.log.storage, self.last.batch + 1, self.log.epoch, {name: own}))
        found[str(bucket)] = {"scalars": {}, "traces": {"items": {"floor": 0, "segments": [name]}}}
    return found


def carried(
    records: Sequence[Mapping[str, Any]], line: Any, buckets: int, outputs: Sequence[Mapping[str, Any]], _: object
) -> dict[str, Any]:
    """The record of an upgrade: the state of before, by the new version."""
    (record,) = records
    if record["buckets"] != buckets:
        raise CheckpointError("states are divided among another number of buckets")
    mark = {str(bucket): {"scalars": {}, "traces": {}} for bucket in range(buckets)}
    state = {"sum": record["state"]["sum"], line.fingerprint: mark}
    return {**record, "outputs": list(outputs), "state": state, "query": line.fingerprint}


class ChangedPlan:
    """Takes the place of `PlannedQuery` and of the `QueryChange` that it makes."""

    left_out = ()
    old_outputs: Sequence[int | None] = (0,)
    old_sources: Mapping[str, Sequence[str]] = {"source": ["source"]}
    old_of: Mapping[str, str] = {"sum": "sum"}
    missing: Sequence[object] = ()
    changed_outputs: Sequence[object] = ()
    services: Sequence[str] = ()
    begins_empty: frozenset[str] = frozenset()
    place = "memory"

    def __init__(self, version: int, buckets: int) -> None:
        self.line, self.buckets, self.sinks = line_of(version), buckets, [SINK]
        self.stored = {"owner": "query", "outputs": [{}], "dates": [False]}
        self.last: Commit | None = None

    def change(self, _: object, __: object, last: Commit | None) -> ChangedPlan:
        self.last = last
        return self

    def why_not_keep(self) -> str:
        return "changes go round a loop" if self.last is not None and self.last.record["feedback"] else ""

    def operators(self) -> str:
        return ""


# --- a published stream ----------------------------------------------------------------------------------------------


class WorldThreads:
    """One thread beside an actor: it goes on while the actor does, and ends with it."""

    def __init__(self, *_: object) -> None:
        self.world = World.current

    def submit(self, function: Callable[..., None], *arguments: object) -> _WorldFuture:
        owner = self.world.actor
        assert owner is not None
        thread = self.world.spawn(f"a thread of {owner.name}", lambda: function(*arguments), task=True)
        thread.process = owner
        return _WorldFuture(self.world, thread)

    def shutdown(self) -> None:
        """Nothing is left."""


class _WorldFuture:
    def __init__(self, world: World, thread: Actor) -> None:
        self.world, self.thread = world, thread

    def result(self) -> None:
        owner = self.world.actor
        assert owner is not None
        self.world.wait(lambda: self.thread.done)
        owner.hurt |= self.thread.hurt
        if self.thread.error is not None:
            raise self.thread.error


class MemoryLog:
    """The log of a published stream: a frame has its rows and its marks, or neither is there."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rows: list[tuple[int, int]] = []
        self.marks: dict[str, int] = {}

    def marked(self, name: str) -> int | None:
        return self.world.call("look at the log", lambda: self.marks.get(name))

    def append(self, rows: pa.Table, marks: Mapping[str, int]) -> None:
        self.world.call("stage in the log", lambda: self._append(rows, marks))

    def _append(self, rows: pa.Table, marks: Mapping[str, int]) -> None:
        for name, batch in marks.items():
            if batch not in self.world.counted:
                raise Broken(f"batch {batch} is in the log before its commit")
            if name.count("/") == 2 and self.marks.get(name, -1) >= batch:
                raise Broken(f"{name} of batch {batch} is in the log twice")
        self.rows += zip(rows["item"].to_pylist(), rows["times"].to_pylist(), strict=True)
        self.marks |= marks


# --- the query -------------------------------------------------------------------------------------------------------


class ChangingQuery(Query):
    """A query whose buckets, version and outputs may change."""

    def __init__(self, seed: int, items: int = 6) -> None:
        super().__init__(seed, items=items)
        self.versions = 0
        self.changers: list[Actor] = []
        self.log: MemoryLog | None = None

    def publish_stream(self) -> None:
        """Add the output of a published stream."""
        self.log = MemoryLog(self.world)
        self.services = {1: LogSink(name="published", log=self.log)}  # type: ignore[arg-type]

    def more_rows(self, batch: Batch, bucket: int, items: Items_) -> list[Message]:
        if self.log is None or not items:
            return [] if self.log is None else [Message(bucket, RESULT - 1, None, Progress(), {})]
        rows = pa.table({
            "kind": ["insert"] * len(items), "item": [item for item, _ in items], "times": [times for _, times in items]
        })  # fmt: skip
        name, data = World.current.name(), bytes(joined(ipc_pieces(rows)))
        written = write_blocks(self.storage, batch.number, batch.epoch, {name: data}, self.inline)
        about = {"block": name, "bytes": len(data), "written": written.to_json()}
        return [Message(bucket, RESULT - 1, None, Progress(), about)]

    def rescale(self) -> None:
        """What `headrace checkpoint rescale` does."""
        log = Log(self.storage)
        log.claim()
        while not rescaled(log, {}, self.world.random.choice([1, 2, 3])):
            pass

    def upgrade(self) -> None:
        """What a start with `upgrade="keep"` does before it drives."""
        buckets, version = self.found()
        self.versions += 1
        planned = ChangedPlan(max(version + 1, self.versions), buckets)
        root = SimpleNamespace(storage=self.storage, root=None, place="memory", description=lambda *_: {"services": []})
        planned.stored["fingerprint"] = line_of(version).fingerprint
        upgrade_module.keep(root, planned, planned.stored)  # type: ignore[arg-type]
        self.drive()

    def change(self, how: Callable[[], None]) -> Actor:
        self.changers.append(self.world.spawn(f"{how.__name__} {len(self.changers)}", how))
        return self.changers[-1]

    def check_ends(self) -> None:
        """Changes end as drivers do, or because the query is not ready for them."""
        super().check_ends()
        for actor in self.changers:
            allowed = HeadraceError if actor.hurt else (Superseded, CheckpointError)
            if actor.error is not None and not isinstance(actor.error, allowed):
                raise Broken(f"{actor.name} failed: {actor.error!r}") from actor.error

    def check_output(self) -> None:
        super().check_output()
        if self.log is not None and sorted(self.log.rows) != self.everything():
            raise Broken(f"the log has {sorted(self.log.rows)}, not {self.everything()}")

    def seen(self) -> set[tuple[int, int]]:
        """The buckets and versions of its commits."""
        return {(commit.record["buckets"], version_of(commit)) for commit in self.world.counted.values()}
