"""The times of an event as parts of expressions: `start()`, `end()`, and those of the window of an answer.

No row has them among its columns. Where an expression uses them, the plan adds them as columns first (`plan/times.py`),
so nothing below an expression has to know of lifetimes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from headrace.errors import ExpressionError
from headrace.expr.nodes import Expr
from headrace.schema import Schema

__all__ = ["EventTime", "Moment", "Side", "end", "event_times", "start", "window_end", "window_start"]

Moment = Literal["start", "end", "window_start", "window_end"]
#: Whose event is meant in the condition of a join.
Side = Literal["left", "right"]


@dataclass(frozen=True, eq=False, repr=False)
class EventTime(Expr):
    """The start or the end of an event's lifetime, or of the window of an answer; an endless end is NULL."""

    moment: Moment
    side: Side = "left"

    def __post_init__(self) -> None:
        if self.side not in ("left", "right"):
            raise ExpressionError(
                "a join has two sides",
                given=self.side,
                allowed="'left' (this stream), 'right' (the other)",
                instead=f"hr.{self.moment}(of='right')",
            )

    @property
    def name(self) -> str:
        return self.moment

    @property
    def on_window(self) -> bool:
        """Whether it is a time of the window, not of the event."""
        return self.moment.startswith("window")

    @property
    def at_end(self) -> bool:
        """Whether it is an end."""
        return self.moment.endswith("end")

    def bind(self, schema: Schema) -> NoReturn:  # noqa: ARG002 - it is resolved before
        raise ExpressionError(
            f"{self} cannot be used here: this operator sees payloads, and no lifetimes",
            given=str(self),
            allowed="hr.start() and hr.end() in select, where, group_by, aggregates, conditions of joins and "
            "alter_lifetime; the times of a window in aggregate(...) and after it",
            instead=f"select(..., {self.moment}=hr.{self}) first, then the column {self.moment}",
        )

    def __str__(self) -> str:
        return f"{self.moment}()" if self.side == "left" else f"{self.moment}(of='right')"


def event_times(exprs: Sequence[Expr]) -> list[EventTime]:
    """The times of events that expressions use."""
    waiting, found = list(exprs), []
    while waiting:
        expr = waiting.pop()
        found += [expr] if isinstance(expr, EventTime) else []
        waiting += expr.children
    return found


def start(*, of: Side = "left") -> Expr:
    """The start of an event: a DATETIME where times are dates, else a LONG.

    In the condition of a join, `of="right"` means the other stream's event.
    """
    return EventTime("start", of)


def end(*, of: Side = "left") -> Expr:
    """The end of an event, NULL if it never ends: a DATETIME where times are dates, else a LONG.

    In the condition of a join, `of="right"` means the other stream's event. Where ends may still be corrected, answers
    that use them are not final before these ends are: `explain(liveliness=True)` tells.
    """
    return EventTime("end", of)


def window_start() -> Expr:
    """The start of the window of an answer: in `aggregate(...)`, and in `select` and `where` after it."""
    return EventTime("window_start")


def window_end() -> Expr:
    """The end of the window of an answer: in `aggregate(...)`, and in `select` and `where` after it."""
    return EventTime("window_end")
