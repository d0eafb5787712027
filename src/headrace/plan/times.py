"""An event's times as columns of its payload (rule 4.10).

A start never changes: the column is added where the rows are. An end may be corrected, and then the column has another
value: what was the end of a lifetime, changed at that end, is now another payload, changed from its start on. So the
output CTI must wait at the start of every event whose end may still change. Where lifetimes never change once given
(`Properties.settled`) nothing has to wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError
from headrace.expr import Expr, col
from headrace.expr.times import EventTime, event_times
from headrace.plan.base import Node, Properties, Reach
from headrace.plan.group_apply import GroupApply
from headrace.plan.liveliness import NOT_ENDED, Liveliness
from headrace.plan.ordered import Frame
from headrace.plan.output import Final
from headrace.plan.per_window import PerWindow
from headrace.plan.span import EachAlone, Select, Where
from headrace.schema import Field, Schema, Type

__all__ = ["EventTimes", "HeldEventTimes", "only", "with_times"]


@dataclass(frozen=True, eq=False)
class EventTimes(EachAlone):
    """Adds an event's start and end as the last columns, under these names; None leaves one out.

    As a DATETIME, a time before the year 1 is its first instant, and one after 9999 its last; `ticks` are exact.
    """

    reach: ClassVar[Reach] = "event, another time"
    keeps_start: ClassVar[bool] = True
    keeps_events: ClassVar[bool] = False
    instants: ClassVar[None] = None
    ends: ClassVar[None] = None
    start: str | None = None
    end: str | None = None
    ticks: bool = False

    def __post_init__(self) -> None:
        if self.end is not None and self.linear and not self.input.properties.settled:
            raise PlanError("ends that may change must be held", given=self.describe(), instead="HeldEventTimes")

    @property
    def type(self) -> Type:
        """The type of the columns."""
        return Type.DATETIME if self.input.dates and not self.ticks else Type.LONG

    @property
    def added(self) -> tuple[str, ...]:
        """The names of the new columns."""
        return tuple(name for name in (self.start, self.end) if name is not None)

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, *(Field(name, self.type) for name in self.added)))

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - it has one input
        return needed - set(self.added)

    def describe(self) -> str:
        shown = [f"{moment} as {name}" for moment, name in (("start", self.start), ("end", self.end)) if name]
        return f"{type(self).__name__} {', '.join(shown)}"


@dataclass(frozen=True, eq=False)
class HeldEventTimes(EventTimes):
    """The same where ends may change: the output CTI waits for the starts of events that have not ended."""

    linear: ClassVar[bool] = False
    reach: ClassVar[Reach] = "event, back in time"

    @property
    def needs(self) -> tuple[str, ...] | None:
        """The changes of one event must meet; rows that are together by some columns stay where they are."""
        return self.input.properties.keys or self.input.schema.names

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(below.insert_only, settled=True, keys=self.needs if below.keys is None else below.keys)

    @property
    def liveliness(self) -> Liveliness:
        if self.input.properties.settled:
            return super().liveliness
        cti, delay = "start of the oldest event that has not ended", "as long as events last"
        return Liveliness(cti, delay, NOT_ENDED).advising(
            "what is computed from end() is final when the end is; extend(...), cap_duration(...) and point_at_end() "
            "do not wait for it"
        )


def with_times(node: Node, exprs: Sequence[Expr], *, ticks: bool = False) -> tuple[Node, list[Expr]]:
    """The plan with the times that expressions use as columns, and the expressions over these columns.

    A plan whose expressions use none stays as it is. `only` takes the columns away again.
    """
    times = event_times(exprs)
    if not times:
        return node, list(exprs)
    for time in times:
        _check(node, time)
    kinds = {time.at_end: _free(f"{'end' if time.at_end else 'start'}()", node.schema) for time in times}
    kind = HeldEventTimes if True in kinds and not node.properties.settled else EventTimes
    added = kind(node, kinds.get(False), kinds.get(True), ticks)

    def resolved(expr: Expr) -> Expr:
        return col(kinds[expr.at_end]) if isinstance(expr, EventTime) else expr

    return added, [expr.transform(resolved) for expr in exprs]


def only(node: Node, names: Sequence[str]) -> Node:
    """The plan with these of its columns, in this order."""
    if tuple(node.schema.names) == tuple(names):
        return node
    return Select(node, tuple((name, col(name)) for name in names))


def _free(name: str, schema: Schema) -> str:
    while name in schema:
        name += "_"
    return name


def _check(node: Node, time: EventTime) -> None:
    if time.side == "right":
        raise PlanError(
            f"there is one stream here, and {time} is about the other of a join",
            given=str(time),
            allowed="of='right' in the where= of a join",
            instead=f"hr.{time.moment}()",
        )
    if time.on_window and not _lasts_as_its_window(node):
        raise PlanError(
            f"{time} is known where answers last as long as their window",
            given=node.describe(),
            allowed="answers of window(...) with timestamping='align', and select, where, final after it",
            instead=f"hr.{time.moment.removeprefix('window_')}(), the event's own; or {time} in aggregate(...)",
        )


def _lasts_as_its_window(node: Node) -> bool:
    """Whether the events of a stream are answers of windows and last as long as these."""
    while isinstance(node, (Where, Select, EventTimes, GroupApply, Final)):
        node = node.inputs[0]
    aligned = isinstance(node, PerWindow) and node.timestamping == "align"
    return aligned and not isinstance(node.window, Frame)  # type: ignore[attr-defined]
