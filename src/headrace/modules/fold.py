"""Modules that go from tuple to tuple: how the window of an aggregate is updated (rules 7.3 and 7.4).

A `Folder` creates one `Stepper` for each group. A stepper processes each tuple that arrives and each that leaves the
window, in order, and returns the results. There are three kinds of folders: for aggregates written in SQL, which run
EXPIRE when a tuple leaves; for incremental modules, which add and remove items; and for all others, which keep the
window and compute it anew at each tuple.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

__all__ = ["Folder", "Incremental", "Kind", "Recomputed", "Stepper"]

#: The tuples in the window: all, a number of them, or those of a duration.
Kind = Literal["unbounded", "rows", "range"]


class Stepper(Protocol):
    """A group's state."""

    @property
    def inwindow(self) -> list[tuple[Any, ...]]:
        """If the folder keeps windows: the tuples of the window, oldest first, each with its mark as the last value."""
        ...

    #: Whether results of leaving tuples are not needed.
    quiet: bool

    def arrive(self, *args: Any, mark: int = 0) -> list[Any]:
        """The results when a tuple arrives: rows, or plain values if there is one column."""
        ...

    def expire(self, *args: Any) -> list[Any]:
        """The results when the oldest tuple leaves; `args` has its values unless the folder keeps windows."""
        ...

    def save(self) -> bytes:
        """The state as bytes."""
        ...


class Folder(Protocol):
    """Creates the states of groups."""

    @property
    def keeps_window(self) -> bool:
        """Whether steppers keep the tuples of the window."""
        ...

    @property
    def path(self) -> str:
        """How the window is updated, for `explain`."""
        ...

    @property
    def language(self) -> str:
        """The language of the code, for `explain`."""
        ...

    @property
    def code(self) -> str:
        """The generated code; empty for the author's own."""
        ...

    @property
    def typed(self) -> bool:
        """Whether results always have the declared types."""
        ...

    def make(self) -> Stepper:
        """The state before the first tuple."""
        ...

    def load(self, data: bytes) -> Stepper:
        """A saved state."""
        ...

    def folding(self, frame: Any, answers: Any, *, active: bool) -> Any:
        """Code that folds the tuples of all groups in one call; None if steppers run one by one."""
        ...


@dataclass(frozen=True)
class _InPython:
    """A module that runs the author's Python code."""

    module: Any
    keeps_window: ClassVar[bool]
    path: ClassVar[str]
    language: ClassVar[str] = "Python"
    code: ClassVar[str] = ""
    typed: ClassVar[bool] = False

    def folding(self, frame: Any, answers: Any, *, active: bool) -> None:  # noqa: ARG002 - one by one
        return None


class Incremental(_InPython):
    """An incremental module: items are added and removed."""

    keeps_window = False
    path = "items are added and removed"

    def make(self) -> Stepper:
        return _IncrementalState(self.module, self.module.initial(), 0)

    def load(self, data: bytes) -> Stepper:
        return _IncrementalState(self.module, *pickle.loads(data))  # noqa: S301 - our own bytes


class _IncrementalState:
    """A state and the number of its items."""

    inwindow: list[tuple[Any, ...]]
    quiet = False

    def __init__(self, module: Any, state: Any, count: int) -> None:
        self._module, self._state, self._count = module, state, count

    def arrive(self, *args: Any, mark: int = 0) -> list[Any]:  # noqa: ARG002 - for those that keep windows
        self._update(self._module.add, args)
        self._count += 1
        return self._answer()

    def expire(self, *args: Any) -> list[Any]:
        self._update(self._module.remove, args)
        self._count -= 1
        return [] if self.quiet or not self._count else self._answer()

    def _update(self, function: Callable[[Any, list[Any]], Any], args: tuple[Any, ...]) -> None:
        after = function(self._state, [self._module.item(args)])
        self._state = self._state if after is None else after

    def _answer(self) -> list[Any]:
        answer = self._module.compute(self._state)
        return [answer] if self._module.kind == "aggregate" else list(answer or ())

    def save(self) -> bytes:
        return pickle.dumps((self._state, self._count))


class Recomputed(_InPython):
    """Any module: keeps the window, and computes it anew when a tuple arrives or leaves."""

    keeps_window = True
    path = "the window is computed anew"

    def make(self) -> Stepper:
        return _WindowTuples(self.module, [])

    def load(self, data: bytes) -> Stepper:
        return _WindowTuples(self.module, pickle.loads(data))  # noqa: S301 - our own bytes


class _WindowTuples:
    """The tuples of a window."""

    quiet = False

    def __init__(self, module: Any, inwindow: list[tuple[Any, ...]]) -> None:
        self._module, self.inwindow = module, inwindow

    def arrive(self, *args: Any, mark: int = 0) -> list[Any]:
        self.inwindow.append((*args, mark))
        return self._answer()

    def expire(self) -> list[Any]:
        del self.inwindow[0]
        return [] if self.quiet or not self.inwindow else self._answer()

    def _answer(self) -> list[Any]:
        items = [self._module.item(row[:-1]) for row in self.inwindow]
        if self._module.incremental:
            state = self._module.initial()
            after = self._module.add(state, items)
            items = state if after is None else after
        answer = self._module.compute(items)
        return [answer] if self._module.kind == "aggregate" else list(answer or ())

    def save(self) -> bytes:
        return pickle.dumps(self.inwindow)
