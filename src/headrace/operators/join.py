"""Joining two streams: state on both sides, and for every change of one the matching events of the other (rule 4).

Each side is a trace looked up by the hash of the join keys. The pairs that come and go are
`ΔL ⋈ R + L ⋈ ΔR + ΔL ⋈ ΔR`. An event may be forgotten when the *other* side's CTI has passed its end: no later event
of the other side can overlap it, and a later correction of the other side changes nothing that far back.

A left or anti join also emits the parts of a left lifetime without match. It computes them before and after a batch,
for the left events that changed and for those that a changed right event matches, and emits the difference.

A right event that has ended still says where the next such part starts. So that it can be forgotten nevertheless, every
left event has the time up to which it is settled: at first its LE, later the end of the last forgotten match. Parts
that start before that time are final; later ones follow from the right events that are still known. Events are
forgotten when both CTIs have passed their end, since an event that ends exactly at a CTI may still be extended (rule
3.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import LE, WEIGHT, Changes
from headrace.columnar import Int64s, concat, factorize, group_sum, hash_rows, to_numpy
from headrace.compiled import INTS, compiled
from headrace.operators.evaluate import passing_mask
from headrace.operators.kernel import Data, Kernel, consolidated_rows
from headrace.operators.overlap import overlapping, without_nulls
from headrace.operators.uncovered import uncovered_parts
from headrace.plan.join import Join
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import Trace

__all__ = ["JoinKernel"]

#: A column of known left events: the time up to which they are settled.
SETTLED = "__settled"
Hashes = NDArray[np.uint64]
Flags = NDArray[np.bool_]


class JoinKernel(Kernel):
    """Pairs with equal keys and overlapping lifetimes, and the unmatched parts of left lifetimes."""

    divisible = True
    inputs_of: ClassVar[Mapping[str, int]] = {"right": 1}

    def __init__(self, node: Join) -> None:
        super().__init__(node)
        self.join = node
        self.keys = ([name for name, _ in node.on], [name for _, name in node.on])
        self.traces = {"left": Trace(consolidated_rows), "right": Trace(consolidated_rows)}
        self.no_pairs = Changes.empty(node.paired)
        self.empty = (Changes.empty(node.left.schema), Changes.empty(node.right.schema))
        if node.kind != "inner":
            self.empty = (_settled(self.empty[0], self.empty[0].le), self.empty[1])

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        left, right = (part for part in inputs if isinstance(part, Changes))
        if self.join.kind == "inner":
            outputs = self._inner(left, right, progress[0].cti, progress[1].cti)
        else:
            outputs = self._outer(left.consolidate(), right.consolidate())
            self._settle(min(part.cti for part in progress))
        return Changes.concat(outputs).cancelled(), self.node.progress(list(progress))

    # --- pairs -------------------------------------------------------------------------------------------------------

    def _inner(self, left: Changes, right: Changes, left_cti: int, right_cti: int) -> list[Changes]:
        left_hashes, right_hashes = self._hashes(left, 0), self._hashes(right, 1)
        others = Changes.concat([self._known("right", left_hashes), right])
        known = self._known("left", right_hashes)
        self.traces["left"].drop(right_cti)
        self.traces["right"].drop(left_cti)
        self._remember("left", left, left_hashes)
        self._remember("right", right, right_hashes)
        met = ((a, b) for a, b in ((left, others), (known, right)) if len(a) and len(b))
        return [self._paired(a, b, self._matches(a, b)) for a, b in met] or [self.no_pairs]

    def _hashes(self, changes: Changes, side: int) -> Hashes:
        if not self.keys[side] or len(changes) == 0:
            return np.zeros(len(changes), np.uint64)
        return hash_rows(changes.payload.select(self.keys[side]))

    def _known(self, side: str, hashes: Hashes) -> Changes:
        found = self.traces[side].lookup(hashes) if len(hashes) else None
        return self.empty[side == "right"] if found is None else Changes.from_table(found)

    def _remember(self, side: str, changes: Changes, hashes: Hashes) -> None:
        """Store the events that may match later: those without a null among their keys."""
        if len(changes) == 0:
            return
        keyed = without_nulls(changes.payload.select(self.keys[side == "right"][self.join.groups :]))
        if keyed is not None:
            changes, hashes = changes.filter(keyed), hashes[keyed]
        self.traces[side].append(changes.to_table(), hashes, changes.re)

    def _matches(self, left: Changes, right: Changes) -> tuple[Int64s, Int64s]:
        """Row numbers of the pairs that overlap, have equal keys and pass the condition."""
        keys = left.payload.select(self.keys[0]), right.payload.select(self.keys[1])
        i, j = overlapping(left, right, *keys, groups=self.join.groups)
        where = self.join.where
        if where is None or len(i) == 0:
            return i, j
        used = where.columns() or {self.join.left.schema.names[0]}  # a table needs a column to know its length
        left_names = [name for name in self.join.left.schema.names if name in used]
        right_names = {name: new for name, new in self.join.right_columns.items() if new in used}
        columns = [left.payload.column(name).take(pa.array(i)) for name in left_names]
        columns += [right.payload.column(name).take(pa.array(j)) for name in right_names]
        pairs = pa.table(columns, names=[*left_names, *right_names.values()])
        pass_ = passing_mask(where, pairs, left.weight[i] * right.weight[j])
        return i[pass_], j[pass_]

    def _paired(self, left: Changes, right: Changes, rows: tuple[Int64s, Int64s]) -> Changes:
        i, j = pa.array(rows[0]), pa.array(rows[1])
        columns = [left.payload.column(name).take(i) for name in self.join.left.schema.names]
        columns += [right.payload.column(name).take(j) for name in self.join.right_columns]
        payload = pa.Table.from_arrays(columns, schema=self.join.paired.arrow)
        return Changes(*_intersections(*rows, left.le, left.re, left.weight, right.le, right.re, right.weight), payload)

    # --- parts without match -----------------------------------------------------------------------------------------

    def _outer(self, left: Changes, right: Changes) -> list[Changes]:
        left_hashes, right_hashes = self._hashes(left, 0), self._hashes(right, 1)
        left = self._as_known(left, left_hashes)
        known = self._known("left", right_hashes).consolidate()
        others, was, is_ = _before_and_after(self._known("right", np.concatenate([left_hashes, right_hashes])), right)
        self._remember("left", left, left_hashes)
        self._remember("right", right, right_hashes)
        met = self._matches(known, right)
        touched = known.take(np.unique(met[0]))
        affected = Changes.concat([left, touched])
        i, j = self._matches(affected, others)
        now, once = is_[j], was[j] & (i >= len(left))
        outputs = [
            self._unmatched(affected, others, i[now], j[now]),
            self._unmatched(touched, others, i[once] - len(left), j[once]).negated(),
        ]
        if self.join.kind == "left":
            fresh = now & (i < len(left))
            outputs += [self._paired(affected, others, (i[fresh], j[fresh])), self._paired(known, right, met)]
        return outputs

    def _as_known(self, left: Changes, hashes: Hashes) -> Changes:
        """Changed left events with the time up to which they are settled, the same for equal payload and LE.

        Forgotten right events end before any left event that is still known, so only payload and LE decide whether they
        matched it.
        """
        since = left.le.copy()
        old = np.flatnonzero(left.le < self.traces["left"].floor)
        known = self.traces["left"].lookup(hashes[old]) if len(old) else None
        if known is not None:
            columns = [*self.join.left.schema.names, LE]
            rows = left.take(old).to_table().select(columns)
            codes, first = factorize(concat([rows, known.select(columns)]))
            latest = np.full(len(first), NEG_INFINITY, np.int64)
            np.maximum.at(latest, codes[len(old) :], to_numpy(known.column(SETTLED)))
            since[old] = np.maximum(since[old], latest[codes[: len(old)]])
        return _settled(left, since)

    def _unmatched(self, left: Changes, right: Changes, i: Int64s, j: Int64s) -> Changes:
        """The parts of left lifetimes, after the settled time, that none of their matches covers."""
        rows, le, re = uncovered_parts(to_numpy(left.payload.column(SETTLED)), left.re, i, j, right.le, right.re)
        payload = left.payload.select(list(self.join.left.schema.names)).take(pa.array(rows))
        for field in self.node.schema.arrow:
            if field.name not in payload.column_names:
                payload = payload.append_column(field, pa.nulls(len(rows), field.type))
        return Changes(le, re, left.weight[rows], payload)

    def _settle(self, cti: int) -> None:
        """Forget events that ended before both CTIs; left events store how far forgotten matches covered them."""
        limit = INFINITY if cti == INFINITY else max(cti - 1, NEG_INFINITY)
        self.traces["left"].drop(limit)
        ended = self.traces["right"].until(limit)
        self.traces["right"].drop(limit)
        if ended is None:
            return
        gone = Changes.from_table(ended).consolidate()
        known = self._known("left", self._hashes(gone, 1)).consolidate()
        i, j = self._matches(known, gone)
        since = to_numpy(known.payload.column(SETTLED))
        reached = since.copy()
        np.maximum.at(reached, i, gone.re[j])
        moved = reached > since
        if moved.any():
            old = known.filter(moved)
            rows = Changes.concat([old.negated(), _settled(old, reached[moved])])
            self.traces["left"].append(rows.to_table(), self._hashes(rows, 0), rows.re)

    def held_by(self) -> str:
        if self.join.kind == "inner":
            return "events whose end the other side's CTI has not passed"
        return "events whose end the lesser of both CTIs has not passed"


@compiled(INTS, INTS, INTS, INTS, INTS, INTS, INTS, INTS)
def _intersections(
    i: Int64s, j: Int64s, le: Int64s, re: Int64s, weight: Int64s, other_le: Int64s, other_re: Int64s, other: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """The common lifetimes and weights of pairs of rows."""
    starts, ends, weights = np.empty(len(i), np.int64), np.empty(len(i), np.int64), np.empty(len(i), np.int64)
    for pair in range(len(i)):
        a, b = i[pair], j[pair]
        starts[pair], ends[pair] = max(le[a], other_le[b]), min(re[a], other_re[b])
        weights[pair] = weight[a] * other[b]
    return starts, ends, weights


def _before_and_after(known: Changes, changed: Changes) -> tuple[Changes, Flags, Flags]:
    """The events of a side, each once and with its weight now; masks of those there before, and of those there now."""
    both = Changes.concat([known, changed])
    codes, first = factorize(both.to_table().drop_columns([WEIGHT]))
    was = group_sum(codes[: len(known)], known.weight, len(first))
    now = group_sum(codes, both.weight, len(first))
    events = both.take(first)
    return Changes(events.le, events.re, now, events.payload), was > 0, now > 0


def _settled(left: Changes, since: Int64s) -> Changes:
    """Left events with the time up to which they are settled."""
    payload = left.payload
    if SETTLED in payload.column_names:
        payload = payload.drop_columns([SETTLED])
    return left.with_payload(payload.append_column(SETTLED, pa.array(since)))
