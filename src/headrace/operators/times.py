"""The times of events as columns (rule 4.10): their values, and the CTI where ends may still change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.changes import WEIGHT, Changes
from headrace.columnar import Int64s, hash_rows
from headrace.expr.arrow.dates import FIRST_DAY, LAST_TICK
from headrace.operators.kernel import Data, Kernel, consolidated_rows
from headrace.plan.nodes import EventTimes, HeldEventTimes
from headrace.progress import Progress
from headrace.schema import Type
from headrace.time import INFINITY
from headrace.trace import Trace

__all__ = ["HeldTimesKernel", "event_times"]


def event_times(node: EventTimes, changes: Changes) -> Changes:
    """Add the columns; an endless end is null."""
    payload = changes.payload
    for name, times in ((node.start, changes.le), (node.end, changes.re)):
        if name is not None:
            payload = payload.append_column(name, _column(times, node.type))
    return changes.with_payload(payload)


def _column(times: Int64s, kind: Type) -> pa.Array:
    shown = times if kind is Type.LONG else np.clip(times, FIRST_DAY, LAST_TICK)
    return pa.array(shown, mask=times == INFINITY).cast(kind.arrow)


class HeldTimesKernel(Kernel):
    """Adds the columns, and promises nothing from the start of the oldest event on whose end may still change."""

    divisible = True

    def __init__(self, node: HeldEventTimes) -> None:
        super().__init__(node)
        self.times = node
        self.waits = not node.input.properties.settled
        self.traces = {"open": Trace(consolidated_rows)}
        #: The least start of the open events; None until it is computed from the trace.
        self._held: int | None = None

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        out = event_times(self.times, changes)
        if not self.waits:
            return out, now
        self._keep(changes.consolidate(), now.cti)
        if now.cti == INFINITY:
            return out, now
        if self._held is None:
            self._held = self._least()
        return out, Progress(min(now.cti, self._held), now.high)

    def _keep(self, changes: Changes, cti: int) -> None:
        """Keep the events that have not ended; find out whether the one with the least start is gone."""
        opened = self.traces["open"]
        limit = cti if cti == INFINITY else cti - 1
        due = opened.until(limit)
        gone = [changes.le[changes.weight < 0]] + ([Changes.from_table(due).le] if due is not None else [])
        if self._held is not None:
            oldest = int(np.min(np.concatenate(gone), initial=INFINITY))
            fresh = changes.le[(changes.weight > 0) & (changes.re > limit)]
            self._held = None if oldest <= self._held else min(self._held, int(np.min(fresh, initial=INFINITY)))
        opened.drop(limit)
        kept = changes.filter(changes.re > limit)
        kept = kept.with_payload(kept.payload.select(list(dict.fromkeys(self.node.needs or ())))).consolidate()
        rows = kept.to_table()
        opened.append(rows, hash_rows(rows.drop_columns([WEIGHT])), kept.re)

    def _least(self) -> int:
        rows = self.traces["open"].scan()
        if rows is None:
            return INFINITY
        return int(np.min(Changes.from_table(rows).consolidate().le, initial=INFINITY))

    def held_by(self) -> str:
        return "events whose end may still change, which an expression uses"
