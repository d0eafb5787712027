"""Edge events: samples become a signal (rule 1.2).

A sample lasts until the next distinct sample time of its key, or for ever. A late sample shortens the one before it; a
deleted sample lengthens it. Two traces carry the state: `recent`, samples at or after the CTI, and `last`, for each key
the last sample before the CTI, whose end is still open. When the CTI passes samples they move from one to the other.
Where samples have an `order`, those that lose at their time stay in `recent` until the CTI has passed: the one that
wins may still be deleted.

If a query needs only the latest value of each key (`latest`, for upsert rows), `last` has only keys with samples after
the CTI; settled samples of other keys are forgotten: `io/upserts.py` says why that is enough. A third trace, `since`,
has for every key with samples but no `last` the CTI at which its samples began. All this changes only between batches
(`end_batch`). The output then is not a history but a list of changes: +1 for a key's latest row, -1 for the row that it
replaces; a key without known rows has a -1 at the time in `since`.

A table in a database has one row of a key, and no earlier one to return to. For such sinks (`kept`), `last` has the
last sample of every key, as for a signal: a key that loses its latest row has the row before it again, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import canonical_floats, concat, factorize, hash_rows, sortable, to_numpy
from headrace.errors import CheckpointError
from headrace.expr import predicate_mask
from headrace.operators.kernel import Data, Kernel, SavedTraces, consolidated_rows
from headrace.plan.nodes import EdgeLifetimes
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import Segment, Trace

__all__ = ["EdgeKernel"]


class EdgeKernel(Kernel):
    """Each sample lasts until the next one of its key."""

    divisible = True

    def __init__(self, node: EdgeLifetimes) -> None:
        super().__init__(node)
        self.keys = list(node.key)
        self.closes = node.closes
        self.latest, self.kept = node.latest, node.kept
        self.order = node.order
        self.traces = {"recent": Trace(consolidated_rows), "last": Trace(consolidated_rows)}
        self.scalars = {"cti": NEG_INFINITY}
        if self.latest:
            self.scalars["reached"] = NEG_INFINITY
            if not self.kept:
                self.traces["since"] = Trace(consolidated_rows)

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        if self.latest and not self.kept and "since" not in traces:
            raise CheckpointError(
                "an earlier Headrace wrote the checkpoint: its state of upsert rows is not enough to continue",
                given=self.node.describe(),
                instead="a new checkpoint with new sinks, which reads all input again",
            )
        super().restore(scalars, traces, held)

    def end_batch(self) -> None:
        if self.latest and self.scalars["reached"] > self.scalars["cti"]:
            (self._settle if self.kept else self._forget)(self.scalars["reached"])

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (samples,), (now,) = inputs, progress
        assert isinstance(samples, Changes)
        result = self._shown(self._corrections(samples.consolidate()))
        if self.latest:
            self.scalars = self.scalars | {"reached": max(now.cti, self.scalars["reached"])}
        elif now.cti > self.scalars["cti"]:
            self._settle(now.cti)
        return result, now

    def _shown(self, corrections: Changes) -> Changes:
        """The corrections with the columns that are passed on; those that differ only in others cancel out."""
        if corrections.payload.num_columns == len(self.node.schema):
            return corrections
        return corrections.with_payload(corrections.payload.select(list(self.node.schema.names))).consolidate()

    def _hashes(self, table: pa.Table) -> NDArray[np.uint64]:
        return hash_rows(table.select(self.keys))

    def _corrections(self, samples: Changes) -> Changes:
        if len(samples) == 0:
            return samples
        hashes = self._hashes(samples.payload)
        known = self._known(hashes)
        if self.latest and not self.kept:
            self._note_beginning(samples, known, hashes)
        self.traces["recent"].append(samples.to_table(), hashes, samples.le)
        known = self._beside(known, samples)
        before = self._signal(known)
        after = self._signal(Changes.concat([known, samples]).consolidate())
        taken_back = before.negated()
        corrections = Changes.concat([after, taken_back]).consolidate()
        if self.latest and not self.kept and len(corrections):
            return self._ended(corrections, after)
        return corrections

    def _ended(self, corrections: Changes, after: Changes) -> Changes:
        """Keys without known rows have lost all rows since their samples began."""
        since = self._lookup("since", self._hashes(corrections.payload))
        of_corrections, of_after, of_since = self._codes_of(corrections, after, since)
        begun = np.full(int(max(of_corrections.max(), of_since.max(initial=0))) + 1, NEG_INFINITY, np.int64)
        begun[of_since] = since.le
        lost = (corrections.weight < 0) & ~np.isin(of_corrections, of_after)
        return Changes(
            np.where(lost, begun[of_corrections], corrections.le),
            corrections.re,
            corrections.weight,
            corrections.payload,
        )

    def _beside(self, known: Changes, samples: Changes) -> Changes:
        """The known samples at the times of changes and beside them, and the last of each key.

        The others are the same before and after, and so are the differences.
        """
        of_known, of_samples = self._codes_of(known, samples)
        codes, le = np.concatenate([of_known, of_samples]), np.concatenate([known.le, samples.le])
        order = np.lexsort((le, codes))
        first = np.r_[True, (np.diff(codes[order]) != 0) | (np.diff(le[order]) != 0)]
        place = np.empty(len(order), np.int64)  # the number of each sample's key and time
        place[order] = np.cumsum(first) - 1
        key = codes[order[first]]
        is_known, changed = np.zeros(len(key), bool), np.zeros(len(key), bool)
        is_known[place[: len(known)]], changed[place[len(known) :]] = True, True
        times = np.flatnonzero(is_known)
        if len(times) == 0:
            return known
        wanted = changed.copy()
        wanted[times] |= np.r_[key[times[1:]] != key[times[:-1]], True]
        of_changes = np.flatnonzero(changed)
        for beside in (np.searchsorted(times, of_changes) - 1, np.searchsorted(times, of_changes, "right")):
            beside = times[np.clip(beside, 0, len(times) - 1)]
            wanted[beside] |= key[beside] == key[of_changes]
        return known.filter(wanted[place[: len(known)]])

    def _note_beginning(self, samples: Changes, known: Changes, hashes: NDArray[np.uint64]) -> None:
        """Store the CTI for keys that have their first samples now."""
        of_samples, *of_others = self._codes_of(samples, known, self._lookup("since", hashes))
        first = np.unique(of_samples, return_index=True)[1]
        new = samples.take(first[~np.isin(of_samples[first], np.concatenate(of_others))])
        columns = [
            new.payload.column(field.name) if field.name in self.keys else pa.nulls(len(new), field.type)
            for field in new.payload.schema
        ]
        le = np.full(len(new), self.scalars["cti"], np.int64)
        payload = pa.table(columns, schema=new.payload.schema)
        begun = Changes(le, np.full(len(new), INFINITY, np.int64), np.ones(len(new), np.int64), payload)
        self.traces["since"].append(begun.to_table(), hash_rows(payload.select(self.keys)), begun.re)

    def _known(self, hashes: NDArray[np.uint64]) -> Changes:
        return Changes.concat([self._lookup("recent", hashes), self._lookup("last", hashes)]).cancelled()

    def _lookup(self, trace: str, hashes: NDArray[np.uint64]) -> Changes:
        return self._rows(self.traces[trace].lookup(hashes))

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
        signal = self._open(self._winners(signal, codes))
        return self._best(signal) if self.latest else signal

    def _winners(self, samples: Changes, codes: NDArray[np.int64]) -> Changes:
        """Of the samples of a key at one time, the last ones by the order; all if there is none."""
        if not self.order or len(samples) == 0:
            return samples
        columns = [pc.cast(samples.payload.column(name), pa.int64()) for name in self.order]
        ranks = [to_numpy(pc.fill_null(column, NEG_INFINITY)) for column in columns]
        order = np.lexsort((*reversed(ranks), samples.le, codes))
        # The rank of each sample is compared with that of the last sample of its key and time.
        ends = np.r_[(np.diff(codes[order]) != 0) | (np.diff(samples.le[order]) != 0), True]
        last = order[np.flatnonzero(ends)][np.r_[0, np.cumsum(ends)[:-1]]]
        wins = np.logical_and.reduce([rank[order] == rank[last] for rank in ranks])
        return samples.take(np.sort(order[wins]))

    def _open(self, samples: Changes) -> Changes:
        """The samples without those that only close a signal."""
        if self.closes is None:
            return samples
        return samples.filter(~np.asarray(predicate_mask(self.closes, samples.payload)))

    def _best(self, signal: Changes) -> Changes:
        """The sample of each key that lasts; of several the greatest, so that the order of arrival does not decide."""
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

    def _codes_of(self, *parts: Changes) -> list[NDArray[np.int64]]:
        """A number for each row, equal for equal keys, also across parts."""
        return np.split(self._codes(Changes.concat(parts)), np.cumsum([len(part) for part in parts])[:-1])

    def _settle(self, cti: int) -> None:
        """Forget settled samples: before the CTI, only the last of each key can still change."""
        recent, last = self.traces["recent"], self.traces["last"]
        passed = recent.until(cti - 1)
        recent.drop(cti - 1)
        self.scalars = self.scalars | {"cti": cti}
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
        newest_of_key = both.le == newest[codes]
        rows = self._open(self._winners(both.filter(newest_of_key), codes[newest_of_key])).to_table()
        if superseded is not None:
            old = Changes.from_table(superseded)
            rows = concat([rows, old.negated().to_table()])
            rows = Changes.from_table(rows).consolidate().to_table()
        last.append(rows, self._hashes(rows), np.full(rows.num_rows, INFINITY, np.int64))

    def _forget(self, cti: int) -> None:
        """For keys with rows after the CTI, keep the last settled row, or when they began; forget other keys."""
        recent, last, since = (self.traces[name] for name in ("recent", "last", "since"))
        settled, begun = self._rows(recent.until(cti - 1), last.scan()), self._rows(since.scan())
        recent.drop(cti - 1)
        self.scalars = self.scalars | {"cti": cti}
        active = self._lookup("recent", self._hashes(Changes.concat([settled, begun]).payload))
        of_settled, of_begun, of_active = self._codes_of(settled, begun, active)
        newest = np.full(int(of_settled.max(initial=-1)) + 1, NEG_INFINITY, np.int64)
        np.maximum.at(newest, of_settled, settled.le)
        self._replace(last, settled.filter((settled.le == newest[of_settled]) & np.isin(of_settled, of_active)))
        self._replace(since, begun.filter(np.isin(of_begun, of_active) & ~np.isin(of_begun, of_settled)))

    def _rows(self, *tables: pa.Table | None) -> Changes:
        found = [Changes.from_table(table) for table in tables if table is not None]
        return Changes.concat([Changes.empty(self.node.inputs[0].schema), *found]).cancelled()

    def _replace(self, trace: Trace, rows: Changes) -> None:
        table = rows.to_table()
        trace.replace(table, self._hashes(table), np.full(table.num_rows, INFINITY, np.int64))

    def held_by(self) -> str:
        kept = "" if self.latest and not self.kept else "the last sample of each key, and "
        return f"{kept}samples the CTI {self.time_text(self.scalars['cti'])} has not passed"
