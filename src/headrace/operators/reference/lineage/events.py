"""The causes of events of span operators, joins and their kin: single events, pairs, and events that meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.expr.nodes import Column
from headrace.operators.reference.coalesce import coalesce
from headrace.operators.reference.join import join
from headrace.operators.reference.lineage.histories import Cause, Histories, Stem
from headrace.operators.reference.rows import Row, bag, identity, row_identity
from headrace.operators.reference.span import SPAN
from headrace.plan.nodes import (
    AlterLifetime,
    Chop,
    Clip,
    Coalesce,
    EdgeLifetimes,
    EventTimes,
    Explode,
    HeldEventTimes,
    Join,
    Node,
    PointAtEnd,
    Select,
    Shift,
    TableJoin,
    Union,
    Where,
)

__all__ = ["by_event", "of_clip", "of_coalesce", "of_edges", "of_join", "of_union", "same_event"]

_SAME_TIMES = (Where, Select, EventTimes, HeldEventTimes, Explode, TableJoin)
_OTHER_TIMES = (AlterLifetime, Chop, Shift)


def by_event(node: Node, row: Row, inputs: Histories) -> Stem:
    """Each event alone decides what it gives: the events that give this one."""
    le: int | None
    re: int | None
    le, re = (row[0], row[1]) if isinstance(node, _SAME_TIMES) else (row[0], None)
    if isinstance(node, PointAtEnd):
        le, re = None, row[0]
    elif isinstance(node, _OTHER_TIMES):
        le, re = None, None
    found = inputs.find(0, le=le, re=re, equal=_columns_below(node, row))
    wanted, known = row_identity(row), dict[Any, bool]()
    for candidate in found:
        key = row_identity(candidate)
        if key not in known:
            known[key] = wanted in map(row_identity, SPAN[type(node)](node, [candidate]))
    return Stem.of(candidate for candidate in found if known[row_identity(candidate)])


def _columns_below(node: Node, row: Row) -> dict[str, Any]:
    """The columns of the input that an output shows."""
    if isinstance(node, Select):
        return {expr.name: row[2][name] for name, expr in node.outputs if isinstance(expr, Column)}
    return {name: row[2][name] for name in node.inputs[0].schema.names}


def same_event(node: Node, row: Row, inputs: Histories) -> Stem:  # noqa: ARG001 - declarations are called alike
    """The event passes as it is."""
    return Stem.of(inputs.find(0, le=row[0], re=row[1], equal=row[2]))


def of_union(node: Union, row: Row, inputs: Histories) -> Stem:
    """The same event in each part."""
    found = [(i, part) for i in range(len(node.inputs)) for part in inputs.find(i, le=row[0], re=row[1], equal=row[2])]
    return Stem([Cause(position, part, "event") for position, part in found])


def of_join(node: Join, row: Row, inputs: Histories) -> Stem:
    """The pairs that give the event; for an unmatched part, the left event and the partners that bound the part."""
    le, re, payload = row
    left_names, right_names = node.left.schema.names, node.right_columns
    lefts = inputs.find(0, over=(le, re), equal={name: payload[name] for name in left_names})
    causes: list[Cause] = []
    shown = {old: payload[new] for old, new in right_names.items()} if node.kind != "anti" else {}
    pairs, parts = replace(node, kind="inner"), replace(node, kind="anti")
    may_be_part = node.kind != "inner" and all(value is None for value in shown.values())
    for left in lefts:
        keys = {b: left[2][a] for a, b in node.on}
        if node.kind != "anti":
            for right in inputs.find(1, over=(le, re), equal=shown | keys):
                if row_identity(row) in map(row_identity, join(pairs, [left], [right])):
                    causes += [Cause(0, left, "pair"), Cause(1, right, "pair")]
        if may_be_part:
            causes += _unmatched(parts, (le, re, left[2]), left, inputs.find(1, over=(left[0], left[1]), equal=keys))
    return Stem(causes)


def _unmatched(parts: Join, part: Row, left: Row, rights: list[Row]) -> list[Cause]:
    """The causes of a part of a left event without a match, by the anti join; none if it is no such part."""
    if row_identity(part) not in map(row_identity, join(parts, [left], rights)):
        return []
    alone = bag(join(parts, [left], []))
    near = [right for right in rights if right[1] == part[0] or right[0] == part[1]]
    bounds = [right for right in near if bag(join(parts, [left], [right])) != alone]
    return [Cause(0, left, "unmatched"), *(Cause(1, right, "ends the match") for right in bounds)]


def of_clip(node: Clip, row: Row, inputs: Histories) -> Stem:
    """The event, and the events of the other input that start where it was cut."""
    le, re, payload = row
    whole = [cause for cause in inputs.find(0, le=le, equal=payload) if cause[1] >= re]
    cut = inputs.find(1, le=re, equal={b: payload[a] for a, b in node.on}) if any(r[1] > re for r in whole) else []
    whole = whole if cut else [cause for cause in whole if cause[1] == re]
    return Stem([*(Cause(0, r, "event") for r in whole), *(Cause(1, r, "cut") for r in cut)])


def of_coalesce(node: Coalesce, row: Row, inputs: Histories) -> Stem:
    """All events of the payload that became one."""
    found = inputs.find(0, over=(row[0], row[1]), equal=row[2])
    is_there = row_identity(row) in map(row_identity, coalesce(node, found))
    return Stem.of(found if is_there else [], "part")


def of_edges(node: EdgeLifetimes, row: Row, inputs: Histories) -> Stem:
    """The sample, and the next ones of its key, which end it."""
    le, re, payload = row
    key = {name: payload[name] for name in node.key if name in payload}
    own = inputs.find(0, le=le, equal={name: payload[name] for name in node.schema.names})
    later = [r for r in inputs.find(0, le=re, equal=key) if _same_key(node, own, r)]
    return Stem([*(Cause(0, r, "sample") for r in own), *(Cause(0, r, "next sample") for r in later)])


def _same_key(node: EdgeLifetimes, own: list[Row], other: Row) -> bool:
    return any(all(identity(r[2][n]) == identity(other[2][n]) for n in node.key) for r in own)
