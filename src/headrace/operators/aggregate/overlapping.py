"""Merging for overlapping windows by the rows that enter and leave, so that the size of a window costs nothing.

A hopping window differs from the one before by the rows that enter and those that leave. If partial results can be
subtracted (counts and sums, which are exact integers), a run of windows `FIRST..LAST` is stored as two *steps*: its
partial result enters at `FIRST` and leaves at `LAST + 1`. When time moves from one window to the next, each group's
*total* takes in the steps of that window; the running sum of steps has the answer of every window on the way. An event
costs two rows, however many windows it is in, even if it never ends.

Visible windows are corrected as for any grid window (`visible.py`): corrections are rare, and cost by the windows that
they touch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import Int64s, concat, factorize, to_numpy
from headrace.operators.aggregate.accumulators import COUNT, PART
from headrace.operators.aggregate.combine import FIRST, LAST, compact
from headrace.operators.aggregate.running import negate, running_sums, without_zeros
from headrace.operators.aggregate.visible import WINDOW, Horizon, VisibleWindows
from headrace.operators.kernel import Data, Kernel
from headrace.plan.nodes import Merge
from headrace.plan.windows import ENDLESS, Grid
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import Trace

__all__ = ["OverlappingKernel", "can_slide"]

#: The number of totals instead of a window's; greater than the last number of any endless event.
_TOTAL = ENDLESS + ENDLESS // 2


def can_slide(node: Merge) -> bool:
    """Whether windows overlap and all partial results can be subtracted."""
    window = node.aggregate.window
    return node.aggregate.adds_up and isinstance(window, Grid) and window.size > window.hop


class OverlappingKernel(Kernel):
    """Answers per group and overlapping window."""

    divisible = True

    def __init__(self, node: Merge) -> None:
        super().__init__(node)
        self.visible = VisibleWindows(node)
        self.layout = self.visible.layout
        self.traces = {
            "windows": self.visible.trace,
            "steps": Trace(self._summed),
            "totals": Trace(self._summed),
        }
        self.scalars = {"cti": NEG_INFINITY, "seen": NEG_INFINITY}

    def column_names(self) -> dict[str, str]:
        return self.layout.column_names()

    def _summed(self, table: pa.Table) -> pa.Table:
        return self._without_zeros(self.visible.compact(table, WINDOW, WINDOW))

    def _without_zeros(self, table: pa.Table) -> pa.Table:
        return without_zeros(table, self._not_sums)

    @property
    def _not_sums(self) -> tuple[str, ...]:
        return (*self.layout.keys, WINDOW, PART, "__hash", "__time")

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (partial,), (now,) = inputs, progress
        assert isinstance(partial, pa.Table)
        horizon = self.visible.horizon(self.scalars, now)
        result = self.visible.exchange(self._delta(partial, horizon), horizon.before, now)
        self.scalars = {"cti": max(self.scalars["cti"], now.cti), "seen": max(self.scalars["seen"], now.seen)}
        return result, self.visible.progress(now)

    def _delta(self, partial: pa.Table, horizon: Horizon) -> pa.Table:
        """Partial results to add to windows with answers, and the full ones of new windows."""
        before, after, ended = horizon.before, horizon.after, horizon.ended
        parts = []
        due: list[pa.Table] = []
        if partial.num_rows:
            parts.append(compact(self.visible.expand(partial, horizon.first_open, before), self.layout, [WINDOW]))
            due = self._enter(partial, before, after if ended is None else INFINITY)
        if ended is not None:
            parts.append(self._windows_between(due, before, None, ended))
        elif after > before:
            parts.append(self._windows_between(due, before, after, after))
        return concat(parts) if parts else _empty_delta()

    def _enter(self, partial: pa.Table, before: int, after: int) -> list[pa.Table]:
        """The steps of new rows due now. Later steps go to the trace, rows in the current window to totals."""
        first, last = to_numpy(partial.column(FIRST)), to_numpy(partial.column(LAST))
        rows = partial.drop_columns([FIRST, LAST])
        self._add("totals", rows, np.full(len(first), _TOTAL, np.int64), (first <= before) & (last > before))
        due = []
        leaving = negate(rows, self._not_sums)
        for part, at, open_ in ((rows, first, first > before), (leaving, last + 1, last > before)):
            self._add("steps", part, at, open_ & (at > after))
            due.append(part.append_column(WINDOW, pa.array(at)).filter(pa.array(open_ & (at <= after))))
        return due

    def _add(self, trace: str, rows: pa.Table, at: Int64s, mask: NDArray[np.bool_]) -> None:
        rows = rows.append_column(WINDOW, pa.array(at)).filter(pa.array(mask))
        if rows.num_rows:
            self.visible.add(self.traces[trace], self._without_zeros(compact(rows, self.layout, [WINDOW])))

    def _windows_between(self, new: list[pa.Table], before: int, after: int | None, high: int) -> pa.Table:
        """Full partial results of the windows after `before`, up to `after` or to the end of all steps."""
        steps, totals = self.traces["steps"], self.traces["totals"]
        limit = INFINITY if after is None else int(self.visible.window.end(np.array([after]))[0])
        due = [part for part in (steps.until(limit), *new) if part is not None and part.num_rows]
        standing = totals.scan()
        if not due and standing is None:
            return _empty_delta()
        table = concat(due if standing is None else [*due, standing])
        table = self._without_zeros(compact(table, self.layout, [WINDOW]))
        codes = factorize(table.select(self.layout.keys))[0] if self.layout.keys else np.zeros(table.num_rows, np.int64)
        at = to_numpy(table.column(WINDOW))
        at = np.where(at == _TOTAL, before, at)
        if after is None:
            at = _ended(at, codes, high)
        order = np.lexsort((at, codes))
        table, at, codes = table.take(pa.array(order)), at[order], codes[order]
        last_of_group = np.r_[codes[1:] != codes[:-1], True] if len(codes) else np.empty(0, bool)
        # At the end everything has left, so the windows after the last step of a group are empty.
        until = np.where(last_of_group, at if after is None else after, np.r_[at[1:], 0] - 1)
        table = running_sums(table, codes, self._not_sums)
        self._settle(concat(due) if due else None, limit)
        table = table.set_column(table.schema.get_field_index(WINDOW), FIRST, pa.array(at))
        table = table.append_column(LAST, pa.array(until)).filter(pc.greater(table.column(COUNT), 0))
        return self.visible.expand(table, before + 1, ENDLESS if after is None else after)

    def _settle(self, due: pa.Table | None, limit: int) -> None:
        """Move the steps that are due to the totals."""
        self.traces["steps"].drop(limit)
        if limit == INFINITY:
            self.traces["totals"].drop(INFINITY)
        elif due is not None:
            rows = due.drop_columns([WINDOW])
            self._add("totals", rows, np.full(rows.num_rows, _TOTAL, np.int64), np.ones(rows.num_rows, bool))

    def held_by(self) -> str:
        return self.visible.held_by(self.scalars["cti"])


def _empty_delta() -> pa.Table:
    return pa.table({WINDOW: pa.array([], pa.int64())})


def _ended(at: Int64s, codes: Int64s, high: int) -> Int64s:
    """When the input has ended, endless rows leave after the last finite one of their group."""
    endless = at >= ENDLESS // 2
    if not endless.any():
        return at
    limit = np.full(int(codes.max()) + 1, high, np.int64)
    np.maximum.at(limit, codes, np.where(endless, at - ENDLESS, at) - 1)
    return np.where(endless, limit[codes] + 1, at)
