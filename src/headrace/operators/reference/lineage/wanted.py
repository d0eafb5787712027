"""What is wanted of an event that is not there: values of columns, conditions, and times; as far as they are known.

On the way from an answer to the inputs a description is translated, operator by operator, into one of the input events
that would have made the answer. It never says too much: every event that could have been a cause fits it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.expr import Expr, col
from headrace.expr.nodes import Alias, Column
from headrace.literals import sql_text
from headrace.operators.reference.lineage.histories import Histories, same_payload
from headrace.operators.reference.rows import Row, identity, row_identity, value_of
from headrace.schema import Schema
from headrace.time import CHRONON, INFINITY, NEG_INFINITY, add_one, format_ticks

__all__ = ["TimeSpan", "WantedEvent"]

#: From a time on, before another one.
TimeSpan = tuple[int, int]


@dataclass(frozen=True)
class WantedEvent:
    """A description of events; each part may be missing.

    Columns that `equal` values, expressions that `hold` one, and times: the event starts at `le`, ends at `re`, lasts
    at some time `over` a span, starts or ends within a span.
    """

    equal: Mapping[str, Any] = field(default_factory=dict)
    holds: tuple[tuple[Expr, Any], ...] = ()
    le: int | None = None
    re: int | None = None
    over: TimeSpan | None = None
    starts: TimeSpan | None = None
    ends: TimeSpan | None = None

    @property
    def is_empty(self) -> bool:
        """Whether every event fits."""
        return self == WantedEvent()

    # --- events ------------------------------------------------------------------------------------------------------

    def find(self, inputs: Histories, position: int = 0) -> list[Row]:
        """The events of an input that fit, each once."""
        times = {"le": self.le, "re": self.re, "over": self.over, "starts": self.starts, "ends": self.ends}
        found = inputs.find(position, equal=self.equal, keys=self.holds, **times)  # type: ignore[arg-type]
        return list({row_identity(row): row for row in found}.values())

    def fits(self, row: Row, schema: Schema) -> bool:
        """Whether an event fits."""
        le, re, payload = row
        return (
            (self.le is None or le == self.le)
            and (self.re is None or re == self.re)
            and (self.over is None or (le < self.over[1] and re > self.over[0]))
            and (self.starts is None or self.starts[0] <= le < self.starts[1])
            and (self.ends is None or self.ends[0] <= re < self.ends[1])
            and same_payload(payload, self.equal)
            and all(identity(value_of(expr, payload, schema)) == identity(value) for expr, value in self.holds)
        )

    # --- translation -------------------------------------------------------------------------------------------------

    def through(self, columns: Mapping[str, Expr]) -> WantedEvent:
        """The same of an input from whose columns these are computed; what depends on other columns is left out."""
        equal, holds = dict[str, Any](), list[tuple[Expr, Any]]()
        for name, value in self.equal.items():
            below = _plain(columns[name]) if name in columns else None
            if isinstance(below, Column) and below.name not in equal:
                equal[below.name] = value
            elif below is not None and below.columns():
                holds.append((below, value))
        for expr, value in self.holds:
            if expr.columns() <= columns.keys():
                below = expr.transform(lambda part: columns[part.name] if isinstance(part, Column) else part)
                holds.append((below, value))
        return replace(self, equal=equal, holds=tuple(holds))

    def only(self, *names: str) -> WantedEvent:
        """Only what is wanted of these columns, and the times."""
        return self.through({name: col(name) for name in names})

    def untimed(self) -> WantedEvent:
        """At any time."""
        return replace(self, le=None, re=None, over=None, starts=None, ends=None)

    def moved(self, by: int) -> WantedEvent:
        """At times that are so much later."""
        spans = {
            name: None if span is None else (add_one(span[0], by), add_one(span[1], by))
            for name, span in (("over", self.over), ("starts", self.starts), ("ends", self.ends))
        }
        times = {name: None if time is None else add_one(time, by) for name, time in (("le", self.le), ("re", self.re))}
        return replace(self, **times, **spans)  # type: ignore[arg-type]

    @property
    def span(self) -> TimeSpan | None:
        """A span in which the event lasts at some time; its lifetime, if that is known."""
        if self.le is not None:
            return self.le, self.re if self.re is not None else self.le + CHRONON
        if self.re is not None:
            return self.re - CHRONON, self.re
        if self.starts is not None and self.starts[0] != NEG_INFINITY:
            return self.starts[0], self.starts[1]
        return self.over

    def lasting(self, *, touching: bool = False) -> WantedEvent:
        """An event of which this one is a part in time; or also one that touches it, as those do that end it."""
        span = self.span
        if span is not None and touching:
            span = add_one(span[0], -CHRONON), add_one(span[1], CHRONON)
        return replace(self.untimed(), over=span)

    # --- texts -------------------------------------------------------------------------------------------------------

    def text(self, *, dates: bool) -> str:
        """The description, as text for users."""

        def shown(time: int) -> str:
            return format_ticks(time, dates=dates)

        parts = [f"{name} = {sql_text(value)}" for name, value in self.equal.items()]
        parts += [str(expr) if value is True else f"{expr} = {sql_text(value)}" for expr, value in self.holds]
        if self.le is not None and self.re is not None:
            parts.append(f"[{shown(self.le)}, {shown(self.re)})")
        else:
            parts += [f"le = {shown(self.le)}"] if self.le is not None else []
            parts += [f"re = {shown(self.re)}"] if self.re is not None else []
        for span, verb in ((self.over, "lasts"), (self.starts, "starts"), (self.ends, "ends")):
            if span is None or span == (NEG_INFINITY, INFINITY):
                continue
            if span[1] == span[0] + CHRONON:
                parts.append(f"{verb} at {shown(span[0])}")
            else:
                parts.append(f"{verb} in [{shown(span[0])}, {shown(span[1])})")
        return ", ".join(parts) or "any event"


def _plain(expr: Expr) -> Expr:
    return _plain(expr.child) if isinstance(expr, Alias) else expr
