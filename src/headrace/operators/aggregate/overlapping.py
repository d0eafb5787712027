"""Merging for windows that overlap: what enters and what leaves, so that a window's size costs nothing.

A hopping window differs from the one before by the rows that enter and those that leave. Where partial results can be
subtracted (counts and sums, which are exact integers), a run of windows `FIRST..LAST` is remembered as two *steps*: its
partial result enters at `FIRST` and leaves at `LAST + 1`. When time moves from one window to the next, each group's
*total* takes in the steps of that window; the running sum of steps is the answer of every window on the way. An event
costs two rows, however many windows it is in, and so does one that never ends.

Corrections of windows that have been given are those of any grid window (`visible.py`): they are rare, and touch the
windows they touch.
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
from headrace.operators.aggregate.running import negative, present, running_sums
from headrace.operators.aggregate.visible import WINDOW, Horizon, VisibleWindows
from headrace.operators.kernel import Data, Kernel
from headrace.plan.nodes import Merge
from headrace.plan.windows import ENDLESS, Grid
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import Trace

__all__ = ["OverlappingKernel", "slides"]

#: Where totals stand instead of a window's number; farther than the last number of any event that never ends.
_TOTAL = ENDLESS + ENDLESS // 2


def slides(node: Merge) -> bool:
    """Whether windows overlap and all that is remembered can be subtracted."""
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
        return self._present(self.visible.compacted(table, WINDOW, WINDOW))

    def _present(self, table: pa.Table) -> pa.Table:
        return present(table, self._not_sums)

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
        """Partial results to add to windows that have been given, and whole ones of windows that are new."""
        before, after, ended = horizon.before, horizon.after, horizon.ended
        parts = []
        due: list[pa.Table] = []
        if partial.num_rows:
            parts.append(compact(self.visible.spread(partial, horizon.first_open, before), self.layout, [WINDOW]))
            due = self._enter(partial, before, after if ended is None else INFINITY)
        if ended is not None:
            parts.append(self._moved(due, before, None, ended))
        elif after > before:
            parts.append(self._moved(due, before, after, after))
        return concat(parts) if parts else _nothing()

    def _enter(self, partial: pa.Table, before: int, after: int) -> list[pa.Table]:
        """The steps of new rows that time takes now; later ones are remembered, the total has what is in a window."""
        first, last = to_numpy(partial.column(FIRST)), to_numpy(partial.column(LAST))
        rows = partial.drop_columns([FIRST, LAST])
        self._add("totals", rows, np.full(len(first), _TOTAL, np.int64), (first <= before) & (last > before))
        due = []
        leaving = negative(rows, self._not_sums)
        for part, at, open_ in ((rows, first, first > before), (leaving, last + 1, last > before)):
            self._add("steps", part, at, open_ & (at > after))
            due.append(part.append_column(WINDOW, pa.array(at)).filter(pa.array(open_ & (at <= after))))
        return due

    def _add(self, trace: str, rows: pa.Table, at: Int64s, some: NDArray[np.bool_]) -> None:
        rows = rows.append_column(WINDOW, pa.array(at)).filter(pa.array(some))
        if rows.num_rows:
            self.visible.add(self.traces[trace], self._present(compact(rows, self.layout, [WINDOW])))

    def _moved(self, new: list[pa.Table], before: int, after: int | None, high: int) -> pa.Table:
        """Whole partial results of the windows behind `before`, up to `after` or to the end of all steps."""
        steps, totals = self.traces["steps"], self.traces["totals"]
        limit = INFINITY if after is None else int(self.visible.window.end(np.array([after]))[0])
        due = [part for part in (steps.until(limit), *new) if part is not None and part.num_rows]
        standing = totals.scan()
        if not due and standing is None:
            return _nothing()
        table = concat(due if standing is None else [*due, standing])
        table = self._present(compact(table, self.layout, [WINDOW]))
        codes = factorize(table.select(self.layout.keys))[0] if self.layout.keys else np.zeros(table.num_rows, np.int64)
        at = to_numpy(table.column(WINDOW))
        at = np.where(at == _TOTAL, before, at)
        if after is None:
            at = _ended(at, codes, high)
        order = np.lexsort((at, codes))
        table, at, codes = table.take(pa.array(order)), at[order], codes[order]
        last_of_group = np.r_[codes[1:] != codes[:-1], True] if len(codes) else np.empty(0, bool)
        # At the end everything has left, so that the last step of a group leads to windows with nothing in them.
        until = np.where(last_of_group, at if after is None else after, np.r_[at[1:], 0] - 1)
        table = running_sums(table, codes, self._not_sums)
        self._settle(concat(due) if due else None, limit)
        table = table.set_column(table.schema.get_field_index(WINDOW), FIRST, pa.array(at))
        table = table.append_column(LAST, pa.array(until)).filter(pc.greater(table.column(COUNT), 0))
        return self.visible.spread(table, before + 1, ENDLESS if after is None else after)

    def _settle(self, due: pa.Table | None, limit: int) -> None:
        """Steps that have been taken are in the totals from now on."""
        self.traces["steps"].drop(limit)
        if limit == INFINITY:
            self.traces["totals"].drop(INFINITY)
        elif due is not None:
            rows = due.drop_columns([WINDOW])
            self._add("totals", rows, np.full(rows.num_rows, _TOTAL, np.int64), np.ones(rows.num_rows, bool))

    def held_by(self) -> str:
        return self.visible.held_by(self.scalars["cti"])


def _nothing() -> pa.Table:
    return pa.table({WINDOW: pa.array([], pa.int64())})


def _ended(at: Int64s, codes: Int64s, high: int) -> Int64s:
    """When nothing more will come, what never ends leaves behind the last thing of its group that does."""
    endless = at >= ENDLESS // 2
    if not endless.any():
        return at
    limit = np.full(int(codes.max()) + 1, high, np.int64)
    np.maximum.at(limit, codes, np.where(endless, at - ENDLESS, at) - 1)
    return np.where(endless, limit[codes] + 1, at)
