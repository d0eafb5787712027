"""Functions that call themselves as deep as a plan is, without the depth of the calls.

Such a function is written as a generator that yields the calls it waits for: `below = yield _found(node.input)`. `run`
does them one by one, in a list of its own in place of Python's stack, so that thousands of them may wait. An error ends
the whole run: nothing in between can catch it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

__all__ = ["Deep", "each", "run"]

T = TypeVar("T")
#: What a function of this kind returns: its calls, then its result.
Deep = Generator[Any, Any, T]


def each(calls: Iterable[Deep[T]]) -> Deep[list[T]]:
    """Wait for several calls, for the `yield from` of a function of this kind."""
    found: list[T] = []
    for call in calls:
        found.append((yield call))  # noqa: PERF401 - a comprehension cannot yield
    return found


def run(call: Deep[T]) -> T:
    """The result of a call, once all calls below it are done."""
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
