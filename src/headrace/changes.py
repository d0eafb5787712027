"""The change batch: the data that operators exchange (rules 2.1 to 2.4).

A change is a weighted event: `+1 [LE, RE) payload` adds such an event to the stream's history, `-1` removes one.
Inserts, retractions and corrections are all changes, so an operator is written once and composes to any depth. The
history (CHT) of a stream is the running sum of its changes. A batch of changes travels with the stream's *progress*
after it: the CTI, and the latest time received.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.columnar import Int64s, canonical_floats, concat, factorize, group_sum, marks, to_numpy, twins
from headrace.schema import Schema
from headrace.time import INFINITY

__all__ = ["LE", "RE", "WEIGHT", "Changes", "Pairing", "up_to"]

LE, RE, WEIGHT = "__le", "__re", "__weight"


@dataclass(frozen=True)
class Changes:
    """A bag of weighted events: three arrays of times and weights beside an Arrow table of payloads."""

    le: Int64s
    re: Int64s
    weight: Int64s
    payload: pa.Table

    @classmethod
    def empty(cls, schema: Schema) -> Changes:
        none = np.empty(0, np.int64)
        return cls(none, none, none, schema.arrow.empty_table())

    @classmethod
    def inserts(cls, le: Int64s, re: Int64s, payload: pa.Table) -> Changes:
        """Every row with weight +1."""
        return cls(le, re, np.ones(len(le), np.int64), payload)

    def __len__(self) -> int:
        return len(self.le)

    def filter(self, mask: NDArray[np.bool_]) -> Changes:
        """The rows where `mask` is true."""
        if mask.all():
            return self
        return Changes(self.le[mask], self.re[mask], self.weight[mask], self.payload.filter(pa.array(mask)))

    def take(self, rows: Int64s) -> Changes:
        """The rows at these positions."""
        return Changes(self.le[rows], self.re[rows], self.weight[rows], self.payload.take(pa.array(rows)))

    def slice(self, start: int, stop: int) -> Changes:
        """The rows from `start` to `stop`, without a copy."""
        payload = self.payload.slice(start, stop - start)
        return Changes(self.le[start:stop], self.re[start:stop], self.weight[start:stop], payload)

    def with_payload(self, payload: pa.Table) -> Changes:
        return replace(self, payload=payload)

    def equals(self, other: Changes) -> bool:
        """Whether these are the same rows in the same order; rows with NaN never are."""
        times = ((self.le, other.le), (self.re, other.re), (self.weight, other.weight))
        return all(np.array_equal(one, two) for one, two in times) and self.payload.equals(other.payload)

    def negated(self) -> Changes:
        """What takes these changes back."""
        return replace(self, weight=-self.weight)

    def with_lifetimes(self, le: Int64s, re: Int64s) -> Changes:
        """The changes with other lifetimes, without rows whose lifetime is empty."""
        return Changes(le, re, self.weight, self.payload).filter(le < re)

    @staticmethod
    def concat(parts: Sequence[Changes]) -> Changes:
        kept = [p for p in parts if len(p)] or list(parts[:1])
        if len(kept) == 1:
            return kept[0]
        return Changes(
            np.concatenate([p.le for p in kept]),
            np.concatenate([p.re for p in kept]),
            np.concatenate([p.weight for p in kept]),
            concat([p.payload for p in kept]),
        )

    def consolidate(self) -> Changes:
        """Equal rows summed, rows that cancel dropped (rule 2.2)."""
        keyed = self._keyed() if len(self) > 1 else None
        equal = twins(marks(keyed)) if keyed is not None else ()
        if keyed is None or len(equal) == 0:
            kept = self.filter(self.weight != 0)
            return kept.with_payload(canonical_floats(kept.payload))
        codes, first = factorize(keyed.take(pa.array(equal)))
        weight = self.weight.copy()
        weight[equal] = 0
        weight[equal[first]] = group_sum(codes, self.weight[equal], len(first))
        kept = Changes(self.le, self.re, weight, self.payload).filter(weight != 0)
        return kept.with_payload(canonical_floats(kept.payload))

    def cancelled(self) -> Changes:
        """The changes without rows that cancel; without retractions cheaper than `consolidate` and sums nothing."""
        return self if bool((self.weight > 0).all()) else self.consolidate()

    def _keyed(self) -> pa.Table:
        table = self.payload.append_column(LE, pa.array(self.le))
        return table.append_column(RE, pa.array(self.re))

    def to_table(self) -> pa.Table:
        """One Arrow table, for the wire and for traces."""
        return self._keyed().append_column(WEIGHT, pa.array(self.weight))

    @classmethod
    def from_table(cls, table: pa.Table) -> Changes:
        return cls(
            to_numpy(table.column(LE)),
            to_numpy(table.column(RE)),
            to_numpy(table.column(WEIGHT)),
            table.drop_columns([LE, RE, WEIGHT]),
        )

    def sync_times(self) -> Int64s:
        """The earliest instant each physical event made of these changes alters (rule 2.4)."""
        pairing = self.pair()
        inserts = self.le[pairing.inserts]
        moved = np.minimum(self.re[pairing.retract_from], self.re[pairing.retract_to])
        return np.concatenate([inserts, moved, self.le[pairing.deletes]])

    def pieces(self) -> tuple[Changes, Int64s]:
        """The changes with weights ±1, each with the sync time of its physical event."""
        pairing = self.pair()
        rows = np.concatenate([pairing.inserts, pairing.retract_from, pairing.retract_to, pairing.deletes])
        moved = np.minimum(self.re[pairing.retract_from], self.re[pairing.retract_to])
        sync = np.concatenate([self.le[pairing.inserts], moved, moved, self.le[pairing.deletes]])
        return replace(self.take(rows), weight=np.sign(self.weight[rows])), sync

    def pair(self) -> Pairing:
        """Match removals with additions of equal payload and LE: together they are one retraction (rule 2.3)."""
        return _pair(self)


@dataclass(frozen=True)
class Pairing:
    """Row numbers of the changes that become each kind of physical event; a row of weight 2 appears twice."""

    inserts: Int64s
    retract_from: Int64s
    retract_to: Int64s
    deletes: Int64s


def _pair(changes: Changes) -> Pairing:
    copies = np.abs(changes.weight)
    rows = np.repeat(np.arange(len(changes), dtype=np.int64), copies)
    gone = changes.weight[rows] < 0
    if not gone.any():
        none = np.empty(0, np.int64)
        return Pairing(rows, none, none, none)
    codes, _ = factorize(changes.payload.append_column(LE, pa.array(changes.le)))
    codes = codes[rows]
    # Number the removals and the additions of each (payload, LE) by their end; equal numbers are partners.
    order = np.lexsort((changes.re[rows], gone, codes))
    starts = np.flatnonzero(np.r_[True, (np.diff(codes[order]) != 0) | (np.diff(gone[order]) != 0)])
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.arange(len(rows)) - np.repeat(starts, np.diff(np.r_[starts, len(rows)]))
    place = codes * (int(rank.max(initial=0)) + 1) + rank
    removed, added = np.flatnonzero(gone), np.flatnonzero(~gone)
    _, i, j = np.intersect1d(place[removed], place[added], assume_unique=True, return_indices=True)
    return Pairing(rows[np.delete(added, j)], rows[removed[i]], rows[added[j]], rows[np.delete(removed, i)])


def up_to(changes: Changes, time: int) -> Changes:
    """The part of a history that is settled at `time`: lifetimes are cut there, later events left out."""
    if time == INFINITY:
        return changes
    return Changes(changes.le, np.minimum(changes.re, time), changes.weight, changes.payload).filter(changes.le < time)
