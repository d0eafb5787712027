"""The functions of alarms are called in a thread of their own: one that takes long holds up no query, and it may stop
the query.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

__all__ = ["AlarmCalls"]

_log = logging.getLogger("headrace")
#: So many calls wait at most; how long the end of a query waits for them, in seconds.
_MOST, _PATIENCE = 100, 10.0
Call = Callable[[], None]


class AlarmCalls:
    """Calls that are made one after the other; the thread begins with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: queue.Queue[Call | None] = queue.Queue(_MOST)
        self._thread: threading.Thread | None = None

    def __call__(self, call: Call) -> None:
        """Make a call soon."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"headrace-alarms-{self._name}", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(call)
        except queue.Full:
            _log.error("query %s: a function of an alarm does not return, so this one is not called", self._name)

    def settle(self, patience: float = _PATIENCE) -> None:
        """Wait until all calls are made, but not for ever, and not for the one from which this is asked."""
        deadline = time.monotonic() + patience
        with self._waiting.all_tasks_done:
            while self._waiting.unfinished_tasks and threading.current_thread() is not self._thread:
                left = deadline - time.monotonic()
                if left <= 0:
                    _log.error("query %s: a function of an alarm has not returned", self._name)
                    return
                self._waiting.all_tasks_done.wait(left)

    def close(self) -> None:
        """Wait for the calls; then the thread ends."""
        self.settle()
        if self._thread is not None:
            with suppress(queue.Full):  # its function does not return, and neither does the thread
                self._waiting.put_nowait(None)

    def _run(self) -> None:
        while (call := self._waiting.get()) is not None:
            try:
                call()
            finally:
                self._waiting.task_done()
        self._waiting.task_done()
