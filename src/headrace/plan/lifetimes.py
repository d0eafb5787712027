"""Lifetimes computed for each event: `alter_lifetime`, `set_duration` of an expression, and `chop` (rule 4.11).

A change of an event gives changes from its new start on, so the new start decides the output CTI: it must be known how
far before the old start it can be. `furthest_back` proves that for expressions over the event's own times; for others
the query's author promises a bound, which is checked for every event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.errors import EventError, PlanError, TimeError
from headrace.expr import Call, Case, Expr, Literal
from headrace.expr.arrow.dates import FIRST_DAY, LAST_TICK
from headrace.expr.nodes import Alias, Duration
from headrace.expr.times import EventTime, event_times
from headrace.plan.base import Properties, Reach
from headrace.plan.liveliness import AS_INPUT, Liveliness
from headrace.plan.span import EachAlone
from headrace.progress import Progress
from headrace.schema import Type
from headrace.time import add_one, duration, format_duration, format_ticks, ticks

__all__ = ["MOST_PIECES", "AlterLifetime", "Chop", "furthest_back", "in_ticks", "of_ticks"]

#: So many pieces of one event are an error: its end is wrong, or far too late for the grid.
MOST_PIECES = 1_000_000


@dataclass(frozen=True, eq=False)
class AlterLifetime(EachAlone):
    """Gives each event another start, and another end or duration; what is None stays.

    An event without a start (null) or whose lifetime is empty is dropped; without an end (null) it never ends. No start
    is more than `back` before the old one; if that is not proved, it is `checked` for every event.
    """

    keeps_events: ClassVar[bool] = False
    start: Expr | None = None
    end: Expr | None = None
    duration: Expr | None = None
    back: int = 0
    checked: bool = False

    def __post_init__(self) -> None:
        if self.end is not None and self.duration is not None:
            raise PlanError("an end follows from a duration", given="end and duration", allowed="one of the two")
        if self.start is None and self.end is None and self.duration is None:
            raise PlanError(
                "alter_lifetime needs a new start, end or duration",
                given="none",
                instead="alter_lifetime(end=col('until'))",
            )

    @property
    def keeps_start(self) -> bool:
        return self.start is None

    @property
    def keeps_end(self) -> bool:
        """Whether events keep their ends."""
        return self.end is None and self.duration is None

    @property
    def reach(self) -> Reach:
        return "event, back in time" if self.back > 0 else "event, another time"

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(below.insert_only, below.settled if self.keeps_end else True, below.keys)

    @property
    def ends(self) -> bool | None:
        if self.keeps_end:
            return None
        return isinstance(self.duration, Literal) and self.duration.value is not None

    def progress(self, inputs: list[Progress]) -> Progress:
        return Progress(add_one(inputs[0].cti, -self.back), inputs[0].high)

    @property
    def liveliness(self) -> Liveliness:
        if self.back == 0:
            return AS_INPUT
        late = format_duration(self.back)
        return Liveliness(f"its input's less {late}", late, "none")

    @property
    def _exprs(self) -> dict[str, Expr]:
        named = {"start": self.start, "end": self.end, "duration": self.duration}
        return {name: expr for name, expr in named.items() if expr is not None}

    def uses(self, side: int, needed: set[str]) -> set[str]:
        return super().uses(side, needed).union(*(expr.columns() for expr in self._exprs.values()))

    def too_early(self, start: int, new: int) -> EventError:
        """The error of an event whose new start breaks the bound."""
        least, new_text, old_text = (format_ticks(t, dates=self.dates) for t in (start - self.back, new, start))
        return EventError(
            f"alter_lifetime would start an event at {new_text}, and it starts at {old_text}",
            given=f"start={self.start}",
            allowed=f"{least} or later: at most {format_duration(self.back)} before it",
            instead="a larger earliest=..., start=hr.greatest(..., hr.start()), or where(...) before it",
        )

    def describe(self) -> str:
        shown = ", ".join(f"{name} = {expr}" for name, expr in self._exprs.items())
        bound = f", at most {format_duration(self.back)} back" if self.back else ""
        return f"AlterLifetime {shown}{bound}{' (checked)' if self.checked else ''}"


@dataclass(frozen=True, eq=False)
class Chop(EachAlone):
    """Cuts lifetimes at every `origin + k * every`: an event for each piece."""

    reach: ClassVar[Reach] = "event, another time"
    keeps_start: ClassVar[bool] = False
    keeps_events: ClassVar[bool] = False
    instants: ClassVar[None] = None
    ends: ClassVar[bool] = True
    every: int
    origin: int = 0

    def __post_init__(self) -> None:
        if self.every <= 0:
            raise PlanError("a grid has a positive distance", given=self.every, instead="chop('1 h')")

    def too_many(self, start: int, end: int) -> EventError:
        """The error of an event that would give too many pieces, or endlessly many."""
        first, last = (format_ticks(time, dates=self.dates) for time in (start, end))
        return EventError(
            f"chop would cut one event into more than {MOST_PIECES:,} pieces",
            given=f"[{first}, {last}) every {format_duration(self.every)}",
            allowed=f"events that end, within {MOST_PIECES:,} cuts",
            instead="cap_duration(...).chop(...): an event that has no end yet is cut as far as its cap",
        )

    def describe(self) -> str:
        origin = f" from {format_ticks(self.origin)}" if self.origin else ""
        return f"Chop every {format_duration(self.every)}{origin}"


def furthest_back(expr: Expr) -> int | None:
    """How many ticks before the start of its event a time can be, at most; None if that is not known.

    A negative number of ticks means after it. A time that is null has no bound to keep.
    """
    if isinstance(expr, EventTime):
        return -1 if expr.at_end else 0
    if isinstance(expr, Alias):
        return furthest_back(expr.child)
    if isinstance(expr, Case):
        return _worst([*(value for _, value in expr.branches), expr.default])
    if not isinstance(expr, Call):
        return None
    if expr.function in ("shift_time", "add", "subtract"):
        return _moved(expr)
    if expr.function == "greatest":  # a null argument does not count, and a start is never null
        known = [back for arg in expr.args if not _uses_end(arg) and (back := furthest_back(arg)) is not None]
        return min(known, default=None)
    return _worst(expr.args) if expr.function in ("least", "coalesce") else None


def _moved(expr: Call) -> int | None:
    time, by = expr.args
    if expr.function == "add" and isinstance(time, Literal):
        time, by = by, time
    back, moved = furthest_back(time), _constant(by)
    if back is None or moved is None:
        return None
    return back + moved if expr.function == "subtract" else back - moved


def in_ticks(expr: Expr) -> Expr:
    """An expression with a bound (`furthest_back`) over times in ticks, so that it is exact in all years.

    What is not a part of the bound is computed with DATETIMEs.
    """
    if isinstance(expr, EventTime):
        return expr
    if isinstance(expr, Alias):
        return in_ticks(expr.child)
    if isinstance(expr, Case):
        branches = tuple((of_ticks(condition), in_ticks(value)) for condition, value in expr.branches)
        return Case(branches, in_ticks(expr.default))
    if isinstance(expr, Call) and expr.function in ("greatest", "least", "coalesce"):
        return expr.with_children([in_ticks(arg) for arg in expr.args])
    if isinstance(expr, Call) and furthest_back(expr) is not None:
        function = "subtract" if expr.function == "subtract" else "add"
        return Call(function, tuple(_ticks_or_constant(arg) for arg in expr.args))
    if isinstance(expr, Literal) and isinstance(expr.value, str):
        return Literal(ticks(expr.value.strip()))
    return of_ticks(expr).cast(Type.LONG)


def _ticks_or_constant(part: Expr) -> Expr:
    moved = _constant(part)
    return in_ticks(part) if moved is None else Duration(moved)


def of_ticks(expr: Expr) -> Expr:
    """An expression over times as DATETIMEs, where they are given in ticks."""

    def dated(part: Expr) -> Expr:
        if not isinstance(part, EventTime):
            return part
        first, last = Literal(FIRST_DAY), Literal(LAST_TICK)
        return Case(((part < first, first), (part > last, last)), part).cast(Type.DATETIME)

    return expr.transform(dated)


def _constant(by: Expr) -> int | None:
    """The ticks of a constant: a number, or a duration, which beside a time may be a text."""
    value = by.value if isinstance(by, Literal) else None
    if isinstance(value, str):
        try:
            return duration(value)
        except TimeError:
            return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _worst(times: Sequence[Expr]) -> int | None:
    found = [furthest_back(time) for time in times if not (isinstance(time, Literal) and time.value is None)]
    return None if None in found else max((back for back in found if back is not None), default=None)


def _uses_end(expr: Expr) -> bool:
    return any(time.at_end for time in event_times([expr]))
