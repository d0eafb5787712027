"""Edge events: from samples to a signal (rule 1.2).

Samples of one key at the same time all last, unless the node has an `order`: then only the last of them does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.plan.base import Node, OneInput, Properties, Reach
from headrace.plan.liveliness import AS_INPUT, Liveliness
from headrace.schema import Schema, Type

__all__ = ["EdgeLifetimes"]


@dataclass(frozen=True, eq=False)
class EdgeLifetimes(OneInput):
    """Turns samples (points) into a signal: each lasts until the next sample of its key."""

    linear: ClassVar[bool] = False
    reach: ClassVar[Reach] = "streams"
    key: tuple[str, ...]
    closes: Expr | None = None
    #: Only the latest sample of each key.
    latest: bool = False
    #: With `latest`: the last sample of every key is kept, so that a key that loses its later samples has it again.
    kept: bool = False
    #: Columns of whole numbers. Of several samples of a key at one time only the greatest by these columns lasts, or
    #: closes the signal.
    order: tuple[str, ...] = ()
    #: Columns that are not passed on. Unlike a `Select` above, this leaves it to the readers which others are read.
    hides: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.order:
            if not self.input.schema[name].type.is_integer:
                raise PlanError("samples are ordered by whole numbers", given=str(self.input.schema[name]))
        kind = Type.BOOLEAN if self.closes is None else self.closes.type(self.input.schema)
        if kind is not Type.BOOLEAN:
            raise PlanError(
                "closes needs a BOOLEAN", given=f"{self.closes} of type {kind.value}", instead=f"({self.closes}) > 0"
            )
        if set(self.hides) & set(self.key):
            raise PlanError("the key of samples is passed on", given=self.describe())

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(field for field in self.input.schema if field.name not in self.hides))

    @property
    def needs(self) -> tuple[str, ...] | None:
        return self.key

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties.keys
        keys = below if below is not None and set(below) <= set(self.key) else self.key
        return Properties(insert_only=False, settled=False, keys=keys)

    @property
    def liveliness(self) -> Liveliness:
        return AS_INPUT.remembering("last sample per key, samples after the CTI")

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - it has one input
        return needed | set(self.key) | set(self.order) | (self.closes.columns() if self.closes is not None else set())

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:  # noqa: ARG002
        return replace(self, input=inputs[0], key=(*keys, *self.key))

    def describe(self) -> str:
        closes = f", closed by {self.closes}" if self.closes is not None else ""
        name = ("Latest, kept," if self.kept else "Latest") if self.latest else "EdgeLifetimes"
        order = f", at one time the last by {', '.join(self.order)}" if self.order else ""
        hides = f", without {', '.join(self.hides)}" if self.hides else ""
        return f"{name} by {', '.join(self.key) or 'nothing'}{closes}{order}{hides}"
