"""The process from which Spark forks the workers of the grid: theirs have a hook, by which their tasks fail or die.

The driver leaves an order as a file (`in_workers`). The first worker that reaches a step which fits takes it; an order
for all tasks stays, and concerns the first attempt of each.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from headrace.failpoints import EVENT

__all__ = ["MODULE", "grid_session", "in_workers"]

MODULE = "tests.grid.spark_daemon"
FOLDER = "HEADRACE_GRID_ORDERS"
Order = Literal["fail", "kill", "fail all"]


def grid_session() -> None:
    """Start the session of the grid, whose workers hear orders."""
    from headrace.host.spark.session import get_session  # an extra

    os.environ.setdefault(FOLDER, tempfile.mkdtemp(prefix="headrace-grid-orders-"))
    get_session("local[2,4]", {"spark.python.daemon.module": MODULE}, app="headrace grid")


@contextmanager
def in_workers(order: Order, *points: str) -> Iterator[Path]:
    """An order for the workers; the file that is given exists as soon as it was carried out."""
    folder = Path(os.environ[FOLDER])
    draft, file, taken = (folder / name for name in ("draft", "order", "taken"))
    draft.write_text(json.dumps([order, points]))
    draft.rename(file)
    try:
        yield taken
    finally:
        for left in (file, taken):
            left.unlink(missing_ok=True)


def _hear(event: str, given: tuple[Any, ...]) -> None:
    if event != EVENT:
        return
    file = Path(os.environ[FOLDER], "order")
    try:
        order, points = json.loads(file.read_text())
    except FileNotFoundError:
        return
    if not any(f"{given[0]} {given[1]}".startswith(point) for point in points):
        return
    if _takes(order, file):
        if order == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("the task breaks down")


def _takes(order: Order, file: Path) -> bool:
    """Whether this task carries out the order."""
    taken = file.with_name("taken")
    if order == "fail all":
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None or context.attemptNumber() > 0:
            return False
        taken.touch()
        return True
    try:
        file.rename(taken)
    except FileNotFoundError:  # another worker was faster
        return False
    return True


if __name__ == "__main__":
    sys.addaudithook(_hear)
    runpy.run_module("headrace.host.spark.daemon", run_name="__main__")
