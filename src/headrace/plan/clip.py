"""Clipping: the events of one stream end where those of another start (rule 4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headrace.errors import PlanError
from headrace.plan.base import Node, Properties
from headrace.plan.join import Keys, Meeting, check_keys

__all__ = ["Clip"]


@dataclass(frozen=True, eq=False)
class Clip(Meeting):
    """Ends a lifetime where the first event of `by` with equal keys (nulls equal nothing) starts strictly inside it."""

    input: Node
    by: Node
    on: Keys = ()
    #: So many of the first keys tell groups apart (`group_by(...).apply`): among these, nulls are equal.
    groups: int = 0

    def __post_init__(self) -> None:
        check_keys(self.input.schema, self.by.schema, self.on)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.input, self.by

    @cached_property
    def properties(self) -> Properties:
        return Properties(insert_only=False, settled=False, keys=self.need(0))

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:
        if all(derived):
            same = tuple((name, name) for name in keys)
            return Clip(inputs[0], inputs[1], (*same, *self.on), self.groups + len(keys))
        if not derived[0]:
            raise PlanError(
                "clip inside apply clips the group's stream: an event from outside belongs to no group",
                given=self.input.describe(),
                allowed="a clipped stream made from the one that apply gives",
                instead="group.clip(other, on='key'), or a clip behind apply(...)",
            )
        return Clip(inputs[0], inputs[1], self.on, self.groups)

    def describe(self) -> str:
        return f"Clip on {self.met_by()}"

    def with_inputs(self, *inputs: Node) -> Node:
        return Clip(inputs[0], inputs[1], self.on, self.groups)
