"""The twins of span operators (rule 4): each event alone decides what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.events import FARTHEST
from headrace.expr import Expr, col
from headrace.expr.arrow.dates import FIRST_DAY, LAST_TICK
from headrace.operators.reference.rows import Payload, Row, value_of
from headrace.operators.reference.table import table_join
from headrace.plan.nodes import (
    AlterLifetime,
    CapDuration,
    Chop,
    EventTimes,
    Explode,
    Extend,
    HeldEventTimes,
    Node,
    PointAtEnd,
    PointAtStart,
    Select,
    SetDuration,
    Shift,
    TableJoin,
    Where,
)
from headrace.schema import Schema, Type
from headrace.time import INFINITY, NEG_INFINITY, ticks

__all__ = ["SPAN", "event_times"]

Rows = Sequence[Row]


def _add(time: int, by: int) -> int:
    """`time + by`; infinite times stay infinite, and finite ones stop at the ends of time."""
    if time in (INFINITY, NEG_INFINITY):
        return time
    return INFINITY if by == INFINITY else max(NEG_INFINITY, min(INFINITY, time + by))


def _alive(rows: Rows) -> list[Row]:
    return [row for row in rows if row[0] < row[1]]


def where(node: Where, rows: Rows) -> list[Row]:
    return [row for row in rows if value_of(node.predicate, row[2], node.input.schema) is True]


def select(node: Select, rows: Rows) -> list[Row]:
    below = node.input.schema
    return [(le, re, {name: value_of(expr, old, below) for name, expr in node.outputs}) for le, re, old in rows]


def shift(node: Shift, rows: Rows) -> list[Row]:
    return _alive([(_add(le, node.by), _add(re, node.by), payload) for le, re, payload in rows])


def set_duration(node: SetDuration, rows: Rows) -> list[Row]:
    return [(le, _add(le, node.duration), payload) for le, _, payload in rows]


def extend(node: Extend, rows: Rows) -> list[Row]:
    return _alive([(le, _add(re, node.by), payload) for le, re, payload in rows])


def point_at_start(node: PointAtStart, rows: Rows) -> list[Row]:  # noqa: ARG001 - twins of one family are called alike
    return [(le, le + 1, payload) for le, _, payload in rows]


def point_at_end(node: PointAtEnd, rows: Rows) -> list[Row]:  # noqa: ARG001 - as above
    return [(re, re + 1, payload) for _, re, payload in rows if re != INFINITY]


def cap_duration(node: CapDuration, rows: Rows) -> list[Row]:
    return _alive([(le, min(re, _add(le, node.duration)), payload) for le, re, payload in rows])


def event_times(node: EventTimes, rows: Rows) -> list[Row]:
    """The events with their times as columns."""
    return [(le, re, payload | _times(node, le, re)) for le, re, payload in rows]


def _times(node: EventTimes, le: int, re: int) -> Payload:
    found: Payload = {}
    for name, time in ((node.start, le), (node.end, None if re == INFINITY else re)):
        if name is not None:
            moment = col("time")
            if node.type is Type.DATETIME:
                time = None if time is None else max(FIRST_DAY, min(time, LAST_TICK))
                moment = moment.cast(node.type)
            found[name] = value_of(moment, {"time": time}, Schema.of("time LONG"))
    return found


def explode(node: Explode, rows: Rows) -> list[Row]:
    """A row for each element of a list."""
    out = []
    for le, re, payload in rows:
        found: list[tuple[Any, Any]] = [(place, element) for place, element in enumerate(payload[node.column] or (), 1)]
        for place, element in found or ([(None, None)] if node.outer else []):
            added = {node.element: element} | ({node.position: place} if node.position else {})
            out.append((le, re, payload | added))
    return out


def alter_lifetime(node: AlterLifetime, rows: Rows) -> list[Row]:
    out = []
    for le, re, payload in rows:
        start = le if node.start is None else _ticks(node, node.start, payload)
        if start is None or (node.start is not None and not -FARTHEST <= start <= FARTHEST):
            continue
        end: int | None = re
        if node.end is not None:
            end = _ticks(node, node.end, payload)
            end = None if end is not None and end > FARTHEST else end
        elif node.duration is not None:
            lasts = _ticks(node, node.duration, payload)
            far = lasts is None or lasts > FARTHEST or start + lasts > max(start, FARTHEST)
            end = None if lasts is None or far else start + max(lasts, 0)
        out.append((start, INFINITY if end is None else end, payload))
    return _alive(out)


def _ticks(node: Node, expr: Expr, payload: Payload) -> int | None:
    value = value_of(expr, payload, node.inputs[0].schema)
    return None if value is None else ticks(value)


def chop(node: Chop, rows: Rows) -> list[Row]:
    out = []
    for le, re, payload in rows:
        at = le
        while at < re:
            cut = at - (at - node.origin) % node.every + node.every
            out.append((at, min(cut, re), payload))
            at = cut
    return out


SPAN: dict[type[Node], Callable[[Any, Rows], list[Row]]] = {
    AlterLifetime: alter_lifetime,
    CapDuration: cap_duration,
    Chop: chop,
    EventTimes: event_times,
    Explode: explode,
    Extend: extend,
    HeldEventTimes: event_times,
    PointAtEnd: point_at_end,
    PointAtStart: point_at_start,
    Select: select,
    SetDuration: set_duration,
    Shift: shift,
    TableJoin: table_join,
    Where: where,
}
