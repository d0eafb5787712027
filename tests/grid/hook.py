"""The hook through which the grid disturbs a run: one audit hook that hears every step of a query.

There are two kinds of steps, both announced by Python's audit events: the points of `headrace.failpoints`, and calls
that change a file below the watched folders (`tests/recovery/steps.py`). A step has a text: `commit 3`,
`create commits/000000000003`, `file /…/out/batch-00000002`.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.recovery.steps import ALL, Death, changed_path, die

from headrace.failpoints import EVENT

__all__ = ["Death", "Fault", "Gate", "Hook", "break_down", "die", "disk_full", "fail", "kill", "pause", "slow"]

Action = Callable[[], None]
PATIENCE = 60.0


def kill() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def pause() -> None:
    """Stop this process until another one continues it.

    The signal is for this thread: one for the process may be taken by another thread, and this one would go on a bit.
    """
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def disk_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fail() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def break_down() -> None:
    raise RuntimeError("the task breaks down")


def slow() -> None:
    time.sleep(0.002)


class Gate:
    """Holds the first thread that reaches it until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.opened.wait(PATIENCE), "the gate stays closed"


@dataclass
class Fault:
    """What happens at the `at`-th step whose text starts with `where`, and ends with `ends`.

    With `lasting` it happens at every later step of this kind, too; a `Death` at every later step of any kind.
    """

    where: str
    action: Action
    at: int = 1
    ends: str = ""
    lasting: bool = False
    seen: int = 0
    happened: bool = False

    def hears(self, text: str) -> bool:
        """Whether it happens now."""
        if self.happened and self.action is die:
            return True
        if not (text.startswith(self.where) and text.endswith(self.ends)):
            return False
        self.seen += 1
        now = self.seen >= self.at if self.lasting else self.seen == self.at
        self.happened = self.happened or now
        return now


@dataclass
class Hook:
    """All steps of this process, while it watches."""

    folder: str = ""
    faults: list[Fault] = field(default_factory=list)
    #: The texts of the steps, if they are wanted.
    steps: list[str] | None = None
    _added: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def watch(self, folder: Path, *faults: Fault, note: bool = False) -> None:
        """Watch from here on."""
        if not self._added:
            sys.addaudithook(self._hear)  # for good: there is no way to remove one
            self._added = True
        self.faults, self.steps, self.folder = list(faults), [] if note else None, f"{folder}{os.sep}"

    def rest(self) -> None:
        """Disturb nothing."""
        self.folder, self.faults = "", []

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.folder or (event != EVENT and event not in ALL):
            return
        if event == EVENT:
            text = f"{given[0]} {given[1]}"
        else:
            path = f"{changed_path(event, given)}"
            if not f"{path}{os.sep}".startswith(self.folder):
                return
            text = f"file {path}"
        with self._lock:
            if self.steps is not None:
                self.steps.append(text)
            actions = [fault.action for fault in self.faults if fault.hears(text)]
        for action in actions:
            action()
