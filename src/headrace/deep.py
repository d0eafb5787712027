"""Recursive functions on deep plans, without deep recursion.

Such a function is a generator that yields the calls it waits for: `below = yield _found(node.input)`. `run` runs them
one by one, with a list instead of Python's stack, so that thousands of calls may wait. An error ends the run: calls in
between cannot catch it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

__all__ = ["Deep", "each", "run"]

T = TypeVar("T")
#: The type of such a function: it yields calls, and returns its result.
Deep = Generator[Any, Any, T]


def each(calls: Iterable[Deep[T]]) -> Deep[list[T]]:
    """Wait for several calls, with `yield from`."""
    found: list[T] = []
    for call in calls:
        found.append((yield call))  # noqa: PERF401 - a comprehension cannot yield
    return found


def run(call: Deep[T]) -> T:
    """Run a call and all calls that it waits for; return its result."""
    waiting: list[Deep[Any]] = [call]
    value: Any = None
    while waiting:
        try:
            waiting.append(waiting[-1].send(value))
            value = None
        except StopIteration as done:
            waiting.pop()
            value = done.value
    return value  # type: ignore[no-any-return]
