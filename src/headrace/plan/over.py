"""Aggregates over the frame of each tuple: `f(x) OVER (...)` (rule 7.5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.modules import Module, ModuleCall
from headrace.modules.folding import PaneCode
from headrace.plan.aggregate import Aggregate
from headrace.plan.base import Properties, Reach
from headrace.plan.ordered import Frame, Ordered, Time, Tuples
from headrace.plan.paned import pane_size, paned_frames
from headrace.plan.per_window import PerWindow
from headrace.schema import NUMBERED, STAMPS, Schema

__all__ = ["Over"]


@dataclass(frozen=True, eq=False)
class Over(PerWindow):
    """Each tuple with aggregates over the frame that ends with it, and with the tuple's lifetime.

    Tuples that differ only in their ends are ordered by their ends. With `numbers`, each result also has the number of
    its tuple in the group, which keeps results in the order of tuples from node to node.
    """

    reach: ClassVar[Reach] = "streams"
    passes_on: ClassVar[bool] = True
    outputs: tuple[tuple[str, Expr], ...]
    numbers: bool = False

    def __post_init__(self) -> None:
        assert isinstance(self.window, Frame)
        taken = [name for name, _ in self.outputs if name in self.with_keys]
        if taken:
            raise PlanError(
                f"the stream has a column {taken[0]!r} already",
                given=", ".join(name for name, _ in self.outputs),
                allowed=f"names but {', '.join(name for name in self.with_keys.names if name not in STAMPS)}",
                instead=f"aggregate({taken[0]}_over=...)",
            )
        self.aggregate  # noqa: B018 - it checks the rest

    @property
    def frame(self) -> Frame:
        assert isinstance(self.window, Frame)
        return self.window

    @cached_property
    def aggregate(self) -> Aggregate:
        """The aggregates of a frame."""
        return Aggregate(self.input, self.keys, self.window, self.outputs, policy=self.policy)

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.with_keys.fields, *self.answers.fields))

    @cached_property
    def answers(self) -> Schema:
        """The columns beside those of the tuples."""
        numbers = NUMBERED.fields if self.numbers else ()
        return Schema((*numbers, *self.aggregate.schema.fields[len(self.keys) :]))

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        return self.aggregate.modules

    @cached_property
    def prompt(self) -> bool:
        # A result starts with its tuple; but the last tuple of a slot of time is known only at the end of the slot.
        return not isinstance(self.frame.slide, Time)

    @cached_property
    def properties(self) -> Properties:
        # Columns that are passed on do not determine the bucket once rows are brought together by the keys.
        return replace(super().properties, settled=self.input.properties.settled)

    @cached_property
    def by_slots(self) -> bool:
        """Whether the frames tumble by tuples, and all aggregates can be computed tuple by tuple."""
        calls = self.aggregate.split[0].values()
        stepwise = all(isinstance(call, ModuleCall) and call.module.stepwise() is not None for call in calls)
        return self.frame.tumbles and isinstance(self.frame.slide, Tuples) and stepwise

    @cached_property
    def pane_code(self) -> PaneCode | None:
        """The code that computes panes and windows of them; None if there are no panes, or no such code."""
        calls = list(self.aggregate.split[0].values())
        size = pane_size(self.frame, calls, self.input.schema)
        if size == 1 or len(calls) > 1 or not isinstance(calls[0], ModuleCall) or self.policy.on_error != "fail":
            return None
        return calls[0].module.by_panes(*paned_frames(self.frame, size))

    def remembers(self, window: Ordered) -> str:  # noqa: ARG002 - it is the frame
        if self.pane_code is not None:
            return f"the results of {self.pane_code.count} panes, {self.frame.remembered(by_slots=True)}"
        return self.frame.remembered(by_slots=self.by_slots, total=self.aggregate.by_sums)

    def takes(self, needed: set[str]) -> set[str]:  # noqa: ARG002 - a frame looks at all columns
        return self.all_of(0)

    def describe(self) -> str:
        outputs = ", ".join(f"{name} = {expr}" for name, expr in self.outputs)
        return f"Over {outputs} {self.window_text()}" + (", numbered" if self.numbers else "")
