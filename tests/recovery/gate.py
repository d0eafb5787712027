"""A query in three levels whose tasks can be met inside a stage: they say who they are, and wait.

`gate` is a user's function that gives what it gets. A task that calls it leaves a file `<name>-<bucket>-<attempt>` with
its processes. If there is a file `<name>-closed`, the first attempt in every bucket waits for `<name>-open-<bucket>`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr

PATIENCE = 240.0
ROWS, KEYS = 4000, 2000


def gate(folder: Path, name: str) -> Any:
    """The function; it travels to workers by value, so that they need not find this module."""
    place, patience = str(folder), PATIENCE

    def pass_gate(n: int) -> int:
        import os
        import time
        from pathlib import Path

        import psutil
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:  # in the driver, or on another host
            return n
        bucket = context.partitionId()
        mark = Path(place, f"{name}-{bucket}-{context.taskAttemptId()}")
        if mark.exists():
            return n
        first = not list(Path(place).glob(f"{name}-{bucket}-*"))
        draft = mark.with_name(f"draft-{os.getpid()}")
        draft.write_text(f'{{"worker": {os.getpid()}, "executor": {psutil.Process(os.getppid()).ppid()}}}')
        draft.rename(mark)
        deadline = time.monotonic() + patience
        while first and Path(place, f"{name}-closed").exists() and not Path(place, f"{name}-open-{bucket}").exists():
            assert time.monotonic() < deadline, "the gate stays closed"
            time.sleep(0.01)
        return n

    pass_gate.__qualname__ = f"gate_{name}"  # which plans show
    return hr.udf(pass_gate)


def write_input(folder: Path, files: int) -> None:
    """Files with so many groups that what stages remember goes to files of the store."""
    folder.mkdir()
    for number in range(files):
        draw = np.random.default_rng(number)
        columns = {"t": draw.integers(number * 100, number * 100 + 150, ROWS), "k": draw.integers(0, KEYS, ROWS)}
        pq.write_table(pa.table({**columns, "v": draw.integers(0, 10**6, ROWS)}), folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (number + 1, number + 1))


def gated(folder: Path) -> dict[str, hr.Stream]:
    """Aggregates of aggregates of aggregates, with a gate behind the first and the second."""
    stream = hr.read_parquet(str(folder / "in"), lifetime=hr.point("t"), progress=hr.advance(delay=200))
    counts = stream.group_by("k").window(hr.tumbling(50)).aggregate(n=hr.count(), s=hr.sum("v"))
    first = counts.select(n=gate(folder / "gates", "first")("n"), s=hr.col("s"))
    nested = first.group_by("s").window(hr.tumbling(50)).aggregate(keys=hr.count(), top=hr.max("n"))
    middle = nested.select(keys=gate(folder / "gates", "middle")("keys"), s=hr.col("s"), top=hr.col("top"))
    last = middle.group_by("top").window(hr.tumbling(100)).aggregate(n=hr.count(), s=hr.max("s"))
    return {"middle": middle, "last": last}


def check_levels(query: Any) -> None:
    """The gate in the middle stands in the second stage of three."""
    levels = {node.describe(): query.line.levels[node.fingerprint] for node in query.line.nodes}
    assert [level for text, level in levels.items() if "gate_middle" in text] == [2], levels
    assert query.line.depth == 3


def close(folder: Path, name: str) -> None:
    """From here on, tasks that come to the gate for the first time wait there."""
    for mark in folder.glob(f"gates/{name}-*"):
        mark.unlink()
    (folder / "gates" / f"{name}-closed").touch()


def let_pass(folder: Path, name: str, bucket: int) -> None:
    (folder / "gates" / f"{name}-open-{bucket}").touch()


def attempts(folder: Path, name: str, bucket: int | None = None) -> list[dict[str, int]]:
    """The tasks that came to a gate, in order."""
    marks = folder.glob(f"gates/{name}-{'[0-9]' if bucket is None else bucket}-[0-9]*")
    return [json.loads(mark.read_text()) for mark in sorted(marks, key=lambda mark: int(mark.name.rpartition("-")[2]))]


def wait_until(ready: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not ready():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)
