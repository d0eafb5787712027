"""Aggregates written in SQL as incremental modules: the state of an incomplete slot (rule 7.5)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from headrace.modules import IncrementalAggregate, IncrementalOperator, Module
from headrace.modules.folding import Folding
from headrace.plan.ordered import Frame
from headrace.schema import Schema
from headrace.sql.aggregates.adapters.folder import SqlFolder
from headrace.sql.aggregates.native.aggregate import native_of
from headrace.sql.aggregates.native.fold import NativeFolding
from headrace.sql.aggregates.python.compile import one_value

__all__ = ["RowSteps", "Steps"]


class _Stepwise(Module):
    """The base version of an aggregate, tuple by tuple; computing the answer runs TERMINATE."""

    input = "value DOUBLE"  # placeholders: it has the signature of the aggregate
    output = "value DOUBLE"
    order_sensitive = True

    def __init__(self, module: Any) -> None:
        self.module = module

    @cached_property
    def fields(self) -> Schema:
        found: Schema = self.module.fields
        return found

    @cached_property
    def gives(self) -> Any:
        return self.module.gives

    @property
    def name(self) -> str:
        return str(self.module.name)

    @cached_property
    def mark(self) -> str:
        return str(self.module.mark)

    @cached_property
    def _folder(self) -> SqlFolder:
        return SqlFolder(self.module.compiled, terminates=False)

    def by_slots(self, frame: Frame, answers: Schema) -> Folding | None:
        """The native fold over the slots of all groups in one call, if there is one."""
        native = native_of(self.module.compiled.definition, slots=True)
        return None if isinstance(native, str) else NativeFolding(native, frame, answers)

    def initial(self) -> Any:
        """The state before the first tuple."""
        return None, []

    def add(self, state: Any, items: list[Any]) -> Any:
        """The tables after these tuples, and the output so far."""
        saved, returned = state
        stepper = self._folder.make() if saved is None else self._folder.load(saved)
        for item in items:
            found = stepper.arrive(*(item if len(self.fields) > 1 else (item,)))
            returned = self._kept(returned, found)
        return stepper.save(), list(returned)

    def _kept(self, before: list[Any], found: list[Any]) -> list[Any]:
        """What is left of what was returned, when more is."""
        raise NotImplementedError

    def compute(self, state: Any) -> Any:
        """What is returned at the tuples and behind the last."""
        saved, returned = state
        return [*returned, *self._folder.load(saved).finish()]

    def __str__(self) -> str:
        return str(self.module)


class Steps(_Stepwise, IncrementalAggregate):
    """The value of an aggregate over a window: its result at the last tuple, and in TERMINATE."""

    def _kept(self, before: list[Any], found: list[Any]) -> list[Any]:  # noqa: ARG002 - as its sibling
        return found

    def compute(self, state: Any) -> Any:
        return one_value(super().compute(state))


class RowSteps(_Stepwise, IncrementalOperator):
    """Of an aggregate that gives rows: all that is returned."""

    def _kept(self, before: list[Any], found: list[Any]) -> list[Any]:
        return [*before, *found]
