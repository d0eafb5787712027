"""Breakpoints: what stops the run of a session.

Each operator that has run makes an `OperatorStep`: the changes it gave, and its CTI before and after. A breakpoint
says which of the changes fit; a step without any does not stop the run. Steps of inputs also carry what ingress did
without giving a row: rows that it dropped, or moved to a later time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from headrace.border import shown
from headrace.changes import Changes
from headrace.display.words import clipped, counted
from headrace.errors import HeadraceError, TraceError
from headrace.expr import Expr
from headrace.plan.nodes import Admit, Diverted, Orphans, Source
from headrace.time import NEG_INFINITY, format_ticks
from headrace.tracing.given import check_condition, fulfilling
from headrace.tracing.plain import plain_table
from headrace.tracing.record import TracedOperator
from headrace.tracing.traced import change_table

__all__ = [
    "AtCti",
    "AtInput",
    "AtLate",
    "AtOutput",
    "AtRetraction",
    "Breakpoint",
    "Breakpoints",
    "Hit",
    "OperatorStep",
    "Side",
]  # fmt: skip

#: Which changes of an operator a condition is about.
Side = Literal["output", "input"]
#: The most rows of a hit as plain values.
_MOST_ROWS = 100


@dataclass(frozen=True)
class OperatorStep:
    """What an operator has just done."""

    operator: TracedOperator
    batch: int
    changes: Changes
    #: Its CTI, if the step moved it: before and after.
    ctis: tuple[int, int] = (NEG_INFINITY, NEG_INFINITY)
    #: Of an input: what became of rows that are not among the changes.
    notes: tuple[str, ...] = ()


class Breakpoint(ABC):
    """A reason to stop. `hits` counts how often it has stopped the run; one that is not `enabled` does not."""

    kind: str
    number: int = 0
    enabled: bool = True
    hits: int = 0

    def __init__(self, operator: TracedOperator | None) -> None:
        self.operator = operator

    @property
    @abstractmethod
    def text(self) -> str:
        """What it stops at."""

    @abstractmethod
    def fitting(self, step: OperatorStep) -> Changes | None:
        """The changes of a step that fit; None if the step does not."""

    @property
    def general(self) -> bool:
        """Whether it is for any operator of any query."""
        return self.operator is None

    def is_at(self, step: OperatorStep) -> bool:
        """Whether a step is one of its operator."""
        return self.operator is not None and step.operator.number == self.operator.number

    @property
    def place(self) -> str:
        """Its operator, as text."""
        return "any operator" if self.operator is None else f"#{self.operator.number}"

    def as_dict(self) -> dict[str, Any]:
        """The breakpoint as plain values, for JSON."""
        number = None if self.operator is None else self.operator.number
        facts = {"number": self.number, "kind": self.kind, "operator": number, "text": self.text}
        return facts | {"enabled": self.enabled, "hits": self.hits}

    def __repr__(self) -> str:
        off = "" if self.enabled else ", disabled"
        return f"{self.number}: {self.text} ({counted(self.hits, 'hit')}{off})"


class AtOutput(Breakpoint):
    """Stops when an operator gives changes that fulfil a condition."""

    kind = "output"

    def __init__(self, operator: TracedOperator, when: Expr | None) -> None:
        super().__init__(operator)
        self.when = when
        if when is not None:
            check_condition(operator, when)

    @property
    def text(self) -> str:
        return f"output of {self.place}{'' if self.when is None else f' when {self.when}'}"

    def fitting(self, step: OperatorStep) -> Changes | None:
        return _any(_filtered(step, self.when)) if self.is_at(step) else None


class AtInput(Breakpoint):
    """Stops before an operator, when one that it reads gives changes that fulfil a condition."""

    kind = "input"

    def __init__(self, operator: TracedOperator, producers: Sequence[TracedOperator], when: Expr | None) -> None:
        super().__init__(operator)
        self.when = when
        self._producers: set[int] = set()
        errors: list[HeadraceError] = []
        for producer in producers:
            try:
                if when is not None:
                    check_condition(producer, when)
                self._producers.add(producer.number)
            except HeadraceError as error:
                errors.append(error)
        if not self._producers:
            raise errors[0] if errors else TraceError(
                "this operator has no input", given=f"#{operator.number} {clipped(operator.text, 60)}",
                allowed="an operator that reads another", instead=f"break_at({operator.number}) for its output",
            )  # fmt: skip

    @property
    def text(self) -> str:
        return f"input of {self.place}{'' if self.when is None else f' when {self.when}'}"

    def fitting(self, step: OperatorStep) -> Changes | None:
        return _any(_filtered(step, self.when)) if step.operator.number in self._producers else None


class AtRetraction(Breakpoint):
    """Stops when an operator takes something back; without one, when any does."""

    kind = "retraction"

    @property
    def text(self) -> str:
        return f"retraction by {self.place}"

    def fitting(self, step: OperatorStep) -> Changes | None:
        if self.operator is not None and not self.is_at(step):
            return None
        return _any(step.changes.filter(step.changes.weight < 0))


class AtLate(Breakpoint):
    """Stops when a row is not used as it is: it is late or malformed, or takes back an event that is not there."""

    kind = "late"

    def __init__(self, operator: TracedOperator | None) -> None:
        if operator is not None and not isinstance(operator.node, (Admit, Diverted, Orphans, Source)):
            raise TraceError(
                "only inputs have late rows",
                given=f"#{operator.number} {clipped(operator.text, 60)}",
                allowed="an input, its diverted rows, or no operator, for all of them",
                instead="break_at_late()",
            )
        super().__init__(operator)

    @property
    def text(self) -> str:
        return "late or diverted row" + ("" if self.operator is None else f" of {self.place}")

    def fitting(self, step: OperatorStep) -> Changes | None:
        of = (step.operator.number, *step.operator.inputs)
        if self.operator is not None and self.operator.number not in of:
            return None
        if isinstance(step.operator.node, (Diverted, Orphans)):
            return _any(step.changes)
        return Changes.empty(step.operator.node.schema) if step.notes else None


class AtCti(Breakpoint):
    """Stops when the CTI of an operator passes a time."""

    kind = "cti"

    def __init__(self, operator: TracedOperator, time: int) -> None:
        super().__init__(operator)
        self.time = time

    @property
    def text(self) -> str:
        dates = self.operator is not None and self.operator.node.dates
        return f"CTI of {self.place} at {format_ticks(self.time, dates=dates)}"

    def fitting(self, step: OperatorStep) -> Changes | None:
        before, after = step.ctis
        passed = self.is_at(step) and before < self.time <= after
        return Changes.empty(step.operator.node.schema) if passed else None


@dataclass(frozen=True)
class Hit:
    """A breakpoint that has stopped the run, and what fitted."""

    breakpoint: Breakpoint
    step: OperatorStep
    changes: Changes

    @property
    def rows(self) -> pa.Table:
        """The changes that fit: batch, operator, lifetime, weight and columns."""
        node = self.step.operator.node
        return shown(change_table(self.step.operator, [(self.step.batch, self.changes)]), dates=node.dates)

    @property
    def text(self) -> str:
        facts = [counted(len(self.changes), "change")] if len(self.changes) else []
        facts += self.step.notes
        return f"breakpoint {self.breakpoint.number}, {self.breakpoint.text}" + (
            f": {', '.join(facts)}" if facts else ""
        )

    def as_dict(self) -> dict[str, Any]:
        """The hit as plain values, for JSON: `rows` are the first of `count`."""
        return {
            "breakpoint": self.breakpoint.number,
            "operator": self.step.operator.number,
            "text": self.text,
            "count": len(self.changes),
            "rows": plain_table(self.rows.slice(0, _MOST_ROWS)),
        }


class Breakpoints:
    """The breakpoints of a session, by number."""

    def __init__(self) -> None:
        self._next = 1
        self._all: dict[int, Breakpoint] = {}

    def __iter__(self) -> Iterator[Breakpoint]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def add(self, breakpoint_: Breakpoint) -> Breakpoint:
        """Number a new one."""
        breakpoint_.number, self._next = self._next, self._next + 1
        self._all[breakpoint_.number] = breakpoint_
        return breakpoint_

    def find(self, number: int) -> Breakpoint:
        """The one with this number."""
        if type(number) is not int or number not in self._all:
            raise TraceError(
                "there is no such breakpoint",
                given=number,
                allowed=", ".join(map(str, self._all)) or "none: there are no breakpoints",
            )
        return self._all[number]

    def remove(self, number: int) -> None:
        """Remove the one with this number."""
        del self._all[self.find(number).number]

    def keep_general(self) -> None:
        """Remove those that belong to operators: the query is another one."""
        self._all = {number: one for number, one in self._all.items() if one.general}

    def hits(self, steps: Sequence[OperatorStep]) -> tuple[Hit, ...]:
        """What stops the run after these steps."""
        found = []
        for one in self:
            for step in steps:
                fits = one.fitting(step) if one.enabled else None
                if fits is not None:
                    one.hits += 1
                    found.append(Hit(one, step, fits))
        return tuple(found)


def _filtered(step: OperatorStep, when: Expr | None) -> Changes:
    """The changes of a step that fulfil a condition."""
    return step.changes if when is None or not len(step.changes) else fulfilling(step.operator, when, step.changes)


def _any(changes: Changes) -> Changes | None:
    return changes if len(changes) else None
