"""Loops across buckets: their start and their end (rule 9.2).

A loop without a key is cut open: its body becomes an ordinary part of the plan, so that its operators run in stages and
their inputs are brought together as usual. The body reads `LoopStart` and ends in `LoopEnd`. The output of `LoopEnd` is
the result of the loop, and also the output of `LoopStart` in the next trip.
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
    """The changes of a loop's result in the previous trip; the first column has the round of each change.

    Its name is the loop's fingerprint.
    """


@dataclass(frozen=True, eq=False)
class LoopEnd(Node):
    """The end of a loop: combines the seed and the output of the body, and gives the result."""

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
        """All columns: one bucket has all changes of a payload."""
        return self.schema.names

    @property
    def round_column(self) -> str:
        """The first column of the body's output, with the round."""
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
