"""What an event of a ranking sees of the events around it: an aggregate of a frame, or the value of one event in it.

A frame goes from `start` to `end`, which are places (`rows`) or distances (`range`) in the order of the ranking:
negative before the event, positive behind it, 0 its own place, None the first or the last event of all. In `range`, 0
is all events that the order does not distinguish from the event; other distances are those of the values of the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.errors import PlanError
from headrace.expr import AggregateCall, Expr, has_aggregates
from headrace.modules import ModuleCall
from headrace.schema import Field, Schema

__all__ = ["Around", "Distance", "Unit"]

Unit = Literal["rows", "range"]
Distance = int | float | None


@dataclass(frozen=True)
class Around:
    """An aggregate of a frame; with `nth`, an expression over the frame's nth event, counted from its end if negative.

    Without such an event the value is null; of an empty frame an aggregate is that of no events.
    """

    value: Expr
    unit: Unit = "rows"
    start: Distance = None
    end: Distance = 0
    nth: int | None = None

    def __str__(self) -> str:
        wanted = str(self.value) if self.nth is None else f"{self.value} of event {self.nth}"
        return f"{wanted} of {self.unit} {_side(self.start, 'first')} to {_side(self.end, 'last')}"

    @property
    def measures(self) -> bool:
        """Whether its frame depends on distances of values."""
        return self.unit == "range" and bool(self.start or self.end)

    def field(self, name: str, below: Schema) -> Field:
        """The column with this answer."""
        return Field(name, self.value.type(below))

    def check(self, by: Sequence[Expr], below: Schema) -> None:
        """Check it against the order and the columns of a ranking."""
        call = self.value
        if (self.nth is None) != isinstance(call, AggregateCall) or isinstance(call, ModuleCall):
            raise PlanError("a frame has a built-in aggregate, or the value of one event", given=str(call))
        if self.nth is not None and (has_aggregates(call) or self.nth == 0):
            raise PlanError("one event of a frame is counted from 1, or from -1", given=str(self))
        call.type(below)
        if self.start is not None and self.end is not None and self.start > self.end:
            raise PlanError("a frame ends before it begins", given=str(self), allowed="from a lower to a higher place")
        if not self.measures:
            return
        kind = by[0].type(below)
        if len(by) != 1 or not (kind.is_integer or kind.is_floating):
            raise PlanError(
                "a frame of distances needs an order by one number",
                given=", ".join(f"{expr} {expr.type(below).value}" for expr in by),
                allowed="one column of whole numbers, FLOAT or DOUBLE",
                instead="a frame of rows, or of the events with equal values",
            )
        if kind.is_integer and any(isinstance(side, float) for side in (self.start, self.end)):
            raise PlanError(
                f"the distances of {kind.value} are whole numbers", given=str(self), allowed="a whole number"
            )


def _side(distance: Distance, unbounded: str) -> str:
    return unbounded if distance is None else str(distance)
