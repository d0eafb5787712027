"""The law of sources that adapters read: each partition is a channel (rules 3.2 to 3.4).

The twins read every partition row by row. A row is late when it breaks the promise of its own partition; the promise of
the source is the least of its partitions'. So neither the sizes of batches nor the pace at which partitions are read
show in the answer, whatever happens to drivers.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.api.stream import Stream
from headrace.errors import Unavailable
from headrace.host.driving.driver import Driver
from headrace.io import adapter as adapter_module
from headrace.io.decoded import DecodedBlock
from headrace.io.sinks import Memory
from headrace.testing.adapter_check.driven import Fate, MortalSource, MortalStorage, drive, history_once, make_driver
from headrace.testing.adapter_check.log import LogSource
from headrace.testing.adapter_check.report import Example
from headrace.testing.same import assert_same_history
from headrace.time import NEG_INFINITY

EXAMPLES = max(5, settings().max_examples // 2)
COLUMNS = "k STRING, n LONG, ts LONG"
PARTITIONS = ("a", "b", "c")
Times = list[int]

#: Times of a partition that mostly grow.
times = st.lists(st.tuples(st.integers(0, 6), st.integers(-12, 0)), max_size=10).map(
    lambda steps: [max(0, sum(step for step, _ in steps[: i + 1]) + back) for i, (_, back) in enumerate(steps)]
)
#: What is appended: a partition, and how many of its rows.
pieces = st.lists(st.tuples(st.sampled_from(PARTITIONS), st.integers(1, 4)), max_size=12)


# --- twins -----------------------------------------------------------------------------------------------------------


@dataclass
class Channel:
    """A partition, read row by row."""

    delay: int
    every: int
    high: float = -math.inf
    accepted: list[int] = field(default_factory=list)
    late: int = 0

    @property
    def promise(self) -> float:
        return self.high if self.high == -math.inf else (self.high - self.delay) // self.every * self.every

    def take(self, time: int, source: float = -math.inf) -> None:
        if time < max(self.promise, source):
            self.late += 1
        else:
            self.accepted.append(time)
        self.high = max(self.high, time)


def number_of(partition: str, time: int) -> int:
    return 1_000 * ord(partition) + time


def answers(stream: Stream) -> list[Stream]:
    return [
        stream.select("k", "n"),
        stream.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("n")),
    ]


def slow_answers(accepted: dict[str, Times]) -> list[Stream]:
    """All accepted rows at once."""
    rows = [(time, name) for name, taken in accepted.items() for time in taken]
    le = pa.array([time for time, _ in rows], pa.int64())
    table = pa.table({
        "le": le, "re": pa.array([time + 1 for time, _ in rows], pa.int64()),
        "k": pa.array([name for _, name in rows], pa.string()),
        "n": pa.array([number_of(name, time) for time, name in rows], pa.int64()),
    })  # fmt: skip
    return answers(hr.events(table))


# --- the world -------------------------------------------------------------------------------------------------------


class Pieces:
    """Rows that are appended piece by piece, in place of the kit's own."""

    def __init__(self, log: LogSource, rows: dict[str, Times], order: Sequence[tuple[str, int]]) -> None:
        self.log, self.rows = log, {name: list(taken) for name, taken in rows.items()}
        self.order = [*order, *((name, 10) for name in rows)]
        self.stored: list[pa.Table] = []

    @property
    def left(self) -> int:
        return len(self.order)

    def append(self) -> None:
        if self.order:
            name, count = self.order.pop(0)
            taken, self.rows[name] = self.rows[name][:count], self.rows[name][count:]
            append(self.log, name, taken)


def append(log: LogSource, name: str, taken: Times) -> None:
    if taken:
        numbers = [number_of(name, time) for time in taken]
        log.append(name, pa.table({"k": [name] * len(taken), "n": numbers, "ts": taken}))


@dataclass(frozen=True, eq=False)
class Flaky(MortalSource):
    """A place that stops answering at some calls, also in the middle of a range."""

    random: Random = field(default_factory=Random)

    def read(
        self, partition: str, start: int, end: int, columns: Sequence[str]
    ) -> Generator[DecodedBlock, None, int | None]:
        for block in super().read(partition, start, end, columns):
            yield block
            if self.random.random() < 0.2:
                raise Unavailable("the place does not answer")
        return None


# --- laws ------------------------------------------------------------------------------------------------------------


