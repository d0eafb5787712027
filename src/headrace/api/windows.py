"""Windows: the public functions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from headrace.errors import PlanError
from headrace.expr import Expr, as_expr
from headrace.plan.calendar import calendar, calendar_span, zone_rules
from headrace.plan.ordered import By, Delta, Fixed, Frame, Landmark, Slides, Tick, Time, Tuples
from headrace.plan.windows import Count, Grid, Hopping, Session, Snapshot
from headrace.schema import ARRIVAL
from headrace.time import DurationLike, TimeLike, duration, ticks

__all__ = [
    "ArrivalSpan", "Extent", "Slide", "arrival", "by", "count_by_end", "count_by_start", "delta", "fixed", "frame",
    "hopping", "landmark", "session", "sliding", "snapshot", "tumbling",
]  # fmt: skip


@dataclass(frozen=True)
class ArrivalSpan:
    """A duration of arrival time."""

    ticks: int


#: The types of a sliding window's size, and of its slide.
Extent = int | str | timedelta | Tuples | Time | By | ArrivalSpan
Slide = int | str | timedelta | Tuples | Time | ArrivalSpan


def tumbling(size: DurationLike, origin: TimeLike | None = None, *, zone: str | None = None) -> Grid:
    """Windows of one size, without gaps or overlaps.

    `size` is a duration, or a part of the calendar: months, quarters and years always are, days and weeks are if a
    `zone` is given (see `hopping`). `"1 week"` without a zone begins on Thursday, the first day of 1970; with
    `zone="UTC"` on Monday.

    A window answers when the input has passed its end, so an open day has no answer yet; for a total that grows, let
    events last until the end of their day and use `snapshot`.
    """
    return hopping(size, size, origin, zone=zone)


def hopping(
    size: DurationLike, every: DurationLike, origin: TimeLike | None = None, *, zone: str | None = None
) -> Grid:
    """Windows of one size, one every `every`; they overlap if that is smaller than `size`, and leave gaps if larger.

    `"1 month"`, `"2 quarters"` or `"1 year"` is a part of the calendar, and so are days and weeks if there is a `zone`,
    such as `"Europe/Berlin"`: windows then begin at midnight there, and a day may have 23 or 25 hours. Without a zone,
    months are those of UTC. Weeks begin on Monday, years with January. `origin` is a time at which a window begins,
    in the zone if it has none of its own: `"2024-04-01"` for years that begin in April, `"2024-01-01T06:00"` for days
    that begin at six; without a calendar, windows are counted from the start of 1970 (UTC).
    """
    calendar_size, hop = calendar_span(size), calendar_span(every)
    if zone is None and not any(span is not None and span.unit == "month" for span in (calendar_size, hop)):
        return Hopping(duration(size), duration(every), 0 if origin is None else ticks(origin))
    if calendar_size is None or hop is None or calendar_size.unit != hop.unit:
        text = str(size) if size == every else f"{size}, every {every}"
        raise PlanError(
            "the size and the hop of calendar windows are both days or weeks, or both months, quarters or years",
            given=text if zone is None else f"{text}, in the zone {zone}",
            allowed="'1 day' every '1 day', '1 week' every '1 day', '1 year' every '1 month'",
            instead="hopping('4 weeks', every='1 week', zone='UTC'); for hours and shorter, no zone",
        )
    zone = zone or "UTC"
    zone_rules(zone)  # refuses unknown ones
    return calendar(calendar_size, hop, zone, None if origin is None else _local(origin, zone))


def _local(origin: TimeLike, zone: str) -> datetime:
    """A time on the clocks of a zone; one with an offset of its own is converted."""
    if isinstance(origin, str) and not origin.strip().lstrip("+-").isdigit():
        with suppress(ValueError):
            origin = datetime.fromisoformat(origin.strip())
    if isinstance(origin, datetime) and origin.tzinfo is None:
        return origin
    time = origin if isinstance(origin, datetime) else datetime(1970, 1, 1, tzinfo=UTC) + _since_1970(origin)
    try:
        return time.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    except OverflowError:
        raise PlanError(
            "on the clocks of the zone, the origin of the windows is not in the years 1 to 9999",
            given=f"{origin}, in the zone {zone}",
            allowed="a date of these years on the clocks of the zone",
            instead="'2024-01-01'",
        ) from None


def _since_1970(origin: int | str) -> timedelta:
    try:
        return timedelta(microseconds=ticks(origin))
    except OverflowError:
        raise PlanError("a calendar window's origin must be a date", given=origin, instead="'2024-01-01'") from None


def snapshot() -> Snapshot:
    """A window between each two neighbouring endpoints of lifetimes: while the same events are alive."""
    return Snapshot()


def count_by_start(n: int) -> Count:
    """From each distinct start time, a window over n of them; an event belongs to the windows in which it starts."""
    return Count(n, "start")


def count_by_end(n: int) -> Count:
    """From each distinct end time, a window over n of them; an event belongs to the windows in which it ends."""
    return Count(n, "end")


def session(gap: DurationLike, longest: DurationLike | None = None) -> Session:
    """Runs of events that start less than `gap` apart; a window ends `gap` after the last start.

    `longest` cuts runs: a session ends at the latest so long after its first start, and the next event begins another.
    """
    return Session(duration(gap), None if longest is None else duration(longest))


# --- windows of tuples ------------------------------------------------------------------------------------------------


def arrival(span: DurationLike) -> ArrivalSpan:
    """A duration of arrival time: a size for sliding windows over a stream that carries arrivals."""
    return ArrivalSpan(duration(span))


def by(column: str, extent: float | str | timedelta) -> By:
    """A size in values of a column: a number in the column's unit, or a duration for times."""
    return By(column, extent if isinstance(extent, (int, float)) else duration(extent))


