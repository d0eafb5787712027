"""Windows that divide a sequence of tuples (rules 8.2 and 8.3).

The tuples of a group have an order: by LE, then by arrival and position if the stream carries them (`__arrival`,
`__position`), then by the columns of the payload, ascending, nulls first. Their ends do not matter. An event that is
there n times is n tuples. A tuple that comes out of order is inserted in its place, a deleted one is removed, and the
answers after it are corrected.

Aggregates that depend on an order (`first`, `last`, `collect`), and modules, see the tuples of a window in this order;
time-sensitive modules see them by time, then by value, as in other windows.

*Slides*: `SIZE` says which of the tuples up to the trigger are in the window, `EVERY` when a window is triggered.

- Every `Tuples(b)`: at each b-th tuple of the group, as soon as it comes. The first windows may be smaller than the
  size; an incomplete slide gives no window.
- Every `Time(b)`: at `g = o + k·b`, over the tuples with LE < g; `o` is 0, or `starting`: a time, or "first", the LE of
  the group's first tuple. Windows with g <= m are given (rule 5.3). When the input has ended, they continue up to the
  greater of m and the first g after the group's last tuple.
- Of size `Tuples(n)`: the last n tuples. `Time(t)`: those with LE >= u - t, where u is the window's upper bound.
  `By(column, x)`: those whose value is less than x below the highest value up to the trigger; null and NaN are in none,
  and to an infinite value only equal ones are near.
- The *tick* says what the query reacts to. "tuple": every tuple, or every slide that passes. "time": every distinct LE,
  once, if it passes a multiple of b; slides of time only if they change the content of the window. "batch": the same
  for every distinct LE and value of the batch column; without such a column each tuple is a batch.

*Delta*: the first tuple opens a window; each following tuple joins it while its delta to the first is within the
threshold, and otherwise opens the next one. A tuple with a null delta joins nothing. *Landmark*: all tuples since a
time, at every trigger. *Fixed*: all tuples from one time to another, once.

*Frame*: for each tuple, those before it and itself; with a slide, only for yield tuples. Every s-th tuple of a group is
a yield tuple; with a slide of time s it is the last tuple of each slot `[k·s, (k+1)·s)`, which is given once m has
reached the slot's end (rule 5.3), or the input has ended.

A window's upper bound is its g, or one tick after the LE of its last tuple; its lower bound is the upper bound less a
size in time, the start of a landmark or a fixed window, or else the LE of its first tuple. Answers last from the lower
to the upper bound (rule 6.3). Lifetimes that a time-sensitive module sees end with the window, so that a window is
closed when the CTI has reached its upper bound: no legal change can affect it (rule 3.1).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.plan.windows import WindowKind
from headrace.schema import NUMBERED, STAMPS, Field, Schema, Type
from headrace.time import format_duration

__all__ = [
    "FIRST", "NUMBER", "By", "Delta", "Fixed", "Frame", "Landmark", "Measure", "Ordered", "Slides", "Tick", "Time",
    "Trigger", "Tuples", "order_columns",
]  # fmt: skip

_LIMIT = 2**60
#: The prefix of columns of a window's first tuple, in a delta.
FIRST = "first."
#: The column with the number of a tuple in its group.
(NUMBER,) = NUMBERED.names

Tick = Literal["tuple", "time", "batch"]


@dataclass(frozen=True)
class Tuples:
    """A number of tuples."""

    count: int

    def __post_init__(self) -> None:
        if type(self.count) is not int or not 0 < self.count < _LIMIT:
            raise PlanError(
                "a window counts at least one tuple",
                given=self.count,
                allowed="a whole number from 1 on",
                instead="sliding(100, every=10)",
            )

    def __str__(self) -> str:
        return f"{self.count} tuples"


@dataclass(frozen=True)
class Time:
    """A span of application time, in ticks."""

    ticks: int

    def __post_init__(self) -> None:
        if type(self.ticks) is not int or not 0 < self.ticks < _LIMIT:
            raise PlanError(
                "a window's time must be positive and finite",
                given=self.ticks,
                allowed="a duration",
                instead="sliding('60 s', every='10 s')",
            )

    def __str__(self) -> str:
        return format_duration(self.ticks)


@dataclass(frozen=True)
class By:
    """A span of a column's values: of numbers in the column's unit, of a DATETIME in ticks."""

    column: str
    extent: int | float

    def __post_init__(self) -> None:
        extent: Any = self.extent
        number = isinstance(extent, (int, float)) and not isinstance(extent, bool)
        if not number or not 0 < extent < _LIMIT:
            raise PlanError(
                "a window's extent must be positive and finite",
                given=self.extent,
                allowed="a number, or a duration",
                instead=f"by({self.column!r}, 60)",
            )

    def check(self, schema: Schema) -> None:
        """Refuse a column without distances between values."""
        kind = _column(self.column, schema, "a window's size")
        whole = kind.is_integer or kind is Type.DATETIME
        if not whole and not kind.is_floating:
            raise PlanError(
                f"a window's size is measured by numbers or times, and {self.column!r} is {kind.value}",
                given=str(self),
                allowed="a numeric or DATETIME column",
                instead="sliding(100, every=10)",
            )
        if whole and self.extent != int(self.extent):
            raise PlanError(
                f"{self.column!r} is {kind.value}, whose distances are whole numbers",
                given=str(self),
                allowed="a whole number",
                instead=f"by({self.column!r}, {int(self.extent) + 1})",
            )

    def __str__(self) -> str:
        return f"{self.extent!r} on {self.column}"


Measure = Tuples | Time | By
Trigger = Tuples | Time


def _column(name: str, schema: Schema, what: str) -> Type:
    if name not in schema:
        raise PlanError(
            f"{what} names a column that does not exist",
            given=name,
            allowed=", ".join(schema.names),
            instead="a column of the stream",
        )
    return schema[name].type


def order_columns(schema: Schema) -> tuple[str, ...]:
    """The columns that order tuples with equal LEs: the stamps of ingress, then the payload.

    Numbered tuples keep their order, whichever columns are added later.
    """
    stamps = tuple(name for name in (NUMBER, *STAMPS.names) if name in schema)
    return (*stamps, *(name for name in schema.names if name not in stamps))


@dataclass(frozen=True)
class Ordered(WindowKind):
    """Windows of tuples in their order."""

    @property
    @abstractmethod
    def state(self) -> str:
        """The state, as text for users: a lower bound may be as far back as the tuples that are kept."""

    @property
    def cti(self) -> str:
        """The output CTI, as text for users."""
        return "lower bound of the first open window"

    @property
    def advice(self) -> tuple[str, ...]:
        """Advice to improve the output CTI, as text for users."""
        return ()

    @property
    def quiet(self) -> tuple[str, str] | None:
        return "goes quiet", "a window measured by time: sliding('10 s', ...)"

    def check(self, schema: Schema) -> None:
        """Refuse a window that is invalid over these columns."""

    @property
    def hop(self) -> int | None:
        """The time between two windows, where time triggers them."""
        every = getattr(self, "every", None)
        return every.ticks if isinstance(every, Time) else None


@dataclass(frozen=True)
class Slides(Ordered):
    """A window of a size at every trigger; both may count tuples or time."""

    size: Measure
    every: Trigger
    tick: Tick = "tuple"
    batch: str | None = None
    starting: int | Literal["first"] | None = None

    def __post_init__(self) -> None:
        _check_every(self.every)
        if not isinstance(self.size, (Tuples, Time, By)):
            raise PlanError("a window's size is a measure", given=self.size, allowed="Tuples, Time or By")
        if self.tick not in ("tuple", "time", "batch"):
            raise PlanError(
                f"there is no tick {self.tick!r}", given=self.tick, allowed="tuple, time, batch", instead="tick='time'"
            )
        if self.batch is not None and self.tick != "batch":
            raise PlanError(
                "only the tick 'batch' looks at a batch column",
                given=f"tick={self.tick!r}, batch={self.batch!r}",
                allowed="batch=... with tick='batch'",
                instead=f"tick='batch', batch={self.batch!r}",
            )
        self._check_starting()

    def _check_starting(self) -> None:
        starting: Any = self.starting
        if starting is None:
            return
        if isinstance(self.every, Tuples):
            raise PlanError(
                "windows that tuples trigger start with the first tuple",
                given=f"starting={starting!r}",
                allowed="starting=... with a slide in time",
                instead="leave it out",
            )
        if starting != "first" and (type(starting) is not int or abs(starting) >= _LIMIT):
            raise PlanError("windows start at a time", given=starting, allowed="a finite time, or 'first'")

    def check(self, schema: Schema) -> None:
        if isinstance(self.size, By):
            self.size.check(schema)
        if self.batch is not None and _column(self.batch, schema, "the tick").is_array:
            raise PlanError("a list cannot identify batches", given=self.batch, allowed="a column of one value")

    @property
    def origin(self) -> int | None:
        """The time from which slides of time are counted; None for the group's first tuple."""
        return None if self.starting == "first" else int(self.starting or 0)

    @property
    def delay(self) -> str:
        return f"up to {self.size}" if isinstance(self.size, Time) else "until the slowest group has its next windows"

    @property
    def state(self) -> str:
        if isinstance(self.size, Time):
            return f"tuples of the last {self.size}, a row a group"
        return f"the last {self.size} of each group, tuples after the CTI, a row a group"

    @property
    def quiet(self) -> tuple[str, str] | None:
        return None if isinstance(self.size, Time) else super().quiet

    def __str__(self) -> str:
        parts = [str(self.size), f"every {self.every}"]
        parts += [f"tick {self.tick}"] if self.tick != "tuple" else []
        parts += [f"batch {self.batch}"] if self.batch is not None else []
        parts += [f"starting {self.starting}"] if self.starting is not None else []
        return f"sliding({', '.join(parts)})"


