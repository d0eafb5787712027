"""A limit to the time that calls of a user's code may take.

The calls are made by a thread of their own, watched by the one that waits for it. So the limit holds wherever a query
runs, touches no signal handlers, and ends what is a loop in Python; a call that sleeps elsewhere is left behind.
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
    """A call took too long; no `Exception`, so that code which catches every one of those does not catch it."""


class Watch:
    """Knows how many calls have been made, and when the present one began."""

    def __init__(self) -> None:
        self.calls = 0
        self._began = time.monotonic()

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, every call of it seen."""

        def call(*args: Any) -> Any:
            self.calls += 1
            self._began = time.monotonic()
            return function(*args)

        return call

    def left(self, seconds: float) -> float:
        """How much of so many seconds the present call has left."""
        return self._began + seconds - time.monotonic()


def watched(work: Callable[[], Any], watch: Watch, seconds: float) -> Any:
    """The result of `work`; raises `OutOfTime` when one of the calls that the watch sees takes longer."""
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
            # The thread is ours alone: what is raised in it too late finds nothing to break.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(OutOfTime))
            raise OutOfTime
    if failure:
        raise failure[0]
    return outcome[0]
