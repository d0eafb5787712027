"""Columns of the grid that only Spark has: its Python workers are killed, or its JVM."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

import psutil
from tests.grid.disruptions import Disruption
from tests.grid.hook import Fault
from tests.grid.spark_daemon import MODULE, grid_session, in_workers
from tests.grid.world import Cell, Wrong

__all__ = ["WORKERS"]


def kill_workers() -> None:
    """Kill all Python workers below this process, but not the process that they are forked from."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            parent = process.parent()
            if _is_daemon(process) and parent is not None and _is_daemon(parent):
                process.kill()


def _is_daemon(process: psutil.Process) -> bool:
    return any(name in process.cmdline() for name in (MODULE, "headrace.host.spark.daemon"))


def workers_killed(cell: Cell) -> None:
    """The workers die between the plan and the tasks, with the state that they have in memory."""
    fault = Fault(f"planned {cell.feature.begun}", kill_workers)
    cell.disturbed(fault)
    if not fault.happened:
        raise Wrong("there was no batch")


def kill_jvm() -> None:
    """Kill the JVM of this process by SIGKILL."""
    from pyspark import SparkContext  # an extra

    process = SparkContext._gateway.proc  # type: ignore[union-attr]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def forget_jvm() -> None:
    """Let the next start have a new JVM, as in a new process: Spark holds the dead one in these attributes."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    context._jsc = None  # type: ignore[union-attr]
    context.stop()  # type: ignore[union-attr]
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    grid_session()


def jvm_killed(point: str) -> Callable[[Cell], None]:
    """The JVM dies at a step of a batch; its error names it."""

    def disturb(cell: Cell) -> None:
        fault = Fault(point.format(number=cell.feature.begun), kill_jvm)
        try:
            error = cell.disturbed(fault, names="Spark's JVM is gone", task=True)
        finally:
            if fault.happened:
                forget_jvm()
        if not fault.happened:
            raise Wrong("there was no batch")
        if error is None:
            raise Wrong("the JVM died, and nobody noticed")

    return disturb


def worker_killed(point: str) -> Callable[[Cell], None]:
    """A worker is killed by SIGKILL in a task; the task runs again in another one."""

    def disturb(cell: Cell) -> None:
        with in_workers("kill", point.format(number=cell.feature.begun)) as taken:
            cell.refused(task=True)
            if not taken.exists():
                raise Wrong(f"there was no task {point!r}")

    return disturb


_NO_WORKERS = {"local": "the local host has no worker processes"}
_NO_JVM = {"local": "the local host has no JVM"}
WORKERS = [
    Disruption("Spark's workers killed", "process", workers_killed, not_on=_NO_WORKERS),
    Disruption("Spark's worker killed in an intake task", "process", worker_killed("intake {number}/0"),
               not_on=_NO_WORKERS),
    Disruption("Spark's worker killed in a stage", "process", worker_killed("stage {number}/1/"), needs=("stage",),
               not_on=_NO_WORKERS),
    Disruption("Spark's worker killed when the state is written", "process", worker_killed("staged {number}/1/"),
               needs=("stage",), not_on=_NO_WORKERS),
    Disruption("Spark's JVM killed", "process", jvm_killed("planned {number}"), not_on=_NO_JVM),
]  # fmt: skip
