"""Where streams leave: finality (rule 3.5), and the output itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.plan.base import Node, OneInput, Properties

__all__ = ["Final", "Output"]


@dataclass(frozen=True, eq=False)
class Final(OneInput):
    """Lets an event out only when no legal change can touch it any more (rule 3.5)."""

    linear: ClassVar[bool] = False

    @property
    def needs(self) -> tuple[str, ...] | None:
        return self.input.schema.names

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(insert_only=True, settled=True, keys=below.keys)

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:  # noqa: ARG002
        return self.with_inputs(*inputs)


@dataclass(frozen=True, eq=False)
class Output(OneInput):
    """Where a stream leaves: events that one correction is made of must be together, to be paired (rule 2.3)."""

    linear: ClassVar[bool] = False
    name: str

    @property
    def needs(self) -> tuple[str, ...] | None:
        return None if self.input.properties.insert_only else self.input.schema.names

    def describe(self) -> str:
        return f"Output {self.name}"
