"""Windows that are *visible*: they end at or before m, so they have an answer, and the CTI has not closed them.

The kernels of grid windows differ in how they keep the partial results of later windows. From these and from a batch
they compute the *delta*: partial results to add per group and visible window. `VisibleWindows` does the rest: for each
window in the delta it takes back the old answer and inserts the new one, and adds the delta to its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import concat, hash_rows, to_numpy
from headrace.operators.aggregate.accumulators import Layout
from headrace.operators.aggregate.answers import outputs
from headrace.operators.aggregate.combine import FIRST, LAST, compact
from headrace.operators.aggregate.window_runs import expand_runs
from headrace.plan.nodes import Merge
from headrace.plan.windows import ENDLESS, Grid
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY, format_ticks
from headrace.trace import HASH, TIME, Trace

__all__ = ["WINDOW", "Horizon", "VisibleWindows"]

WINDOW = "__window"


@dataclass(frozen=True)
class Horizon:
    """The numbers of visible windows: the last before a batch, the last after it, and the first that is not closed.

    If the input has ended, `ended` is its last window.
    """

    before: int
    after: int
    first_open: int
    ended: int | None


class VisibleWindows:
    """Partial results of visible windows, and their answers."""

    def __init__(self, node: Merge) -> None:
        self.schema, self.dates = node.schema, node.dates
        self.layout = Layout(node.aggregate)
        assert isinstance(node.aggregate.window, Grid)
        self.window: Grid = node.aggregate.window
        self.trace = Trace(lambda table: self.compact(table, WINDOW))

    def horizon(self, scalars: Mapping[str, int], now: Progress) -> Horizon:
        """The windows that become visible, from the times in the scalars."""
        cti, seen, closed = scalars["cti"], scalars["seen"], self.window.closed
        first_open = -ENDLESS if cti == NEG_INFINITY else closed(cti) + 1
        reached = max(now.high, seen if seen != INFINITY else NEG_INFINITY)
        ended = closed(reached) if now.cti == INFINITY else None
        return Horizon(closed(seen), closed(max(now.seen, seen)), first_open, ended)

    def progress(self, now: Progress) -> Progress:
        """The output's progress."""
        high = NEG_INFINITY if now.high == NEG_INFINITY else self.window.start_of(self.window.closed(now.high))
        return Progress(self.window.cti(now.cti), high)

    def held_by(self, cti: int) -> str:
        """Why state is kept, as a text for users."""
        start, promise = (format_ticks(time, dates=self.dates) for time in (self.window.cti(cti), cti))
        return f"windows from {start} on: CTI {promise} has not closed them"

    # --- partial results ---------------------------------------------------------------------------------------------

    def compact(self, table: pa.Table, *windows: str) -> pa.Table:
        """Compact a trace of partial results; the columns have the numbers of their windows."""
        return compact(table, self.layout, list(windows), (HASH, TIME))

    def add(self, trace: Trace, rows: pa.Table, first: str = WINDOW, last: str = WINDOW) -> None:
        """Add partial results to a trace, which forgets them when their last window has ended."""
        times = self.window.end(to_numpy(rows.column(last)))
        living = times > trace.floor
        if not living.all():
            rows, times = rows.filter(pa.array(living)), times[living]
        if rows.num_rows:
            trace.append(rows, hash_rows(rows.select([*self.layout.keys, first])), times)

    def expand(self, table: pa.Table, low: int, high: int) -> pa.Table:
        """One row per window, for the windows of each run within `low..high`."""
        first = np.maximum(to_numpy(table.column(FIRST)), low)
        last = np.minimum(to_numpy(table.column(LAST)), high)
        rows, numbers = expand_runs(first, last, self.window)
        partial = table.drop_columns([FIRST, LAST])
        single = len(rows) == len(first) and bool((last == first).all())
        return (partial if single else partial.take(pa.array(rows))).append_column(WINDOW, pa.array(numbers))

    # --- answers -----------------------------------------------------------------------------------------------------

    def exchange(self, delta: pa.Table, before: int, now: Progress) -> Changes:
        """Add a delta, and correct the answers; windows up to `before` have answers."""
        result = self._corrections(delta, before)
        self.trace.drop(now.cti)
        self.add(self.trace, delta)
        return result

    def _corrections(self, delta: pa.Table, before: int) -> Changes:
        """Take back the old answers of the windows in `delta`, and insert the new ones."""
        if delta.num_rows == 0:
            return Changes.empty(self.schema)
        answered = to_numpy(delta.column(WINDOW)) <= before
        if not answered.any():
            return self._answers(delta, 1)
        fresh = self._answers(delta.filter(pa.array(~answered)), 1)
        changed = delta.filter(pa.array(answered))
        known = self.trace.lookup(hash_rows(changed.select([*self.layout.keys, WINDOW])))
        if known is None:
            return Changes.concat([fresh, self._answers(changed, 1)])
        new = self._answers(compact(concat([known, changed]), self.layout, [WINDOW]), 1)
        old = self._answers(compact(known, self.layout, [WINDOW]), -1)
        return Changes.concat([fresh, Changes.concat([old, new]).consolidate()])

    def _answers(self, state: pa.Table, weight: int) -> Changes:
        """The answer of every window with events, from its partial results."""
        number, weights, payload = outputs(state, self.layout, WINDOW, weight)
        return Changes(self.window.start(number), self.window.end(number), weights, payload)
