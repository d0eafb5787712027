"""Coalescing: for each payload, the spans in which at least one event of it is alive (rule 4).

For the payloads of a batch the kernel looks up the known events, computes the spans before and after the batch, and
emits the difference. Two traces carry the state, c being the CTI: `later`, events that start at or after c, and
`open`, events that start before c and may still be moved (they end at or after c; one that ends exactly at c may be
extended, or met by the next).

Time before c is settled. All open events of a payload are alive at c - h, so they are part of one span, and only the
start of that span matters: the kernel stores an open event as starting there, and reads a later change of it in the
same way. So it forgets events that ended before c, however long their span is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import concat, factorize, hash_rows
from headrace.operators.kernel import Data, Kernel, consolidated_rows
from headrace.plan.nodes import Coalesce
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import Trace

__all__ = ["CoalesceKernel"]


class CoalesceKernel(Kernel):
    """Spans of equal payloads."""

    divisible = True

    def __init__(self, node: Coalesce) -> None:
        super().__init__(node)
        self.traces = {"open": Trace(consolidated_rows), "later": Trace(consolidated_rows)}
        self.scalars = {"cti": NEG_INFINITY}

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        result = self._corrections(changes.consolidate())
        if now.cti > self.scalars["cti"]:
            self._settle(now.cti)
        return result, now

    def _corrections(self, changes: Changes) -> Changes:
        if len(changes) == 0:
            return changes
        hashes = hash_rows(changes.payload)
        open_ = self._lookup("open", hashes)
        known = Changes.concat([open_, self._lookup("later", hashes)])
        changes = _starting_with(open_, changes, self.scalars["cti"])
        self._remember(changes)
        before = _spans(known)
        after = _corrected(known, before, changes)
        taken_back = before.negated()
        return Changes.concat([after, taken_back]).consolidate()

    def _lookup(self, trace: str, hashes: NDArray[np.uint64]) -> Changes:
        rows = self.traces[trace].lookup(hashes)
        return Changes.empty(self.node.schema) if rows is None else Changes.from_table(rows).cancelled()

    def _remember(self, events: Changes) -> None:
        """Store open events until their end, and later ones until their start."""
        opened = events.le < self.scalars["cti"]
        for trace, mask, times in (("open", opened, events.re), ("later", ~opened, events.le)):
            rows = events.filter(mask)
            self.traces[trace].append(rows.to_table(), hash_rows(rows.payload), times[mask])

    def _settle(self, cti: int) -> None:
        """Move events whose start the CTI has passed to `open`, and forget those that have ended."""
        later = self.traces["later"]
        rows = later.until(cti - 1)
        later.drop(cti - 1)
        self.scalars = {"cti": cti}
        if rows is not None:
            passed = Changes.from_table(rows).consolidate()
            spans = _spans(Changes.concat([passed, self._lookup("open", hash_rows(passed.payload))]))
            reaching = spans.filter((spans.le < cti) & (spans.re >= cti))
            self._remember(_starting_with(reaching, passed.filter(passed.re >= cti), cti))
        self.traces["open"].drop(cti if cti == INFINITY else cti - 1)

    def held_by(self) -> str:
        return "events whose end the CTI has not passed"


def _starting_with(spans: Changes, events: Changes, cti: int) -> Changes:
    """`events`, where those that start before the CTI start with the span of their payload; a payload has one span."""
    settled = events.le < cti
    if len(spans) == 0 or not settled.any():
        return events
    codes, first = factorize(concat([spans.payload, events.payload]))
    begins = np.full(len(first), INFINITY, np.int64)
    begins[codes[: len(spans)]] = spans.le
    begin = begins[codes[len(spans) :]]
    le = np.where(settled & (begin < INFINITY), begin, events.le)
    return Changes(le, events.re, events.weight, events.payload)


def _corrected(known: Changes, spans: Changes, changes: Changes) -> Changes:
    """The spans after the changes. Only where an event goes, the events that the spans consist of matter."""
    gone = changes.weight < 0
    if not gone.any():
        return _spans(Changes.concat([spans, changes]))
    codes, first = factorize(concat([known.payload, spans.payload, changes.payload]))
    of_known, of_span, of_change = np.split(codes, np.cumsum([len(known), len(spans)]))
    losing = np.zeros(len(first), bool)
    losing[of_change[gone]] = True
    parts = [known.filter(losing[of_known]), spans.filter(~losing[of_span]), changes]
    return _spans(Changes.concat(parts).consolidate())


def _spans(events: Changes) -> Changes:
    """The spans that events of equal payload cover together; equal events must be summed already."""
    events = events.filter(events.weight > 0)
    if len(events) == 0:
        return events
    codes, _ = factorize(events.payload)
    order = np.lexsort((events.le, codes))
    codes, le = codes[order], events.le[order]
    # How far the events so far reach, payload by payload: with the payload's number in front, one running maximum.
    ends, ranks = np.unique(events.re[order], return_inverse=True)
    reach = ends[np.maximum.accumulate(codes * len(ends) + ranks) - codes * len(ends)]
    starts = np.flatnonzero(np.r_[True, (codes[1:] != codes[:-1]) | (le[1:] > reach[:-1])])
    last = np.r_[starts[1:], len(le)] - 1
    return Changes.inserts(le[starts], reach[last], events.payload.take(order[starts]))
