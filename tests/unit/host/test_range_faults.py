"""Positions in partitions: where they begin, what a silent partition causes, and a place that is away for a moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import CheckpointError, SourceError, StoreError, Unavailable
from headrace.host.driving import ranges
from headrace.host.driving.query import Query
from headrace.host.driving.ranges import RangePositions
from headrace.io import adapter as adapters
from headrace.io.adapter import Offsets, ReadRange, SourceAdapter
from headrace.io.decoded import DecodedBlock, decoded
from headrace.plan.nodes import Source
from headrace.schema import Schema
from headrace.store.log import Log

SECOND = 1_000_000


@dataclass(frozen=True)
class Place(SourceAdapter):
    """Partitions in memory; `away` has the names of calls that fail, each once."""

    ends: dict[str, int] = field(default_factory=dict)
    away: list[str] = field(default_factory=list)
    latest: bool = False
    acknowledged: list[dict[str, int]] = field(default_factory=list)

    def __str__(self) -> str:
        return "place"

    @property
    def schema(self) -> Schema:
        return Schema.of("t LONG")

    def _call(self, name: str) -> None:
        if name in self.away:
            self.away.remove(name)
            raise Unavailable(f"{name} is away")

    def offsets(self, positions: Mapping[str, int]) -> Mapping[str, Offsets]:  # noqa: ARG002 - of all adapters
        self._call("offsets")
        return {name: Offsets(0, end) for name, end in self.ends.items()}

    def begin(self, partition: str, available: Offsets) -> int:  # noqa: ARG002 - of all adapters
        self._call("begin")
        return available.end if self.latest else 0

    def limit(self, partition: str, start: int, end: int, rows: int) -> int:
        self._call("limit")
        return super().limit(partition, start, end, rows)

    def read(
        self,
        partition: str,  # noqa: ARG002 - of all adapters
        start: int,
        end: int,
        columns: Sequence[str],  # noqa: ARG002 - the same
    ) -> Generator[DecodedBlock, None, int | None]:
        offsets = np.arange(start, end)
        yield decoded(pa.table({"t": offsets}), offsets, self.schema)
        return None

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        self.acknowledged.append(dict(positions))


def positions(place: Place, idle: int | None = None) -> RangePositions:
    node = hr.read_source(place, lifetime=hr.point("t"), progress=hr.advance(delay=0, idle=idle)).node
    assert isinstance(node, Source)
    return RangePositions(node)


@pytest.mark.parametrize("call", ["offsets", "begin", "limit"])
def test_a_place_that_is_away_for_a_moment_is_asked_again(call: str):
    read = positions(Place(ends={"a": 3}, away=[call]))
    assert read.pending(10, 0) == [ReadRange("a", 0, 3)]


def test_a_query_that_is_stopped_does_not_wait(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(adapters, "_PAUSES", (0.01, 0.01))
    node = positions(Place(ends={"a": 3}, away=["offsets"])).source
    with pytest.raises(Unavailable, match="offsets is away"):
        RangePositions(node, lambda: True).pending(10, 0)


def test_a_partition_that_appears_later_is_read_from_its_first_row():
    place = Place(ends={"a": 5}, latest=True)
    read = positions(place)
    assert read.pending(10, 0) == []
    again = positions(place)
    again.restore(read.saved(), {})
    place.ends["b"] = 2
    assert again.pending(10, 0) == [ReadRange("b", 0, 2)]


def test_the_first_commit_keeps_where_partitions_begin(tmp_path: Path):
    place = Place(ends={"a": 5}, latest=True)
    stream = hr.read_source(place, lifetime=hr.point("t"), progress=hr.advance(delay=0))
    query = stream.start(hr.memory(), host="local", checkpoint=str(tmp_path))
    deadline = time.monotonic() + 120
    while query.progress().get("batch") != 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    query.stop()
    assert query.driver.last is not None
    (saved,) = query.driver.last.record["positions"].values()
    assert saved["scalars"]["next"] == {"a": 5}


def test_what_is_read_and_not_committed_is_not_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The disk is full at the second commit: a place that forgets must still have that batch for the next start."""
    place = Place(ends={"a": 5})
    stream = hr.read_source(place, lifetime=hr.point("t"), progress=hr.advance(delay=0))
    query = stream.start(hr.memory(), host="local", checkpoint=str(tmp_path))
    query.process_all_available()

    def full(*_: object) -> bool:
        raise StoreError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(Log, "commit", full)
        place.ends["a"] = 9
        with pytest.raises(StoreError):
            query.process_all_available()
        query.stop()
    assert place.acknowledged[-1] == {"a": 5}
    again = stream.start(hr.memory(), host="local", checkpoint=str(tmp_path))
    again.process_all_available()
    again.stop()
    assert place.acknowledged[-1] == {"a": 9}
    assert [counts["accepted"] for counts in again.counts.values()] == [9]


