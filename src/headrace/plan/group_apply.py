"""`group_by(...).apply(f)`: a plan over the stream of one group becomes a plan for all groups at once (rule 4).

`f` is called once, with a stream that stands for any group (`GroupInput`), and returns a plan over it. This plan is
*lifted*: the group's keys become columns from the group's stream to the result, and every operator in between keeps
rows with different keys apart (`Node.lifted`). So a thousand groups run in the same kernel calls as one, and only
ordinary operators run.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from headrace.errors import PlanError
from headrace.expr import Expr, col
from headrace.plan.base import Node, OneInput, Reach, walk
from headrace.plan.liveliness import AS_INPUT, Liveliness
from headrace.plan.span import Select

__all__ = ["GroupApply", "GroupInput", "apply_to_groups"]

_numbers = count(1)


@dataclass(frozen=True, eq=False)
class GroupInput(OneInput):
    """The events of any one group: the input of a plan inside `apply`. It is lifted, and never runs."""

    reach: ClassVar[Reach] = "streams"
    ends: ClassVar[None] = None
    #: Distinguishes it from the groups of other calls of `apply`, which may be nested.
    number: int

    @property
    def marks(self) -> str:
        return f"group {self.number}"

    @property
    def liveliness(self) -> Liveliness:
        return AS_INPUT

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - it has one input
        return needed

    @classmethod
    def of(cls, input: Node) -> GroupInput:
        """A new group of a stream, different from all others."""
        return cls(input, next(_numbers))


@dataclass(frozen=True, eq=False)
class GroupApply(OneInput):
    """The union of one plan's results for every group; the keys are the first columns.

    Its input is the plan lifted to all groups, which computes the result. `body`, the plan over the stream `group` of
    one group, is the definition; tests compare the result with it.
    """

    reach: ClassVar[Reach] = "event"
    instants: ClassVar[None] = None
    ends: ClassVar[None] = None
    keys: tuple[tuple[str, Expr], ...]
    group: GroupInput
    body: Node

    @property
    def liveliness(self) -> Liveliness:
        return AS_INPUT

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - it has one input
        return needed

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:  # noqa: ARG002
        return inputs[0]

    def describe(self) -> str:
        keys = ", ".join(name if str(expr) == str(col(name)) else f"{name} = {expr}" for name, expr in self.keys)
        return f"GroupApply per {keys or 'nothing'}"


def apply_to_groups(keys: tuple[tuple[str, Expr], ...], group: GroupInput, body: Node) -> GroupApply:
    """`body`, a plan over the stream of one group, for each group of events with equal keys."""
    hidden = _fresh_names(keys, body)
    lifted = _lift(body, group, tuple(zip(hidden, (expr for _, expr in keys), strict=True)))
    names = [name for name, _ in keys]
    own = ((name, col(name)) for name in body.schema.names if name not in names)
    outputs = (*((name, col(column)) for name, column in zip(names, hidden, strict=True)), *own)
    return GroupApply(Select(lifted, outputs), keys, group, body)


def _fresh_names(keys: tuple[tuple[str, Expr], ...], body: Node) -> tuple[str, ...]:
    """Names for the keys inside the plan that none of its columns has."""
    taken = {name for node in walk(body) for part in (node, *walk(*node.inside)) for name in part.schema.names}
    names = []
    for name, _ in keys:
        choices = (f"group_{name}" + (f"_{i}" if i > 1 else "") for i in count(1))
        names.append(next(choice for choice in choices if choice not in taken))
        taken.add(names[-1])
    return tuple(names)


def _lift(body: Node, group: GroupInput, keys: tuple[tuple[str, Expr], ...]) -> Node:
    names = tuple(name for name, _ in keys)
    new: dict[str, Node] = {}
    for node in walk(body):
        derived = tuple(child.fingerprint in new for child in node.inputs)
        if node == group:
            new[node.fingerprint] = Select(group.input, (*keys, *((n, col(n)) for n in group.schema.names)))
        elif any(derived):
            lifted = node.lifted(tuple(new.get(c.fingerprint, c) for c in node.inputs), names, derived)
            assert lifted.schema.names == (*names, *node.schema.names), f"{type(node).__name__} is lifted wrongly"
            new[node.fingerprint] = lifted
    if body.fingerprint not in new:
        raise PlanError(
            "apply needs a result that is made from the group's stream: other events belong to no group",
            given=body.describe(),
            allowed="streams made from the group's stream",
            instead="apply(lambda group: group.join(other, on='key'))",
        )
    return new[body.fingerprint]
