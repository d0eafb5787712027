"""A query over an adapter, whose driver dies between any two steps; another one goes on.

A step is a call of the store, or one of the adapter's: the driver dies before it or after it. Rows are appended between
batches, batches are of any size, and the query has one or several buckets. At the end the answer must be that of all
rows at once, and a sink must have every row of every committed batch once.
"""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow as pa

from headrace.api.inputs import advance, events, point, read_source
from headrace.api.stream import Stream
from headrace.api.windows import tumbling
from headrace.changes import Changes
from headrace.columnar import to_numpy
from headrace.expr import count
from headrace.host.driving.driver import Driver
from headrace.host.driving.in_process import InProcessExecutor
from headrace.host.driving.pace import Pace
from headrace.host.driving.plan import Job
from headrace.host.driving.publish import Publisher
from headrace.io.adapter import DeliveryId, Offsets, SinkAdapter, SourceAdapter
from headrace.io.decoded import DecodedBlock
from headrace.io.sinks import Memory, Sink
from headrace.optimizer import optimize
from headrace.pieces import Data
from headrace.plan.nodes import Output
from headrace.schema import Schema, Type
from headrace.stages.cut import cut
from headrace.stages.egress import prepared, task_sinks
from headrace.store.storage import LocalStorage
from headrace.testing.adapter_check.calls import copied
from headrace.testing.adapter_check.report import Broken, Example, Skipped
from headrace.testing.adapter_check.samples import sample_rows, timed
from headrace.testing.same import assert_same_history

__all__ = [
    "DELAY", "WIDTH", "Fate", "MortalSink", "MortalSource", "MortalStorage", "Rows", "check_source_query", "drive",
    "history_once", "make_driver",
]  # fmt: skip

#: Rows of a partition are at most so many ticks out of order: none is late.
DELAY = 40
WIDTH = 50
#: How many rows a batch reads at most.
_BOUNDS = (2, 100, 7, 1)
T = TypeVar("T")


class Dies(BaseException):
    """A driver dies. Not an `Exception`: an adapter that handles those must not survive."""


class Fate:
    """Decides at which step a driver dies; after that, every step of its threads fails."""

    def __init__(self, example: Example) -> None:
        self.example = example
        self.left, self.dead = -1, False
        self._lock = threading.Lock()

    def set(self, left: int) -> None:
        """A new driver lives for so many steps; for ever if that is negative."""
        self.left, self.dead = left, False

    def around(self, what: str, call: Callable[[], T]) -> T:
        """A call between two steps."""
        self.step(f"before {what}")
        result = call()
        self.step(f"after {what}")
        return result

    def step(self, where: str) -> None:
        """Die here, if it is time."""
        with self._lock:
            if self.left == 0 and not self.dead:
                self.example.add(f"the driver dies {where}")
                self.dead = True
            self.left = max(-1, self.left - 1)
            if self.dead:
                raise Dies


class MortalStorage(LocalStorage):
    """A store whose calls are steps."""

    def __init__(self, path: Path, fate: Fate) -> None:
        super().__init__(path, durable=False)
        self._fate = fate

    def create(self, key: str, data: Data, *, lasting: bool = True) -> bool:
        call = partial(super().create, key, data, lasting=lasting)
        return self._fate.around(f"writing {key.partition('/')[0]}", call)

    def read(self, key: str) -> pa.Buffer:
        return self._fate.around(f"reading {key.partition('/')[0]}", partial(super().read, key))

    def remove(self, key: str) -> None:
        self._fate.around(f"removing {key.partition('/')[0]}", partial(super().remove, key))


