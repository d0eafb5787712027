"""Coalescing: events of equal payload whose lifetimes meet or overlap become one (rule 4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.plan.base import Node, OneInput, Properties, Reach
from headrace.plan.liveliness import AS_INPUT, NOT_ENDED, Liveliness

__all__ = ["Coalesce"]


@dataclass(frozen=True, eq=False)
class Coalesce(OneInput):
    """For each payload, one event for each span of time in which an event with this payload is alive.

    A new event may join two earlier outputs, and a deletion may split one, so the operator corrects outputs even if its
    input has no corrections.
    """

    linear: ClassVar[bool] = False
    reach: ClassVar[Reach] = "instant"
    ends: ClassVar[None] = None

    @property
    def needs(self) -> tuple[str, ...] | None:
        return self.input.schema.names

    @cached_property
    def properties(self) -> Properties:
        # Rows that are together by some of the columns have equal values there, and stay in their bucket.
        below = self.input.properties.keys
        return Properties(insert_only=False, settled=False, keys=self.needs if below is None else below)

    @property
    def liveliness(self) -> Liveliness:
        return AS_INPUT.remembering(NOT_ENDED)

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - all of them
        return self.all_of(side)

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:  # noqa: ARG002
        return self.with_inputs(*inputs)  # the keys are part of the payload
