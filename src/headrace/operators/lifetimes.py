"""Lifetimes that are computed for each event (rule 4.11)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Int64s
from headrace.events import FARTHEST
from headrace.expr import Expr
from headrace.operators.aggregate.window_runs import expand_runs
from headrace.operators.evaluate import evaluate_changes
from headrace.plan.lifetimes import MOST_PIECES
from headrace.plan.nodes import AlterLifetime, Chop
from headrace.time import INFINITY

__all__ = ["alter_lifetime", "chop"]


def alter_lifetime(node: AlterLifetime, changes: Changes) -> Changes:
    """Compute the new lifetimes; drop events without a start, and empty ones."""
    start = changes.le
    if node.start is not None:
        start = _ticks(node.start, changes)
        some = (start >= -FARTHEST) & (start <= FARTHEST)
        changes, start = changes.filter(some), start[some]
        _check(node, changes.le, start)
    if node.duration is not None:
        return changes.with_lifetimes(start, _after(start, _ticks(node.duration, changes)))
    if node.end is not None:
        end = _ticks(node.end, changes)
        return changes.with_lifetimes(start, np.where(end > FARTHEST, INFINITY, end))
    return changes.with_lifetimes(start, changes.re)


def _after(start: Int64s, duration: Int64s) -> Int64s:
    """The ends of lifetimes of these durations; what is too long, or ends too late, never ends."""
    with np.errstate(over="ignore"):
        end = start + np.maximum(duration, 0)
    late = (duration > FARTHEST) | (end < start) | (end > FARTHEST)
    return np.where(late & (duration > 0), INFINITY, end)


def _ticks(expr: Expr, changes: Changes) -> Int64s:
    """A time or duration as ticks, null as infinity."""
    values = evaluate_changes(expr, changes.payload, changes.weight).cast(pa.int64())
    return np.asarray(pc.fill_null(values, INFINITY))


def _check(node: AlterLifetime, old: Int64s, new: Int64s) -> None:
    early = np.flatnonzero(new < old - node.back)
    if len(early):
        raise node.too_early(int(old[early[0]]), int(new[early[0]]))


def chop(node: Chop, changes: Changes) -> Changes:
    """Cut every lifetime at the grid."""
    first, last = (changes.le - node.origin) // node.every, (changes.re - 1 - node.origin) // node.every
    many = np.flatnonzero((changes.re == INFINITY) | (last - first >= MOST_PIECES))
    if len(many):
        raise node.too_many(int(changes.le[many[0]]), int(changes.re[many[0]]))
    rows, numbers = expand_runs(first, last, f"{node.every} ticks")
    cuts = node.origin + numbers * node.every
    pieces = changes.take(rows)
    return pieces.with_lifetimes(np.maximum(pieces.le, cuts), np.minimum(pieces.re, cuts + node.every))