@dataclass(frozen=True, eq=False)
class MortalSource(SourceAdapter):
    """A source adapter whose calls are steps, read from these offsets on."""

    inner: SourceAdapter
    fate: Fate
    starts: Mapping[str, int]
    on_gap: Literal["raise", "continue"] = "raise"

    @property
    def schema(self) -> Schema:
        return self.inner.schema

    def __str__(self) -> str:
        return str(self.inner)

    def offsets(self, positions: Mapping[str, int]) -> Mapping[str, Offsets]:
        found = self.fate.around("offsets()", lambda: self.inner.offsets(positions))
        return {name: reach for name, reach in found.items() if name in self.starts}

    def begin(self, partition: str, available: Offsets) -> int:  # noqa: ARG002 - as the contract has it
        return self.starts[partition]

    def limit(self, partition: str, start: int, end: int, rows: int) -> int:
        return self.inner.limit(partition, start, end, rows)

    def read(
        self, partition: str, start: int, end: int, columns: Sequence[str]
    ) -> Generator[DecodedBlock, None, int | None]:
        what = f"read({partition!r}, {start}, {end})"
        self.fate.step(f"before {what}")
        ended = yield from self.inner.read(partition, start, end, columns)
        self.fate.step(f"after {what}")
        return ended

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        self.fate.around(f"acknowledge({dict(positions)})", lambda: self.inner.acknowledge(positions))

    def close(self) -> None:
        if not self.fate.dead:
            self.inner.close()


@dataclass(frozen=True, eq=False)
class MortalSink(SinkAdapter):
    """A sink adapter whose calls are steps; `delivered` has the rows that it was given, by their identity."""

    inner: SinkAdapter | None = None
    fate: Fate = field(default_factory=lambda: Fate(Example()))
    delivered: dict[DeliveryId, pa.Table] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.inner)

    def open(self, query: str, output: int, columns: Schema, batch: int) -> None:
        assert self.inner is not None
        call = partial(self.inner.open, query, output, columns, batch)
        self.fate.around(f"open(batch={batch})", call)

    def deliver(self, delivery: DeliveryId, rows: pa.Table) -> None:
        assert self.inner is not None
        first = self.delivered.setdefault(delivery, rows)
        assert first.equals(rows), f"{delivery} has other rows the second time: a mistake of Headrace"
        call = partial(self.inner.deliver, delivery, rows)
        self.fate.around(f"deliver(part={delivery.part}, batch={delivery.batch})", call)

    def close(self) -> None:
        if self.inner is not None and not self.fate.dead:
            self.inner.close()


# --- a run -----------------------------------------------------------------------------------------------------------


class Rows:
    """The rows of a run: made up, appended in pieces at random moments, and kept for the answer."""

    def __init__(
        self, schema: Schema, time: str, partitions: Sequence[str], append: Callable[[str, pa.Table], pa.Table | None],
        sample: pa.Table | None, rng: random.Random, example: Example,
    ) -> None:  # fmt: skip
        self._schema, self._time, self._append, self._sample = schema, time, append, sample
        self._random, self._example = rng, example
        self._numbers = dict.fromkeys(partitions, 0)
        self.stored: list[pa.Table] = []
        self.left = 0

    def append(self) -> None:
        """Append some rows to a partition, if there are some left."""
        count = min(self.left, self._random.choice([1, 2, 3, 12, 12]))
        if not count:
            return
        name = self._random.choice(list(self._numbers))
        number = self._numbers[name]
        ticks = [10 * (number + i) + self._random.randrange(DELAY) for i in range(count)]
        rows = timed(sample_rows(self._schema, number, count, self._sample), self._time, ticks)
        self._example.add(f"append({name!r}, {count} rows)")
        stored = self._append(name, rows)
        self.stored.append(rows if stored is None else stored)
        self._numbers[name] += count
        self.left -= count

    def stream(self) -> Stream:
        """All rows at once, as points at their times."""
        table = pa.concat_tables(self.stored)
        le = to_numpy(table[self._time].cast(pa.int64()))
        return events(table.add_column(0, "le", pa.array(le)).add_column(1, "re", pa.array(le + 1)))


def drive(
    place: Path, pairs: Callable[[], list[tuple[Stream, Sink]]], rows: Rows, rng: random.Random, fate: Fate,
    deaths: int, query: str = "query", per_batch: int | None = None,
) -> None:  # fmt: skip
    """Run a query to the end of its input, by drivers of which so many die; `pairs` has the streams and their sinks."""
    buckets, per_batch = rng.randint(1, 3), per_batch or rng.choice(_BOUNDS)
    while True:
        fate.set(rng.randrange(120) if deaths > 0 else -1)
        deaths -= 1
        driver = make_driver(pairs(), buckets, per_batch, MortalStorage(place / "checkpoint", fate), query)
        try:
            _drive(driver, rows, rng)
        except Dies:
            continue
        finally:
            driver.publisher.close()
            driver.executor.close()
        return


