"""The brackets after a stream: lifetimes, windows (rules 5 and 8.2), and operators of modules.

The windows of SIZE and EVERY are about one of three clocks: application time (`60 ON ts`), arrival (`1 min`), and the
count of tuples (`100`). The engine knows one clock, a stream's own time. So the stream is given the clock that EVERY
goes by, or SIZE if EVERY counts tuples: its sources are read again, with other lifetimes (`timed_by`). What the other
one measures is then a column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from headrace.api import windows as api
from headrace.api.grouped import Grouped
from headrace.api.stream import Stream
from headrace.errors import PlanError
from headrace.expr import Expr, col
from headrace.modules import Operator
from headrace.plan.arrival import starts_at, timed_by
from headrace.plan.nodes import Node
from headrace.plan.ordered import FIRST
from headrace.plan.windows import Count, Grid, Session, Snapshot, WindowKind
from headrace.schema import Field, Schema, Type
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions, module_called
from headrace.sql.bind.patterns import matching
from headrace.sql.bind.scope import Relation, Scope, visible
from headrace.sql.bind.values import duration_of, ticks_of, unit_of, unit_of_type
from headrace.sql.printer import to_sql

__all__ = ["OWN_TIME", "Tick", "Windowing", "bracketed"]

#: `SIZE 60 s ON le`: the stream's own time, from any column.
OWN_TIME = "le"
_CALENDAR = ("month", "quarter", "year")


@dataclass(frozen=True)
class Tick:
    """The TICK of ordered windows (rule 8.3)."""

    kind: Literal["tuple", "time", "batch"] = "tuple"
    by: s.Column | None = None


@dataclass(frozen=True)
class Windowing:
    """A window, its keys, and the policies for modules."""

    part: s.Part
    window: WindowKind
    keys: tuple[tuple[str, Expr], ...]
    policy: Mapping[str, Any]

    @property
    def divides_time(self) -> bool:
        """Whether it divides the time axis (rule 5), so that filtering its content is filtering the stream."""
        return isinstance(self.window, (Grid, Snapshot, Count, Session))


@dataclass(frozen=True)
class _BoundStream:
    """The bound part: the stream, the names of its columns, and the window that will divide it."""

    context: Context
    own: Mapping[str, Any]
    tick: Tick
    relation: Relation
    stream: Stream
    windowing: Windowing | None = None
    #: The policy for failing modules, if the session sets one.
    policy: Mapping[str, Any] = field(default_factory=dict)

    @property
    def expressions(self) -> Expressions:
        return Expressions(self.context, Scope(self.context, (self.relation,)), self.stream.schema, self.own)

    def with_stream(self, stream: Stream) -> _BoundStream:
        return replace(self, stream=stream)


def bracketed(
    context: Context,
    own: Mapping[str, Any],
    tick: Tick,
    relation: Relation,
    stream: Stream,
    item: s.FromItem,
    policy: Mapping[str, Any],
) -> tuple[Relation, Stream, Windowing | None]:
    """A stream with its brackets applied; the SELECT applies a window at the end."""
    place = _BoundStream(context, own, tick, relation, stream, policy=policy)
    for bracket in item.brackets:
        if place.windowing is not None and not isinstance(bracket, s.Module):
            raise context.error(
                bracket,
                "a window comes last: only [APPLY …] may follow it",
                given=to_sql(bracket),
                instead="a sub-select: FROM (SELECT … FROM stream [window]) [window]",
            )
        with context.at(bracket):
            if isinstance(bracket, s.Lifespan):
                place = place.with_stream(_lasting(place, bracket))
            elif isinstance(bracket, s.Module):
                place = _applied(place, bracket)
            elif isinstance(bracket, s.MatchRecognize):
                named, found = matching(context, own, place.relation, place.stream, bracket)
                place = replace(place, relation=named, stream=found)
            else:
                assert isinstance(bracket, s.Window)
                place = _windowed(place, bracket)
    return place.relation, place.stream, place.windowing


# --- lifetimes and modules -------------------------------------------------------------------------------------------


def _lasting(place: _BoundStream, part: s.Lifespan) -> Stream:
    stream = place.stream
    plain: dict[str, Callable[[], Stream]] = {
        "now": stream.point_at_start,
        "point_at_start": stream.point_at_start,
        "point_at_end": stream.point_at_end,
        "coalesce": stream.coalesce,
    }
    if part.kind in plain:
        return plain[part.kind]()
    assert part.duration is not None
    ticks = duration_of(place.context, part.duration, unit_of(stream.node))
    if part.kind == "chop":
        origin = 0 if part.starting is None else ticks_of(place.context, part.starting, unit_of(stream.node))
        return stream.chop(ticks, origin)
    with_duration: dict[str, Callable[[int], Stream]] = {
        "range": stream.set_duration,
        "shift": stream.shift,
        "extend": stream.extend,
        "cap": stream.cap_duration,
    }
    return with_duration[part.kind](ticks)


def _applied(place: _BoundStream, part: s.Module) -> _BoundStream:
    if place.windowing is None:
        raise place.context.error(
            part,
            "an operator works on windows",
            given=to_sql(part),
            instead=f"[TUMBLING 10 s] {to_sql(part)}, or [SNAPSHOT] {to_sql(part)}",
        )
    module = module_called(place.context, part.call, place.own)
    if not isinstance(module, Operator):
        raise place.context.error(
            part.call, "only operators are applied", given=to_sql(part.call), instead=f"SELECT {to_sql(part.call)} …"
        )
    arguments = [place.expressions.bind(argument) for argument in part.call.arguments]
    windowing = place.windowing
    made = (
        Grouped(place.stream, windowing.keys).window(windowing.window, **windowing.policy).operate(module, *arguments)
    )
    names = {name: name for name in visible(made.schema.names)}
    return replace(place, stream=made, relation=Relation(place.relation.name, names), windowing=None)


# --- windows ---------------------------------------------------------------------------------------------------------


def _windowed(place: _BoundStream, part: s.Window) -> _BoundStream:
    if part.on is not None:
        place = _on(place, part.on, part)
    if part.where is not None:
        place = place.with_stream(place.stream.where(place.expressions.predicate(part.where)))
    make = _WINDOWS[type(part)]
    place, window = make(place, part)
    names = [place.expressions.scope.column(column) for column in part.partition]
    policy = dict(place.policy)
    if part.policies.clip is not None:
        policy["clipping"] = part.policies.clip
    if part.policies.timestamp is not None:
        policy["timestamping"] = part.policies.timestamp
    keys = tuple((name, col(name)) for name in names)
    return replace(place, windowing=Windowing(part, window, keys, policy))


def _grid(place: _BoundStream, part: s.GridWindow) -> tuple[_BoundStream, WindowKind]:
    spans = part.size, part.every or part.size
    units = [unit.lower() for span in spans for _, unit in span.amounts]
    if part.zone is not None or any(unit.startswith(_CALENDAR) for unit in units):
        starting = None if part.starting is None else _written(place, part.starting)
        return place, api.hopping(to_sql(spans[0]), to_sql(spans[1]), starting, zone=part.zone)
    unit = _unit(place)
    size, every = (duration_of(place.context, span, unit) for span in spans)
    origin = 0 if part.starting is None else ticks_of(place.context, part.starting, unit)
    return place, api.hopping(size, every, origin)


def _written(place: _BoundStream, part: s.Expression) -> str | int:
    """A time as it was written: without an offset, it is one of the window's zone."""
    if isinstance(part, (s.Text, s.DateTime, s.TypedText)):
        text = part.value if isinstance(part, s.Text) else part.text
        return text.strip().replace("/", "-").replace(" ", "T", 1)
    return ticks_of(place.context, part, _unit(place))


