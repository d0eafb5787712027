"""The statement that a connection carries out now: whether it was cancelled, and how long it may take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.errors import StatementCancelled
from headrace.server.access import Limits

__all__ = ["StatementWatch"]


class StatementWatch:
    """Of one connection: its thread begins and ends texts and statements, any thread cancels."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._lock = threading.Lock()
        self._executing = self.cancelled = False
        self._deadline = 0.0
        self._on_cancel: Callable[[], None] | None = None
        self.next_statement()

    def begin(self) -> None:
        """A text begins: what was cancelled before is not about it."""
        with self._lock:
            self._executing, self.cancelled = True, False

    def end(self) -> None:
        """The text has ended: cancelling does nothing until the next."""
        with self._lock:
            self._executing = self.cancelled = False

    def next_statement(self) -> None:
        """A statement of the text begins: it has the whole time."""
        self._deadline = self._clock() + self._limits.statement_seconds

    def cancel(self) -> None:
        """Interrupt what runs."""
        with self._lock:
            if not self._executing:
                return
            self.cancelled = True
            if self._on_cancel is not None:
                self._on_cancel()

    def check(self) -> None:
        """Raise if the statement was cancelled, or its time is over."""
        if self.cancelled:
            raise StatementCancelled("the statement was cancelled")
        if self._clock() >= self._deadline:
            raise self._limits.out_of_time()

    def seconds_left(self) -> float:
        """How long the statement may still take."""
        return max(0.0, self._deadline - self._clock())

    @contextmanager
    def calling(self, on_cancel: Callable[[], None]) -> Iterator[None]:
        """While this is open, cancelling calls a function, which must not wait."""
        with self._lock:
            self._on_cancel = on_cancel
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._on_cancel = None
