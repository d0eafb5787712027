"""Clipping: the events of one stream end where those of another start (rule 4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError
from headrace.plan.base import Node, Properties, Reach
from headrace.plan.join import BOTH_ENDED, Keys, Meeting, check_keys
from headrace.plan.liveliness import Liveliness, of_all_inputs

__all__ = ["Clip"]


@dataclass(frozen=True, eq=False)
class Clip(Meeting):
    """Ends a lifetime where the first event of `by` with equal keys (nulls equal nothing) starts strictly inside it."""

    reach: ClassVar[Reach] = "streams"
    input: Node
    by: Node
    on: Keys = ()
    #: The number of first keys that identify groups (`group_by(...).apply`): in these, nulls are equal.
    groups: int = 0

    def __post_init__(self) -> None:
        check_keys(self.input.schema, self.by.schema, self.on)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.input, self.by

    @cached_property
    def properties(self) -> Properties:
        return Properties(insert_only=False, settled=False, keys=self.need(0))

    @cached_property
    def all_instants(self) -> bool:
        return self.input.all_instants

    @property
    def liveliness(self) -> Liveliness:
        return of_all_inputs(f"{BOTH_ENDED}, but for those that are cut for good")

    def uses(self, side: int, needed: set[str]) -> set[str]:
        return self.keys_of(side) if side else self.keys_of(side) | needed

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:
        if all(derived):
            same = tuple((name, name) for name in keys)
            return Clip(inputs[0], inputs[1], (*same, *self.on), self.groups + len(keys))
        if not derived[0]:
            raise PlanError(
                "clip inside apply clips the group's stream: an event from outside belongs to no group",
                given=self.input.describe(),
                allowed="a clipped stream made from the group's stream",
                instead="group.clip(other, on='key'), or a clip after apply(...)",
            )
        return Clip(inputs[0], inputs[1], self.on, self.groups)

    def describe(self) -> str:
        return f"Clip on {self.met_by()}"

    def with_inputs(self, *inputs: Node) -> Node:
        return Clip(inputs[0], inputs[1], self.on, self.groups)
