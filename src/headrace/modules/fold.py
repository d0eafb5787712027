"""Modules that go from tuple to tuple: how the window of an aggregate is kept up (rules 7.3 and 7.4).

A `Folder` makes one `Stepper` for each group. A stepper is told of each tuple that arrives and of each that leaves the
window, in order, and says what is returned there. Three kinds of folders exist: of aggregates written in SQL, whose
EXPIRE is run when a tuple leaves; of incremental modules, whose items are added and removed; and, for all others, one
that keeps the window and computes it anew at each tuple.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

__all__ = ["Folder", "Incremental", "Kind", "Recomputed", "Stepper"]

#: Which tuples are in the window: all, so many, or those of so long.
Kind = Literal["unbounded", "rows", "range"]


class Stepper(Protocol):
    """A group's state."""

    @property
    def inwindow(self) -> list[tuple[Any, ...]]:
        """Of a folder that keeps windows, the tuples in it, oldest first, each with its mark as the last value."""
        ...

    #: Whether nobody asks what is returned when a tuple leaves.
    quiet: bool

    def arrive(self, *args: Any, mark: int = 0) -> list[Any]:
        """What is returned when a tuple comes: rows, or bare values if there is one column."""
        ...

    def expire(self, *args: Any) -> list[Any]:
        """What is returned when the oldest tuple leaves; it is given unless the folder keeps windows."""
        ...

    def save(self) -> bytes:
        """The state as bytes."""
        ...


class Folder(Protocol):
    """Makes the states of groups."""

    @property
    def keeps_window(self) -> bool:
        """Whether steppers keep the tuples of the window themselves."""
        ...

    @property
    def path(self) -> str:
        """How the window is kept up, for `explain`."""
        ...

    @property
    def language(self) -> str:
        """What the code that runs is written in, for `explain`."""
        ...

    @property
    def code(self) -> str:
        """The code that runs, where it is not the author's own."""
        ...

    @property
    def typed(self) -> bool:
        """Whether what is returned has the types that were declared, whatever the code does."""
        ...

    def make(self) -> Stepper:
        """The state before the first tuple."""
        ...

    def load(self, data: bytes) -> Stepper:
        """A saved state."""
        ...

    def folding(self, frame: Any, answers: Any, *, active: bool) -> Any:
        """What goes through the tuples of all groups in one call; None if steppers go one by one."""
        ...


@dataclass(frozen=True)
class _InPython:
    """A module whose author wrote the code that runs."""

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
        return _Added(self.module, self.module.initial(), 0)

    def load(self, data: bytes) -> Stepper:
        return _Added(self.module, *pickle.loads(data))  # noqa: S301 - our own bytes


class _Added:
    """A state and how many items are in it."""

    inwindow: list[tuple[Any, ...]]
    quiet = False

    def __init__(self, module: Any, state: Any, count: int) -> None:
        self._module, self._state, self._count = module, state, count

    def arrive(self, *args: Any, mark: int = 0) -> list[Any]:  # noqa: ARG002 - for those that keep windows
        self._move(self._module.add, args)
        self._count += 1
        return self._answer()

    def expire(self, *args: Any) -> list[Any]:
        self._move(self._module.remove, args)
        self._count -= 1
        return [] if self.quiet or not self._count else self._answer()

    def _move(self, function: Callable[[Any, list[Any]], Any], args: tuple[Any, ...]) -> None:
        after = function(self._state, [self._module.item(args)])
        self._state = self._state if after is None else after

    def _answer(self) -> list[Any]:
        found = self._module.compute(self._state)
        return [found] if self._module.kind == "aggregate" else list(found or ())

    def save(self) -> bytes:
        return pickle.dumps((self._state, self._count))


class Recomputed(_InPython):
    """Any module: the window is kept, and computed anew when a tuple comes or leaves."""

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
        found = self._module.compute(items)
        return [found] if self._module.kind == "aggregate" else list(found or ())

    def save(self) -> bytes:
        return pickle.dumps(self.inwindow)
