"""Aggregates per group and window, in one step or in two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError
from headrace.expr import AggregateCall, Expr, col, split_aggregates
from headrace.expr.aggregates import AGGREGATES, computed
from headrace.expr.ordered_calls import OrderedCall
from headrace.modules import Module, ModuleCall
from headrace.plan.base import OneInput, Properties, Reach, refuse_reserved, renamed
from headrace.plan.liveliness import AS_INPUT, Liveliness
from headrace.plan.ordered import Frame
from headrace.plan.per_window import PerWindow
from headrace.plan.windows import Grid, Timestamping
from headrace.schema import NUMBERED, Field, Schema

__all__ = ["Aggregate", "Combine", "Merge"]


@dataclass(frozen=True, eq=False)
class Aggregate(PerWindow):
    """Aggregates per group and window; where possible, the optimizer splits it into `Combine` and `Merge`."""

    passes_on: ClassVar[bool] = False
    outputs: tuple[tuple[str, Expr], ...]

    def __post_init__(self) -> None:
        if not self.outputs:
            raise PlanError("aggregate needs at least one output", instead="aggregate(n=hr.count())")
        ordered = [call for call in self.split[0].values() if isinstance(call, OrderedCall)]
        if ordered:
            raise PlanError(
                f"{ordered[0].function} depends on an order, which only over(...) has",
                given=str(ordered[0]),
                allowed="over(...) of events in the order of time, over(by=...) of events that last",
                instead=f"group_by(...).over(...).aggregate({self.outputs[0][0]}={ordered[0]})",
            )
        for name, expr in self.outputs:
            outside = sorted(set(_columns_outside_calls(expr)))
            if outside:
                raise PlanError(
                    f"{name!r} uses {', '.join(outside)} outside an aggregate function",
                    given=str(expr),
                    instead=f"hr.max({outside[0]!r}), or group_by({outside[0]!r})",
                )
        refuse_reserved(self.schema, NUMBERED if isinstance(self.window, Frame) else None)
        self.check_policy()

    @cached_property
    def schema(self) -> Schema:
        below = self.input.schema
        return Schema((*self.key_fields, *(Field(name, expr.type(below)) for name, expr in self.outputs)))

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        return tuple(call.module for call in self.split[0].values() if isinstance(call, ModuleCall))

    @property
    def _own_times(self) -> tuple[Timestamping, ...]:
        return ("time_bound",) if self.modules else super()._own_times

    @property
    def splits(self) -> bool:
        return isinstance(self.window, Grid) and not self.modules

    @cached_property
    def split(self) -> tuple[dict[str, AggregateCall], dict[str, Expr]]:
        """The aggregate calls by internal column, and the outputs as expressions over those columns."""
        return split_aggregates({name: computed(expr, self.input.schema) for name, expr in self.outputs})

    @property
    def reach(self) -> Reach:
        return self.at_instants

    @cached_property
    def adds_up(self) -> bool:
        """Whether all aggregates can be updated by adding and subtracting, without the values."""
        return not self.modules and all(AGGREGATES[call.function].adds_up for call in self.split[0].values())

    @cached_property
    def by_sums(self) -> bool:
        """Whether the answers of runs of tuples are differences of running sums."""
        return self.adds_up and bool(self.split[0])

    def takes(self, needed: set[str]) -> set[str]:  # noqa: ARG002 - all outputs are computed
        return set().union(*(expr.columns() for _, expr in self.outputs))

    def describe(self) -> str:
        outputs = ", ".join(f"{name} = {expr}" for name, expr in self.outputs)
        return f"Aggregate {outputs} {self.window_text()}"


def _columns_outside_calls(expr: Expr) -> Iterator[str]:
    if isinstance(expr, AggregateCall):
        return
    if not expr.children:
        yield from expr.columns()
    for child in expr.children:
        yield from _columns_outside_calls(child)


@dataclass(frozen=True, eq=False)
class Combine(OneInput):
    """The first step of an aggregate: partial results per group and span of windows, where the rows are."""

    reach: ClassVar[Reach] = "streams"
    aggregate: Aggregate

    @cached_property
    def schema(self) -> Schema:
        return Schema(self.aggregate.schema.fields[: len(self.aggregate.keys)])

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(below.insert_only, below.settled, renamed(below.keys, self.aggregate.keys))

    @property
    def liveliness(self) -> Liveliness:
        return AS_INPUT

    def uses(self, side: int, needed: set[str]) -> set[str]:
        return self.aggregate.uses(side, needed)

    @property
    def marks(self) -> str:
        return self.aggregate.marks

    def describe(self) -> str:
        return f"Combine for {self.aggregate.describe()}"


@dataclass(frozen=True, eq=False)
class Merge(OneInput):
    """The second step: merges partial results by group, and gives and corrects answers.

    All keys distinguish groups, but rows may be brought together by some of them: `by`, if a rule has chosen it.
    """

    linear: ClassVar[bool] = False
    reach: ClassVar[Reach] = "streams"
    aggregate: Aggregate
    by: tuple[str, ...] | None = None

    @cached_property
    def schema(self) -> Schema:
        return self.aggregate.schema

    @cached_property
    def properties(self) -> Properties:
        below = renamed(self.input.properties.keys, tuple((name, col(name)) for name in self.aggregate.key_names))
        keys = self.needs if below is None else below
        return Properties(insert_only=False, settled=self.aggregate.properties.settled, keys=keys)

    @property
    def needs(self) -> tuple[str, ...] | None:
        return self.aggregate.key_names if self.by is None else self.by

    @property
    def liveliness(self) -> Liveliness:
        return self.aggregate.liveliness

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - all of them
        return self.all_of(side)

    @property
    def marks(self) -> str:
        return self.aggregate.marks

    def describe(self) -> str:
        together = "" if self.by is None else f", brought together by {', '.join(self.by)}"
        return f"Merge for {self.aggregate.describe()}{together}"
