"""The law of the driver, over files: whatever happens between batches, a query gives what an undisturbed run gives.

Random plans are driven by `Driver` with tasks in this process, over a store on disk. Drivers die at any call of the
store and others go on, with what this process remembers of its stages or without; batches are run twice.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import plans

from headrace.api.stream import Stream
from headrace.changes import Changes
from headrace.host.driving import tasks
from headrace.host.driving.driver import Driver
from headrace.host.driving.in_process import InProcessExecutor
from headrace.host.driving.plan import Batch, Job
from headrace.host.driving.publish import Publisher
from headrace.host.local.run import run_local
from headrace.host.saved.rescaling import rescaled
from headrace.io.formats import Format
from headrace.io.origins import Events, Files
from headrace.io.sinks import FileSink, Memory, read_events_output
from headrace.optimizer import optimize
from headrace.optimizer.rewrite import rewrite
from headrace.pieces import Data
from headrace.plan.nodes import Node, Output, Source
from headrace.stages.cut import Line, cut
from headrace.stages.declared import declared
from headrace.stages.message import Message
from headrace.store.storage import LocalStorage
from headrace.testing.same import assert_same_history
from headrace.testing.strategies import buckets

EXAMPLES = max(5, settings().max_examples // 4)


class Dies(Exception):
    """A driver dies."""


class Mortal(LocalStorage):
    """A store whose user dies at a call, before or after it takes effect."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, durable=False)
        self.left, self.after = -1, False

    def _call(self, call: Callable[..., Any], *given: object) -> Any:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Dies
        found = call(*given)
        if self.left == 0:
            raise Dies
        return found

    def create(self, key: str, data: Data, *, lasting: bool = True) -> bool:
        return self._call(partial(super().create, lasting=lasting), key, data)

    def read(self, key: str) -> pa.Buffer:
        return self._call(super().read, key)

    def remove(self, key: str) -> None:
        self._call(super().remove, key)


class Twice(InProcessExecutor):
    """Runs every batch twice; the second run counts."""

    def run(self, batch: Batch) -> list[Message]:
        super().run(batch)
        return super().run(batch)


class Query:
    """A stream whose inputs are files, one for each batch of events, with a sink of files and one in memory."""

    def __init__(
        self,
        stream: Stream,
        n: int,
        place: Path,
        per_batch: int | None,
        *,
        twice: bool = False,
        max_trips: int | None = None,
    ) -> None:
        self.place, self.n, self.per_batch, self.twice, self.max_trips = place, n, per_batch, twice, max_trips
        #: How many trips its batches had.
        self.trips: list[int] = []
        self.storage = Mortal(place / "checkpoint")
        self.sinks = (FileSink("events", (), str(place / "out"), "jsonl"), Memory())
        self.outputs = rewrite(optimize([Output(stream.node, name) for name in ("files", "memory")]), self._spilled)
        self.line: Line = cut(self.outputs, n)
        self.driver = self.start()

    def _spilled(self, node: Node) -> Node:
        if not (isinstance(node, Source) and isinstance(node.origin, Events)):
            return node
        folder = self.place / "in" / str(node.origin).replace(" ", "-").replace("#", "")
        if not folder.exists():
            folder.mkdir(parents=True)
            for number, table in enumerate(node.origin.batches()):
                path = folder / f"{number:06d}.arrow"
                with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                    writer.write_table(table)
                os.utime(path, (number + 1, number + 1))
        return replace(node, origin=Files(str(folder), Format("arrow"), label=str(node.origin), holds_stamps=True))

    def start(self) -> Driver:
        job = Job("job", self.line, self.n, self.storage, (self.sinks[0], None))
        executor = Twice(job) if self.twice else InProcessExecutor(job)
        publisher = Publisher(self.line.outputs, self.sinks, self.storage)
        bounds = {"max_trips": self.max_trips, "trip_seconds": inf}
        return Driver(job, executor, publisher, lambda: 0, self.per_batch, ending=True, **bounds)

    def run(self) -> None:
        """Drive to the end."""
        self.driver.open()
        while (plan := self.driver.plan()) is not None:
            self.trips.append(self.driver.run(plan).trips)

    def run_mortal(self, deaths: list[tuple[int, bool]], *, forget: bool) -> None:
        """The same by drivers that die, each at a call; `forget` also what this process knows of the stages."""
        for calls, after in deaths:
            self.storage.left, self.storage.after = calls, after
            try:
                self.run()
            except Dies:
                self.driver = self.start()
                if forget:
                    tasks._STAGES.clear()
        self.storage.left = -1
        self.run()

    def run_rescaled(self, counts: dict[int, int]) -> None:
        """The same, with another number of buckets from some batches on; nobody else may be at work meanwhile."""
        self.driver.open()
        done = 0
        while (plan := self.driver.plan()) is not None:
            self.driver.run(plan)
            done += 1
            if done in counts:
                self.driver.log.claim()
                assert rescaled(self.driver.log, declared(self.line), counts[done])
                self.n = counts[done]
                self.line = cut(self.outputs, self.n)
                self.driver = self.start()
                self.driver.open()

    # --- what it gave ------------------------------------------------------------------------------------------------

    def batches(self) -> dict[int, tuple[list[str], object]]:
        """What left, batch by batch; a batch that a function or a memory gets again is the same."""
        found: dict[int, tuple[list[str], object]] = {}
        for number, (changes, progress) in zip(self.sinks[1].numbers, self.sinks[1].batches, strict=True):
            batch = sorted(map(repr, changes.to_table().to_pylist())), progress
            assert found.setdefault(number, batch) == batch
        return found

    def history(self) -> pa.Table:
        """What the memory has."""
        first = {number: changes for number, (changes, _) in zip(*self._parts(), strict=True)}
        sink = Memory()
        sink.add(Changes.concat(list(first.values())), self.sinks[1].batches[-1][1])
        return sink.cht()

    def _parts(self) -> tuple[list[int], list[Any]]:
        return self.sinks[1].numbers, self.sinks[1].batches

    def files(self) -> pa.Table:
        """What the directory has."""
        return read_events_output(self.sinks[0].path, self.line.outputs[0].schema)


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def deaths() -> st.SearchStrategy[list[tuple[int, bool]]]:
    return st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=4)


@settings(max_examples=EXAMPLES)
@given(plans(max_events=8), buckets(), st.sampled_from([None, 1, 2]))
def test_a_driven_query_has_the_history_of_a_local_run(stream: Stream, n: int, per_batch: int | None):
    expected = run_local([Output(stream.node, "out")], buckets=1).results["out"].cht()
    with tempfile.TemporaryDirectory() as place:
        query = Query(stream, n, Path(place), per_batch)
        query.run()
        assert_same_history(query.history(), expected, digits=9)
        assert_same_history(query.files(), expected, digits=9)


@settings(max_examples=EXAMPLES)
@given(plans(max_events=8), buckets(), st.sampled_from([1, 2]), deaths(), st.booleans(), st.booleans())
def test_drivers_that_die_give_what_one_that_lives_gives(
    stream: Stream, n: int, per_batch: int, dying: list[tuple[int, bool]], forget: bool, twice: bool
):
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as place:
        undisturbed = Query(stream, n, Path(whole), per_batch)
        undisturbed.run()
        disturbed = Query(stream, n, Path(place), per_batch, twice=twice)
        disturbed.run_mortal(dying, forget=forget)
        assert disturbed.batches() == undisturbed.batches()
        assert rows(disturbed.files()) == rows(undisturbed.files())