def _check_every(every: Any) -> None:
    if not isinstance(every, (Tuples, Time)):
        raise PlanError(
            "a window is triggered by tuples or by time",
            given=every,
            allowed="a number of tuples, or a duration",
            instead="sliding(100, every='10 s')",
        )


@dataclass(frozen=True, eq=False)
class Delta(Ordered):
    """Runs of tuples within a threshold of their first tuple."""

    delta: Expr
    threshold: Expr

    @property
    def joins(self) -> Expr:
        """Whether a tuple joins the window of a first tuple, whose columns are named `first.name`."""
        return self.delta <= self.threshold

    def check(self, schema: Schema) -> None:
        both = Schema((*schema.fields, *(Field(FIRST + f.name, f.type) for f in schema)))
        kind = self.delta.type(both)
        if not kind.is_numeric:
            raise PlanError(
                f"a delta is a number, and this is {kind.value}",
                given=str(self.delta),
                allowed="an expression over this tuple's columns and first.name",
                instead="delta(abs(col('price') - col('first.price')), 10)",
            )
        self.joins.type(both)

    @property
    def delay(self) -> str:
        return "as long as the longest open run"

    @property
    def state(self) -> str:
        return "tuples since the open run of each group began"

    def __str__(self) -> str:
        return f"delta({self.delta}, threshold {self.threshold})"


