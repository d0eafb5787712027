"""Expressions that use an event's times, and lifetimes by expressions: which plans they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from headrace.errors import ExpressionError, PlanError
from headrace.expr import AggregateCall, Expr, col, lit
from headrace.expr.times import EventTime, Moment, Side, event_times
from headrace.plan.lifetimes import AlterLifetime, furthest_back, in_ticks, of_ticks
from headrace.plan.nodes import Node, Select, Where
from headrace.plan.times import only, with_times
from headrace.schema import Type
from headrace.time import DurationLike, duration

__all__ = [
    "JoinParts", "Named", "altered", "grouped", "joined", "payloads", "where", "with_argument_times",
    "with_window_times",
]  # fmt: skip

Named = tuple[tuple[str, Expr], ...]
KeyPairs = tuple[tuple[Expr, Expr], ...]


def where(node: Node, predicate: Expr) -> Node:
    """The events for which the predicate is true."""
    timed, (resolved,) = with_times(node, [predicate])
    return only(Where(timed, resolved), node.schema.names)


def payloads(node: Node, outputs: Named) -> Node:
    """New payloads."""
    timed, resolved = with_times(node, [expr for _, expr in outputs])
    return Select(timed, tuple((name, expr) for (name, _), expr in zip(outputs, resolved, strict=True)))


def grouped(node: Node, keys: Named) -> tuple[Node, Named]:
    """A plan and the keys of groups: keys that use times become columns in front."""
    timed = {name: expr for name, expr in keys if event_times([expr])}
    if not timed:
        return node, keys
    for name, expr in timed.items():
        if name in node.schema:
            raise PlanError(
                f"the key {name!r} hides a column of the same name",
                given=str(expr),
                allowed="keys with new names",
                instead=f"group_by({name}_key=hr.{expr})",
            )
    columns = payloads(node, (*timed.items(), *((name, col(name)) for name in node.schema.names)))
    return columns, tuple((name, col(name) if name in timed else expr) for name, expr in keys)


def joined(left: Node, right: Node, on: KeyPairs, where: Expr | None) -> JoinParts:
    """The sides, keys and condition of a join, with the times that keys and condition use as columns of the sides.

    A key is about the events of its own side.
    """
    asked = event_times([] if where is None else [where])
    sides, keys = [], [list(pair) for pair in on]
    hidden: list[str] = []
    for number, (side, node) in enumerate((("left", left), ("right", right))):
        used = [time.moment for time in asked if time.side == side]
        used += [time.moment for time in event_times([pair[number] for pair in keys])]
        timed, exprs = with_times(node, [EventTime(moment) for moment in used])
        names = {moment: f"{side} {expr.name}" for moment, expr in zip(used, exprs, strict=True)}
        added = {f"{side} {expr.name}": expr for expr in exprs}
        columns = (*((name, col(name)) for name in node.schema.names), *added.items())
        sides.append(Select(timed, columns) if added else node)
        hidden += added
        where = where if where is None else where.transform(_as_columns(names, side))
        for pair in keys:
            pair[number] = pair[number].transform(_as_columns(names, None))
    return JoinParts(sides[0], sides[1], tuple((ours, theirs) for ours, theirs in keys), where, tuple(hidden))


@dataclass(frozen=True)
class JoinParts:
    """What a join is made of, and the columns that were added for it."""

    left: Node
    right: Node
    on: KeyPairs
    where: Expr | None
    hidden: tuple[str, ...]


def _as_columns(names: Mapping[Moment, str], side: Side | str | None) -> Callable[[Expr], Expr]:
    def change(expr: Expr) -> Expr:
        return col(names[expr.moment]) if isinstance(expr, EventTime) and side in (None, expr.side) else expr

    return change


# --- aggregates -----------------------------------------------------------------------------------------------------


def with_argument_times(node: Node, outputs: Named) -> tuple[Node, Named]:
    """A plan and the outputs of aggregates over it, whose arguments may use the times of events."""
    for _, expr in outputs:
        _refuse_outside_calls(expr)
    timed, resolved = with_times(node, [expr for _, expr in outputs])
    return timed, tuple((name, expr) for (name, _), expr in zip(outputs, resolved, strict=True))


def _refuse_outside_calls(expr: Expr) -> None:
    if isinstance(expr, EventTime):
        raise ExpressionError(
            f"an answer is about many events, and {expr} is the time of one",
            given=str(expr),
            allowed="aggregates of it, and the times of the window",
            instead=f"hr.min(hr.{expr}), or hr.window_{expr.moment}()",
        )
    if not isinstance(expr, AggregateCall):
        for child in expr.children:
            _refuse_outside_calls(child)


def with_window_times(keys: Sequence[str], outputs: Named) -> tuple[Named, Named | None]:
    """The outputs of an aggregate, and those to select above it: None where no output uses the times of its window."""
    if not any(time.on_window for _, expr in outputs for time in event_times([expr])):
        return outputs, None
    inner: dict[str, Expr] = {}
    numbers = count(1)
    names = {name for name, _ in outputs} | {*keys}

    def computed(expr: Expr) -> Expr:
        if not isinstance(expr, AggregateCall):
            return expr
        same = next((name for name, known in inner.items() if known.same(expr)), None)
        name = same or next(name for n in numbers if (name := f"aggregate_{n}") not in names)
        inner[name] = expr
        return col(name)

    above = tuple((name, _above_calls(expr, computed)) for name, expr in outputs)
    if not inner:
        raise PlanError(
            "aggregate needs an aggregate beside the times of its window",
            given=", ".join(f"{name}={expr}" for name, expr in outputs),
            instead="aggregate(w=hr.window_start(), n=hr.count())",
        )
    return tuple(inner.items()), (*((name, col(name)) for name in keys), *above)


def _above_calls(expr: Expr, change: Any) -> Expr:
    """The expression with its aggregates replaced; what is inside of them stays."""
    if isinstance(expr, AggregateCall):
        return change(expr)  # type: ignore[no-any-return]
    return expr.with_children([_above_calls(child, change) for child in expr.children])


# --- lifetimes ------------------------------------------------------------------------------------------------------


def altered(node: Node, start: Any, end: Any, lasts: Any, earliest: DurationLike | None) -> Node:
    """Each event with a new start, end or duration."""
    exprs = {"start": _time(start, "start"), "end": _time(end, "end"), "duration": _duration(lasts)}
    given = {name: expr for name, expr in exprs.items() if expr is not None}
    back, checked = _bound(given.get("start"), earliest)
    timed, resolved = with_times(node, list(given.values()))
    found = dict(zip(given, resolved, strict=True))
    for name, expr in found.items():
        _check_type(name, expr.type(timed.schema), given[name], dates=node.dates)
    exact = [bool(event_times([expr])) and furthest_back(expr) is not None for expr in given.values()]
    if node.dates and any(exact):
        own = [in_ticks(expr) if one else of_ticks(expr) for expr, one in zip(given.values(), exact, strict=True)]
        timed, resolved = with_times(node, own, ticks=True)
        found = dict(zip(given, resolved, strict=True))
    return only(AlterLifetime(timed, **found, back=back, checked=checked), node.schema.names)


def _time(value: Any, name: str) -> Expr | None:
    if value is None or isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return col(value)
    raise ExpressionError(
        f"{name} is a column or an expression",
        given=value,
        allowed="col(...), hr.start(), hr.end(), and expressions that use them",
        instead=f"alter_lifetime({name}=col('ts'))",
    )


def _duration(value: Any) -> Expr | None:
    if value is None or isinstance(value, Expr):
        return value
    return lit(duration(value))


def _bound(start: Expr | None, earliest: DurationLike | None) -> tuple[int, bool]:
    """How far back a start may be, and whether that must be checked."""
    if earliest is not None:
        back = duration(earliest)
        if start is None or back < 0:
            raise PlanError(
                "earliest says how far before its old start an event may start",
                given=earliest,
                allowed="a duration from 0 on, together with start=...",
                instead="alter_lifetime(start=col('ts'), earliest='10 s')",
            )
        return back, True
    if start is None:
        return 0, False
    known = furthest_back(start)
    if known is None:
        raise PlanError(
            "alter_lifetime cannot promise anything: a new start may be any time before the old one, "
            "and a CTI says that nothing before it changes (rule 4.11)",
            given=f"start={start}",
            allowed="hr.start() and hr.end(), moved by constants; greatest(...) of hr.start(), moved by a constant, "
            "and anything (an endless end is null, and bounds nothing); anything with a bound",
            instead="alter_lifetime(start=..., earliest='10 s'), if no start is more than 10 s before the old one",
        )
    return max(0, known), False


def _check_type(name: str, kind: Type, given: Expr, *, dates: bool) -> None:
    wanted = Type.LONG if name == "duration" or not dates else Type.DATETIME
    if kind is wanted or (kind.is_integer and wanted is Type.LONG):
        return
    unit = "a number of ticks (microseconds)" if wanted is Type.LONG else "a DATETIME, as the times of this stream are"
    raise ExpressionError(
        f"the {name} of a lifetime is {unit}",
        given=f"{given} of type {kind.value}",
        allowed=wanted.value,
        instead=f"{name}=(...).cast({wanted.value!r})",
    )
