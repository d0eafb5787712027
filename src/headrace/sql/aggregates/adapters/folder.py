"""Aggregates under `OVER`, from tuple to tuple: the state of each group (rules 7.3 to 7.5).

A folder creates steppers. A stepper is one group's state: tuples arrive, and expire if the aggregate has a window
version; each call returns the aggregate's output. The caller decides which tuples have left the window.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.errors import ModuleFailed
from headrace.modules.folding import Folding
from headrace.plan.ordered import Frame
from headrace.schema import Schema
from headrace.sql.aggregates.front.definition import AggregateDefinition
from headrace.sql.aggregates.native.aggregate import Native, native_of
from headrace.sql.aggregates.native.fold import NativeFolding
from headrace.sql.aggregates.python.compile import Compiled

__all__ = ["SqlFolder", "SqlStepper"]


class SqlStepper:
    """The state of one group.

    `arrive` and `expire` return the aggregate's output at this tuple: bare values, or rows of an aggregate with
    columns.
    """

    quiet = False

    def __init__(self, compiled: Compiled, *, terminates: bool) -> None:
        self._compiled = compiled
        self._terminates = terminates
        self._body = compiled.body()
        self._started = False

    def arrive(self, *arguments: Any, mark: Any = None) -> list[Any]:
        """A tuple arrives; `mark` is stored with it if the stepper keeps the window."""
        body = self._body
        body.returned = []
        if self._compiled.definition.keeps_window:
            arguments = (*arguments, mark)
        try:
            if self._started:
                body.iterate(*arguments)
            else:
                self._started = True
                body.initialize(*arguments)
            if self._terminates:
                body.terminate()
        except ModuleFailed as error:
            raise self._compiled.located(error) from None
        output: list[Any] = body.returned
        return output

    def finish(self) -> list[Any]:
        """The output of TERMINATE after the last tuple."""
        body = self._body
        body.returned = []
        try:
            body.terminate()
        except ModuleFailed as error:
            raise self._compiled.located(error) from None
        output: list[Any] = body.returned
        return output

    def expire(self, *oldest: Any) -> list[Any]:
        """The oldest tuple leaves; the caller passes it, unless the stepper keeps the window."""
        body = self._body
        body.returned = []
        try:
            body.expire(*oldest)
        except ModuleFailed as error:
            raise self._compiled.located(error) from None
        output: list[Any] = body.returned
        return output

    @property
    def inwindow(self) -> list[tuple[Any, ...]]:
        """The tuples of the window, the oldest first, each followed by its mark, if the stepper keeps the window."""
        found: list[tuple[Any, ...]] = self._body.inwindow
        return found

    def save(self) -> bytes:
        """The state as bytes."""
        return pickle.dumps((self._started, [getattr(self._body, name) for name in self._compiled.attributes]))

    def restore(self, data: bytes) -> None:
        """Restore a saved state."""
        self._started, values = pickle.loads(data)  # noqa: S301 - the engine's own state
        for name, value in zip(self._compiled.attributes, values, strict=True):
            setattr(self._body, name, value)


@dataclass(frozen=True)
class SqlFolder:
    """Creates steppers for one version of an aggregate."""

    compiled: Compiled
    #: Whether TERMINATE runs after each tuple: the base version over all preceding tuples (rule 7.4).
    terminates: bool
    #: Whether returned values are cast to the declared types.
    typed: bool = True

    @property
    def path(self) -> str:
        """How the window is maintained, for `explain`."""
        if self.definition.window:
            return "EXPIRE for each tuple that leaves"
        return "TERMINATE behind each tuple" if self.terminates else "ITERATE for each tuple that comes"

    @cached_property
    def native(self) -> Native | str:
        """The native code, or the reason why there is none."""
        return native_of(self.definition, terminates=self.terminates)

    @property
    def language(self) -> str:
        """The language of the code that runs, for `explain`."""
        return f"Python ({self.native})" if isinstance(self.native, str) else "native code"

    @property
    def code(self) -> str:
        """The code that runs."""
        return self.source if isinstance(self.native, str) else self.native.source

    def folding(self, frame: Frame, answers: Schema, *, active: bool) -> Folding | None:
        """The native fold over the tuples of all groups in one call; None without native code."""
        native = self.native
        return None if isinstance(native, str) else NativeFolding(native, frame, answers, active=active)

    @property
    def definition(self) -> AggregateDefinition:
        return self.compiled.definition

    @property
    def source(self) -> str:
        """The Python code."""
        return self.compiled.source

    @property
    def algebraic(self) -> bool:
        return self.definition.algebraic

    @property
    def keeps_window(self) -> bool:
        """Whether steppers keep the tuples of the window, because the body reads them as a table."""
        return self.definition.keeps_window

    def make(self) -> SqlStepper:
        """The state of a group before its first tuple."""
        return SqlStepper(self.compiled, terminates=self.terminates)

    def load(self, data: bytes) -> SqlStepper:
        """The saved state of a group."""
        stepper = self.make()
        stepper.restore(data)
        return stepper