@dataclass(frozen=True)
class Landmark(Ordered):
    """All tuples since a time, at every trigger."""

    start: int
    every: Trigger

    def __post_init__(self) -> None:
        _check_every(self.every)
        _check_time("a landmark", self.start)

    @property
    def cti(self) -> str:
        return "the landmark"

    @property
    def advice(self) -> tuple[str, ...]:
        return ("the CTI never passes the landmark; windows of a fixed size let it advance: sliding(...)",)

    @property
    def delay(self) -> str:
        return "until the input ends"

    @property
    def state(self) -> str:
        return "all tuples since the landmark"

    @property
    def quiet(self) -> None:
        return None

    def __str__(self) -> str:
        return f"landmark({self.start}, every {self.every})"


@dataclass(frozen=True)
class Fixed(Ordered):
    """All tuples from one time to another, once."""

    start: int
    end: int

    def __post_init__(self) -> None:
        _check_time("a fixed window", self.start)
        _check_time("a fixed window", self.end)
        if self.start >= self.end:
            raise PlanError(
                "a fixed window ends after it starts",
                given=f"{self.start} to {self.end}",
                instead=f"fixed({self.end}, {self.start})",
            )

    @property
    def delay(self) -> str:
        return f"up to {format_duration(self.end - self.start)}"

    @property
    def state(self) -> str:
        return "tuples until it has ended"

    @property
    def quiet(self) -> None:
        return None

    def __str__(self) -> str:
        return f"fixed({self.start} to {self.end})"


