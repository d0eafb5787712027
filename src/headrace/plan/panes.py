"""Partial states of algebraic modules, computed where the rows are (rule 6.5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.modules import ModuleCall
from headrace.plan.aggregate import Aggregate
from headrace.plan.base import OneInput, Properties, Reach, renamed
from headrace.plan.liveliness import AS_INPUT, Liveliness
from headrace.schema import Field, Schema, Type

__all__ = ["Panes"]


@dataclass(frozen=True, eq=False)
class Panes(OneInput):
    """One event for all events of a batch in one group and the same windows, with a state for each module."""

    reach: ClassVar[Reach] = "streams"
    aggregate: Aggregate

    @cached_property
    def calls(self) -> dict[str, ModuleCall]:
        """The calls of modules, by the column of their states."""
        calls = [call for call in self.aggregate.split[0].values() if isinstance(call, ModuleCall)]
        return {f"state{i}": call for i, call in enumerate(calls)}

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.aggregate.key_fields, *(Field(name, Type.STRING) for name in self.calls)))

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(below.insert_only, below.settled, renamed(below.keys, self.aggregate.keys))

    @property
    def liveliness(self) -> Liveliness:
        return AS_INPUT

    def uses(self, side: int, needed: set[str]) -> set[str]:
        return self.aggregate.uses(side, needed)

    @property
    def marks(self) -> str:
        return self.aggregate.marks

    def describe(self) -> str:
        return f"Panes for {self.aggregate.describe()}"
