"""Gates in the stages of a query on a cluster: a task that comes to the closed one says who it is, and waits.

An object on S3 names the stage whose gate is closed, and the turn. A test that closes another gate opens this one.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import psutil
from pyspark import TaskContext

import headrace as hr
from headrace.store.objects import ObjectStorage

__all__ = ["STAGES", "close", "gated", "waiting_tasks"]

STAGES = ("intake", "first", "second")
_CLOSED = "gates/closed"
_SECONDS = 120.0
_passed: set[tuple[str, int]] = set()


def gated(url: str) -> hr.Stream:
    """Two stages of windows that answer at once, after an intake; rows pass a gate in each."""
    life, progress = hr.interval("t", "u"), hr.advance(delay=5)
    stream = hr.read_csv(f"{url}/rows/", "t LONG, u LONG, k STRING, v LONG", lifetime=life, progress=progress)
    rows = stream.select("k", v=_gate(url, "intake")("v"))
    counts = rows.group_by("k").window(hr.snapshot()).aggregate(n=hr.count(), s=hr.sum("v"))
    first = counts.select(n=_gate(url, "first")("n"), s="s")
    totals = first.group_by("n").window(hr.snapshot()).aggregate(keys=hr.count(), s=hr.sum("s"))
    return totals.select("n", "s", keys=_gate(url, "second")("keys"))


def close(url: str, stage: str, turn: int) -> None:
    """Let tasks of a stage wait at its gate from now on, and no others; without a stage, all gates are open."""
    storage = ObjectStorage(url)
    storage.remove(_CLOSED)
    storage.create(_CLOSED, json.dumps([stage, turn]).encode())


def waiting_tasks(url: str, turn: int) -> list[dict[str, int]]:
    """The tasks that have come to the gate of a turn: the processes of each."""
    storage = ObjectStorage(url)
    return [json.loads(storage.read(key).to_pybytes()) for key in storage.keys(f"gates/{turn}")]


def _gate(url: str, stage: str) -> Any:
    def pass_gate(n: int) -> int:
        arrive(url, stage)
        return n

    pass_gate.__qualname__ = f"gate_{stage}"  # which plans show
    return hr.udf(pass_gate)


def arrive(url: str, stage: str) -> None:
    """Wait while the gate of this stage is closed; each attempt at a task does so once."""
    context = TaskContext.get()
    if context is None or (stage, context.taskAttemptId()) in _passed:  # none in the driver, and on other hosts
        return
    _passed.add((stage, context.taskAttemptId()))
    storage, deadline = ObjectStorage(url), time.monotonic() + _SECONDS
    closed, turn = _closed(storage)
    if closed != stage:
        return
    executor = psutil.Process(os.getppid()).ppid()
    about = {"bucket": context.partitionId(), "python": os.getpid(), "executor": executor}
    storage.create(f"gates/{turn}/{context.taskAttemptId()}", json.dumps(about).encode())
    while _closed(storage) in ([stage, turn], ["", -1]):
        assert time.monotonic() < deadline, "the gate stays closed"
        time.sleep(0.1)


def _closed(storage: ObjectStorage) -> list[Any]:
    """The stage and the turn; nothing while a test changes them."""
    try:
        return list(json.loads(storage.read(_CLOSED).to_pybytes()))
    except FileNotFoundError:
        return ["", -1]
