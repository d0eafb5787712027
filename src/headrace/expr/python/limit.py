"""A time limit for calls of a user's code.

A thread of its own makes the calls, and the waiting thread watches it. So the limit holds wherever a query runs, needs
no signal handlers, and ends loops in Python; a call that blocks elsewhere is abandoned.
"""

from __future__ import annotations

import contextvars
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["OutOfTime", "Watch", "watched"]

_SHORTEST_WAIT = 0.001


class OutOfTime(BaseException):
    """A call took too long. It is not an `Exception`, so that `except Exception` does not catch it."""


class Watch:
    """Counts calls, and records the start of the current one."""

    def __init__(self) -> None:
        self.calls = 0
        self._began = time.monotonic()

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with every call recorded."""

        def call(*args: Any) -> Any:
            self.calls += 1
            self._began = time.monotonic()
            return function(*args)

        return call

    def left(self, seconds: float) -> float:
        """The rest of the time limit for the current call, in seconds."""
        return self._began + seconds - time.monotonic()


def watched(work: Callable[[], Any], watch: Watch, seconds: float) -> Any:
    """The result of `work`; raises `OutOfTime` when a recorded call takes longer than the limit."""
    done = threading.Event()
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            failure.append(error)
        finally:
            done.set()

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), name="headrace-limited", daemon=True)
    thread.start()
    while not done.wait(max(watch.left(seconds), _SHORTEST_WAIT)):
        if watch.left(seconds) <= 0:
            # The thread runs only this work: an error raised in it too late does no harm.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(OutOfTime))
            raise OutOfTime
    if failure:
        raise failure[0]
    return outcome[0]
