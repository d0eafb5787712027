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
from typing import Any, TypeVar

__all__ = ["ahead", "available_cores", "in_order"]

T = TypeVar("T")
R = TypeVar("R")
_END: Any = object()


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ahead(items: Iterable[T], most: int) -> Generator[T]:
    """The items, computed one after the other in a thread that is at most so many items ahead; 0: without a thread.

    An exception is raised where its item would be.
    """
    if most == 0:
        yield from items
        return
    source = iter(items)
    with ThreadPoolExecutor(1, "headrace-ahead") as thread:
        for item in in_order(lambda _: next(source, _END), _endlessly(), thread, most):
            if item is _END:
                break
            yield item


def in_order(function: Callable[[T], R], items: Iterable[T], threads: Executor, most: int) -> Iterator[R]:
    """`function` of each item, in the order of the items; so many are computed, or wait, while the caller uses one."""
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(threads.submit(function, item))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _endlessly() -> Iterator[None]:
    while True:
        yield None
