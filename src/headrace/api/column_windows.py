"""Windows by the time in a column, for rows that last: the value of the column decides in which windows a row is.

The rows keep their lifetimes, so grouping them by the times of the windows is a grouping like any other, at every
instant. Windows of a stream (`group_by(…).window(…)`) divide the time axis instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.api.checks import column_or_expr
from headrace.errors import PlanError
from headrace.expr import Expr, array, col
from headrace.expr.nodes import Duration, Months
from headrace.plan.calendar import Calendar
from headrace.plan.nodes import Explode, Node, Select, Where
from headrace.plan.windows import Hopping
from headrace.schema import Schema, Type

__all__ = ["MAX_WINDOWS", "WINDOW_COLUMNS", "in_growing_windows", "in_windows"]

#: How many windows a row may be in.
MAX_WINDOWS = 400
#: The columns with the start and the end of a window.
WINDOW_COLUMNS = ("window_start", "window_end")
_FIRST, _ALL, _ONE = "_window_first", "_window_all", "_window_one"
_TRUNCATED = {1: "month", 3: "quarter", 12: "year"}


def in_windows(node: Node, time: Any, window: Any) -> Node:
    """A row for each window that contains the time of a row, with the start and the end of the window."""
    rows = _Rows.of(node, column_or_expr(time, "with_windows", "with_windows('ts', hr.tumbling('10 s'))"))
    if isinstance(window, Calendar):
        first, moved, hop, size = _calendar_start(rows, window), _by_months, window.hop, window.size
    elif isinstance(window, Hopping):
        first, moved, hop, size = rows.floor(window.hop, window.origin), rows.moved, window.hop, window.size
    else:
        raise PlanError(
            "the windows of a column have one size",
            given=window,
            allowed="hr.tumbling(size), hr.hopping(size, every=...)",
            instead="with_windows('ts', hr.tumbling('10 s'))",
        )
    if _number(window.overlap) == 1:
        return rows.listed(first, moved(first, size), exact=size == hop)
    starts = [moved(col(_FIRST), -number * hop) for number in range(window.overlap)]
    return rows.spread(first, starts).listed(col(_ONE), moved(col(_ONE), size), exact=size % hop == 0)


def in_growing_windows(node: Node, time: Expr, size: int, step: int, origin: int) -> Node:
    """A row for each window that contains the time of a row, of windows that grow by a step up to their size."""
    rows = _Rows.of(node, time)
    ends = [rows.moved(col(_FIRST), number * step) for number in range(1, _number(size // step) + 1)]
    return rows.spread(rows.floor(size, origin), ends).listed(col(_FIRST), col(_ONE), exact=size == step)


def _number(windows: int) -> int:
    if windows <= MAX_WINDOWS:
        return windows
    raise PlanError(
        "each row would be in too many windows",
        given=f"{windows} windows",
        allowed=f"up to {MAX_WINDOWS}",
        instead="a longer slide",
    )


@dataclass(frozen=True)
class _Rows:
    """Rows with a time, which is not null."""

    node: Node
    time: Expr
    type: Type
    columns: Schema

    @classmethod
    def of(cls, node: Node, time: Expr) -> _Rows:
        kind = time.type(node.schema)
        if kind is Type.DATE:
            time, kind = time.cast(Type.DATETIME), Type.DATETIME
        if kind is not Type.DATETIME and not kind.is_integer:
            raise PlanError(
                f"{time.name} cannot be a time", given=kind.value, allowed="DATETIME, DATE or a whole number"
            )
        taken = [name for name in WINDOW_COLUMNS if name in node.schema]
        if taken:
            raise PlanError(
                f"there is a column {taken[0]!r} already",
                given=str(node.schema),
                instead=f"{taken[0]} under another name",
            )
        return cls(Where(node, time.is_not_null()), time, kind, node.schema)

    def floor(self, hop: int, origin: int) -> Expr:
        """The start of the last window that begins at the time or before it."""
        ticks = self.time.cast(Type.LONG)
        start = (ticks - origin) // hop * hop + origin
        return start.cast(Type.DATETIME) if self.type is Type.DATETIME else start

    def moved(self, time: Expr, by: int) -> Expr:
        """A time, some ticks later."""
        return time + (Duration(by) if self.type is Type.DATETIME else by) if by else time

    def spread(self, first: Expr, windows: Sequence[Expr]) -> _Rows:
        """A row for each of the windows, which are computed from the first."""
        own = _columns(self.columns)
        node = Select(
            Select(self.node, (*own, (_FIRST, first))), (*own, (_FIRST, col(_FIRST)), (_ALL, array(*windows)))
        )
        return replace(self, node=Explode(node, _ALL, _ONE))

    def listed(self, start: Expr, end: Expr, *, exact: bool) -> Node:
        """The rows with the times of their windows; unless `exact`, only windows that contain the time of the row."""
        node = Select(self.node, (*_columns(self.columns), *zip(WINDOW_COLUMNS, (start, end), strict=True)))
        return node if exact else Where(node, self.time < col(WINDOW_COLUMNS[1]))


def _columns(schema: Schema) -> tuple[tuple[str, Expr], ...]:
    return tuple((name, col(name)) for name in schema.names)


def _by_months(time: Expr, by: int) -> Expr:
    return time + Months(by) if by else time


def _calendar_start(rows: _Rows, window: Calendar) -> Expr:
    part = _TRUNCATED.get(window.hop) if window.unit == "month" else None
    plain = window.zone == "UTC" and not window.shift and window.origin % window.hop == 0
    if part is None or not plain or rows.type is not Type.DATETIME:
        raise PlanError(
            "the windows of a column begin every month, quarter or year of UTC, or after a fixed time",
            given=str(window),
            allowed="a slide of 1 month, 1 quarter or 1 year, or of days, hours, …",
        )
    return rows.time.date_trunc(part)
