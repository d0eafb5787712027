"""Small batches of a directory are merged: a reader sees each row once, whatever dies, whenever."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.changes import Changes
from headrace.errors import PlanError, SourceError
from headrace.io import commit as module
from headrace.io.commit import BatchDirectory
from headrace.io.sinks import FileSink, read_events_output
from headrace.schema import Schema
from headrace.stages.egress import publish_parts, write_parts

SCHEMA = Schema.of("k LONG, v LONG")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.fsync", lambda _: None)  # no machine dies here, only processes


class Crash(BaseException):
    """A process that dies."""


def sink_of(path: Path, compact: int | None = 3, **options: Any) -> FileSink:
    given: dict[str, Any] = {"encoding": "final", "partition_by": ("k",), "sort_by": ("v",), **options}
    return FileSink(path=str(path), format="parquet", compact=compact, **given)


def publish(sink: FileSink, batch: int) -> None:
    """Write and publish a batch, as a driver does; again after a crash."""
    rows = pa.table({"k": pa.array([0, 1, 1]), "v": pa.array([batch, 2 * batch, -batch])})
    starts = np.full(3, batch, np.int64)
    changes = Changes.inserts(starts, starts + 1, rows)
    publish_parts(sink, SCHEMA, batch, write_parts(sink, changes, batch), batch)


def rows(path: Path) -> list[tuple[int, int, int]]:
    found = []
    for file in BatchDirectory(str(path)).files():
        table = pq.ParquetFile(file).read()
        assert table["v"].to_pylist() == sorted(table["v"].to_pylist())
        assert {f"k={k}" for k in table["k"].to_pylist()} == {Path(file).parent.name}
        found += [tuple(row.values()) for row in table.select(["le", "k", "v"]).to_pylist()]
    return sorted(found)


def expected(batches: int) -> list[tuple[int, int, int]]:
    return sorted(row for n in range(batches) for row in ((n, 0, n), (n, 1, 2 * n), (n, 1, -n)))


def test_batches_become_few_large_ones(tmp_path: Path):
    sink, place = sink_of(tmp_path), BatchDirectory(str(tmp_path))
    for batch in range(30):
        publish(sink, batch)
        assert rows(tmp_path) == expected(batch + 1)
        assert place.committed() == list(range(batch + 1))
    assert [folder.path.name for folder in place.folders()] == ["batch-00000000-00000026", "batch-00000027-00000029"]
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.name.startswith("batch")) == [
        "batch-00000000-00000026", "batch-00000027-00000029",
    ]  # fmt: skip
    publish(sink, 29)  # the last batch again, after a crash of its driver
    assert rows(tmp_path) == expected(30)


def test_events_keep_their_ctis(tmp_path: Path):
    merged, plain = (sink_of(tmp_path / name, compact, encoding="events", partition_by=(), sort_by=())
                     for name, compact in (("a", 2), ("b", None)))  # fmt: skip
    for batch in range(7):
        publish(merged, batch)
        publish(plain, batch)
    found, right = (read_events_output(sink.path, SCHEMA) for sink in (merged, plain))
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, right.to_pylist()))
    assert len(BatchDirectory(merged.path).folders()) == 3
    kinds = found["kind"].to_pylist()
    assert kinds.index("cti") > kinds.index("insert")


_STEPS: list[tuple[Any, str]] = [
    (module, "_write"), (module, "_sync"), (module, "_sync_all"), (BatchDirectory, "_publish"),
    (BatchDirectory, "remove_replaced"), (Path, "rename"), (shutil, "rmtree"),
]  # fmt: skip


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", range(4))
@pytest.mark.parametrize(("owner", "name"), _STEPS, ids=[name for _, name in _STEPS])
def test_whatever_dies_each_row_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, after: bool
):
    sink = sink_of(tmp_path)
    for batch in range(8):
        publish(sink, batch)
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def dies(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call + 1 and not after:
            raise Crash
        result = original(*args, **options)
        if calls == call + 1:
            raise Crash
        return result

    with monkeypatch.context() as patch, suppress(Crash):
        patch.setattr(owner, name, dies)
        publish(sink, 8)  # which merges 6 to 8, and then all nine
    found = rows(tmp_path)
    assert found in (expected(8), expected(9))
    publish(sink, 8)
    assert rows(tmp_path) == expected(9)
    publish(sink, 9)
    assert rows(tmp_path) == expected(10)
    assert len(BatchDirectory(str(tmp_path)).folders()) <= 4


def test_a_reader_beside_the_writer_sees_each_row_once(tmp_path: Path):
    sink = sink_of(tmp_path, 2, encoding="events", partition_by=("k",), sort_by=())
    publish(sink, 0)
    done = threading.Event()

    def write() -> None:
        for batch in range(1, 40):
            publish(sink, batch)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while not done.is_set():
        events = read_events_output(sink.path, SCHEMA)
        starts = [row["le"] for row in events.to_pylist() if row["kind"] == "insert"]
        batches = max(starts) + 1
        assert sorted(starts) == sorted(3 * list(range(batches))), "all batches up to one, each once"
        assert batches >= seen
        seen = batches
    writer.join()


def test_a_query_that_follows_the_directory_refuses_merged_files(tmp_path: Path):
    sink = sink_of(tmp_path / "out")
    publish(sink, 0)
    stream = hr.read_parquet(str(tmp_path / "out"), "le LONG, k LONG, v LONG", lifetime=hr.point("le"))
    assert stream.cht().num_rows == 3
    query = stream.start(hr.memory(), host="local", checkpoint=str(tmp_path / "state"))
    query.process_all_available()
    for batch in (1, 2):
        publish(sink, batch)
    with pytest.raises(SourceError, match="its directory is compacted"):
        query.process_all_available()
    query.stop()
    assert stream.cht().num_rows == 9, "read from the beginning, each row is there once"


@pytest.mark.parametrize(("options", "message"), [
    ({"compact": 1}, "compact is a number of batches"),
    ({"format": "jsonl", "sort_by": ("x",), "encoding": "final"}, "only Parquet is sorted and compacted"),
    ({"path": "s3://bucket/out"}, "cannot be merged into others in one step on an object store"),
])  # fmt: skip
def test_what_cannot_be_compacted_is_refused(options: dict[str, Any], message: str):
    with pytest.raises(PlanError, match=message):
        hr.files(**{"path": "out", "format": "parquet", "compact": 10, **options})


def test_a_query_restarted_again_and_again(tmp_path: Path):
    """The checkpoint finds all its batches in the merged folders."""
    (tmp_path / "in").mkdir()
    stream = hr.read_parquet(str(tmp_path / "in"), "ts LONG, k LONG", lifetime=hr.point("ts"))
    for part in range(10):
        numbers = np.arange(10 * part, 10 * part + 10)
        table = pa.table({"ts": pa.array(numbers), "k": pa.array(numbers % 3)})
        pq.write_table(table, tmp_path / "in" / f"{part}.parquet")
        sink = hr.files(str(tmp_path / "out"), format="parquet", encoding="changes", partition_by="k", compact=3)
        query = stream.start(sink, host="local", checkpoint=str(tmp_path / "state"))
        query.process_all_available()
        query.stop()
    again = hr.read_parquet(str(tmp_path / "out"), "le LONG, k LONG", lifetime=hr.point("le"))
    assert again.cht()["le"].to_pylist() == list(range(100))
    assert len(BatchDirectory(str(tmp_path / "out")).folders()) <= 4


def test_a_query_goes_on_without_compact_after_its_last_batch_was_merged(tmp_path: Path):
    (tmp_path / "in").mkdir()
    stream = hr.read_csv(str(tmp_path / "in"), "ts LONG", lifetime=hr.point("ts"))
    for part, compact in enumerate((2, 2, None)):
        (tmp_path / "in" / f"{part}.csv").write_text(f"ts\n{part}\n")
        sink = hr.files(str(tmp_path / "out"), encoding="changes", compact=compact)
        query = stream.start(sink, host="local", checkpoint=str(tmp_path / "state"))
        query.process_all_available()
        query.stop()
    names = [folder.path.name for folder in BatchDirectory(str(tmp_path / "out")).folders()]
    assert names == ["batch-00000000-00000001", "batch-00000002"]
