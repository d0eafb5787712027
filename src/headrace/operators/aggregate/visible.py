"""Windows that are *visible*: they end at or before m, so an answer has been given, and the CTI has not closed them.

The kernels of grid windows differ in how they remember what is still to come. From that and from a batch they work out
the *delta*: partial results to add per group and visible window. The rest is here. For each window in the delta the
answer before is taken back and the answer after is given, and the delta is added to what is remembered.
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
from headrace.operators.aggregate.window_runs import spread
from headrace.plan.nodes import Merge
from headrace.plan.windows import ENDLESS, Grid
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY, format_ticks
from headrace.trace import Trace

__all__ = ["WINDOW", "Horizon", "VisibleWindows"]

WINDOW = "__window"


@dataclass(frozen=True)
class Horizon:
    """Which windows are visible, by their numbers: the last before a batch, the last after it, and the first that is
    not closed. If nothing more will come, `ended` is how far the input came.
    """

    before: int
    after: int
    first_open: int
    ended: int | None


class VisibleWindows:
    """Partial results of visible windows, and the answers that they come to."""

    def __init__(self, node: Merge) -> None:
        self.schema = node.schema
        self.layout = Layout(node.aggregate)
        assert isinstance(node.aggregate.window, Grid)
        self.window: Grid = node.aggregate.window
        self.trace = Trace(lambda table: self.compacted(table, WINDOW, WINDOW))

    def horizon(self, scalars: Mapping[str, int], now: Progress) -> Horizon:
        """What becomes visible, when time had come as far as the scalars say."""
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
        """What keeps the state, for people."""
        return f"windows from {format_ticks(self.window.cti(cti))} on: CTI {format_ticks(cti)} has not closed them"

    # --- partial results ---------------------------------------------------------------------------------------------

    def compacted(self, table: pa.Table, first: str, last: str) -> pa.Table:
        """How traces of partial results compact; the columns say which windows they are of."""
        kept = compact(table.drop_columns(["__hash", "__time"]), self.layout, list(dict.fromkeys([first, last])))
        times = self.window.end(to_numpy(kept.column(last)))
        hashes = hash_rows(kept.select([*self.layout.keys, first]))
        return kept.append_column("__hash", pa.array(hashes)).append_column("__time", pa.array(times))

    def add(self, trace: Trace, rows: pa.Table, first: str = WINDOW, last: str = WINDOW) -> None:
        """Add partial results to a trace, which forgets them when their last window has ended."""
        if rows.num_rows:
            hashes = hash_rows(rows.select([*self.layout.keys, first]))
            trace.append(rows, hashes, self.window.end(to_numpy(rows.column(last))))

    def spread(self, table: pa.Table, low: int, high: int) -> pa.Table:
        """One row a window, for the windows of each run within `low..high`."""
        first = np.maximum(to_numpy(table.column(FIRST)), low)
        last = np.minimum(to_numpy(table.column(LAST)), high)
        rows, numbers = spread(first, last, self.window)
        whole = table.drop_columns([FIRST, LAST])
        alone = len(rows) == len(first) and bool((last == first).all())
        return (whole if alone else whole.take(pa.array(rows))).append_column(WINDOW, pa.array(numbers))

    # --- answers -----------------------------------------------------------------------------------------------------

    def exchange(self, delta: pa.Table, before: int, now: Progress) -> Changes:
        """Add a delta, and correct the answers; those of windows up to `before` have been given."""
        result = self._corrections(delta, before)
        self.trace.drop(now.cti)
        self.add(self.trace, delta)
        return result

    def _corrections(self, delta: pa.Table, before: int) -> Changes:
        """Old answers of the windows in `delta` taken back, new ones given."""
        if delta.num_rows == 0:
            return Changes.empty(self.schema)
        given = to_numpy(delta.column(WINDOW)) <= before
        fresh = self._answers(delta.filter(pa.array(~given)), 1)
        if not given.any():
            return fresh
        changed = delta.filter(pa.array(given))
        known = self.trace.lookup(hash_rows(changed.select([*self.layout.keys, WINDOW])))
        if known is None:
            return Changes.concat([fresh, self._answers(changed, 1)])
        new = self._answers(compact(concat([known, changed]), self.layout, [WINDOW]), 1)
        old = self._answers(compact(known, self.layout, [WINDOW]), -1)
        return Changes.concat([fresh, Changes.concat([old, new]).consolidate()])

    def _answers(self, state: pa.Table, weight: int) -> Changes:
        """The answer of every window that has events, from its partial results."""
        number, weights, payload = outputs(state, self.layout, WINDOW, weight)
        return Changes(self.window.start(number), self.window.end(number), weights, payload)