def _drive(driver: Driver, rows: Rows, rng: random.Random) -> None:
    driver.open()
    while True:
        if rng.random() < 0.4:
            rows.append()
        plan = driver.plan()
        if plan is not None:
            driver.run(plan)
        elif rows.left:
            rows.append()
        elif not driver.ending:
            driver.settle()
            driver.ending = True
        else:
            break
    driver.settle()
    driver.close()


def make_driver(
    pairs: Sequence[tuple[Stream, Sink]], buckets: int, per_batch: int, storage: LocalStorage, query: str,
    clock: Callable[[], int] = lambda: 0,
) -> Driver:  # fmt: skip
    """A driver of a query, as a start makes it, with tasks in this process."""
    sinks = [sink for _, sink in pairs]
    outputs = [Output(prepared(stream.node, sink), str(i)) for i, (stream, sink) in enumerate(pairs)]
    line = cut(optimize(outputs), buckets)
    services = {number: sink for number, sink in enumerate(sinks) if isinstance(sink, SinkAdapter)}
    job = Job("job", line, buckets, storage, task_sinks(sinks), adapters=services, owner=query)
    executor = InProcessExecutor(job)
    publisher = Publisher(line.outputs, sinks, storage, executor)
    driver = Driver(job, executor, publisher, clock, tasks=buckets, trip_seconds=inf)
    driver.row_pace = Pace.of_rows(per_batch)
    return driver


# --- sources ---------------------------------------------------------------------------------------------------------


def _time_column(schema: Schema, given: str | None) -> str:
    """The column with the time of a row."""
    if given is not None:
        return schema[given].name
    for kind in (Type.DATETIME, Type.LONG):
        for column in schema:
            if column.type is kind:
                return column.name
    raise Skipped("there is no column of times: neither a DATETIME nor a LONG")


def check_source_query(
    adapter: SourceAdapter, append: Callable[[str, pa.Table], pa.Table | None], partitions: Sequence[str], *,
    sample: pa.Table | None, time: str | None, runs: int, seed: int, example: Example,
) -> None:  # fmt: skip
    """Raise unless queries over the source give the answers of all rows at once."""
    column = _time_column(adapter.schema, time)
    for run in range(runs):
        rng = random.Random(f"{seed} {run}")  # noqa: S311 - not a secret
        example.begin()
        fate = Fate(example)
        starts = {name: reach.end for name, reach in adapter.offsets({}).items() if name in partitions}
        rows = Rows(adapter.schema, column, sorted(starts), append, sample, rng, example)
        rows.left = 3 + 12 * run
        sinks = Memory(), Memory()

        def pairs(fate: Fate = fate, starts: Mapping[str, int] = starts, rows: Rows = rows,
                  sinks: tuple[Memory, Memory] = sinks) -> list[tuple[Stream, Sink]]:  # fmt: skip
            mortal = MortalSource(copied(adapter), fate, starts, adapter.on_gap)
            stream = read_source(mortal, lifetime=point(column), progress=advance(delay=DELAY))
            return list(zip(_answers(stream, rows), sinks, strict=True))

        rows.append()
        with tempfile.TemporaryDirectory() as folder:
            drive(Path(folder), pairs, rows, rng, fate, run, per_batch=_BOUNDS[run % len(_BOUNDS)])
        for sink, expected in zip(sinks, _answers(rows.stream(), rows), strict=True):
            try:
                assert_same_history(history_once(sink), expected, digits=9)
            except AssertionError as error:
                raise Broken(str(error)) from error


def _answers(stream: Stream, rows: Rows) -> list[Stream]:
    """All rows, and how many there are in each window."""
    names = rows.stored[0].column_names
    return [stream.select(*names), stream.window(tumbling(WIDTH)).aggregate(n=count())]


def history_once(sink: Memory) -> pa.Table:
    """The history of a memory that has some batches twice."""
    first: dict[int, tuple[Changes, Any]] = {}
    for number, batch in zip(sink.numbers, sink.batches, strict=True):
        first.setdefault(number, batch)
    one = Memory()
    one.add(Changes.concat([changes for changes, _ in first.values()]), next(iter(first.values()))[1])
    return one.cht()
