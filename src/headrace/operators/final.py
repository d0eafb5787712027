"""Finality: only events that a CTI has settled leave, and nothing is ever taken back (rule 3.5).

Changes wait in a trace until no legal later change can touch them: until the CTI is past their LE if lifetimes never
change, past their RE otherwise. Changes that cancel in the meantime never leave.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.changes import WEIGHT, Changes
from headrace.columnar import hash_rows
from headrace.operators.kernel import Data, Kernel, consolidated_rows
from headrace.plan.nodes import Final
from headrace.progress import Progress
from headrace.time import INFINITY
from headrace.trace import Trace

__all__ = ["FinalKernel"]


class FinalKernel(Kernel):
    """Holds changes back until they are final."""

    divisible = True

    def __init__(self, node: Final) -> None:
        super().__init__(node)
        self.settled = node.input.properties.settled
        self.traces = {"waiting": Trace(consolidated_rows)}

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        waiting = self.traces["waiting"]
        changes = changes.consolidate()
        times = changes.le if self.settled else changes.re
        rows = changes.to_table()
        waiting.append(rows, hash_rows(rows.drop_columns([WEIGHT])), times)  # changes that cancel must share a hash
        limit = INFINITY if now.cti == INFINITY else now.cti - 1
        ready = waiting.until(limit)
        waiting.drop(limit)
        out = Changes.from_table(ready).consolidate() if ready is not None else Changes.empty(self.node.schema)
        return out, Progress(self._promise(now.cti), now.high)

    def _promise(self, cti: int) -> int:
        """The output CTI: a waiting event will leave with its LE, which the CTI must not pass before."""
        if self.settled:
            return cti
        held = self.traces["waiting"].scan()
        if held is None:
            return cti
        left = Changes.from_table(held).consolidate()  # changes that cancel hold nothing back
        return min(cti, int(np.min(left.le, initial=INFINITY)))

    def held_by(self) -> str:
        return "events the CTI has not made final"
