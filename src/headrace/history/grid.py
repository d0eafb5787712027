"""The numbers and ends of grid windows, as SQL.

Hopping windows are arithmetic. Calendar windows depend on the rules of a zone, of which each engine has a version of
its own: SQL calls the plan's (`plan/calendar.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.columnar import Int64s, to_numpy
from headrace.errors import HistoryError
from headrace.history.dialect import Dialect
from headrace.history.script import HistoryFunction
from headrace.plan.calendar import Calendar
from headrace.plan.windows import Grid, Hopping

__all__ = ["GridSql", "grid_sql"]


@dataclass(frozen=True)
class GridSql:
    """Expressions over a time or the number of a window, as SQL."""

    #: The first window that ends after a time; the last that starts before one; the start of the last that has ended.
    first: Callable[[str], str]
    last: Callable[[str], str]
    last_closed: Callable[[str], str]
    start: Callable[[str], str]
    end: Callable[[str], str]


class _Translation(Protocol):
    @property
    def dialect(self) -> Dialect: ...

    def function(self, made: Callable[[str], HistoryFunction]) -> str: ...


def grid_sql(t: _Translation, window: Grid) -> GridSql:
    """The expressions of a grid."""
    if isinstance(window, Calendar):
        return _calendar(t, window)
    assert isinstance(window, Hopping)
    size, hop, origin, floor = window.size, window.hop, window.origin, t.dialect.floor
    return GridSql(
        lambda time: f"{floor(f'{time} - ({origin + size})', hop)} + 1",
        lambda time: floor(f"{time} - 1 - ({origin})", hop),
        lambda time: f"({origin} + ({floor(f'{time} - ({origin + size})', hop)}) * {hop})",
        lambda number: f"{origin} + {number} * {hop}",
        lambda number: f"{origin + size} + {number} * {hop}",
    )


def _calendar(t: _Translation, window: Calendar) -> GridSql:
    if t.dialect.name == "spark":  # its optimizer puts subqueries into arguments of Python functions, and then fails
        raise HistoryError(
            "calendar windows have no translation to Spark SQL yet",
            given=str(window),
            allowed="history('duckdb'); a live query on any host",
            instead="history('duckdb')",
        )

    def closed(times: Int64s) -> Int64s:
        return window.start(window.first(times) - 1)

    def called(compute: Callable[[Int64s], Int64s]) -> Callable[[str], str]:
        return lambda value: f"{t.function(lambda name: _function(name, compute))}({value})"

    last = called(lambda times: window.last(times - 1, times))
    return GridSql(called(window.first), last, called(closed), called(window.start), called(window.end))


def _function(name: str, compute: Callable[[Int64s], Int64s]) -> HistoryFunction:
    def call(values: pa.Array) -> pa.Array:
        missing = np.asarray(pc.is_null(values))
        return pa.array(compute(to_numpy(pc.fill_null(values, 0))), pa.int64(), mask=missing)

    return HistoryFunction(name, (pa.int64(),), pa.int64(), call)
