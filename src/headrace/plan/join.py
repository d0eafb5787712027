"""Joins: pairs of events whose lifetimes overlap (rule 4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.plan.base import Node, Properties
from headrace.progress import Progress
from headrace.schema import Field, Schema, Type

__all__ = ["Join"]


@dataclass(frozen=True, eq=False)
class Join(Node):
    """Pairs of a left and a right event with equal keys (nulls equal nothing) whose lifetimes overlap.

    The payload is the left one's, then the right one's without keys of the same name; a name that is taken gets
    `_right` behind it. `where` may use all of these columns.
    """

    linear: ClassVar[bool] = False
    left: Node
    right: Node
    on: tuple[tuple[str, str], ...] = ()
    where: Expr | None = None

    def __post_init__(self) -> None:
        for mine, theirs in self.on:
            a, b = self.left.schema[mine].type, self.right.schema[theirs].type
            if a is not b and not (a.is_integer and b.is_integer) and not (a.is_text and b.is_text):
                raise PlanError(
                    f"join keys must have the same type: {mine} is {a.value}, {theirs} is {b.value}",
                    given=f"{mine} = {theirs}",
                    instead=f"select(..., {theirs}=col({theirs!r}).cast({a.value!r})) before the join",
                )
        found = Type.BOOLEAN if self.where is None else self.where.type(self.schema)
        if found is not Type.BOOLEAN:
            raise PlanError("where needs a BOOLEAN", given=f"{self.where} of type {found.value}")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.left, self.right

    @cached_property
    def right_columns(self) -> dict[str, str]:
        """The columns taken from the right, and what they are called in the output."""
        shared = {theirs for mine, theirs in self.on if mine == theirs}
        kept = [name for name in self.right.schema.names if name not in shared]
        taken = set(self.left.schema.names)
        names = {}
        for name in kept:
            new = name
            while new in taken:
                new += "_right"
            taken.add(new)
            names[name] = new
        return names

    @cached_property
    def schema(self) -> Schema:
        right = (Field(new, self.right.schema[name].type) for name, new in self.right_columns.items())
        return Schema((*self.left.schema.fields, *right))

    @cached_property
    def properties(self) -> Properties:
        left, right = self.left.properties, self.right.properties
        keys = tuple(mine for mine, _ in self.on)
        return Properties(left.insert_only and right.insert_only, left.settled and right.settled, keys)

    def need(self, position: int) -> tuple[str, ...] | None:
        return tuple(pair[position] for pair in self.on)

    def progress(self, inputs: list[Progress]) -> Progress:
        return Progress.together(inputs)

    def describe(self) -> str:
        keys = " and ".join(f"{a} = {b}" for a, b in self.on) or "everything"
        return f"Join on {keys}" + (f" where {self.where}" if self.where is not None else "")

    def with_inputs(self, *inputs: Node) -> Node:
        return Join(inputs[0], inputs[1], self.on, self.where)
