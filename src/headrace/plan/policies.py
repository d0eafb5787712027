"""Policies of an input: lifetimes, progress, and the treatment of late and malformed rows (rules 1.2, 3).

Each is a small value with a text, which is part of the plan's text.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headrace.errors import PlanError
from headrace.expr import Expr, col
from headrace.schema import ARRIVAL, Schema, Type
from headrace.time import NEG_INFINITY, format_duration

__all__ = [
    "BAD_ROWS",
    "LATE",
    "Advance",
    "Arrival",
    "Changed",
    "Edge",
    "Explicit",
    "Heartbeat",
    "Interval",
    "Lifetime",
    "Physical",
    "Point",
    "ProgressPolicy",
    "at_midnights",
]

LatePolicy = Literal["raise", "drop", "adjust", "divert"]
BadRowPolicy = Literal["raise", "divert"]
LATE: tuple[str, ...] = ("raise", "drop", "adjust", "divert")
BAD_ROWS: tuple[str, ...] = ("raise", "divert")


@dataclass(frozen=True, eq=False)
class Point:
    """Every row is an instant: `[at, at + h)`."""

    at: Expr

    def __str__(self) -> str:
        return f"point({self.at})"


@dataclass(frozen=True, eq=False)
class Arrival(Point):
    """Every row is a point at its arrival: for streams without a time of their own (rule 8.1).

    Arrivals are distinct: each row arrives at its own time, or a tick after the row before, so that times are in the
    order of arrival. No row is late: a row that arrived before a CTI of the clock arrives at that CTI.
    """

    at: Expr = field(default_factory=lambda: col(ARRIVAL))

    def __str__(self) -> str:
        return "arrival"


@dataclass(frozen=True, eq=False)
class Interval:
    """Every row has a start and an end."""

    start: Expr
    end: Expr
    #: Whether a null end is infinity.
    endless: bool = False

    def null_is_endless(self, columns: Schema) -> bool:
        """Whether a null end is infinity, as in tables of dates that Headrace writes (rule 1.1): in their column `re`.

        In other columns a null end is a row without an end, and malformed unless `endless`.
        """
        return self.endless or (str(self.end) == str(col("re")) and self.end.type(columns) is Type.DATETIME)

    def __str__(self) -> str:
        return f"interval({self.start}, {self.end}{', endless' if self.endless else ''})"


@dataclass(frozen=True, eq=False)
class Edge:
    """Every row is a sample of a signal, and lasts until the next sample of its key or the end of the signal."""

    at: Expr
    key: tuple[str, ...]
    closes: Expr | None = None

    def __str__(self) -> str:
        closes = f", closes={self.closes}" if self.closes is not None else ""
        return f"edge({self.at}, key={', '.join(self.key) or '()'}{closes})"


@dataclass(frozen=True, eq=False)
class Changed(Edge):
    """Every row is a change of a keyed table: the row of a key lasts until its next change (`io/keyed_changes.py`).

    `closes` holds for deletions, `skips` for rows that only repeat what was there before, and `knows` for rows whose
    operation is known. Without a time of its own, a change happens when it arrives, and the order of the log rules: no
    change is late, and none happens before the change above it.
    """

    at: Expr = field(default_factory=lambda: col(ARRIVAL))
    key: tuple[str, ...] = ()
    encoding: str = "rows"
    op: str | None = None
    skips: Expr | None = None
    knows: Expr | None = None

    @property
    def in_log_order(self) -> bool:
        return str(self.at) == str(col(ARRIVAL))

    def columns(self) -> set[str]:
        """The columns from which changes are read, beside those of the table."""
        parts = (self.at, self.closes, self.skips, self.knows)
        return {name for part in parts if part is not None for name in part.columns()}

    def __str__(self) -> str:
        at = "in the order of the log" if self.in_log_order else f"at {self.at}"
        op = f", op={self.op}" if self.op is not None else f", deletes={self.closes}" if self.closes is not None else ""
        return f"changes({self.encoding}, {at}, key={', '.join(self.key)}{op})"


@dataclass(frozen=True)
class Physical:
    """The rows are physical events: `kind, le, re, re_new` and the payload."""

    def __str__(self) -> str:
        return "physical events"


Lifetime = Point | Interval | Edge | Physical


def at_midnights(lifetime: Lifetime, columns: Schema) -> Lifetime:
    """The lifetime with the midnights of DATEs as its times."""
    if not isinstance(lifetime, (Point, Interval, Edge)) or arrives(lifetime):
        return lifetime
    names = ("start", "end") if isinstance(lifetime, Interval) else ("at",)
    found: dict[str, Expr] = {name: getattr(lifetime, name) for name in names}
    known = {name: expr for name, expr in found.items() if expr.columns() <= set(columns.names)}
    dates: dict[str, Any] = {
        name: expr.cast(Type.DATETIME) for name, expr in known.items() if expr.type(columns) is Type.DATE
    }
    return replace(lifetime, **dates) if dates else lifetime


def times_are_dates(lifetime: Lifetime, columns: Schema) -> bool:
    """Whether rows with these columns have dates as times: those of DATETIME columns, and of the clock at arrival."""
    if isinstance(lifetime, Physical):
        return starts_are_dates(columns)
    if isinstance(lifetime, Interval):
        return Type.DATETIME in (lifetime.start.type(columns), lifetime.end.type(columns))
    return arrives(lifetime) or lifetime.at.type(columns) is Type.DATETIME


def starts_are_dates(columns: Schema) -> bool:
    """Whether the column of the starts of physical events has dates."""
    return "le" in columns and columns["le"].type is Type.DATETIME


def arrives(lifetime: Lifetime) -> bool:
    """Whether the times of rows are those of their arrival."""
    return isinstance(lifetime, Arrival) or (isinstance(lifetime, Changed) and lifetime.in_log_order)


@dataclass(frozen=True)
class _Policy:
    late: LatePolicy = "divert"
    #: After so many ticks without rows a partition no longer holds back the others (rule 3.2).
    idle: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.late not in LATE:
            raise PlanError("unknown policy for late events", given=self.late, allowed=", ".join(LATE))
        if self.idle is not None and self.idle < 1:
            raise PlanError("idle is a positive duration", given=self.idle, instead="idle='1 minute'")

    @property
    def _idle(self) -> str:
        return f", idle={format_duration(self.idle)}" if self.idle is not None else ""


@dataclass(frozen=True)
class Explicit(_Policy):
    """CTIs come with the data."""

    def __str__(self) -> str:
        return f"explicit(late={self.late}{self._idle})"


@dataclass(frozen=True)
class Advance(_Policy):
    """The CTI follows the highest LE at a distance, in steps of `every`."""

    delay: int = 0
    every: int = 1
    max_skew: int | None = None
    #: The column whose values are channels of their own; `idle` is then a duration of the data's time.
    per: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per is not None and (type(self.per) is not str or self.idle is None):
            raise PlanError(
                "progress per key needs the name of a column, and how long a key may be silent",
                given=str(self),
                instead="hr.advance(delay='10 s', per='sensor', idle='30 s')",
            )
        if self.delay < 0 or self.every < 1 or (self.max_skew is not None and self.max_skew < 0):
            raise PlanError("delay, every and max_skew must not be negative", given=str(self))

    def cti(self, high: int) -> int:
        """The promise that follows from the highest LE."""
        if high == NEG_INFINITY:
            return high
        return max(NEG_INFINITY, (high - self.delay) // self.every * self.every)

    def __str__(self) -> str:
        skew = f", max_skew={format_duration(self.max_skew)}" if self.max_skew is not None else ""
        steps = f", every={format_duration(self.every)}" if self.every > 1 else ""
        per = f", per={self.per}" if self.per is not None else ""
        return f"advance(delay={format_duration(self.delay)}{steps}{skew}{per}, late={self.late}{self._idle})"


@dataclass(frozen=True)
class Heartbeat(_Policy):
    """The CTI follows a clock at a distance, so that it also advances without input."""

    every: int = 1_000_000
    delay: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delay < 0 or self.every < 1:
            raise PlanError("every must be positive and delay not negative", given=str(self))

    def cti(self, clock: int) -> int:
        """The promise that follows from the time of the clock."""
        return (clock - self.delay) // self.every * self.every

    def __str__(self) -> str:
        return f"heartbeat(every={format_duration(self.every)}, delay={format_duration(self.delay)}, late={self.late})"


ProgressPolicy = Explicit | Advance | Heartbeat
