"""Threads of this process: how many to use, and steps of a run that work ahead of the next one.

NumPy, PyArrow and compiled loops do not hold Python's global lock, so threads work in parallel where the time is spent.
The number of threads never shows in an answer: each step processes the batches in their order, and tasks that run at
once do not share state.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import islice, repeat
from threading import Lock
from typing import Any, TypeVar

__all__ = ["Room", "ahead", "available_cores", "in_order"]

T = TypeVar("T")
R = TypeVar("R")
_END: Any = object()


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Room:
    """The bytes that wait between the steps of a run, which decide how far a step may be ahead of the next one."""

    def __init__(self, limit: int, most: int) -> None:
        self._limit, self._most = limit, most
        self._lock = Lock()
        self._used = self._largest = self.peak = 0

    def fill(self, size: int) -> None:
        """Count an item that waits from now on."""
        with self._lock:
            self._used += size
            self._largest, self.peak = max(self._largest, size), max(self.peak, self._used)

    def free(self, size: int) -> None:
        """No longer count an item."""
        with self._lock:
            self._used -= size

    def items(self, least: int) -> int:
        """How many items may wait: so many that all fit if they are as large as the largest, but at least `least`.

        While no size is known, that is one.
        """
        fitting = (self._limit - self._used) // self._largest if self._largest else 1
        return max(least, min(self._most, fitting))


def ahead(items: Iterable[T], most: Callable[[], int], stop: Callable[[], object] | None = None) -> Generator[T]:
    """The items, computed one after the other in a thread that is at most so many items ahead.

    An exception is raised where its item would be. If the caller ends early, by Ctrl-C for instance, `stop` is called
    before the thread is awaited.
    """
    source = iter(items)
    with ThreadPoolExecutor(1, "headrace-ahead") as thread:
        try:
            for item in in_order(lambda _: next(source, _END), repeat(None), thread, most):
                if item is _END:
                    break
                yield item
        except BaseException:
            if stop is not None:
                stop()
            raise


def in_order(function: Callable[[T], R], items: Iterable[T], threads: Executor, most: Callable[[], int]) -> Iterator[R]:
    """`function` of each item, in the order of the items; so many are computed, or wait, while the caller uses one."""
    waiting: deque[Future[R]] = deque()
    source = iter(items)
    try:
        while True:
            for item in islice(source, max(0, most() + 1 - len(waiting))):
                waiting.append(threads.submit(function, item))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