def _sized(place: _BoundStream, part: s.SizeWindow) -> tuple[_BoundStream, WindowKind]:
    every = part.every or part.size
    clock = _clock(place.context, part.size, every)
    if clock is not None:
        place = _timed(place, clock, part)
    starting: Any = part.starting
    if isinstance(starting, s.Part):
        assert isinstance(starting, s.Expression)
        starting = ticks_of(place.context, starting, _unit(place, clock))
    window = api.sliding(
        _measured(place, part.size, clock),
        _measured(place, every, clock),
        tick=place.tick.kind,
        batch=None if place.tick.by is None else place.expressions.scope.column(place.tick.by),
        starting=starting,
    )
    return place, window


def _landmark(place: _BoundStream, part: s.LandmarkWindow) -> tuple[_BoundStream, WindowKind]:
    clock = _clock(place.context, part.every, part.every)
    if clock is not None:
        place = _timed(place, clock, part)
    window = api.landmark(ticks_of(place.context, part.start, _unit(place, clock)), _measured(place, part.every, clock))
    return place, window


def _session(place: _BoundStream, part: s.SessionWindow) -> tuple[_BoundStream, WindowKind]:
    context, unit = place.context, _unit(place)
    longest = None if part.longest is None else duration_of(context, part.longest, unit)
    return place, api.session(duration_of(context, part.gap, unit), longest)


