"""The twins of span operators (rule 4): each event gives at most one event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.operators.reference.rows import Row, value_of
from headrace.operators.reference.table import table_join
from headrace.plan.nodes import (
    CapDuration,
    Extend,
    Node,
    PointAtEnd,
    PointAtStart,
    Select,
    SetDuration,
    Shift,
    TableJoin,
    Where,
)
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["SPAN"]

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


SPAN: dict[type[Node], Callable[[Any, Rows], list[Row]]] = {
    CapDuration: cap_duration,
    Extend: extend,
    PointAtEnd: point_at_end,
    PointAtStart: point_at_start,
    Select: select,
    SetDuration: set_duration,
    Shift: shift,
    TableJoin: table_join,
    Where: where,
}
