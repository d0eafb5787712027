"""Aggregates over what precedes each tuple: `f(x) OVER (...)` (rule 7.5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headrace.errors import PlanError
from headrace.expr import Expr, col
from headrace.modules import Module
from headrace.plan.aggregate import Aggregate
from headrace.plan.base import Properties, refuse_reserved, renamed
from headrace.plan.ordered import Frame
from headrace.plan.windowed import PerWindow
from headrace.schema import Schema

__all__ = ["Over"]


@dataclass(frozen=True, eq=False)
class Over(PerWindow):
    """Each tuple with aggregates over the frame that ends with it; it lasts as long as the tuple does.

    Of tuples that are equal but for their ends, the one that ends first comes first.
    """

    outputs: tuple[tuple[str, Expr], ...]

    def __post_init__(self) -> None:
        assert isinstance(self.window, Frame)
        taken = [name for name, _ in self.outputs if name in self.with_keys]
        if taken:
            raise PlanError(
                f"the stream has a column {taken[0]!r} already",
                given=", ".join(name for name, _ in self.outputs),
                allowed=f"names but {', '.join(self.with_keys.names)}",
                instead=f"aggregate({taken[0]}_over=...)",
            )
        refuse_reserved(Schema(self.aggregate.schema.fields[len(self.keys) :]))

    @cached_property
    def aggregate(self) -> Aggregate:
        """What is computed of a frame."""
        return Aggregate(self.input, self.keys, self.window, self.outputs, policy=self.policy)

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.with_keys.fields, *self.aggregate.schema.fields[len(self.keys) :]))

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        return self.aggregate.modules

    @cached_property
    def prompt(self) -> bool:
        return True  # a result starts where its tuple does

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        keys = renamed(below.keys, (*self.keys, *((name, col(name)) for name in self.input.schema.names)))
        brought = self.key_names if self.needs or not self.keys else ()
        return Properties(insert_only=False, settled=below.settled, keys=brought if keys is None else keys)

    def describe(self) -> str:
        outputs = ", ".join(f"{name} = {expr}" for name, expr in self.outputs)
        return f"Over {outputs} {self.over()}"
