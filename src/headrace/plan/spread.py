"""A loop whose rows are spread over buckets: where it begins and where it closes (rule 9.2).

A loop that no key keeps inside a bucket is cut open. Its body becomes a part of the plan like any other, so that its
operators stand in stages and their inputs are brought together as usual. It reads `LoopStart`, and ends in `LoopEnd`.
What `LoopEnd` gives goes on as the result, and travels back: in the next trip it is what `LoopStart` gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.plan.base import Node, Properties, Reach
from headrace.plan.liveliness import Liveliness
from headrace.plan.recurse import FedNode, Recurse
from headrace.progress import Progress

__all__ = ["LoopEnd", "LoopStart"]


@dataclass(frozen=True, eq=False)
class LoopStart(FedNode):
    """What has changed of a loop's result in the trip before, each change with the round it came up in in front.

    Its name is the loop's fingerprint.
    """


@dataclass(frozen=True, eq=False)
class LoopEnd(Node):
    """Where the seed of a loop meets what its body gives, and the result leaves it."""

    linear: ClassVar[bool] = False
    reach: ClassVar[Reach] = "streams"
    seed: Node
    body: Node
    loop: Recurse

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.seed, self.body

    @cached_property
    def properties(self) -> Properties:
        known = self.loop.properties
        return Properties(known.insert_only, known.settled, keys=self.needs)

    @property
    def needs(self) -> tuple[str, ...]:
        """What has happened to a payload is known in one bucket."""
        return self.schema.names

    @property
    def round_column(self) -> str:
        """The column in front of what the body gives."""
        return self.body.schema.names[0]

    @property
    def liveliness(self) -> Liveliness:
        return self.loop.liveliness

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - all of them
        return self.all_of(side)

    def progress(self, inputs: list[Progress]) -> Progress:
        return Progress.together(inputs)

    def describe(self) -> str:
        return f"{self.loop.describe()}, across buckets"

    @property
    def marks(self) -> str:
        return self.loop.fingerprint

    def with_inputs(self, *inputs: Node) -> Node:
        return LoopEnd(inputs[0], inputs[1], self.loop)