def sliding(
    size: Extent,
    every: Slide | None = None,
    *,
    tick: Tick = "tuple",
    batch: str | None = None,
    starting: TimeLike | Literal["first"] | None = None,
) -> Slides | Grid:
    """The last `size` of a group, every `every`; both are a number of tuples, or a duration such as `"10 s"`.

    Tuples are in the order of their starts. Without `every`, windows tumble. `tick="time"` reacts once to all tuples
    of one time, and only if the window changed; `tick="batch"` once to all tuples that also have the same value in the
    column `batch`. Slides of time are counted from 0, from `starting`, or from the group's `"first"` tuple.
    """
    measure = _size(size)
    trigger = _every(size if every is None else every)
    origin = starting if starting is None or starting == "first" else ticks(starting)
    window = Slides(measure, trigger, tick, batch, origin)  # type: ignore[arg-type]
    plain = tick == "tuple" and window.origin is not None
    if plain and isinstance(measure, Time) and isinstance(trigger, Time):
        assert window.origin is not None
        return Hopping(measure.ticks, trigger.ticks, (window.origin - measure.ticks) % trigger.ticks)
    return window


def _size(size: Any) -> Tuples | Time | By:
    if isinstance(size, ArrivalSpan):
        return By(ARRIVAL, size.ticks)
    return size if isinstance(size, By) else _tuples_or_time(size, "size")


def _every(every: Any) -> Tuples | Time:
    if isinstance(every, (ArrivalSpan, By)):
        raise PlanError(
            "slides are counted in tuples or in the stream's own time",
            given=every,
            allowed="a number of tuples, or a duration",
            instead="a stream that is timed by arrival, and every='1 min'",
        )
    return _tuples_or_time(every, "slide")


def _tuples_or_time(value: Any, what: str) -> Tuples | Time:
    if isinstance(value, (Tuples, Time)):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Tuples(value)
    if isinstance(value, (str, timedelta)):
        return Time(duration(value))
    raise PlanError(
        f"a window's {what} is a number of tuples or a duration",
        given="None" if value is None else value,
        allowed="100, '10 s', a timedelta" + (", by('column', 60), arrival('1 min')" if what == "size" else ""),
        instead="sliding(100, every='10 s')",
    )


def frame(rows: int | None, range: DurationLike | None, slide: Slide | None, *, peers: bool = False) -> Frame:
    """The frame of `over`: a number of rows, a duration, or all. With a duration, a plain number slides by ticks."""
    span = None if range is None else duration(range)
    if slide is None or peers:
        return Frame(rows, span, None if slide is None else _every(slide), peers)
    if span is not None and isinstance(slide, int) and not isinstance(slide, bool):
        return Frame(rows, span, Time(slide))
    return Frame(rows, span, _every(slide))


def delta(delta: Expr, threshold: Expr | float) -> Delta:
    """Runs of tuples within a threshold of their first tuple.

    `delta` uses the columns of a tuple and, as `col("first.price")`, those of the first tuple of its window:
    `hr.delta(col("price") - col("first.price"), 10)`.
    """
    if not isinstance(delta, Expr):
        raise PlanError(
            "a delta is an expression",
            given=delta,
            allowed="columns of a tuple, and of the first one as col('first.price')",
            instead="delta(col('price') - col('first.price'), 10)",
        )
    return Delta(delta, as_expr(threshold))


def landmark(start: TimeLike, every: Slide) -> Landmark:
    """All tuples since a time, every `every`, a number of tuples or a duration; state keeps all of them."""
    return Landmark(ticks(start), _every(every))


def fixed(start: TimeLike, end: TimeLike) -> Fixed:
    """One window with all tuples that start in `[start, end)`."""
    return Fixed(ticks(start), ticks(end))
