"""Joining two streams: state on both sides, and for every change of one the matching events of the other (rule 4).

The output's change is `ΔL ⋈ R + L ⋈ ΔR + ΔL ⋈ ΔR`. Each side is a trace looked up by the hash of the join keys. An
event may be forgotten when the *other* side's CTI has passed its end: no later event of the other side can overlap it,
and a later correction of the other side changes nothing that far back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import hash_rows
from headrace.expr import predicate_mask
from headrace.operators.kernel import Data, Kernel, consolidated_rows
from headrace.operators.overlap import overlapping
from headrace.plan.join import Join
from headrace.plan.nodes import Node
from headrace.progress import Progress
from headrace.trace import Trace

__all__ = ["JoinKernel"]


class JoinKernel(Kernel):
    """Pairs with equal keys and overlapping lifetimes."""

    def __init__(self, node: Join) -> None:
        super().__init__(node)
        self.join = node
        self.keys = ([mine for mine, _ in node.on], [theirs for _, theirs in node.on])
        self.traces = {"left": Trace(consolidated_rows), "right": Trace(consolidated_rows)}

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        left, right = (part.consolidate() for part in inputs if isinstance(part, Changes))
        left_hashes, right_hashes = self._hashes(left, 0), self._hashes(right, 1)
        known_right = self._known("right", left_hashes, self.join.right)
        known_left = self._known("left", right_hashes, self.join.left)
        out = [self._pairs(left, Changes.concat([known_right, right])), self._pairs(known_left, right)]
        self.traces["left"].append(left.to_table(), left_hashes, left.re)
        self.traces["right"].append(right.to_table(), right_hashes, right.re)
        self.traces["left"].drop(progress[1].cti)
        self.traces["right"].drop(progress[0].cti)
        return Changes.concat(out).consolidate(), self.node.progress(list(progress))

    def _hashes(self, changes: Changes, side: int) -> NDArray[np.uint64]:
        return (
            hash_rows(changes.payload.select(self.keys[side])) if self.keys[side] else np.zeros(len(changes), np.uint64)
        )

    def _known(self, side: str, hashes: NDArray[np.uint64], node: Node) -> Changes:
        found = self.traces[side].lookup(hashes) if len(hashes) else None
        return Changes.empty(node.schema) if found is None else Changes.from_table(found)

    def _pairs(self, left: Changes, right: Changes) -> Changes:
        left_keys, right_keys = left.payload.select(self.keys[0]), right.payload.select(self.keys[1])
        i, j = overlapping(left, right, left_keys, right_keys)
        mine, theirs = left.take(i), right.take(j)
        columns = [*mine.payload.columns, *(theirs.payload.column(name) for name in self.join.right_columns)]
        payload = pa.Table.from_arrays(columns, schema=self.node.schema.arrow)
        le, re = np.maximum(mine.le, theirs.le), np.minimum(mine.re, theirs.re)
        pairs = Changes(le, re, mine.weight * theirs.weight, payload)
        if self.join.where is None:
            return pairs
        return pairs.filter(np.asarray(predicate_mask(self.join.where, payload)))

    def held_by(self) -> str:
        return "events whose end the other side's CTI has not passed"
