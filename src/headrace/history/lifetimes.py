"""SQL for the times of events as columns, and for lifetimes that are computed for each event (rules 4.10 and 4.11)."""

# ruff: noqa: S608 - SQL is what is made here, and every name in it is the plan's own, quoted

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import EventError
from headrace.events import FARTHEST
from headrace.expr import Expr, col, greatest, least
from headrace.expr.arrow.dates import FIRST_DAY, LAST_TICK
from headrace.history.script import HistoryFunction
from headrace.history.translation import Translation
from headrace.plan.lifetimes import MOST_PIECES
from headrace.plan.nodes import AlterLifetime, Chop, EventTimes
from headrace.schema import Schema, Type
from headrace.time import INFINITY

__all__ = ["alter_lifetime", "chop", "event_times"]

_TICKS = Schema.of("le LONG, re LONG")


def event_times(t: Translation, node: EventTimes) -> None:
    """Rows with their own times as columns; an endless end is null."""
    below = t.of(node)
    values = {name: t.quote(column) for name, column in below.columns.items()}
    for name, moment in ((node.start, "le"), (node.end, "re")):
        if name is not None:
            time: Expr = col(moment)
            if node.type is Type.DATETIME:
                time = greatest(least(time, LAST_TICK), FIRST_DAY).cast(Type.DATETIME)
            shown = t.dialect.printer.sql(time.bind(_TICKS))
            values[name] = f"CASE WHEN {moment} < {INFINITY} THEN {shown} END"
    t.give(node, f"SELECT le, re, {t.named(values, node.schema)} FROM {below.name}")


def alter_lifetime(t: Translation, node: AlterLifetime) -> None:
    """Lifetimes by expressions: without a start there is no event, without an end it never ends."""
    below = t.of(node)
    start = "le"
    if node.start is not None:
        ticks = _ticks(t, node, node.start)
        start = f"CASE WHEN {ticks} BETWEEN -{FARTHEST} AND {FARTHEST} THEN {ticks} END"
        if node.checked:
            start = f"{t.function(lambda name: _bounded(name, node))}(le, {start})"
    end = "re"
    if node.end is not None:
        ticks = _ticks(t, node, node.end)
        end = f"CASE WHEN {ticks} <= {FARTHEST} THEN {ticks} ELSE {INFINITY} END"
    payload = "".join(f", {name}" for name in t.columns(below))
    moved = f"SELECT {start} AS le, {end} AS re{payload}"
    if node.duration is not None:
        moved += f", {_ticks(t, node, node.duration)} AS __lasts"
        near = f"CASE WHEN le <= {FARTHEST} - __lasts THEN le + __lasts ELSE {INFINITY} END"
        after = f"CASE WHEN __lasts <= 0 THEN le WHEN __lasts <= {FARTHEST} THEN {near} ELSE {INFINITY} END"
        moved = f"SELECT le, {after} AS re{payload} FROM ({moved} FROM {below.name}) lasting"
    else:
        moved += f" FROM {below.name}"
    t.give(node, f"SELECT * FROM ({moved}) moved WHERE le < re")


def _ticks(t: Translation, node: AlterLifetime, expr: Expr) -> str:
    return f"({t.over(expr.cast(Type.LONG), t.of(node))})"


def chop(t: Translation, node: Chop) -> None:
    """A row for each piece between two cuts of the grid."""
    below = t.of(node)
    payload = "".join(f", {name}" for name in t.columns(below))
    first = t.dialect.floor(f"le - ({node.origin})", node.every)
    last = t.dialect.floor(f"__end - 1 - ({node.origin})", node.every)
    few = t.function(lambda name: _few(name, node))
    cut = f"({node.origin}) + __number * {node.every}"
    t.give(
        node,
        f"""WITH few AS (
  SELECT le, {few}(le, re) AS __end{payload} FROM {below.name}
), spread AS (
  SELECT *, {t.dialect.explode}({t.dialect.series}({first}, {last})) AS __number FROM few
)
SELECT greatest(le, {cut}) AS le, least(__end, {cut} + {node.every}) AS re{payload} FROM spread""",
    )


def _refuse(one: pa.Array, other: pa.Array, wrong: pa.Array, error: Callable[[int, int], EventError]) -> None:
    if pc.any(wrong).as_py():
        rows = pc.filter(one, wrong), pc.filter(other, wrong)
        raise error(rows[0][0].as_py(), rows[1][0].as_py())


def _bounded(name: str, node: AlterLifetime) -> HistoryFunction:
    """The new start, which must not be too early."""

    def call(old: pa.Array, new: pa.Array) -> pa.Array:
        _refuse(old, new, pc.less(new, pc.subtract(old, node.back)), node.too_early)
        return new

    return HistoryFunction(name, (pa.int64(), pa.int64()), pa.int64(), call)


def _few(name: str, node: Chop) -> HistoryFunction:
    """The end, which must not be too far from the start."""

    def call(start: pa.Array, end: pa.Array) -> pa.Array:
        first = (np.asarray(start) - node.origin) // node.every
        last = (np.asarray(end) - 1 - node.origin) // node.every
        far = pa.array(last - first >= MOST_PIECES)
        _refuse(start, end, pc.or_(far, pc.equal(end, INFINITY)), node.too_many)
        return end

    return HistoryFunction(name, (pa.int64(), pa.int64()), pa.int64(), call)
