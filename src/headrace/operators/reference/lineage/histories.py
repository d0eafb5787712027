"""The histories of an operator's inputs, searched by columns; and the causes that are found in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import Int64s
from headrace.expr import Expr, evaluate
from headrace.operators.reference.rows import Row, identity, row_identity
from headrace.progress import Progress

__all__ = ["Cause", "Histories", "Stem", "rows_of_changes", "same_payload"]


@dataclass(frozen=True)
class Cause:
    """An event of an input, and the part that it plays: it is the event itself, a partner, a member, a bound, …"""

    position: int
    row: Row
    role: str


@dataclass(frozen=True)
class Stem:
    """The causes of an event, and what is between them and it: a window, a match, a round of a loop."""

    causes: Sequence[Cause]
    through: str = ""

    @classmethod
    def of(cls, rows: Iterable[Row], role: str = "event", position: int = 0) -> Stem:
        """Causes of one kind."""
        return cls([Cause(position, row, role) for row in rows])


class Histories:
    """The changes of all inputs up to a batch, each made when it is asked for, and their progress after it."""

    def __init__(self, changes: Sequence[Callable[[], Changes]], progress: Sequence[Progress]) -> None:
        self._changes, self.progress = changes, list(progress)
        self._known: dict[int, Changes] = {}
        self._orders: dict[int, tuple[Int64s, Int64s]] = {}

    def changes(self, position: int) -> Changes:
        """All changes of an input."""
        if position not in self._known:
            self._known[position] = self._changes[position]()
        return self._known[position]

    def find(
        self,
        position: int,
        *,
        le: int | None = None,
        re: int | None = None,
        over: tuple[int, int] | None = None,
        starts: tuple[int, int] | None = None,
        ends: tuple[int, int] | None = None,
        equal: Mapping[str, Any] | None = None,
        keys: Iterable[tuple[Expr, Any]] = (),
    ) -> list[Row]:
        """The events of an input that fulfil all conditions, each as often as it is there.

        They start at `le`, end at `re`, overlap `over`, start or end within `starts` or `ends` (from, before), have
        columns that `equal` values, and expressions (`keys`) that do.
        """
        changes = self.changes(position) if le is None else self._starting(position, [le])
        mask = np.ones(len(changes), np.bool_)
        if re is not None:
            mask &= changes.re == re
        if over is not None:
            mask &= (changes.le < over[1]) & (changes.re > over[0])
        if starts is not None:
            mask &= (changes.le >= starts[0]) & (changes.le < starts[1])
        if ends is not None:
            mask &= (changes.re >= ends[0]) & (changes.re < ends[1])
        found = changes.filter(mask)
        wanted = dict(equal or {})
        for name, value in wanted.items():
            found = found.filter(_equals(found.payload.column(name), value))
        for expr, value in keys:
            found = found.filter(_equals(evaluate(expr, found.payload), value))
        return [row for row in rows_of_changes(found) if same_payload(row[2], wanted)]

    def copies(self, position: int, rows: Sequence[Row]) -> list[Row]:
        """Events of an input, each as often as it is there."""
        if not rows:
            return []
        changes = self._starting(position, sorted({row[0] for row in rows}))
        among = changes.filter(np.isin(changes.re, list({row[1] for row in rows})))
        wanted = set(map(row_identity, rows))
        return [row for row in rows_of_changes(among) if row_identity(row) in wanted]

    def _starting(self, position: int, starts: Sequence[int]) -> Changes:
        """The changes of an input that start at some times, found by a search: many questions name one event each."""
        if position not in self._orders:
            changes = self.changes(position)
            self._known[position] = changes.with_payload(changes.payload.combine_chunks())
            order = np.argsort(changes.le, kind="stable")
            self._orders[position] = order, changes.le[order]
        changes = self._known[position]
        order, times = self._orders[position]
        first, last = np.searchsorted(times, starts, "left"), np.searchsorted(times, starts, "right")
        return changes.take(np.sort(np.concatenate([order[a:b] for a, b in zip(first, last, strict=True)])))


def rows_of_changes(changes: Changes) -> list[Row]:
    """The history that changes sum up to, as rows."""
    left = changes.consolidate()
    columns = (left.le.tolist(), left.re.tolist(), left.weight.tolist(), left.payload.to_pylist())
    if left.payload.num_columns == 0:
        columns = (*columns[:3], [{} for _ in range(len(left))])
    return [(le, re, row) for le, re, weight, row in zip(*columns, strict=True) for _ in range(weight)]


def same_payload(payload: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a payload has these values."""
    return all(identity(payload[name]) == identity(value) for name, value in wanted.items())


def _equals(column: pa.ChunkedArray | pa.Array, value: Any) -> NDArray[np.bool_]:
    """The rows with a value; all rows, where a column cannot be compared as a whole."""
    if value is None:
        return np.asarray(pc.is_null(column))
    if isinstance(value, float) and math.isnan(value):
        return np.asarray(pc.is_nan(column).fill_null(False))
    if pa.types.is_nested(column.type):
        return np.ones(len(column), np.bool_)
    return np.asarray(pc.equal(column, pa.scalar(value, column.type)).fill_null(False))
