"""A Python worker that dies in mid-batch costs a retry; a checkpoint belongs to one query and remembers its buckets."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import CheckpointError

if TYPE_CHECKING:
    from headrace.host.driving.query import Query

pytestmark = pytest.mark.usefixtures("spark")
FILES, ROWS = 8, 1_500_000


def busy_workers(spent: dict[int, float]) -> list[psutil.Process]:
    """The Python workers below this process that have computed since they were first looked at."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "headrace.host.spark.daemon" in process.cmdline() and not process.children():
                used = sum(process.cpu_times()[:2])
                if used - spent.setdefault(process.pid, used) > 0.05:
                    found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def kill_one_in_mid_batch(query: Query) -> int:
    """Kill a worker that is at work; gives its process id."""
    spent: dict[int, float] = {}
    deadline, batches = time.monotonic() + 60, -1
    while time.monotonic() < deadline:
        if batches != len(query.batch_seconds):  # what was computed before belongs to the batch before
            batches, spent = len(query.batch_seconds), {}
        for process in busy_workers(spent):
            if len(query.batch_seconds) == batches:
                process.kill()
                return int(process.pid)
        time.sleep(0.02)
    pytest.fail("no worker was ever at work")


def test_a_dead_worker_costs_a_retry(tmp_path: Path):
    folder, draw = tmp_path / "in", np.random.default_rng(3)
    folder.mkdir()
    for number in range(FILES):
        times = draw.integers(number * 1000, number * 1000 + 2000, ROWS)
        table = pa.table({"t": times, "k": draw.integers(0, 5000, ROWS), "v": draw.random(ROWS)})
        pq.write_table(table, folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (number + 1, number + 1))
    stream = hr.read_parquet(str(folder), lifetime=hr.point("t"), progress=hr.advance(delay=2000))
    counts = stream.group_by("k").window(hr.tumbling(500)).aggregate(n=hr.count(), s=hr.sum("v"), top=hr.max("v"))
    kept = hr.memory()
    query = counts.start(kept, files_per_batch=1, buckets=2)
    try:
        killed = {kill_one_in_mid_batch(query) for _ in range(2)}
        query.finish()
        assert len(killed) == 2
        assert not any(psutil.pid_exists(pid) for pid in killed)
    finally:
        query.stop()
    assert not hr.history_diff(counts.cht(), kept.cht(), names=("local", "spark"))
    assert [counted["accepted"] for counted in query.counts.values()] == [FILES * ROWS]


def test_a_checkpoint_belongs_to_one_query(tmp_path: Path):
    rows = [{"le": t, "k": "ab"[t % 2], "v": t} for t in range(8)]
    stream = hr.events(rows, batches=[4, 4], progress=hr.ordered())
    state = str(tmp_path / "state")

    def counted(size: int) -> hr.Stream:
        return stream.group_by("k").window(hr.tumbling(size)).aggregate(n=hr.count())

    query = counted(4).start(hr.memory(), checkpoint=state, buckets=3)
    query.process_all_available()
    query.stop()

    again = counted(4).start(hr.memory(), checkpoint=state)
    try:
        assert again.progress()["batch"] == query.progress()["batch"], "it goes on where the first one stopped"
        again.finish()
        assert {part["bucket"] for part in again.statistics[-1]} == {0, 1, 2}, "the buckets are the checkpoint's"
    finally:
        again.stop()

    with pytest.raises(CheckpointError, match="belongs to another query") as raised:
        counted(5).start(hr.memory(), checkpoint=state)
    assert "-" in raised.value.message
    assert "tumbling(4 ticks)" in raised.value.message
    assert "tumbling(5 ticks)" in raised.value.message
    assert "another checkpoint directory" in raised.value.instead

    file = Path(state, "headrace.json")
    known = json.loads(file.read_text())
    file.write_text(json.dumps({**known, "format": known["format"] + 1}))
    with pytest.raises(CheckpointError, match="another version") as raised:
        counted(4).start(hr.memory(), checkpoint=state)
    allowed = f"format {known['format']} (Headrace 0.1.0 and later); format {known['format'] + 1} is read by Headrace"
    assert raised.value.allowed.startswith(allowed)
    file.write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        counted(4).start(hr.memory(), checkpoint=state)
