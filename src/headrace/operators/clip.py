"""Clipping: an event ends where the first event of the other stream starts strictly inside it (rule 4).

Of the other stream only keys and starts matter, so its corrections of ends cancel first. One search among the starts of
its key finds an event's end. When starts come or go, the kernel computes the ends of the known events of their keys
before and after, and corrects those that differ.

A start that both CTIs have passed is final, and so is the end of every event that it has cut. Both are forgotten. A
later correction of such an event moves an end after the cut, and changes nothing. The kernel recognizes it because the
event is unknown: it knows all events that are not cut and may still be corrected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import LE, Changes
from headrace.columnar import Int64s, concat, factorize, hash_rows
from headrace.operators.kernel import Data, Kernel, consolidated_rows
from headrace.operators.overlap import key_codes, without_nulls
from headrace.plan.clip import Clip
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import Trace

__all__ = ["ClipKernel"]

Hashes = NDArray[np.uint64]


class ClipKernel(Kernel):
    """Ends lifetimes where other events start."""

    divisible = True
    inputs_of: ClassVar[Mapping[str, int]] = {"starts": 1}

    def __init__(self, node: Clip) -> None:
        super().__init__(node)
        self.groups = node.groups
        self.keys = ([name for name, _ in node.on], [name for _, name in node.on])
        self.traces = {"events": Trace(consolidated_rows), "starts": Trace(consolidated_rows)}
        self.empty = {
            "events": Changes.empty(node.input.schema),
            "starts": self._starts(Changes.empty(node.by.schema)),
        }

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        events, others = (part for part in inputs if isinstance(part, Changes))
        events, starts = self._not_cut_off(events.consolidate()), self._starts(others).consolidate()
        hashes, start_hashes = hash_rows(self._keys(events)), hash_rows(starts.payload)
        known = self._known("events", start_hashes)
        known = known.filter(self._ends(known, starts) < known.re)  # the ends of others stay
        before = self._known("starts", np.concatenate([hashes, start_hashes]))
        after = Changes.concat([before, starts]).cancelled()
        self.traces["events"].append(events.to_table(), hashes, events.re)
        self.traces["starts"].append(starts.to_table(), start_hashes, starts.le)
        old, new = self._ends(known, before), self._ends(known, after)
        moved = old != new
        touched = known.filter(moved)
        outputs = [
            Changes(events.le, self._ends(events, after), events.weight, events.payload),
            Changes(touched.le, new[moved], touched.weight, touched.payload),
            Changes(touched.le, old[moved], -touched.weight, touched.payload),
        ]
        self._settle(min(part.cti for part in progress))
        return Changes.concat(outputs).consolidate(), self.node.progress(list(progress))

    def _keys(self, events: Changes) -> pa.Table:
        return _columns(events.payload, self.keys[0], len(events))

    def _starts(self, others: Changes) -> Changes:
        """Keys and starts of the events that may match; their RE is the start too."""
        starts = Changes(others.le, others.le, others.weight, _columns(others.payload, self.keys[1], len(others)))
        keyed = without_nulls(others.payload.select(self.keys[1][self.groups :]))
        return starts if keyed is None else starts.filter(keyed)

    def _known(self, name: str, hashes: Hashes) -> Changes:
        found = self.traces[name].lookup(hashes) if len(hashes) else None
        return self.empty[name] if found is None else Changes.from_table(found).cancelled()

    def _ends(self, events: Changes, starts: Changes) -> Int64s:
        """The end of each event, cut by these starts."""
        if len(events) == 0 or len(starts) == 0:
            return events.re
        event_key, start_key = key_codes(self._keys(events), starts.payload, len(events), self.groups)
        # Times as ranks, so that key and time make one sortable number; a null key sorts before all others. The rank of
        # an event is that of the last start up to its own.
        times = np.sort(starts.le)
        times = times[np.r_[True, times[1:] != times[:-1]]]
        place = start_key * len(times) + np.searchsorted(times, starts.le)
        order = np.argsort(place)
        rank = np.searchsorted(times, events.le + 1) - 1
        next_ = np.searchsorted(place[order], event_key * len(times) + rank, "right")
        next_ = order[np.minimum(next_, len(order) - 1)]
        cuts = (event_key >= 0) & (start_key[next_] == event_key) & (starts.le[next_] > events.le)
        return np.where(cuts, np.minimum(starts.le[next_], events.re), events.re)

    def _not_cut_off(self, events: Changes) -> Changes:
        """The events without corrections of forgotten ones, which a final start has cut."""
        old = np.flatnonzero(events.le < self.traces["events"].floor)
        if len(old) == 0:
            return events
        corrected = events.take(old)
        known = self._known("events", hash_rows(self._keys(corrected)))
        codes, _ = factorize(concat([_identity(corrected), _identity(known)]))
        kept = np.ones(len(events), bool)
        kept[old] = np.isin(codes[: len(old)], codes[len(old) :])
        return events.filter(kept)

    def _settle(self, cti: int) -> None:
        """Forget starts that both CTIs have passed, the events they cut, and events that ended before."""
        limit = INFINITY if cti == INFINITY else max(cti - 1, NEG_INFINITY)
        self.traces["events"].drop(limit)
        passed = self.traces["starts"].until(limit)
        self.traces["starts"].drop(limit)
        if passed is None:
            return
        starts = Changes.from_table(passed).cancelled()
        known = self._known("events", hash_rows(starts.payload))
        cut = known.filter(self._ends(known, starts) < known.re)
        gone = cut.negated()
        self.traces["events"].append(gone.to_table(), hash_rows(self._keys(gone)), gone.re)

    def held_by(self) -> str:
        return "events without a final cut, and starts, which the lesser of both CTIs has not passed"


def _columns(payload: pa.Table, names: list[str], size: int) -> pa.Table:
    """The key columns; without keys, one constant column."""
    return payload.select(names) if names else pa.table({"all": np.zeros(size, np.int8)})


def _identity(events: Changes) -> pa.Table:
    return events.payload.append_column(LE, pa.array(events.le))
