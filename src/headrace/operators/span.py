"""Span operators (rule 4): no state is kept.

They are linear, so they run on any part of a stream: before the shuffle, in the task that reads the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.operators.aggregate.combine import combine
from headrace.operators.evaluate import evaluate_changes, passing_mask
from headrace.operators.explode import explode
from headrace.operators.lifetimes import alter_lifetime, chop
from headrace.operators.per_window.panes import panes
from headrace.operators.table import table_join
from headrace.operators.times import event_times
from headrace.plan.nodes import (
    AlterLifetime,
    CapDuration,
    Chop,
    Combine,
    EventTimes,
    Explode,
    Extend,
    GroupApply,
    Node,
    Panes,
    PointAtEnd,
    PointAtStart,
    Select,
    SetDuration,
    Shift,
    TableJoin,
    Union,
    Where,
)
from headrace.time import CHRONON, INFINITY, add

__all__ = ["LINEAR"]


def where(node: Where, changes: Changes) -> Changes:
    """Keep the rows whose predicate is true, not null."""
    return changes.filter(passing_mask(node.predicate, changes.payload, changes.weight))


def select(node: Select, changes: Changes) -> Changes:
    """Compute the output columns."""
    columns = [evaluate_changes(expr, changes.payload, changes.weight) for _, expr in node.outputs]
    return changes.with_payload(pa.Table.from_arrays(columns, schema=node.schema.arrow))


def shift(node: Shift, changes: Changes) -> Changes:
    """Move both ends."""
    return changes.with_lifetimes(add(changes.le, node.by), add(changes.re, node.by))


def set_duration(node: SetDuration, changes: Changes) -> Changes:
    """Replace the end."""
    return changes.with_lifetimes(changes.le, add(changes.le, node.duration))


def extend(node: Extend, changes: Changes) -> Changes:
    """Move the end."""
    return changes.with_lifetimes(changes.le, add(changes.re, node.by))


def point_at_start(_: PointAtStart, changes: Changes) -> Changes:
    """Keep the first instant."""
    return changes.with_lifetimes(changes.le, add(changes.le, CHRONON))


def point_at_end(_: PointAtEnd, changes: Changes) -> Changes:
    """Keep the instant of the end; drop events that never end."""
    ending = changes.filter(changes.re < INFINITY)
    return ending.with_lifetimes(ending.re, add(ending.re, CHRONON))


def cap_duration(node: CapDuration, changes: Changes) -> Changes:
    """End events that last too long."""
    return changes.with_lifetimes(changes.le, np.minimum(changes.re, add(changes.le, node.duration)))


def group_apply(_: GroupApply, changes: Changes) -> Changes:
    """Nothing to do: its input has computed it for all groups."""
    return changes


def union(_: Union, changes: Changes) -> Changes:
    """Nothing to do: the parts arrive as one."""
    return changes


#: The function of every linear node; a missing one fails with the node's name.
LINEAR: dict[type[Node], Callable[[Any, Changes], Any]] = {
    AlterLifetime: alter_lifetime,
    CapDuration: cap_duration,
    Chop: chop,
    Combine: combine,
    EventTimes: event_times,
    Explode: explode,
    Extend: extend,
    GroupApply: group_apply,
    Panes: panes,
    PointAtEnd: point_at_end,
    PointAtStart: point_at_start,
    Select: select,
    SetDuration: set_duration,
    Shift: shift,
    TableJoin: table_join,
    Union: union,
    Where: where,
}
