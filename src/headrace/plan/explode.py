"""The elements of a list, one row for each (rule 4.12)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError
from headrace.plan.base import Reach, refuse_reserved
from headrace.plan.span import EachAlone
from headrace.schema import Field, Schema, Type

__all__ = ["Explode"]


@dataclass(frozen=True, eq=False)
class Explode(EachAlone):
    """Gives a row for each element of a list, which is a new last column, with its place from 1 if that has a name.

    The rows have the lifetime of their event. A list that is empty or NULL gives none, unless `outer`.
    """

    reach: ClassVar[Reach] = "event"
    keeps_start: ClassVar[bool] = True
    keeps_events: ClassVar[bool] = False
    instants: ClassVar[None] = None
    ends: ClassVar[None] = None
    column: str
    element: str
    position: str | None = None
    #: Whether a list without elements gives a row, whose element is NULL.
    outer: bool = False

    def __post_init__(self) -> None:
        kind = self.input.schema[self.column].type
        if not kind.is_array:
            raise PlanError(
                f"{self.column} is {kind.value}, and only a list has elements",
                given=f"{self.column} {kind.value}",
                allowed="a column of type ARRAY<type>",
            )
        refuse_reserved(self.schema, self.input.schema)

    @property
    def added(self) -> tuple[Field, ...]:
        """The new columns."""
        element = Field(self.element, self.input.schema[self.column].type.element)
        return (element,) if self.position is None else (element, Field(self.position, Type.LONG))

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, *self.added))

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - it has one input
        return needed - {field.name for field in self.added} | {self.column}

    def describe(self) -> str:
        place = f", {self.position}" if self.position is not None else ""
        outer = ", or NULL" if self.outer else ""
        return f"Explode {self.column} as {self.element}{place}{outer}"
