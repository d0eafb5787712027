"""Outputs of a query, and finality (rule 3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.plan.base import Node, OneInput, Properties, Reach
from headrace.plan.liveliness import AS_INPUT, Liveliness

__all__ = ["Final", "Output"]


@dataclass(frozen=True, eq=False)
class Final(OneInput):
    """Holds back each event until it is final (rule 3.5)."""

    linear: ClassVar[bool] = False
    reach: ClassVar[Reach] = "streams"
    instants: ClassVar[None] = None
    ends: ClassVar[None] = None

    @property
    def needs(self) -> tuple[str, ...] | None:
        return self.input.schema.names

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(insert_only=True, settled=True, keys=below.keys)

    @property
    def liveliness(self) -> Liveliness:
        state = "events the CTI has not made final"
        if self.input.properties.settled:
            return Liveliness("as its input", f"none; answers wait for {self._waits_for()}", state)
        advice = "lifetimes that never change let events out at their start: set_duration(...), or speculative answers"
        delay = f"as long as events last; answers wait for {self._waits_for()}"
        return Liveliness("start of the oldest event that waits", delay, state, (advice,))

    def _waits_for(self) -> str:
        """The CTI that a final answer waits for: that of the nearest operator that does not just pass it on."""
        below = self.input
        while len(below.inputs) == 1 and below.liveliness.cti == AS_INPUT.cti:
            below = below.inputs[0]
        return f"the CTI of {type(below).__name__}: {below.liveliness.cti}"

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - it has one input
        return needed

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:  # noqa: ARG002
        return self.with_inputs(*inputs)


@dataclass(frozen=True, eq=False)
class Output(OneInput):
    """An output; events of one correction must be in one bucket, to be paired (rule 2.3)."""

    linear: ClassVar[bool] = False
    reach: ClassVar[Reach] = "streams"
    name: str

    @property
    def needs(self) -> tuple[str, ...] | None:
        return None if self.input.properties.insert_only else self.input.schema.names

    @property
    def liveliness(self) -> Liveliness:
        return AS_INPUT

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - all of them
        return self.all_of(side)

    def describe(self) -> str:
        return f"Output {self.name}"
