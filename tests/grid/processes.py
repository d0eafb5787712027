"""Columns of the grid with real processes: killed by SIGKILL, or stopped by SIGSTOP while another one takes over.

A process is a fork of one that has imported everything and run nothing, so it begins within milliseconds.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import psutil
from tests.grid.disruptions import Disruption
from tests.grid.features import Feature
from tests.grid.hook import PATIENCE, Fault, kill, pause
from tests.grid.rivals import unlock
from tests.grid.world import Cell, Workplace, Wrong, hook

from headrace.errors import CheckpointError, Superseded

__all__ = ["PROCESSES"]

#: The exit code of a process that another one has superseded.
SUPERSEDED = 3
_ACTIONS: dict[str, Callable[[], None]] = {"kill": kill, "pause": pause, "nothing": lambda: None}


def _life(name: str, folder: Path, where: str, at: int, action: str) -> None:
    """A life of a query in a process of its own."""
    from tests.grid.run import FEATURES, silence  # the table of features imports this module

    silence()
    feature: Feature = FEATURES[name]
    hook.watch(folder, Fault(where, _ACTIONS[action], at))
    try:
        Cell(Workplace(feature, folder), random.Random(0)).live()
    except Superseded:
        os._exit(SUPERSEDED)
    os._exit(0)  # without the clean-up of a process that was meant to run on


def _context() -> ForkServerContext:
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.grid.run"])
    return context


def begin(cell: Cell, where: str, at: int = 1, action: str = "kill") -> ForkServerProcess:
    """Start a life of the query in another process, with an action at a step."""
    process = _context().Process(target=_life, args=(cell.feature.name, cell.folder, where, at, action))
    process.start()
    return process


def ended(process: ForkServerProcess) -> int | None:
    process.join(PATIENCE)
    return process.exitcode


def killed(where: str) -> Callable[[Cell], None]:
    """The process is killed by SIGKILL at a step."""

    def disturb(cell: Cell) -> None:
        code = ended(begin(cell, where.format(number=cell.feature.begun)))
        if code != -signal.SIGKILL:
            raise Wrong(f"the process was not killed at {where!r}: it ended with {code}")

    return disturb


def killed_anywhere(cell: Cell) -> None:
    """The process is killed by SIGKILL at random steps, twice."""
    for _ in range(2):
        code = ended(begin(cell, "", at=1 + cell.draw.randrange(len(cell.place.steps))))
        if code not in (0, -signal.SIGKILL):
            raise Wrong(f"the process ended with {code}")


def continued(cell: Cell) -> None:
    """Another process goes on until all input is answered, and this one after it."""
    code = ended(begin(cell, "", action="nothing"))
    if code != 0:
        raise Wrong(f"the process ended with {code}")


def stopped(cell: Cell) -> None:
    """The process is stopped before its commit, another one takes over, and the first one continues."""
    process = begin(cell, f"commit {cell.feature.begun}", action="pause")
    try:
        _wait_for_stop(process)
        if "checkpoint files" not in cell.feature.lacks:
            error = cell.refused()
            if not isinstance(error, CheckpointError):
                raise Wrong(f"two processes use one checkpoint: {error}")
        unlock(cell)
        cell.live()
        cell.check("while the other is stopped")
    finally:
        os.kill(process.pid or 0, signal.SIGCONT)
        code = ended(process)
    if code != SUPERSEDED:
        raise Wrong(f"the stopped process goes on, or ends with another error: {code}")


def _wait_for_stop(process: ForkServerProcess) -> None:
    deadline = time.monotonic() + PATIENCE
    while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        if time.monotonic() > deadline or not process.is_alive():
            raise Wrong("the process was not stopped")
        time.sleep(0.002)


_LOCAL = {"spark": "a fork has no session of Spark"}
PROCESSES = [
    Disruption("SIGKILL after the plan", "process", killed("planned {number}"), not_on=_LOCAL),
    Disruption("SIGKILL before the commit", "process", killed("commit {number}"), not_on=_LOCAL),
    Disruption("SIGKILL after the commit", "process", killed("committed {number}"), not_on=_LOCAL),
    Disruption("SIGKILL at random steps, twice", "process", killed_anywhere, needs=("lasting sinks",), not_on=_LOCAL),
    Disruption("SIGSTOP, and a rival starts", "process", stopped, needs=("two processes",), not_on=_LOCAL),
    Disruption("goes on in another process", "process", continued, needs=("lasting sinks",), not_on=_LOCAL),
]
