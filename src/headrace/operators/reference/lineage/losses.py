"""What an operator says about an event that is not there: what it lost of its inputs, and what to ask below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.expr import Expr
from headrace.expr.pushdown import conjuncts
from headrace.literals import sql_text
from headrace.operators.reference.lineage.histories import Cause, Histories
from headrace.operators.reference.lineage.wanted import WantedEvent
from headrace.operators.reference.rows import Payload, Row, value_of
from headrace.schema import Schema
from headrace.time import CHRONON, format_ticks

__all__ = ["MOST", "NEAR", "Loss", "LostEvents", "Question", "failed_conjuncts", "lifetime_text", "other_lifetimes"]

#: The most input events of a question that are looked at one by one, and how many near misses are shown.
MOST, NEAR = 50, 2


@dataclass(frozen=True)
class Loss:
    """Input events that did not become the event that is wanted, and why."""

    kind: str
    reason: str
    #: The lost event first, then those that explain it: near misses, partners, events of a better place.
    events: Sequence[Cause] = ()
    #: Events that the operator gives in its place.
    instead: Sequence[Row] = ()
    #: The last batch in which these were there; None if they are there now.
    until: int | None = None


@dataclass(frozen=True)
class LostEvents:
    """What an operator lost, and the descriptions of the input events of which more is to be asked."""

    found: Sequence[Loss] = ()
    below: Sequence[tuple[int, WantedEvent]] = ()


@dataclass
class Question:
    """An operator, what is wanted of it, the histories of its inputs, and its own."""

    node: Any
    wanted: WantedEvent
    inputs: Histories
    output: Histories
    _fitting: list[Row] | None = field(default=None, repr=False)

    @property
    def given(self) -> list[Row]:
        """The events of the operator that fit."""
        if self._fitting is None:
            self._fitting = self.wanted.find(self.output)
        return self._fitting

    def fits(self, rows: Sequence[Row]) -> list[Row]:
        """Those among possible outputs that fit."""
        return [row for row in rows if self.wanted.fits(row, self.node.schema)]

    def candidates(self, below: WantedEvent, position: int = 0) -> list[Row]:
        """The first events of an input that fit a description."""
        return below.find(self.inputs, position)[:MOST]


def failed_conjuncts(predicate: Expr, payload: Payload, schema: Schema) -> str:
    """The parts of a condition that are not true of a row, with the values that they look at."""
    parts = []
    for part in conjuncts(predicate):
        value = value_of(part, payload, schema)
        if value is not True:
            seen = ", ".join(f"{name} = {sql_text(payload[name])}" for name in sorted(part.columns()))
            parts.append(f"{part} is {sql_text(value)}{f' ({seen})' if seen else ''}")
    return "; ".join(parts)


def lifetime_text(row: Row, *, dates: bool) -> str:
    """The lifetime of an event; of an instant, its time."""
    le, re = (format_ticks(time, dates=dates) for time in row[:2])
    return f"at {le}" if row[1] == row[0] + CHRONON else f"[{le}, {re})"


def other_lifetimes(question: Question, near: WantedEvent) -> list[Loss]:
    """Events of the operator with the wanted values that last at other times near them."""
    if question.given:
        return []
    others = near.find(question.output)[:NEAR]
    dates = question.node.dates
    return [Loss("other lifetime", f"it lasts {lifetime_text(row, dates=dates)}", (), [row]) for row in others]