def _delta(place: _BoundStream, part: s.DeltaWindow) -> tuple[_BoundStream, WindowKind]:
    mine = place.relation.columns
    first = Relation("first", {name: f"{FIRST}{theirs}" for name, theirs in mine.items()}, by_name=True)
    below = place.stream.schema
    both = Schema((*below.fields, *(Field(f"{FIRST}{f.name}", f.type) for f in below)))
    scope = Scope(place.context, (Relation("this", mine), first))
    delta = Expressions(place.context, scope, both, place.own).bind(part.delta)
    threshold = Expressions(place.context, Scope(place.context, ()), Schema(()), place.own).bind(part.threshold)
    return place, api.delta(delta, threshold)


def _fixed(place: _BoundStream, part: s.FixedWindow) -> tuple[_BoundStream, WindowKind]:
    unit = _unit(place)
    return place, api.fixed(ticks_of(place.context, part.start, unit), ticks_of(place.context, part.end, unit))


_WINDOWS: Mapping[type[s.Window], Callable[[_BoundStream, Any], tuple[_BoundStream, WindowKind]]] = {
    s.GridWindow: _grid,
    s.SizeWindow: _sized,
    s.SnapshotWindow: lambda place, _: (place, api.snapshot()),
    s.CountWindow: lambda place, part: (
        place,
        api.count_by_start(part.count) if part.edge == "start" else api.count_by_end(part.count),
    ),
    s.SessionWindow: _session,
    s.DeltaWindow: _delta,
    s.LandmarkWindow: _landmark,
    s.FixedWindow: _fixed,
}


# --- clocks ----------------------------------------------------------------------------------------------------------


def _clock(context: Context, size: s.Measure, every: s.Measure) -> s.Application | s.Arrival | None:
    """The column that must be the stream's time; None if any will do."""
    if isinstance(size, s.Application) and isinstance(every, s.Application):
        size_column, every_column = size.column.name.text, every.column.name.text
        if size_column.lower() != every_column.lower():
            raise context.error(
                every.column,
                "SIZE and EVERY use different columns",
                given=f"{size_column} and {every_column}",
                instead=size_column,
            )
    for measure in (every, size):
        if isinstance(measure, (s.Application, s.Arrival)):
            return measure
    return None


def _timed(place: _BoundStream, clock: s.Application | s.Arrival, part: s.Part) -> _BoundStream:
    if _is_own(clock):
        return place
    if isinstance(clock, s.Application):
        column = place.expressions.scope.column(clock.column)
        kind = place.stream.schema[column].type
        if kind is not Type.DATETIME and not kind.is_integer:
            raise place.context.error(
                clock.column, f"{column} cannot be a time", given=kind.value, allowed="DATETIME or a whole number"
            )
        by: Expr | Literal["arrival"] = col(column)
    else:
        by = "arrival"
    try:
        node: Node = timed_by(place.stream.node, by)
    except PlanError as error:
        raise place.context.error(
            clock.column if isinstance(clock, s.Application) else part,
            error.message,
            given=error.given,
            allowed=error.allowed,
            instead=f"ON {OWN_TIME}, if the stream's own time is meant: SIZE 60 s ON {OWN_TIME}",
        ) from error
    return place.with_stream(Stream(node))


def _on(place: _BoundStream, column: s.Column, part: s.Part) -> _BoundStream:
    """The stream by the time in a column, which may be its own already."""
    clock = s.Application(s.Number(0), column)
    if _is_own(clock):
        return place
    expr = place.expressions.bind(column)
    kind = expr.type(place.stream.schema)
    own = (kind is Type.DATETIME or kind.is_integer) and starts_at(place.stream.node, expr)
    return place if own else _timed(place, clock, part)


def _is_own(clock: s.Application | s.Arrival) -> bool:
    return isinstance(clock, s.Application) and clock.column.name.text.lower() == OWN_TIME


def _unit(place: _BoundStream, clock: s.Application | s.Arrival | None = None) -> int:
    """The number of ticks of a bare number on a clock: that of a column, or the stream's own."""
    if not isinstance(clock, s.Application) or _is_own(clock):
        return unit_of(place.stream.node)
    return unit_of_type(place.stream.schema[place.expressions.scope.column(clock.column)].type)


def _measured(place: _BoundStream, measure: s.Measure, clock: s.Application | s.Arrival | None) -> Any:
    """The argument for the API, on a stream whose time is `clock`."""
    if isinstance(measure, s.Tuples):
        return measure.count
    if isinstance(measure, s.Arrival):
        ticks = duration_of(place.context, measure.duration)
        if isinstance(clock, s.Arrival):
            return timedelta(microseconds=ticks)
        return api.arrival(ticks)
    ticks = duration_of(place.context, measure.amount, _unit(place, measure))
    if isinstance(clock, s.Application):
        return timedelta(microseconds=ticks)
    return api.by(place.expressions.scope.column(measure.column), ticks)
