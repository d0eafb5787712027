"""Edge events: samples become a signal (rule 1.2).

A sample lasts until the next distinct sample time of its key, or for ever. A late sample shortens the one before it; a
deleted sample lengthens it. Two traces carry the state: `recent`, samples at or after the CTI, and `last`, for each key
the last sample before the CTI, whose end is still open. When the CTI passes samples they move from one to the other.

Where only the latest value of each key is asked for (`latest`, for upsert rows), `last` has only keys that have samples
after the CTI too, and what the CTI has passed of others is forgotten: see `io/upserts.py` for why that is enough. The
output then is no history. It says what is new: +1 for a key's latest row, -1 for the one it replaces; a key of which no
known row is left has a -1 at the CTI.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import canonical_floats, concat, factorize, hash_rows, sortable
from headrace.expr import predicate_mask
from headrace.operators.kernel import Data, Kernel, consolidated_rows
from headrace.plan.nodes import EdgeLifetimes
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY, format_ticks
from headrace.trace import Trace

__all__ = ["EdgeKernel"]


class EdgeKernel(Kernel):
    """Each sample lasts until the next one of its key."""

    divisible = True

    def __init__(self, node: EdgeLifetimes) -> None:
        super().__init__(node)
        self.keys = list(node.key)
        self.closes = node.closes
        self.latest = node.latest
        self.traces = {"recent": Trace(consolidated_rows), "last": Trace(consolidated_rows)}
        self.scalars = {"cti": NEG_INFINITY}

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (samples,), (now,) = inputs, progress
        assert isinstance(samples, Changes)
        result = self._corrections(samples.consolidate())
        if now.cti > self.scalars["cti"]:
            self._settle(now.cti)
        return result, now

    def _hashes(self, table: pa.Table) -> NDArray[np.uint64]:
        return hash_rows(table.select(self.keys))

    def _corrections(self, samples: Changes) -> Changes:
        if len(samples) == 0:
            return samples
        hashes = self._hashes(samples.payload)
        known = self._known(hashes)
        self.traces["recent"].append(samples.to_table(), hashes, samples.le)
        before = self._signal(known)
        after = self._signal(Changes.concat([known, samples]).consolidate())
        taken_back = Changes(before.le, before.re, -before.weight, before.payload)
        told = Changes.concat([after, taken_back]).consolidate()
        return self._ended(told, after) if self.latest and len(told) else told

    def _ended(self, told: Changes, after: Changes) -> Changes:
        """Keys of which no known row is left have lost all rows from the CTI on, whichever those were."""
        codes = self._codes(Changes.concat([told, after]))
        lost = (told.weight < 0) & ~np.isin(codes[: len(told)], codes[len(told) :])
        le = np.where(lost, self.scalars["cti"], told.le)
        return Changes(le, told.re, told.weight, told.payload)

    def _known(self, hashes: NDArray[np.uint64]) -> Changes:
        found = [t for t in (trace.lookup(hashes) for trace in self.traces.values()) if t is not None]
        if not found:
            return Changes.empty(self.node.schema)
        return Changes.from_table(concat(found)).consolidate()

    def _signal(self, samples: Changes) -> Changes:
        """Lifetimes from sample times."""
        if len(samples) == 0:
            return samples
        codes = self._codes(samples)
        order = np.lexsort((samples.le, codes))
        codes, le = codes[order], samples.le[order]
        # The next distinct time: walk back over samples of the same key and time.
        starts = np.flatnonzero(np.r_[True, (np.diff(codes) != 0) | (np.diff(le) != 0)])
        follows = np.r_[codes[starts[1:]] == codes[starts[:-1]], False]
        ends = np.where(follows, np.r_[le[starts[1:]], 0], INFINITY)
        re = np.repeat(ends, np.diff(np.r_[starts, len(le)]))
        signal = samples.take(order)
        signal = Changes(signal.le, re, signal.weight, signal.payload)
        return self._best(self._open(signal)) if self.latest else self._open(signal)

    def _open(self, samples: Changes) -> Changes:
        """Without those that only close a signal."""
        if self.closes is None:
            return samples
        return samples.filter(~np.asarray(predicate_mask(self.closes, samples.payload)))

    def _best(self, signal: Changes) -> Changes:
        """Of each key the sample that lasts; of several the greatest, so that arrival does not decide."""
        lasting = signal.filter((signal.re == INFINITY) & (signal.weight > 0))
        if len(lasting) == 0:
            return lasting
        codes = self._codes(lasting)
        ranked = sortable(canonical_floats(lasting.payload)).append_column("__code", pa.array(codes))
        order = pc.sort_indices(
            ranked, [("__code", "ascending"), *((n, "ascending") for n in lasting.payload.column_names)]
        ).to_numpy()
        best = lasting.take(order[np.r_[np.flatnonzero(np.diff(codes[order])), len(order) - 1]])
        return Changes(best.le, best.re, np.ones(len(best), np.int64), best.payload)

    def _codes(self, samples: Changes) -> NDArray[np.int64]:
        if not self.keys:
            return np.zeros(len(samples), np.int64)
        return factorize(samples.payload.select(self.keys))[0]

    def _settle(self, cti: int) -> None:
        """Of the samples before the CTI only the last of each key can still change."""
        recent, last = self.traces["recent"], self.traces["last"]
        passed = recent.until(cti - 1)
        recent.drop(cti - 1)
        self.scalars = {"cti": cti}
        if self.latest:
            self._forget(passed)
            return
        if passed is None:
            return
        hashes = self._hashes(passed)
        superseded = last.lookup(hashes)
        both = Changes.from_table(concat([t for t in (passed, superseded) if t is not None])).consolidate()
        if len(both) == 0:
            return
        codes = self._codes(both)
        newest = np.full(int(codes.max()) + 1, NEG_INFINITY, np.int64)
        np.maximum.at(newest, codes, both.le)
        rows = self._open(both.filter(both.le == newest[codes])).to_table()
        if superseded is not None:
            old = Changes.from_table(superseded)
            rows = concat([rows, Changes(old.le, old.re, -old.weight, old.payload).to_table()])
            rows = Changes.from_table(rows).consolidate().to_table()
        last.append(rows, self._hashes(rows), np.full(rows.num_rows, INFINITY, np.int64))

    def _forget(self, passed: pa.Table | None) -> None:
        """Keep the last settled row of keys that have others after the CTI, and of no other key."""
        last = self.traces["last"]
        found = [t for t in (passed, last.scan()) if t is not None]
        if not found:
            return
        rows = Changes.from_table(concat(found)).consolidate()
        others = self.traces["recent"].lookup(self._hashes(rows.payload))
        active = Changes.empty(self.node.schema) if others is None else Changes.from_table(others).consolidate()
        rows = rows.filter(np.isin(self._hashes(rows.payload), self._hashes(active.payload)))
        codes = self._codes(rows)
        newest = np.full(int(codes.max(initial=-1)) + 1, NEG_INFINITY, np.int64)
        np.maximum.at(newest, codes, rows.le)
        kept = rows.filter(rows.le == newest[codes]).to_table()
        last.replace(kept, self._hashes(kept), np.full(kept.num_rows, INFINITY, np.int64))

    def held_by(self) -> str:
        kept = "" if self.latest else "the last sample of each key, and "
        return f"{kept}samples the CTI {format_ticks(self.scalars['cti'])} has not passed"
