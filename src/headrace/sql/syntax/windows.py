"""The brackets [ ] after a stream: windows, lifetimes, operators of modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.sql.syntax.expressions import Call, Column, Duration, Expression, Number, Unary
from headrace.sql.syntax.parts import Part

__all__ = [
    "Application", "Arrival", "Bracket", "CountWindow", "DeltaWindow", "FixedWindow", "GridWindow", "LandmarkWindow",
    "Lifespan", "Measure", "Module", "SessionWindow", "SizeWindow", "SnapshotWindow", "Tuples", "Window",
    "WindowPolicies",
]  # fmt: skip


@dataclass(frozen=True)
class Tuples(Part):
    """`100`: a number of tuples."""

    count: int


@dataclass(frozen=True)
class Arrival(Part):
    """`1 min`: a time on the clock of arrival."""

    duration: Duration


@dataclass(frozen=True)
class Application(Part):
    """`60 ON ts`, `60 s ON ts`: application time; a Number is in the column's own unit (rule 8.2)."""

    amount: Number | Duration
    column: Column


Measure = Tuples | Arrival | Application


@dataclass(frozen=True)
class WindowPolicies(Part):
    """`CLIP LEFT|RIGHT|FULL|NONE`, `TIMESTAMP ALIGN|UNCHANGED|CLIP|TIME_BOUND`; in lower case, None if not said."""

    clip: str | None = None
    timestamp: str | None = None


@dataclass(frozen=True, kw_only=True)
class Bracket(Part):
    """One pair of brackets after a stream."""


@dataclass(frozen=True, kw_only=True)
class Window(Bracket):
    """A window; any may be partitioned, filtered and have policies. `on` is the column of a time window's time."""

    partition: tuple[Column, ...] = ()
    on: Column | None = None
    where: Expression | None = None
    policies: WindowPolicies = WindowPolicies()


@dataclass(frozen=True)
class SizeWindow(Window):
    """`[SIZE x EVERY y STARTING AT t | STARTING FIRST]`; `starting` is an expression, or "first"."""

    size: Measure
    every: Measure | None = None
    starting: Expression | Literal["first"] | None = None


@dataclass(frozen=True)
class GridWindow(Window):
    """`[TUMBLING 5 s]`, `[HOPPING 60 s EVERY 10 s]`, both with `ZONE 'Europe/Berlin'` and `STARTING AT t`.

    Sizes and hops may be of the calendar: `1 month`, `1 quarter`, `1 year`.
    """

    size: Duration
    every: Duration | None = None
    starting: Expression | None = None
    zone: str | None = None


@dataclass(frozen=True)
class SnapshotWindow(Window):
    """`[SNAPSHOT]`."""


@dataclass(frozen=True)
class CountWindow(Window):
    """`[COUNT BY START 3]`, `[COUNT BY END 3]`."""

    edge: Literal["start", "end"]
    count: int


@dataclass(frozen=True)
class SessionWindow(Window):
    """`[SESSION 30 min]`, `[SESSION 30 min LONGEST 4 h]`."""

    gap: Duration
    longest: Duration | None = None


@dataclass(frozen=True)
class DeltaWindow(Window):
    """`[DELTA abs(this.price - first.price) THRESHOLD 10]`."""

    delta: Expression
    threshold: Expression


@dataclass(frozen=True)
class LandmarkWindow(Window):
    """`[LANDMARK t EVERY y]`: from t until now, repeatedly."""

    start: Expression
    every: Measure


@dataclass(frozen=True)
class FixedWindow(Window):
    """`[FIXED t1 TO t2]`: one window."""

    start: Expression
    end: Expression


@dataclass(frozen=True)
class Lifespan(Bracket):
    """A change of lifetimes: `[RANGE 10 s]` (how long a tuple lasts), `[RANGE UNBOUNDED]`, `[NOW]`, `[SHIFT d]`,
    `[EXTEND d]`, `[CAP d]`, `[CHOP d STARTING AT t]`, `[POINT AT START]`, `[POINT AT END]`, `[COALESCE]`.
    """

    kind: Literal["range", "now", "shift", "extend", "cap", "chop", "point_at_start", "point_at_end", "coalesce"]
    duration: Duration | Unary | None = None
    #: Of `chop`: a time at which lifetimes are cut.
    starting: Expression | None = None


@dataclass(frozen=True)
class Module(Bracket):
    """`[APPLY finance.spikes(price, threshold => 3)]`: an operator of a module, over the window before it."""

    call: Call
