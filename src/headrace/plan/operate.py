"""Users' operators per group and window, and the top of a ranking (rules 6.1 to 6.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.modules import Module, Operator
from headrace.plan.around import Around
from headrace.plan.base import Reach, refuse_reserved
from headrace.plan.instants import always_ends
from headrace.plan.per_window import PerWindow
from headrace.plan.windows import Grid, Timestamping
from headrace.schema import Field, Schema, Type
from headrace.time import INFINITY

__all__ = ["PLACES", "Operate", "Place", "Top"]


@dataclass(frozen=True, eq=False)
class Operate(PerWindow):
    """A user's operator: from the events of a window to any number of outputs."""

    reach: ClassVar[Reach] = "streams"
    passes_on: ClassVar[bool] = False
    module: Operator
    mapping: tuple[tuple[str, Expr], ...]

    def __post_init__(self) -> None:
        self.module.check_types(dict(self.mapping), self.input.schema)
        refuse_reserved(self.schema)
        self.check_policy()

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.key_fields, *self.module.gives.fields))

    @property
    def modules(self) -> tuple[Module, ...]:
        return (self.module,)

    @property
    def _own_times(self) -> tuple[Timestamping, ...]:
        return ("unchanged", "clip", "time_bound") if self.module.time_sensitive else super()._own_times

    @cached_property
    def timestamping(self) -> Timestamping:
        return self.policy.timestamping or ("unchanged" if self.module.time_sensitive else "align")

    @property
    def filtered_before(self) -> dict[str, Expr]:
        # Where windows depend on their events, a filter before them would change them.
        if not isinstance(self.window, Grid) or not always_ends(self.input):
            return super().filtered_before
        fields = dict(self.mapping)
        return {name: fields[name] for name in self.module.filter_through if name in fields} | super().filtered_before

    def takes(self, needed: set[str]) -> set[str]:  # noqa: ARG002 - the module sees all fields
        return set().union(*(expr.columns() for _, expr in self.mapping))

    def describe(self) -> str:
        fields = ", ".join(f"{name}: {expr}" for name, expr in self.mapping)
        return f"Operate {self.module}[{fields}] {self.window_text()}"


#: The numbers of ranked events: each its own; equal for equal events, with gaps after them; or without gaps. A `copy`
#: is the number among the events with the same columns, which all other events leave as it is.
Place = Literal["row_number", "rank", "dense_rank", "copy"]
PLACES: tuple[Place, ...] = ("row_number", "rank", "dense_rank")

_DIRECTIONS = {True: "descending", False: "ascending"}


@dataclass(frozen=True, eq=False)
class Top(PerWindow):
    """The first k events of each window in an order; all columns decide between equal ones.

    The keys divide windows. Inside a window, `distinct` keeps only the first of the events that agree on its values,
    and `each` takes k events for each combination of its values. `skip` leaves out the first few of them.
    """

    passes_on: ClassVar[bool] = True
    k: int
    by: tuple[Expr, ...]
    #: For all of `by`, or for each.
    descending: bool | tuple[bool, ...] = True
    each: tuple[Expr, ...] = ()
    distinct: tuple[Expr, ...] = ()
    skip: int = 0
    #: Columns with the places of events in the order, from 1 on, or with what they see of the events around them; `k`
    #: is infinite if all events are wanted, and beside what they see.
    places: tuple[tuple[str, Place | Around], ...] = ()

    def __post_init__(self) -> None:
        self._check_places()
        if type(self.skip) is not int or self.skip < 0:
            raise PlanError(
                "top skips a number of events", given=self.skip, allowed="a whole number from 0 on", instead="skip=10"
            )
        if type(self.k) is not int or self.k < 1:
            raise PlanError(
                "top needs a number of events", given=self.k, allowed="a whole number from 1 on", instead="top(3, ...)"
            )
        if not self.by:
            raise PlanError("top needs an order", given="none", allowed="columns", instead="top(3, by='price')")
        for expr in self.by:
            expr.type(self.input.schema)
        self._check_directions()
        for expr in (*self.each, *self.distinct):
            if expr.type(self.input.schema).is_array:
                raise PlanError("rows cannot be compared by a list", given=str(expr), allowed="columns of one value")
        refuse_reserved(self.schema, self.input.schema)
        self.check_policy()

    def _check_places(self) -> None:
        for name, place in self.places:
            if isinstance(place, Around):
                place.check(self.by, self.input.schema)
            elif place not in (*PLACES, "copy"):
                raise PlanError("unknown place", given=f"{name}={place!r}", allowed=", ".join(PLACES))
            if name in self.with_keys:
                raise PlanError(
                    f"the stream has a column {name!r} already",
                    given=f"{name} = {place}",
                    allowed=f"names but {', '.join(self.with_keys.names)}",
                )
        chosen = self.each or self.distinct or self.skip or (self.around and self.k != INFINITY)
        assert not self.places or not chosen, "places are those of all events of a window"

    def _check_directions(self) -> None:
        given = (self.descending,) if isinstance(self.descending, bool) else self.descending
        fits = given is not self.descending or len(given) == len(self.by)
        if not fits or not all(isinstance(one, bool) for one in given):
            raise PlanError(
                "top needs a direction, or one for each column of its order",
                given=f"descending={self.descending} for {', '.join(map(str, self.by))}",
                allowed=f"True, False, or {len(self.by)} of them in a list",
                instead=f"descending={[True] * len(self.by)}",
            )
        if len(set(given)) == 1:  # one form for one order
            object.__setattr__(self, "descending", given[0])

    @property
    def directions(self) -> tuple[bool, ...]:
        """Whether each part of the order descends."""
        return (self.descending,) * len(self.by) if isinstance(self.descending, bool) else self.descending

    @cached_property
    def schema(self) -> Schema:
        below = self.input.schema
        fields = (p.field(n, below) if isinstance(p, Around) else Field(n, Type.LONG) for n, p in self.places)
        return Schema((*self.with_keys.fields, *fields))

    @cached_property
    def around(self) -> tuple[tuple[str, Around], ...]:
        """The columns with what events see of those around them."""
        return tuple((name, place) for name, place in self.places if isinstance(place, Around))

    @property
    def reach(self) -> Reach:
        return self.at_instants

    def takes(self, needed: set[str]) -> set[str]:  # noqa: ARG002 - all columns decide between equal events
        return self.all_of(0)

    def describe(self) -> str:
        each = f" of each {', '.join(map(str, self.each))}" if self.each else ""
        distinct = f", distinct {', '.join(map(str, self.distinct))}," if self.distinct else ""
        places = "".join(f", {name} = {place}" for name, place in self.places)
        count = "all" if self.k >= INFINITY // 2 else self.k
        skip = f" after {self.skip}" if self.skip else ""
        return f"Top {count}{skip} by {self._order()}{each}{distinct}{places} {self.window_text()}"

    def _order(self) -> str:
        if isinstance(self.descending, bool):
            return f"{', '.join(map(str, self.by))} {_DIRECTIONS[self.descending]}"
        return ", ".join(f"{expr} {_DIRECTIONS[down]}" for expr, down in zip(self.by, self.descending, strict=True))
