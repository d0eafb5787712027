"""Merging for overlapping windows by the rows that enter and leave, so that the size of a window costs nothing.

A hopping window differs from the one before by the rows that enter and those that leave. If partial results can be
subtracted (counts and sums, which are exact integers), a run of windows `FIRST..LAST` is stored as two *steps*: its
partial result enters at `FIRST` and leaves at `LAST + 1`. When time moves from one window to the next, each group's
*total* takes in the steps of that window; the running sum of steps has the answer of every window on the way. An event
costs two rows, however many windows it is in, even if it never ends. The least and greatest values of events that are
never taken back come from another place (`sliding_extremes.py`).

Visible windows are corrected as for any grid window (`visible.py`): corrections are rare, and cost by the windows that
they touch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Int64s, concat, factorize, group_sum, to_numpy
from headrace.expr.aggregates import AGGREGATES
from headrace.operators.aggregate.accumulators import COUNT, PART, Layout
from headrace.operators.aggregate.combine import FIRST, LAST, compact
from headrace.operators.aggregate.running import negate, order_of_steps, running_sums, without_zeros
from headrace.operators.aggregate.sliding_extremes import SlidingExtremes
from headrace.operators.aggregate.visible import WINDOW, Horizon, VisibleWindows
from headrace.operators.aggregate.window_runs import expand_runs
from headrace.operators.kernel import Data, Kernel, SavedTraces
from headrace.plan.nodes import Merge
from headrace.plan.windows import ENDLESS, Grid
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import HASH, TIME, Segment, Trace

__all__ = ["OverlappingKernel", "can_slide"]

#: The number of totals instead of a window's; greater than the last number of any endless event.
_TOTAL = ENDLESS + ENDLESS // 2
#: Least and greatest values of an event's windows are merged one by one if there are no more: that is quicker.
_FEW_WINDOWS = 32


def can_slide(node: Merge) -> bool:
    """Whether windows overlap, and what they compute can be subtracted or is a least or greatest value."""
    window, layout = node.aggregate.window, Layout(node.aggregate)
    if not isinstance(window, Grid) or window.overlap <= 1:
        return False
    return all(_slides(call.function, window, layout) for call in node.aggregate.split[0].values())


def _slides(function: str, window: Grid, layout: Layout) -> bool:
    if AGGREGATES[function].adds_up:
        return True
    return function in ("min", "max") and layout.insert_only and window.overlap > _FEW_WINDOWS


class OverlappingKernel(Kernel):
    """Answers per group and overlapping window."""

    divisible = True

    def __init__(self, node: Merge) -> None:
        super().__init__(node)
        self.visible = VisibleWindows(node)
        self.layout = self.visible.layout
        self.extremes = SlidingExtremes(self.layout, self.visible.window)
        self.traces = {
            "windows": self.visible.trace,
            "steps": Trace(self._summed),
            "totals": Trace(self._summed),
        }
        if self.extremes.columns:
            self.traces["extremes"] = self.extremes.trace
        self.scalars = {"cti": NEG_INFINITY, "seen": NEG_INFINITY}

    def column_names(self) -> dict[str, str]:
        return self.layout.column_names()

    def _summed(self, table: pa.Table) -> pa.Table:
        return self._without_zeros(self.visible.compact(table, WINDOW))

    def _without_zeros(self, table: pa.Table) -> pa.Table:
        return without_zeros(table, self._not_sums)

    @property
    def _not_sums(self) -> tuple[str, ...]:
        return (*self.layout.keys, WINDOW, PART, HASH, TIME)

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (partial,), (now,) = inputs, progress
        assert isinstance(partial, pa.Table)
        horizon = self.visible.horizon(self.scalars, now)
        result = self.visible.exchange(self._delta(partial, horizon), horizon.before, now)
        self.scalars = {"cti": max(self.scalars["cti"], now.cti), "seen": max(self.scalars["seen"], now.seen)}
        return result, self.visible.progress(now)

    def _delta(self, partial: pa.Table, horizon: Horizon) -> pa.Table:
        """Partial results to add to windows with answers, and the full ones of new windows."""
        before, ended = horizon.before, horizon.ended
        after = horizon.after if ended is None else None
        parts = []
        due: list[pa.Table] = []
        new = partial if partial.num_rows else None
        self.extremes.visible = before
        if new is not None:
            parts.append(compact(self.visible.expand(new, horizon.first_open, before), self.layout, [WINDOW]))
            due = self._enter(new, before, INFINITY if after is None else after)
        if after is None or after > before:
            windows = self._windows_between(due, before, after, horizon.after if ended is None else ended)
            numbers = to_numpy(windows.column(WINDOW))
            parts.append(self.extremes.with_extremes(windows, numbers, new) if len(numbers) else windows)
            self.extremes.trace.drop(self._end(after))
        if new is not None and after is not None:
            self.extremes.visible = after
            self.extremes.add(new)
        return concat(parts) if parts else _empty_delta()

    def _enter(self, partial: pa.Table, before: int, after: int) -> list[pa.Table]:
        """What of new rows is due now: steps, and rows in the window `before`. Later steps go to the trace."""
        first, last = to_numpy(partial.column(FIRST)), to_numpy(partial.column(LAST))
        others = {FIRST, LAST, *self.layout.extreme_columns}
        rows = partial.select([name for name in partial.column_names if name not in others])
        present = (first <= before) & (last > before)
        standing = rows.append_column(WINDOW, pa.array(np.full(len(first), _TOTAL, np.int64))).filter(pa.array(present))
        due = [standing] if after > before else []
        if not due:
            self._add("totals", standing)
        leaving = negate(rows, self._not_sums)
        later = []
        for part, at, open_ in ((rows, first, first > before), (leaving, last + 1, last > before)):
            steps = part.append_column(WINDOW, pa.array(at))
            later.append(steps.filter(pa.array(open_ & (at > after))))
            due.append(steps.filter(pa.array(open_ & (at <= after))))
        self._add("steps", concat(later))
        return due

    def _add(self, trace: str, rows: pa.Table) -> None:
        if rows.num_rows:
            self.visible.add(self.traces[trace], self._without_zeros(compact(rows, self.layout, [WINDOW])))

    def _windows_between(self, new: list[pa.Table], before: int, after: int | None, high: int) -> pa.Table:
        """Full partial results of the windows after `before`, up to `after` or to the end of all steps."""
        steps, totals = self.traces["steps"], self.traces["totals"]
        limit = self._end(after)
        due = [part for part in (steps.until(limit), *new) if part is not None and part.num_rows]
        standing = totals.scan()
        if not due and standing is None:
            return _empty_delta()
        table = concat(due if standing is None else [*due, standing])
        if after is None:  # steps that cancel do not tell how far endless events go on
            table = self._without_zeros(compact(table, self.layout, [WINDOW]))
        if table.num_rows == 0:
            steps.drop(limit)
            totals.drop(limit)
            return _empty_delta()
        groups, first = self._groups(table)
        at = to_numpy(table.column(WINDOW))
        at = np.where(at == _TOTAL, before, at)
        if after is None:
            at = _ended(at, groups, high)
        sums = {name: _without_nulls(table.column(name)) for name in table.column_names if name not in self._not_sums}
        keys = table.select([PART, *self.layout.keys]).take(pa.array(first))
        self._settle(keys, groups[: sum(part.num_rows for part in due)], sums, limit)
        order, last = order_of_steps(groups, at)
        sums = running_sums(sums, groups, order, last)
        groups, at = groups[order][last], at[order][last]
        last_of_group = np.r_[groups[1:] != groups[:-1], True]
        # At the end everything has left, so the windows after the last step of a group are empty.
        until = np.where(last_of_group, at if after is None else after, np.r_[at[1:], 0] - 1)
        begin, until = np.maximum(at, before + 1), np.where(sums[COUNT] > 0, until, -ENDLESS)
        rows, numbers = expand_runs(begin, until, self.visible.window)
        windows = keys.take(pa.array(groups[rows])).append_column(WINDOW, pa.array(numbers))
        for name, column in sums.items():
            windows = windows.append_column(name, pa.array(column[rows]))
        return windows

    def _groups(self, table: pa.Table) -> tuple[Int64s, Int64s]:
        """The group of each row, and the first row of each group."""
        if self.layout.keys:
            return factorize(table.select(self.layout.keys))
        return np.zeros(table.num_rows, np.int64), np.zeros(1, np.int64)

    def _end(self, after: int | None) -> int:
        """When a window ends; None is the end of the input."""
        return INFINITY if after is None else self.visible.window.end_of(after)

    def _settle(self, keys: pa.Table, due: Int64s, sums: dict[str, Int64s], limit: int) -> None:
        """Move the steps that are due to the totals: the first rows, with these groups."""
        self.traces["steps"].drop(limit)
        if limit == INFINITY:
            self.traces["totals"].drop(INFINITY)
            return
        rows = keys.append_column(WINDOW, pa.array(np.full(keys.num_rows, _TOTAL, np.int64)))
        for name, column in sums.items():
            rows = rows.append_column(name, pa.array(group_sum(due, column[: len(due)], keys.num_rows)))
        self.visible.add(self.traces["totals"], self._without_zeros(rows))

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        if "runs" not in traces:
            super().restore(scalars, traces, held)
            return
        # An earlier Headrace merged least and greatest values window by window (`merge.py`).
        self.scalars = scalars
        self.visible.trace.restore(traces["windows"], held)
        runs = Trace(lambda table: table)
        runs.restore(traces["runs"], held)
        rows, before = runs.scan(), self.visible.window.closed(scalars["seen"])
        if rows is not None:
            self._enter(rows, before, before)
            self.extremes.visible = before
            self.extremes.add(rows)

    def held_by(self) -> str:
        return self.visible.held_by(self.scalars["cti"])


def _empty_delta() -> pa.Table:
    return pa.table({WINDOW: pa.array([], pa.int64())})


def _without_nulls(column: pa.ChunkedArray) -> Int64s:
    return to_numpy(pc.fill_null(column, 0) if column.null_count else column)


def _ended(at: Int64s, codes: Int64s, high: int) -> Int64s:
    """When the input has ended, endless rows leave after the last finite one of their group."""
    endless = at >= ENDLESS // 2
    if not endless.any():
        return at
    limit = np.full(int(codes.max()) + 1, high, np.int64)
    np.maximum.at(limit, codes, np.where(endless, at - ENDLESS, at) - 1)
    return np.where(endless, limit[codes] + 1, at)