@dataclass(frozen=True)
class Topic(Place):
    """A place whose text shows its columns, as that of a topic does; rows before `first` have expired."""

    form: str = "t"
    first: list[int] = field(default_factory=lambda: [0])

    def __str__(self) -> str:
        return f"topic, {self.form}"

    @property
    def read_place(self) -> str:
        return "topic"

    def offsets(self, positions: Mapping[str, int]) -> Mapping[str, Offsets]:  # noqa: ARG002 - of all adapters
        return {name: Offsets(self.first[0], end) for name, end in self.ends.items()}

    def begin(self, partition: str, available: Offsets) -> int:  # noqa: ARG002 - of all adapters
        return available.first


def test_a_backfill_knows_a_topic_that_has_other_columns(tmp_path: Path):
    """As another source it would begin anew: what has expired would be missing without a word."""
    state, out = str(tmp_path / "state"), hr.files(str(tmp_path / "out"), format="parquet", encoding="changes")

    def step(place: Topic, **options: Any) -> Query:
        stream = hr.read_source(place, lifetime=hr.point("t"), progress=hr.advance(delay=0))
        query = stream.where(hr.col("t") >= 0).start(out, host="local", checkpoint=state, **options)
        query.process_all_available()
        query.stop()
        return query

    step(Topic(ends={"a": 5}))
    with pytest.raises(CheckpointError, match="belongs to another query"):
        step(Topic(ends={"a": 5}, form="t, more"))
    with pytest.raises(SourceError, match="3 offsets of a are no longer stored"):
        step(Topic(ends={"a": 5}, form="t, more", first=[3]), upgrade="backfill")
    (counts,) = step(Topic(ends={"a": 7}, form="t, more"), upgrade="backfill").counts.values()
    assert counts["accepted"] == 7
    rows = pa.concat_tables(pq.ParquetFile(file).read() for file in sorted(tmp_path.glob("out/batch-*/*.parquet")))
    assert sorted(rows["t"].to_pylist()) == list(range(7)), "no answer has changed"


@pytest.mark.parametrize(
    ("reached", "idle", "reported"),
    [
        ({"a": (9, 9), "b": (1, 1)}, None, ["b"]),
        ({"a": (9, 9)}, None, ["b"]),
        ({"a": (1, 1), "b": (9, 9)}, None, []),
        ({"a": (9, 9), "b": (1, 1)}, SECOND, []),
    ],
    ids=["behind", "empty", "ahead", "idle"],
)
def test_a_silent_partition_that_holds_back_the_others_is_reported_once(
    reached: Mapping[str, tuple[int, int]], idle: int | None, reported: list[str], caplog: pytest.LogCaptureFixture
):
    place = Place(ends={"a": 1, "b": 1})
    read = positions(place, idle)
    with caplog.at_level(logging.WARNING, "headrace"):
        read.take({part.partition: part.end for part in read.pending(10, 0)})
        for _ in range(2):
            place.ends["a"] += 1
            read.pending(10, ranges._REPORTED_AFTER + SECOND)
            read.report_holding(reached)
    assert [name for name in "ab" if f"no new rows of {name} " in caplog.text] == reported
    assert len(caplog.records) == len(reported)
