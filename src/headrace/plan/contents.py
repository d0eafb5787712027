"""The content of windows as a stream (rule 8.4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError
from headrace.expr import Expr, col
from headrace.plan.base import Properties, Reach, refuse_reserved
from headrace.plan.instants import always_ends
from headrace.plan.per_window import PerWindow
from headrace.plan.windows import Grid
from headrace.schema import Field, Schema, Type

__all__ = ["Contents"]


@dataclass(frozen=True, eq=False)
class Contents(PerWindow):
    """Every event once for each window it belongs to, with the window's lifetime.

    `start` names a column for the start of the window, so that events of the same window can be joined.
    """

    reach: ClassVar[Reach] = "streams"
    passes_on: ClassVar[bool] = True
    start: str | None = None

    def __post_init__(self) -> None:
        if self.start is not None and (type(self.start) is not str or not self.start):
            raise PlanError(
                "the start of a window needs a column's name",
                given=self.start,
                allowed="a text, or nothing",
                instead="contents(start='window_start')",
            )
        if self.start in (*self.input.schema.names, *self.key_names):
            raise PlanError(
                f"there is a column {self.start!r} already",
                given=str(self.input.schema),
                allowed="a new name for the start of the window",
                instead=f"contents(start='{self.start}_of_window')",
            )
        refuse_reserved(self.schema, self.input.schema)
        self.check_policy()

    @cached_property
    def schema(self) -> Schema:
        """The keys that are not columns, then all columns, then the start of the window."""
        start = () if self.start is None else (Field(self.start, Type.LONG),)
        return Schema((*self.with_keys.fields, *start))

    @cached_property
    def each_alone(self) -> bool:
        """Whether an event's windows depend on that event alone.

        In a grid they do, except the last window of an event without an end, which depends on the others (rule 5.3).
        """
        return isinstance(self.window, Grid) and always_ends(self.input)

    @property
    def needs(self) -> tuple[str, ...] | None:
        """The keys; without keys, an event that is processed alone must meet its retraction, by all columns."""
        return self.input.schema.names if self.each_alone and not self.keys else super().needs

    @cached_property
    def properties(self) -> Properties:
        below, needs = self.input.properties, self.needs or ()
        together = below.keys is not None and set(below.keys) <= set(needs)
        # In a grid only an event's own retraction retracts its copies.
        insert_only = self.final or (below.insert_only and isinstance(self.window, Grid))
        return Properties(insert_only, settled=not self.prompt, keys=below.keys if together else needs)

    @property
    def filtered_before(self) -> dict[str, Expr]:
        own = {name: col(name) for name in self.input.schema.names} if self.each_alone else {}
        return {**super().filtered_before, **own}

    def takes(self, needed: set[str]) -> set[str]:
        return needed

    def describe(self) -> str:
        start = f" with start as {self.start}" if self.start is not None else ""
        return f"Contents{start} {self.window_text()}"
