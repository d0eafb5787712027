"""Span operators (rule 4), and the union of streams."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError
from headrace.expr import Expr, col
from headrace.plan.base import Node, OneInput, Properties, Reach, refuse_reserved, renamed
from headrace.plan.liveliness import AS_INPUT, Liveliness, of_all_inputs
from headrace.progress import Progress
from headrace.schema import Field, Schema, Type
from headrace.time import add_one, format_duration

__all__ = [
    "CapDuration", "EachAlone", "Extend", "PointAtEnd", "PointAtStart", "Select", "SetDuration", "Shift", "Union",
    "Where", "keys_first",
]  # fmt: skip


_FINITE = 2**60  # ticks: far beyond all calendars, and the sum with any of their times is still finite


@dataclass(frozen=True, eq=False)
class EachAlone(OneInput):
    """An operator that processes each event alone and passes its payload on, so that groups do not matter."""

    @property
    @abstractmethod
    def keeps_start(self) -> bool:
        """Whether events keep their starts."""

    @property
    @abstractmethod
    def keeps_events(self) -> bool:
        """Whether every event gives an event: where events get another time, the operator has no effect."""

    @property
    def liveliness(self) -> Liveliness:
        return AS_INPUT

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - it has one input
        return needed

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:  # noqa: ARG002
        return self.with_inputs(*inputs)


@dataclass(frozen=True, eq=False)
class Where(EachAlone):
    """Keeps events for which the predicate is true."""

    reach: ClassVar[Reach] = "event"
    keeps_start: ClassVar[bool] = True
    keeps_events: ClassVar[bool] = False
    instants: ClassVar[None] = None
    ends: ClassVar[None] = None
    predicate: Expr

    def __post_init__(self) -> None:
        kind = self.predicate.type(self.input.schema)
        if kind is not Type.BOOLEAN:
            raise PlanError(
                "where needs a BOOLEAN",
                given=f"{self.predicate} of type {kind.value}",
                instead=f"({self.predicate}) > 0",
            )

    def uses(self, side: int, needed: set[str]) -> set[str]:
        return super().uses(side, needed) | self.predicate.columns()

    def describe(self) -> str:
        return f"Where {self.predicate}"


@dataclass(frozen=True, eq=False)
class Select(OneInput):
    """Computes new payloads: each output column is an expression over the input's."""

    reach: ClassVar[Reach] = "event"
    instants: ClassVar[None] = None
    ends: ClassVar[None] = None
    outputs: tuple[tuple[str, Expr], ...]

    def __post_init__(self) -> None:
        if not self.outputs:
            raise PlanError("select needs at least one column", instead="select('symbol', price2=col('price') * 2)")
        refuse_reserved(self.schema, self.input.schema)

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(Field(name, expr.type(self.input.schema)) for name, expr in self.outputs))

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(below.insert_only, below.settled, renamed(below.keys, self.outputs))

    @property
    def liveliness(self) -> Liveliness:
        return AS_INPUT

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - all outputs are computed
        return set().union(*(expr.columns() for _, expr in self.outputs))

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:  # noqa: ARG002
        return Select(inputs[0], (*((name, col(name)) for name in keys), *self.outputs))

    def describe(self) -> str:
        return "Select " + ", ".join(
            f"{name} = {expr}" if str(expr) != str(col(name)) else name for name, expr in self.outputs
        )


@dataclass(frozen=True, eq=False)
class Shift(EachAlone):
    """Moves lifetimes: `[LE + d, RE + d)`."""

    keeps_start: ClassVar[bool] = False
    keeps_events: ClassVar[bool] = True
    instants: ClassVar[None] = None
    ends: ClassVar[None] = None
    by: int

    @property
    def reach(self) -> Reach:
        return "event" if self.by >= 0 else "event, back in time"

    def progress(self, inputs: list[Progress]) -> Progress:
        return Progress(add_one(inputs[0].cti, self.by), add_one(inputs[0].high, self.by))

    @property
    def liveliness(self) -> Liveliness:
        return Liveliness(f"its input's, moved by {format_duration(self.by)}", "none", "none")

    def describe(self) -> str:
        return f"Shift by {format_duration(self.by)}"


@dataclass(frozen=True, eq=False)
class SetDuration(EachAlone):
    """Gives every event the same duration: `[LE, LE + d)`."""

    reach: ClassVar[Reach] = "event, another time"
    keeps_start: ClassVar[bool] = True
    keeps_events: ClassVar[bool] = True
    duration: int

    def __post_init__(self) -> None:
        if self.duration <= 0:
            raise PlanError("a duration must be positive", given=self.duration, instead="set_duration('10 s')")

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(below.insert_only, settled=True, keys=below.keys)

    @property
    def ends(self) -> bool:
        return self.duration < _FINITE

    def describe(self) -> str:
        return f"SetDuration {format_duration(self.duration)}"


