"""Merging: the second half of a windowed aggregate, in the bucket that owns the group (rules 5.1 to 5.4 and 6.4).

Two traces carry the state:

- `windows`: partial results of every window that is *visible* (ends at or before m, so it has an answer) and
  not yet closed by the CTI (`visible.py`);
- `runs`: partial results of runs of windows that reach past m. An endless event is one row here, not endless windows.

A batch moves m forward. Its own rows, and the rows of `runs` that become visible, are the *delta*: partial results to
add per group and window. So the cost of a batch depends on what it changes, not on the size of the state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import concat, factorize, to_numpy
from headrace.operators.aggregate.accumulators import COUNT, PART
from headrace.operators.aggregate.combine import FIRST, LAST, compact
from headrace.operators.aggregate.visible import WINDOW, Horizon, VisibleWindows
from headrace.operators.kernel import Data, Kernel
from headrace.plan.nodes import Merge
from headrace.plan.windows import ENDLESS
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import Trace

__all__ = ["MergeKernel", "empty_partial"]


class MergeKernel(Kernel):
    """Answers per group and window, given early and corrected."""

    divisible = True

    def __init__(self, node: Merge) -> None:
        super().__init__(node)
        self.visible = VisibleWindows(node)
        self.layout = self.visible.layout
        self.runs = Trace(lambda table: self.visible.compact(table, FIRST, LAST))
        self.traces = {"windows": self.visible.trace, "runs": self.runs}
        self.scalars = {"cti": NEG_INFINITY, "seen": NEG_INFINITY}

    def column_names(self) -> dict[str, str]:
        return self.layout.column_names()

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (partial,), (now,) = inputs, progress
        assert isinstance(partial, pa.Table)
        horizon = self.visible.horizon(self.scalars, now)
        result = self.visible.exchange(self._delta(partial, horizon), horizon.before, now)
        self.scalars = {"cti": max(self.scalars["cti"], now.cti), "seen": max(self.scalars["seen"], now.seen)}
        return result, self.visible.progress(now)

    def _delta(self, partial: pa.Table, horizon: Horizon) -> pa.Table:
        """Partial results to add, per group and visible window."""
        before, after, window = horizon.before, horizon.after, self.visible.window
        old = self.runs.scan() if after > before else None
        parts = []
        if horizon.ended is not None:  # the input has ended: endless runs stop with the last end
            partial, old = self._ended(partial, old, horizon.ended)
        if partial.num_rows:
            parts.append(self.visible.expand(partial, horizon.first_open, after))
            waiting = partial.filter(pa.array(to_numpy(partial.column(LAST)) > after))
            self.visible.add(self.runs, waiting, FIRST, LAST)
        if old is not None:
            parts.append(self.visible.expand(old, max(before + 1, horizon.first_open), after))
            self.runs.drop(window.end_of(after))
        if horizon.ended is not None:
            self.runs.drop(INFINITY)
        nonempty = [part for part in parts if part.num_rows]
        return (
            compact(concat(nonempty), self.layout, [WINDOW])
            if nonempty
            else pa.table({WINDOW: pa.array([], pa.int64())})
        )

    def _ended(self, partial: pa.Table, old: pa.Table | None, high: int) -> tuple[pa.Table, pa.Table | None]:
        both = concat([t for t in (partial, old) if t is not None])
        if both.num_rows == 0:
            return partial, old
        kept = compact(both, self.layout, [FIRST, LAST])  # runs that were taken back do not count
        size = both.num_rows
        codes, groups = factorize(concat([both, kept]).select(self.layout.keys))
        last, lasts = to_numpy(both.column(LAST)), to_numpy(kept.column(LAST))
        limit = np.full(len(groups), high, np.int64)
        np.maximum.at(limit, codes[size:], np.where(lasts >= ENDLESS // 2, lasts - ENDLESS, lasts))
        ended = pa.array(np.where(last >= ENDLESS // 2, limit[codes[:size]], last))
        both = both.set_column(both.schema.get_field_index(LAST), LAST, ended)
        size = partial.num_rows
        return both.slice(0, size), (both.slice(size) if old is not None else None)

    def held_by(self) -> str:
        return self.visible.held_by(self.scalars["cti"])


def empty_partial() -> pa.Table:
    """The partial results of a bucket without input."""
    return pa.table(
        {
            PART: pa.array([], pa.int8()),
            FIRST: pa.array([], pa.int64()),
            LAST: pa.array([], pa.int64()),
            COUNT: pa.array([], pa.int64()),
        }
    )
