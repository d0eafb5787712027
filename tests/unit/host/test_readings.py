"""Sources whose rows are not the same each time, and queries that leave a place as they found it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.adapters import DecodedBlock, Offsets, SourceAdapter, decoded
from headrace.host.driving import in_process
from headrace.host.driving.plan import Batch
from headrace.schema import Schema
from headrace.stages.message import Message


@dataclass(frozen=True)
class _Snapshots(SourceAdapter):
    """A table whose snapshot has another row each time: the number of the snapshot."""

    calls: list[str] = field(default_factory=list, compare=False)
    there: bool = False

    @property
    def schema(self) -> Schema:
        return Schema.of("k LONG, n LONG, t LONG")

    def __str__(self) -> str:
        return "snapshots"

    def offsets(self, positions: Mapping[str, int]) -> Mapping[str, Offsets]:
        return {"table": Offsets(0, max(1, positions.get("table", 0)))}

    def read(
        self,
        partition: str,  # noqa: ARG002 - there is one
        start: int,  # noqa: ARG002 - a snapshot has all
        end: int,  # noqa: ARG002 - a snapshot has all
        columns: Sequence[str],
    ) -> Generator[DecodedBlock, None, int | None]:
        self.calls.append("read")
        number = self.calls.count("read")
        rows = pa.table({"k": range(8), "n": [number] * 8, "t": [1] * 8})
        yield decoded(rows.select(list(columns)), np.zeros(8, np.int64), self.schema)
        return 100 * number

    def exists(self) -> bool:
        return self.there

    def drop(self) -> None:
        self.calls.append("drop")

    def acknowledge(self, positions: Mapping[str, int]) -> None:  # noqa: ARG002 - that it is called
        self.calls.append("acknowledge")


def _counts(adapter: SourceAdapter) -> hr.Stream:
    rows = hr.read_source(adapter, lifetime=hr.point("t"), progress=hr.ordered())
    return rows.group_by("k", "n").window(hr.tumbling(10)).aggregate(rows=hr.count())


def test_buckets_with_rows_of_different_attempts_are_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    adapter = _Snapshots()
    intake, repeated = in_process.run_intake, []

    def repeat(job: object, batch: Batch, task: int, *more: object) -> list[Message]:
        """A task that is repeated, as on a machine that was lost, after bucket 0 has its rows."""
        first = intake(job, batch, task, *more)
        if repeated:
            return first
        repeated.append(task)
        second = intake(job, batch, task, *more)
        return [m for m in first if m.bucket == 0] + [m for m in second if m.bucket != 0]

    monkeypatch.setattr(in_process, "run_intake", repeat)
    sink = hr.memory()
    query = _counts(adapter).start(sink, host="local", checkpoint=str(tmp_path), buckets=2)
    query.finish()
    query.stop()
    assert set(sink.cht()["n"].to_pylist()) == {3}
    assert query.driver.last is not None
    (saved,) = query.driver.last.record["positions"].values()
    assert saved["scalars"]["next"] == {"table": 300}


@pytest.mark.parametrize(("there", "calls"), [(True, []), (False, ["drop"])])
def test_a_query_without_a_checkpoint_leaves_the_place_as_it_was(there: bool, calls: list[str]):
    adapter = _Snapshots(there=there)
    assert _counts(adapter).cht().num_rows == 8
    assert [call for call in adapter.calls if call != "read"] == calls


def test_a_query_with_a_checkpoint_acknowledges_and_drops_nothing(tmp_path: Path):
    adapter = _Snapshots()
    query = _counts(adapter).start(hr.memory(), host="local", checkpoint=str(tmp_path))
    query.process_all_available()
    query.stop()
    assert "acknowledge" in adapter.calls
    assert "drop" not in adapter.calls
