"""Merging: the second half of a windowed aggregate, in the bucket that owns the group (rules 5.1 to 5.4 and 6.4).

Two traces carry the state:

- `windows`: partial results of every window that is *visible* (ends at or before m, so an answer has been given) and
  not yet closed by the CTI;
- `runs`: partial results of runs of windows that reach past m, and so are partly still to come. An event that never
  ends is one row here, not endless windows.

A batch moves m forward. Its own rows, and the rows of `runs` that now become visible, give the *delta*: partial results
to add per group and window. For each window in the delta the answer before (from `windows`) is taken back and the
answer after is given. So a batch costs as much as what it changes, not as much as what is remembered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import Int64s, concat, factorize, hash_rows, to_numpy
from headrace.operators.aggregate.accumulators import COUNT, PART, Layout
from headrace.operators.aggregate.answers import answers
from headrace.operators.aggregate.combine import FIRST, LAST, compact
from headrace.operators.aggregate.window_runs import spread
from headrace.operators.evaluated import evaluated
from headrace.operators.kernel import Data, Kernel
from headrace.plan.nodes import Merge
from headrace.plan.windows import ENDLESS, Grid
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY, format_ticks
from headrace.trace import Trace

__all__ = ["MergeKernel", "empty_partial"]

WINDOW = "__window"


class MergeKernel(Kernel):
    """Answers per group and window, given early and corrected."""

    divisible = True

    def __init__(self, node: Merge) -> None:
        super().__init__(node)
        self.aggregate = node.aggregate
        self.layout = Layout(node.aggregate)
        assert isinstance(node.aggregate.window, Grid)
        self.window: Grid = node.aggregate.window
        self.traces = {
            "windows": Trace(lambda table: self._compact_state(table, [WINDOW])),
            "runs": Trace(lambda table: self._compact_state(table, [FIRST, LAST])),
        }
        self.scalars = {"cti": NEG_INFINITY, "seen": NEG_INFINITY}

    def column_names(self) -> dict[str, str]:
        return self.layout.column_names()

    def _compact_state(self, table: pa.Table, windows: list[str]) -> pa.Table:
        kept = compact(table.drop_columns(["__hash", "__time"]), self.layout, windows)
        numbers = to_numpy(kept.column(windows[-1]))
        return self._stamped(kept, windows, self.window.end(numbers))

    def _stamped(self, table: pa.Table, windows: list[str], times: Int64s) -> pa.Table:
        return table.append_column("__hash", pa.array(self._hashes(table, windows))).append_column(
            "__time", pa.array(times)
        )

    def _hashes(self, table: pa.Table, windows: list[str]) -> NDArray[np.uint64]:
        return hash_rows(table.select([*self.layout.keys, windows[0]]))

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (partial,), (now,) = inputs, progress
        assert isinstance(partial, pa.Table)
        delta = self._delta(partial, now)
        result = self._corrections(delta)
        self.traces["windows"].drop(now.cti)
        ends = self.window.end(to_numpy(delta.column(WINDOW)))
        delta = delta.filter(pa.array(ends > now.cti))
        if delta.num_rows:
            self.traces["windows"].append(delta, self._hashes(delta, [WINDOW]), ends[ends > now.cti])
        self.scalars = {"cti": max(self.scalars["cti"], now.cti), "seen": max(self.scalars["seen"], now.seen)}
        return result, self._progress(now)

    def _progress(self, now: Progress) -> Progress:
        visible = self.window.closed(now.high)
        high = NEG_INFINITY if now.high == NEG_INFINITY else self.window.start_of(visible)
        return Progress(self.window.cti(now.cti), high)

    def _delta(self, partial: pa.Table, now: Progress) -> pa.Table:
        """Partial results to add, per group and visible window."""
        before, after = (
            self.window.closed(self.scalars["seen"]),
            self.window.closed(max(now.seen, self.scalars["seen"])),
        )
        first_open = self.window.closed(self.scalars["cti"]) + 1
        if self.scalars["cti"] == NEG_INFINITY:
            first_open = -ENDLESS
        runs = self.traces["runs"]
        old = runs.scan() if after > before else None
        parts = []
        if now.cti == INFINITY:  # nothing more will come: endless runs stop with the last thing that ends
            high = self.window.closed(
                max(now.high, self.scalars["seen"] if self.scalars["seen"] != INFINITY else NEG_INFINITY)
            )
            partial, old = self._ended(partial, old, high)
        if partial.num_rows:
            parts.append(self._spread(partial, first_open, after))
            waiting = partial.filter(pa.array(to_numpy(partial.column(LAST)) > after))
            self._wait(waiting)
        if old is not None:
            parts.append(self._spread(old, max(before + 1, first_open), after))
            runs.drop(self.window.start_of(after) + self.window.size)
        if now.cti == INFINITY:
            runs.drop(INFINITY)
        found = [part for part in parts if part.num_rows]
        return compact(concat(found), self.layout, [WINDOW]) if found else pa.table({WINDOW: pa.array([], pa.int64())})

    def _wait(self, waiting: pa.Table) -> None:
        if waiting.num_rows:
            ends = self.window.end(to_numpy(waiting.column(LAST)))
            self.traces["runs"].append(waiting, self._hashes(waiting, [FIRST]), ends)

    def _ended(self, partial: pa.Table, old: pa.Table | None, high: int) -> tuple[pa.Table, pa.Table | None]:
        both = concat([t for t in (partial, old) if t is not None])
        if both.num_rows == 0:
            return partial, old
        kept = compact(both, self.layout, [FIRST, LAST])  # runs that were taken back reach nowhere
        size = both.num_rows
        codes, groups = factorize(concat([both, kept]).select(self.layout.keys))
        last, lasts = to_numpy(both.column(LAST)), to_numpy(kept.column(LAST))
        limit = np.full(len(groups), high, np.int64)
        np.maximum.at(limit, codes[size:], np.where(lasts >= ENDLESS // 2, lasts - ENDLESS, lasts))
        ended = pa.array(np.where(last >= ENDLESS // 2, limit[codes[:size]], last))
        both = both.set_column(both.schema.get_field_index(LAST), LAST, ended)
        size = partial.num_rows
        return both.slice(0, size), (both.slice(size) if old is not None else None)

    def _spread(self, table: pa.Table, low: int, high: int) -> pa.Table:
        """One row a window, for the windows of each run within `low..high`."""
        first = np.maximum(to_numpy(table.column(FIRST)), low)
        last = np.minimum(to_numpy(table.column(LAST)), high)
        rows, numbers = spread(first, last, self.window)
        whole = table.drop_columns([FIRST, LAST])
        alone = len(rows) == len(first) and bool((last == first).all())
        return (whole if alone else whole.take(pa.array(rows))).append_column(WINDOW, pa.array(numbers))

    def _corrections(self, delta: pa.Table) -> Changes:
        """Old answers of the windows in `delta` taken back, new ones given."""
        if delta.num_rows == 0:
            return Changes.empty(self.node.schema)
        given = to_numpy(delta.column(WINDOW)) <= self.window.closed(self.scalars["seen"])
        fresh = self._answers(delta.filter(pa.array(~given)), 1)
        if not given.any():
            return fresh
        changed = delta.filter(pa.array(given))
        known = self.traces["windows"].lookup(self._hashes(changed, [WINDOW]))
        if known is None:
            return Changes.concat([fresh, self._answers(changed, 1)])
        after = self._answers(compact(concat([known, changed]), self.layout, [WINDOW]), 1)
        before = self._answers(compact(known, self.layout, [WINDOW]), -1)
        return Changes.concat([fresh, Changes.concat([before, after]).consolidate()])

    def _answers(self, state: pa.Table, weight: int) -> Changes:
        """The answer of every window that has events, from its partial results."""
        table = answers(state, self.layout, WINDOW)
        number = to_numpy(table.column(WINDOW))
        _, outputs = self.aggregate.split
        columns = [table.column(name) for name in self.layout.keys]
        weights = np.full(len(number), weight, np.int64)
        columns += [evaluated(expr, table, weights) for expr in outputs.values()]
        payload = pa.Table.from_arrays(columns, schema=self.node.schema.arrow)
        return Changes(self.window.start(number), self.window.end(number), weights, payload)

    def held_by(self) -> str:
        oldest = self.window.cti(self.scalars["cti"])
        return f"windows from {format_ticks(oldest)} on: CTI {format_ticks(self.scalars['cti'])} has not closed them"


def empty_partial() -> pa.Table:
    """What a bucket that got nothing has."""
    return pa.table(
        {
            PART: pa.array([], pa.int8()),
            FIRST: pa.array([], pa.int64()),
            LAST: pa.array([], pa.int64()),
            COUNT: pa.array([], pa.int64()),
        }
    )
