"""Folds: aggregates that keep a state along the tuples of their group (rules 7.3 to 7.5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.modules import Module, Operator
from headrace.modules.fold import Folder, Kind, Recomputed
from headrace.plan.base import Properties, Reach, refuse_reserved
from headrace.plan.ordered import Frame, Ordered, Time, Tuples
from headrace.plan.per_window import PerWindow
from headrace.schema import STAMPS, Field, Schema

__all__ = ["Fold", "kind_of"]


def kind_of(frame: Frame) -> Kind:
    """The kind of a frame: by rows, by time, or unbounded."""
    if frame.rows is not None:
        return "rows"
    return "unbounded" if frame.range is None else "range"


@dataclass(frozen=True, eq=False)
class Fold(PerWindow):
    """The results of a module at each tuple of its group, in order, over a frame that tuples enter and leave.

    Each result has its tuple's columns and lifetime. A missing value is null; there may be any number of rows. With
    `active`, tuples leave a frame of time when their time is over, not when the next tuple comes; each result is then
    an instant, with the keys as its only other columns.
    """

    reach: ClassVar[Reach] = "streams"
    passes_on: ClassVar[bool] = True
    module: Module
    mapping: tuple[tuple[str, Expr], ...]
    #: The names of the module's output columns.
    names: tuple[str, ...]
    active: bool = False

    def __post_init__(self) -> None:
        frame = self.window
        assert isinstance(frame, Frame)
        self.module.check_types(dict(self.mapping), self.input.schema)
        if self.module.time_sensitive:
            raise PlanError(
                "a time-sensitive module cannot run in windows that tuples enter and leave",
                given=str(self.module),
                allowed="modules with time_sensitive = False",
                instead="pass the time as a field",
            )
        if self.active and frame.range is None:
            raise PlanError(
                "tuples leave by time alone only where the frame is one of time",
                given=str(frame),
                allowed="RANGE d PRECEDING ACTIVE EXPIRATION, over(range=..., active=True)",
                instead="RANGE 5 s PRECEDING",
            )
        if self.active and frame.slide is not None:
            raise PlanError(
                "a frame either slides or expires actively",
                given=str(frame),
                allowed="SLIDE s, or ACTIVE EXPIRATION",
                instead="leave out the slide",
            )
        taken = [f.name for f in self.answers if f.name in self.beside]
        if taken:
            raise PlanError(
                f"the stream has a column {taken[0]!r} already",
                given=", ".join(self.answers.names),
                allowed=f"names but {', '.join(name for name in self.beside.names if name not in STAMPS)}",
                instead=f"another name: {taken[0]}_over for a value; of rows, rename the stream's: {taken[0]}_in",
            )
        refuse_reserved(self.answers)

    @property
    def frame(self) -> Frame:
        assert isinstance(self.window, Frame)
        return self.window

    @cached_property
    def kind(self) -> Kind:
        """The kind of the frame."""
        return kind_of(self.frame)

    @property
    def folder(self) -> Folder:
        """The folder, which creates the states of groups."""
        return self.module.folder(self.kind) or Recomputed(self.module)

    @cached_property
    def beside(self) -> Schema:
        """The columns in front of the module's answers."""
        return Schema(self.key_fields) if self.active else self.with_keys

    @cached_property
    def answers(self) -> Schema:
        """The columns of the module's answers."""
        gives = self.module.gives  # type: ignore[attr-defined]
        types = [gives] if self.gives_value else [field.type for field in gives]
        return Schema(tuple(map(Field, self.names, types)))

    @property
    def gives_value(self) -> bool:
        """Whether the module returns one value per tuple, and not any number of rows."""
        return not isinstance(self.module, Operator)

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.beside.fields, *self.answers.fields))

    @property
    def modules(self) -> tuple[Module, ...]:
        return (self.module,)

    @cached_property
    def prompt(self) -> bool:
        # An answer starts with its tuple, or later; but the last tuple of a slot is known only at the end of the slot.
        return not isinstance(self.frame.slide, Time)

    @cached_property
    def properties(self) -> Properties:
        # Columns that are passed on do not determine the bucket once rows are brought together by the keys.
        return replace(super().properties, settled=self.active or self.input.properties.settled)

    @cached_property
    def by_slots(self) -> bool:
        """Whether the frames tumble by tuples, and the module returns rows tuple by tuple."""
        stepwise = self.module.folder(self.kind) is None and self.module.stepwise() is not None
        return self.frame.tumbles and isinstance(self.frame.slide, Tuples) and not self.gives_value and stepwise

    def remembers(self, window: Ordered) -> str:  # noqa: ARG002 - it is the frame
        return self.frame.remembered(by_slots=self.by_slots)

    def takes(self, needed: set[str]) -> set[str]:  # noqa: ARG002 - a frame looks at all columns
        return self.all_of(0)

    def describe(self) -> str:
        fields = ", ".join(f"{name}: {expr}" for name, expr in self.mapping)
        active = ", expiring actively" if self.active else ""
        return f"Fold {', '.join(self.names)} = {self.module}[{fields}] {self.window_text()}{active}"