@settings(max_examples=EXAMPLES)
@given(
    st.fixed_dictionaries(dict.fromkeys(PARTITIONS, times)), pieces, st.integers(0, 8), st.integers(1, 4),
    st.integers(0, 3), st.integers(0, 10_000),
)  # fmt: skip
def test_partitions_are_judged_alone_whatever_happens(
    rows: dict[str, Times], order: list[tuple[str, int]], delay: int, every: int, deaths: int, seed: int
):
    channels = {name: Channel(delay, every) for name in PARTITIONS}
    for name, taken in rows.items():
        for time in taken:
            channels[name].take(time)
    rng, fate, sinks = Random(seed), Fate(Example()), (Memory(), Memory())
    with tempfile.TemporaryDirectory() as folder, patch.object(adapter_module, "_PAUSES", (1e-4, 1e-3)):
        log = LogSource(f"{folder}/log", COLUMNS)
        for name in PARTITIONS:
            log.add(name)

        def pairs() -> list[tuple[Stream, Memory]]:
            source = Flaky(log, fate, dict.fromkeys(PARTITIONS, 0), "raise", Random(seed))
            policy = hr.advance(delay=delay, every=every)
            return [*zip(answers(hr.read_source(source, lifetime=hr.point("ts"), progress=policy)), sinks, strict=True)]

        drive(Path(folder), pairs, Pieces(log, rows, order), rng, fate, deaths)
        fate.set(-1)
        last = make_driver(pairs(), 1, 1, MortalStorage(Path(folder) / "checkpoint", fate), "query").log.last()
    accepted = {name: channel.accepted for name, channel in channels.items()}
    for sink, expected in zip(sinks, slow_answers(accepted), strict=True):
        if any(accepted.values()):
            assert_same_history(history_once(sink), expected)
    if any(rows.values()):
        counts = next(iter(last.record["counts"].values()))
        assert counts["rows"] == sum(map(len, rows.values()))
        assert counts["late"] == counts["diverted"] == sum(channel.late for channel in channels.values())


@dataclass
class SourceTwin:
    """A source, look by look: with partitions that appear, and idle ones."""

    delay: int
    idle: int | None
    cti: float = -math.inf
    channels: dict[str, Channel] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)

    def look(self, rows: dict[str, Times], clock: int) -> None:
        before = self.cti
        for name in rows:
            if name not in self.channels:
                self.channels[name], self.heard[name] = Channel(self.delay, 1), clock
        for name, taken in rows.items():
            if taken:
                self.heard[name] = clock
            for time in taken:
                self.channels[name].take(time, before)
        holding = [
            channel.promise
            for name, channel in self.channels.items()
            if self.idle is None or clock - self.heard[name] < self.idle
        ]
        if not holding:  # if all are idle, none holds back another
            holding = [max(channel.promise for channel in self.channels.values())] if self.channels else [before]
        self.cti = max(before, min(holding))


step = st.tuples(st.dictionaries(st.sampled_from(PARTITIONS), times.filter(bool)), st.integers(0, 6), st.booleans())


@settings(max_examples=EXAMPLES)
@given(st.lists(step, min_size=1, max_size=6), st.integers(0, 5), st.sampled_from([None, 3, 8]), st.integers(1, 3))
def test_new_and_idle_partitions(
    steps: list[tuple[dict[str, Times], int, bool]], delay: int, idle: int | None, buckets: int
):
    twin, clock, fate, sinks = SourceTwin(delay, idle), 0, Fate(Example()), (Memory(), Memory())
    known: set[str] = {"a"}
    with tempfile.TemporaryDirectory() as folder:
        log = LogSource(f"{folder}/log", COLUMNS)
        log.add("a")
        source = MortalSource(log, fate, dict.fromkeys(PARTITIONS, 0))
        policy = hr.advance(delay=delay, idle=idle)

        def started() -> Driver:
            streams = answers(hr.read_source(source, lifetime=hr.point("ts"), progress=policy))
            storage = MortalStorage(Path(folder) / "checkpoint", fate)
            driver = make_driver([*zip(streams, sinks, strict=True)], buckets, 1_000, storage, "query", lambda: clock)
            driver.open()
            return driver

        driver = started()
        for appended, passed, restart in steps:
            clock += passed
            for name, taken in appended.items():
                log.add(name)
                known.add(name)
                append(log, name, taken)
            if restart:
                driver.executor.close()
                driver = started()
            plan = driver.plan()
            if plan is not None:
                driver.run(plan)
            twin.look({name: appended.get(name, []) for name in known}, clock)
            cti = next(iter(driver.progress.values())).cti
            assert cti == (NEG_INFINITY if twin.cti == -math.inf else twin.cti)
        driver.ending = True
        while (plan := driver.plan()) is not None:
            driver.run(plan)
        driver.executor.close()
    accepted = {name: channel.accepted for name, channel in twin.channels.items()}
    if any(accepted.values()):
        for sink, expected in zip(sinks, slow_answers(accepted), strict=True):
            assert_same_history(history_once(sink), expected)