@dataclass(frozen=True, eq=False)
class Extend(EachAlone):
    """Moves ends: `[LE, RE + d)`; events that become empty are dropped."""

    keeps_start: ClassVar[bool] = True
    by: int

    @property
    def reach(self) -> Reach:
        return "event, another time" if self.by >= 0 else "event, back in time"

    @property
    def keeps_events(self) -> bool:
        return self.by >= 0

    def progress(self, inputs: list[Progress]) -> Progress:
        return Progress(add_one(inputs[0].cti, min(0, self.by)), inputs[0].high)

    @property
    def liveliness(self) -> Liveliness:
        late = format_duration(-self.by)
        return Liveliness(f"its input's less {late}", late, "none") if self.by < 0 else super().liveliness

    def describe(self) -> str:
        return f"Extend by {format_duration(self.by)}"


@dataclass(frozen=True, eq=False)
class PointAtStart(EachAlone):
    """Keeps the first instant of every event."""

    reach: ClassVar[Reach] = "event, another time"
    keeps_start: ClassVar[bool] = True
    keeps_events: ClassVar[bool] = True
    instants: ClassVar[bool] = True
    ends: ClassVar[bool] = True

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(below.insert_only, settled=True, keys=below.keys)


@dataclass(frozen=True, eq=False)
class PointAtEnd(EachAlone):
    """Keeps the instant at which an event ends, `[RE, RE + h)`; an event without an end gives none.

    If an event's end moves, its point is deleted and another inserted, so no lifetime ever changes; and a point before
    the CTI stands for an end that is final.
    """

    reach: ClassVar[Reach] = "event, another time"
    keeps_start: ClassVar[bool] = False
    keeps_events: ClassVar[bool] = False
    instants: ClassVar[bool] = True
    ends: ClassVar[bool] = True

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(below.insert_only, settled=True, keys=below.keys)


@dataclass(frozen=True, eq=False)
class CapDuration(EachAlone):
    """Lets no event last longer than a duration: `[LE, min(RE, LE + d))`."""

    reach: ClassVar[Reach] = "event, another time"
    keeps_start: ClassVar[bool] = True
    keeps_events: ClassVar[bool] = True
    duration: int

    def __post_init__(self) -> None:
        if self.duration <= 0:
            raise PlanError("a duration must be positive", given=self.duration, instead="cap_duration('10 s')")

    @property
    def ends(self) -> bool:
        return self.duration < _FINITE

    def describe(self) -> str:
        return f"CapDuration {format_duration(self.duration)}"


@dataclass(frozen=True, eq=False)
class Union(Node):
    """The bag union of streams with equal columns."""

    reach: ClassVar[Reach] = "event"
    instants: ClassVar[None] = None
    ends: ClassVar[None] = None
    parts: tuple[Node, ...]

    def __post_init__(self) -> None:
        first = self.parts[0].schema
        for other in self.parts[1:]:
            if other.schema != first:
                raise PlanError(
                    "union needs equal columns",
                    given=str(other.schema),
                    allowed=str(first),
                    instead="select the same columns first",
                )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    @cached_property
    def properties(self) -> Properties:
        known = [part.properties for part in self.parts]
        keys = known[0].keys if all(p.keys == known[0].keys for p in known) else None
        return Properties(all(p.insert_only for p in known), all(p.settled for p in known), keys)

    @property
    def liveliness(self) -> Liveliness:
        return of_all_inputs()

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - all inputs alike
        return needed or {self.schema.names[0]}  # its inputs must agree on which column they keep

    def progress(self, inputs: list[Progress]) -> Progress:
        return Progress.together(inputs)

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:  # noqa: ARG002
        if all(derived):
            return Union(inputs)
        outside = next(part for part, inside in zip(self.parts, derived, strict=True) if not inside)
        raise PlanError(
            "a union inside apply needs streams of the group: events from outside belong to no group",
            given=outside.describe(),
            allowed="streams made from the group's stream",
            instead="unite the streams before group_by(...), or after apply(...)",
        )

    def with_inputs(self, *inputs: Node) -> Node:
        # A rule may have narrowed some inputs more than others: a column that one of them lacks is not needed.
        names = [name for name in inputs[0].schema.names if all(name in other.schema for other in inputs)]
        plain = tuple((name, col(name)) for name in names)
        return Union(tuple(part if part.schema.names == tuple(names) else Select(part, plain) for part in inputs))


def keys_first(node: Node, keys: tuple[str, ...]) -> Node:
    """`node` with these of its columns in front of the others."""
    names = node.schema.names
    if names[: len(keys)] == keys:
        return node
    return Select(node, tuple((name, col(name)) for name in (*keys, *(n for n in names if n not in keys))))
