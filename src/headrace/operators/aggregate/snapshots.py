"""Snapshot windows of aggregates that can be subtracted: running sums over endpoints (rules 5.1 and 6.4).

The events alive after an endpoint are those alive before it, with those that start there and without those that end. So
the state of a group is *steps*, partial results that enter or leave at an endpoint, and a *base*: the start of the
window at the CTI, and the total of the events alive in it. Everything before is settled and forgotten. The cost of a
change depends on the endpoints that the CTI has not passed, not on the events alive, which may be many and endless.

A window that is split keeps its start and its answer, and is only shortened: so the output CTI is the input's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import Int64s, canonical_floats, concat, factorize, hash_rows, to_numpy
from headrace.operators.aggregate.accumulators import COUNT, PART, Layout
from headrace.operators.aggregate.answers import outputs
from headrace.operators.aggregate.combine import compact
from headrace.operators.aggregate.running import negate, order_of_steps, running_sums, without_zeros
from headrace.operators.evaluate import evaluate_changes
from headrace.operators.kernel import Data, Kernel, expression_texts
from headrace.plan.nodes import Aggregate
from headrace.plan.windows import Snapshot
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import HASH, TIME, Trace

__all__ = ["SnapshotKernel", "adds_up"]

#: The time of a step, and the number of endpoints there.
_AT, _ENDS = "__window", "__ends"


def adds_up(node: Aggregate) -> bool:
    """Whether the windows are snapshots, and all partial results can be subtracted."""
    return isinstance(node.window, Snapshot) and node.adds_up


class SnapshotKernel(Kernel):
    """Answers for as long as the same events are alive."""

    divisible = True

    def __init__(self, node: Aggregate) -> None:
        super().__init__(node)
        self.aggregate = node
        self.layout = Layout(node)
        self.keys = self.layout.keys
        # Steps are settled when the CTI passes them; a base stays until another replaces it.
        self.traces = {
            "steps": Trace(self._compacted),
            "bases": Trace(self._compacted),
        }
        self.scalars = {"cti": NEG_INFINITY}

    def column_names(self) -> dict[str, str]:
        return expression_texts(self.aggregate.keys) | self.layout.column_names()

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        result = self._corrections(self._steps(changes))
        if now.cti > self.scalars["cti"]:
            self._settle(now.cti)
            self.scalars = {"cti": now.cti}
        return result, now

    def _steps(self, changes: Changes) -> pa.Table:
        """The partial results that enter at starts and leave at ends."""
        keys = pa.table({PART: np.zeros(len(changes), np.int8)})
        for name, expr in self.aggregate.keys:
            keys = keys.append_column(name, evaluate_changes(expr, changes.payload, changes.weight))
        sums = self.layout.sums_table(changes, canonical_floats(keys))
        entering = sums.append_column(_AT, pa.array(changes.le)).append_column(_ENDS, pa.array(changes.weight))
        leaving = negate(sums, self._not_sums).append_column(_AT, pa.array(changes.re))
        leaving = leaving.append_column(_ENDS, pa.array(changes.weight))
        ending = pa.array(changes.re != INFINITY)
        return self._without_zeros(compact(concat([entering, leaving.filter(ending)]), self.layout, [_AT]))

    @property
    def _not_sums(self) -> tuple[str, ...]:
        return (*self.keys, PART, _AT, HASH, TIME)

    def _without_zeros(self, table: pa.Table) -> pa.Table:
        return without_zeros(table, self._not_sums)

    def _compacted(self, table: pa.Table) -> pa.Table:
        """Compact one trace."""
        return self._without_zeros(compact(table, self.layout, [_AT], (HASH, TIME)))

    def _hashes(self, table: pa.Table) -> NDArray[np.uint64]:
        return hash_rows(table.select(self.keys)) if self.keys else np.zeros(table.num_rows, np.uint64)

    def _known(self, hashes: NDArray[np.uint64]) -> pa.Table | None:
        tables = [t for t in (trace.lookup(hashes) for trace in self.traces.values()) if t is not None]
        return self._without_zeros(compact(concat(tables), self.layout, [_AT])) if tables else None

    def _corrections(self, delta: pa.Table) -> Changes:
        """Take back the old answers of the groups in `delta`, and insert the new ones."""
        if delta.num_rows == 0:
            return Changes.empty(self.node.schema)
        known = self._known(self._hashes(delta))
        after = delta if known is None else self._without_zeros(compact(concat([known, delta]), self.layout, [_AT]))
        self.traces["steps"].append(delta, self._hashes(delta), to_numpy(delta.column(_AT)))
        answers = self._answers(after, 1)
        return answers if known is None else Changes.concat([self._answers(known, -1), answers]).consolidate()

    def _totals(self, steps: pa.Table) -> tuple[pa.Table, Int64s]:
        """Running sums by group and time, and the end of the window that starts at each."""
        codes = factorize(steps.select(self.keys))[0] if self.keys else np.zeros(steps.num_rows, np.int64)
        at = to_numpy(steps.column(_AT))
        order, last = order_of_steps(codes, at)
        others = (*self._not_sums, _ENDS)
        sums = {n: to_numpy(pc.fill_null(steps.column(n), 0)) for n in steps.column_names if n not in others}
        sums = running_sums(sums, codes, order, last)
        rows = order[last]
        codes, at = codes[rows], at[rows]
        ends = np.where(np.r_[codes[1:] != codes[:-1], True], INFINITY, np.r_[at[1:], 0]) if len(at) else at
        totals = steps.select([n for n in steps.column_names if n not in sums]).take(pa.array(rows))
        for name, column in sums.items():
            totals = totals.append_column(name, pa.array(column))
        return totals, ends

    def _answers(self, steps: pa.Table, weight: int) -> Changes:
        totals, ends = self._totals(steps)
        alive = to_numpy(totals.column(COUNT)) > 0
        totals, ends = totals.filter(pa.array(alive)), ends[alive]
        starts = to_numpy(totals.column(_AT))
        windows = totals.set_column(totals.schema.get_field_index(_AT), _AT, pa.array(np.arange(len(ends))))
        number, weights, payload = outputs(windows, self.layout, _AT, weight)
        return Changes(starts[number], ends[number], weights, payload)

    def _settle(self, cti: int) -> None:
        """Forget endpoints before the CTI, which cannot change: only the last of each group, and its total, matter."""
        steps, bases = self.traces["steps"], self.traces["bases"]
        passed = steps.until(cti - 1)
        steps.drop(cti - 1)
        if passed is None:
            return
        old = bases.lookup(self._hashes(passed))
        parts = [passed] if old is None else [passed, old]
        totals, ends = self._totals(self._without_zeros(compact(concat(parts), self.layout, [_AT])))
        rows = totals.filter(pa.array((ends == INFINITY) & (to_numpy(totals.column(COUNT)) > 0)))
        rows = rows.set_column(rows.schema.get_field_index(_ENDS), _ENDS, pa.array(np.ones(rows.num_rows, np.int64)))
        if old is not None:
            rows = self._without_zeros(compact(concat([rows, negate(old, self._not_sums)]), self.layout, [_AT]))
        if cti == INFINITY:
            bases.drop(INFINITY)
        else:
            bases.append(rows, self._hashes(rows), _never(rows.column(_AT)))

    def held_by(self) -> str:
        return "endpoints the CTI has not passed, and a total for each group with events alive"


def _never(at: pa.ChunkedArray) -> Int64s:
    return np.full(len(at), INFINITY, np.int64)