def _check_time(what: str, time: Any) -> None:
    if type(time) is not int or abs(time) >= _LIMIT:
        raise PlanError(f"{what} has a finite time", given=time, allowed="a time")


@dataclass(frozen=True)
class Frame(Ordered):
    """For each tuple, those before it and itself: `rows` before it, those within `range`, or all.

    With a `slide` only yield tuples have a frame, the last tuple of each slot: a number of tuples, or a duration.
    With `peers` a frame also has the tuples after it that start at the same time, as RANGE in standard SQL.
    """

    rows: int | None = None
    range: int | None = None
    slide: Trigger | None = None
    peers: bool = False

    def __post_init__(self) -> None:
        if self.peers and (self.rows is not None or self.slide is not None):
            raise PlanError(
                "only a frame of time has all tuples that start together, and it does not slide",
                given=f"peers=True, {self.preceding}" + (f", slide {self.slide}" if self.slide else ""),
                allowed="peers with range, or with all tuples before",
                instead="over(range='10 s', peers=True)",
            )
        if self.rows is not None and self.range is not None:
            raise PlanError(
                "a frame is a number of rows or a duration",
                given=f"rows={self.rows}, range={self.range}",
                allowed="one of them, or none for all tuples before",
                instead=f"over(rows={self.rows})",
            )
        for name, value in (("rows", self.rows), ("range", self.range)):
            if value is not None and (type(value) is not int or not 0 <= value < _LIMIT):
                raise PlanError(
                    f"a frame cannot have this number of {'rows' if name == 'rows' else 'ticks'}",
                    given=value,
                    allowed=f"a whole number from 0 to {_LIMIT - 1:,}",
                    instead=f"over({name}=9), or over() for all tuples before",
                )
        self._check_slide()

    def _check_slide(self) -> None:
        slide: Any = self.slide
        if slide is None:
            return
        kinds = [Tuples] if self.rows is not None else [Time] if self.range is not None else [Tuples, Time]
        if type(slide) not in kinds:
            raise PlanError(
                "a frame of rows slides by tuples, and one of time by time",
                given=f"{self.preceding}, slide {slide}",
                allowed="a number of tuples with rows, a duration with range",
                instead="over(rows=49, slide=10), or over(range='60 s', slide='10 s')",
            )

    @property
    def endless(self) -> bool:
        """Whether it contains all tuples before."""
        return self.rows is None and self.range is None

    @property
    def hop(self) -> int | None:
        return self.slide.ticks if isinstance(self.slide, Time) else None

    @property
    def tumbles(self) -> bool:
        """Whether frames are disjoint: the slide is not less than the window."""
        if self.rows is not None and isinstance(self.slide, Tuples):
            return self.slide.count > self.rows
        return self.range is not None and isinstance(self.slide, Time) and self.slide.ticks > self.range

    @property
    def preceding(self) -> str:
        """The frame without its slide."""
        if self.rows is not None:
            return f"{self.rows} rows preceding"
        peers = " and peers" if self.peers else ""
        return f"{'all' if self.range is None else format_duration(self.range)} preceding{peers}"

    @property
    def cti(self) -> str:
        return "the last tuple of the first open slot" if isinstance(self.slide, Time) else "as its input"

    @property
    def delay(self) -> str:
        return f"up to {self.slide}" if isinstance(self.slide, Time) else "none"

    @property
    def state(self) -> str:
        return self.remembered(by_slots=False)

    def remembered(self, *, by_slots: bool, total: bool = False) -> str:
        """The state, as text for users: a state of each slot, or a total of each group where sums suffice."""
        state = "all tuples" if self.endless else "tuples of the frame before the CTI and those after it"
        if self.endless and total:
            state = "a total of each group, tuples after the CTI"
        if by_slots:
            state = "a state of each group, tuples after the CTI"
        elif isinstance(self.slide, Tuples):
            state += ", a row a group"
        return f"{state}; results of tuples that have not ended"

    @property
    def quiet(self) -> None:
        return None

    def __str__(self) -> str:
        return self.preceding if self.slide is None else f"{self.preceding}, slide {self.slide}"
