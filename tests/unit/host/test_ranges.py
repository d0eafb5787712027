"""Plans that a driver leaves when it dies: the next one knows from them what the first look has found."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.api.inputs import advance, point, read_source
from headrace.host.driving.driver import Driver
from headrace.io.sinks import Memory
from headrace.testing.adapter_check.driven import Dies, Fate, MortalSource, MortalStorage, history_once, make_driver
from headrace.testing.adapter_check.log import LogSource
from headrace.testing.adapter_check.report import Example


class World:
    """A log, and drivers of a query over it, one after the other."""

    def __init__(self, folder: Path, starts: dict[str, int], idle: int | None = None) -> None:
        self.folder, self.starts, self.idle = folder, starts, idle
        self.log = LogSource(str(folder / "log"), "n LONG, ts LONG", "continue")
        for name in starts:
            self.log.add(name)
        self.fate, self.sink, self.clock = Fate(Example()), Memory(), 0

    def append(self, partition: str, *times: int) -> None:
        self.log.append(partition, pa.table({"n": list(times), "ts": list(times)}))

    def driver(self) -> Driver:
        source = MortalSource(self.log, self.fate, self.starts, "continue")
        stream = read_source(source, lifetime=point("ts"), progress=advance(delay=100, idle=self.idle))
        storage = MortalStorage(self.folder / "checkpoint", self.fate)
        driver = make_driver([(stream, self.sink)], 1, 100, storage, "query", lambda: self.clock)
        driver.open()
        return driver

    def plan_and_die(self) -> None:
        driver = self.driver()
        plan = driver.plan()
        assert plan is not None
        driver.log.plan(driver.number, plan.to_json())
        driver.publisher.close()

    def run(self) -> Driver:
        driver = self.driver()
        while (plan := driver.plan()) is not None:
            driver.run(plan)
        driver.publisher.close()
        return driver

    def times(self) -> list[int]:
        return history_once(self.sink)["n"].to_pylist()


def test_a_partition_without_rows_keeps_where_it_began(tmp_path: Path):
    world = World(tmp_path, {"a": 0, "b": 2})
    world.append("b", 1, 2)  # before the query's beginning
    world.append("a", 3)
    world.plan_and_die()
    driver = world.driver()
    plan = driver.plan()
    assert plan is not None
    driver.run(plan)  # and dies after the commit
    world.run()
    assert world.times() == [3]


def test_offsets_that_were_lost_before_a_death_are_counted(tmp_path: Path):
    world = World(tmp_path, {"a": 0})
    world.append("a", 1)
    world.run()
    world.append("a", 2, 3)
    world.append("a", 4)
    world.log.expire("a", 3)
    world.plan_and_die()
    counts = world.run().last.record["counts"]["log n LONG, ts LONG"]
    assert (counts["rows"], counts["lost_offsets"]) == (2, 2)
    assert world.times() == [1, 4]


def test_idle_partitions_after_a_plan_of_another_driver(tmp_path: Path):
    world = World(tmp_path, {"a": 0, "b": 0}, idle=10)
    world.append("a", 500)
    world.plan_and_die()
    world.run()
    world.clock = 20
    world.append("a", 600)
    assert next(iter(world.run().progress.values())).cti == 500


def test_a_driver_dies_where_it_is_told_to(tmp_path: Path):
    world = World(tmp_path, {"a": 0})
    world.fate.set(0)
    with pytest.raises(Dies):
        world.driver()
