"""Users' operators per group and window, and the top of a ranking (rules 6.1 to 6.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.modules import Module, Operator
from headrace.plan.base import Reach, refuse_reserved
from headrace.plan.instants import always_ends
from headrace.plan.per_window import PerWindow
from headrace.plan.windows import Grid, Timestamping
from headrace.schema import Schema

__all__ = ["Operate", "Top"]


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


@dataclass(frozen=True, eq=False)
class Top(PerWindow):
    """The first k events of each window in an order; all columns decide between equal ones.

    The keys divide windows. Inside a window, `distinct` keeps only the first of the events that agree on its values,
    and `each` takes k events for each combination of its values.
    """

    passes_on: ClassVar[bool] = True
    k: int
    by: tuple[Expr, ...]
    descending: bool = True
    each: tuple[Expr, ...] = ()
    distinct: tuple[Expr, ...] = ()

    def __post_init__(self) -> None:
        if type(self.k) is not int or self.k < 1:
            raise PlanError(
                "top needs a number of events", given=self.k, allowed="a whole number from 1 on", instead="top(3, ...)"
            )
        if not self.by:
            raise PlanError("top needs an order", given="none", allowed="columns", instead="top(3, by='price')")
        for expr in self.by:
            expr.type(self.input.schema)
        for expr in (*self.each, *self.distinct):
            if expr.type(self.input.schema).is_array:
                raise PlanError("rows cannot be compared by a list", given=str(expr), allowed="columns of one value")
        refuse_reserved(self.schema, self.input.schema)
        self.check_policy()

    @cached_property
    def schema(self) -> Schema:
        return self.with_keys

    @property
    def reach(self) -> Reach:
        return self.at_instants

    def takes(self, needed: set[str]) -> set[str]:  # noqa: ARG002 - all columns decide between equal events
        return self.all_of(0)

    def describe(self) -> str:
        order = ", ".join(map(str, self.by))
        each = f" of each {', '.join(map(str, self.each))}" if self.each else ""
        distinct = f", distinct {', '.join(map(str, self.distinct))}," if self.distinct else ""
        direction = "descending" if self.descending else "ascending"
        return f"Top {self.k} by {order} {direction}{each}{distinct} {self.window_text()}"
