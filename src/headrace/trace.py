"""The trace: the state structure of the engine.

A trace is a bag of rows. Each row has a 64-bit hash (of the owner's lookup key) and a time (at which it may be
forgotten). The rows are stored in immutable Arrow *segments* of bounded size, which have unique names. So saving a
trace means writing the new segments and deleting the removed ones, and restoring it means reading only the segments
that a process does not hold, when they are needed (`segments.py`).

**Runs.** Segments with disjoint ranges of hashes are a *run*, in the order of hashes. The rows of a batch become a new
run, the last one. When the later runs have together `FAN` times the rows of a run, all of them are merged into it. So
there are about log(n) runs, and a row is written about log(n) times. Runs of few rows are merged sooner: that costs
little, and removes rows that cancel.

**Merging** is done in slices. Runs that are being merged *drain* into the run before them: the rows with the lowest
hashes go first, from one segment of each, so that a slice rewrites a few segments, for any size of the runs. The rest
of a segment is a part of it, without a copy. Between slices the runs are valid: for every hash the rows of earlier runs
are the older ones. So a merge can stop anywhere, also permanently.

The number of slices in a batch follows from its rows: for every appended row, each merge may move `EFFORT` rows. A
merge of a and b rows, b ≥ FAN a, has (a + b) / EFFORT < b rows appended meanwhile, so it ends before the later runs
have grown as large: work per batch is proportional to its rows and to the number of merges, and otherwise constant.

**Forgetting.** Segments have their least and greatest time, and the order of their rows by time, so that due rows are
found without reading the others. A segment whose rows are all dead is removed; one with a quarter of dead rows is
rewritten, in a batch at most as many rows as the batch's rows and one segment allow.

**Owners.** The owner passes `compact`, which sums rows of equal key and drops those that cancel; rows of equal key must
have equal hashes. It runs whenever segments merge, on the rows of some hashes, older ones first. No answer may depend
on when this happens: rows that cancel may still be there, and rows are always returned older ones first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.columnar import concat
from headrace.segments import HASH, TIME, Hashes, Int64s, Part, Segment, SegmentInfo, cut, restored
from headrace.time import NEG_INFINITY

__all__ = ["EFFORT", "FAN", "HASH", "SAVED", "TIME", "Segment", "Trace", "saved_form", "saved_runs", "stored_segments"]

#: Runs are merged into one before them when they have more than so many times its rows; into one of few rows, sooner.
FAN, FEW_ROWS, FAN_OF_FEW = 1.5, 64, 0.5
#: So many rows may be moved by each merge for each row that is appended.
EFFORT = 4


@dataclass
class _Run:
    """Parts in the order of their hashes, which are disjoint."""

    parts: list[Part]
    #: Whether it drains into the next run before it that does not.
    draining: bool = False
    #: How many rows may still be moved by the merge into it.
    credit: int = 0
    #: How many rows it had when the merge last went on.
    share: int = 0

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def meeting(self, wanted: Hashes) -> Iterator[tuple[Part, Hashes]]:
        """The parts that may have some of the hashes, which are sorted, and those hashes."""
        lows = np.array([part.low for part in self.parts], np.uint64)
        highs = np.array([part.high for part in self.parts], np.uint64)
        start, stop = np.searchsorted(wanted, lows, "left"), np.searchsorted(wanted, highs, "right")
        for i in np.flatnonzero(start < stop).tolist():
            yield self.parts[i], wanted[start[i] : stop[i]]


class Trace:
    """A bag of rows, looked up by hash and by time, dropped by time."""

    #: Segments have at most so many rows, but for those of a single hash.
    block: ClassVar[int] = 131_072

    def __init__(self, compact: Callable[[pa.Table], pa.Table], *, pickled: bool = False) -> None:
        self._compact = compact
        #: Whether its rows contain pickled Python values, which only the query that saved them may load.
        self.pickled = pickled
        self._floor = NEG_INFINITY
        self._runs: list[_Run] = []
        #: How many rows have been appended since dead ones were last removed.
        self._added = 0

    # --- adding rows -------------------------------------------------------------------------------------------------

    def append(self, rows: pa.Table, hashes: Hashes, times: Int64s) -> None:
        """Add rows, and merge some existing ones; rows that are already forgotten are left out."""
        living = times > self._floor
        if not living.all():
            rows, hashes, times = rows.filter(pa.array(living)), hashes[living], times[living]
        if rows.num_rows == 0:
            return
        rows = rows.append_column(HASH, pa.array(hashes.view(np.uint64))).append_column(TIME, pa.array(times))
        self._runs.append(_Run(cut(rows, self.block)))
        self._added += rows.num_rows
        for run in self._runs:
            run.credit += EFFORT * rows.num_rows
        self._merge(EFFORT * rows.num_rows)

    def replace(self, rows: pa.Table, hashes: Hashes, times: Int64s) -> None:
        """Forget everything and keep these rows instead."""
        self._runs = []
        self.append(rows, hashes, times)

    # --- merging -----------------------------------------------------------------------------------------------------

    def _merge(self, credit: int) -> None:
        """Continue all merges; merges that begin now may move `credit` rows."""
        self._begin(credit)
        end = len(self._runs)
        while end:
            start = end - 1
            while self._runs[start].draining:
                start -= 1
            into, others = self._runs[start], self._runs[start + 1 : end]
            for run in [into, *others]:
                run.share = run.rows
            while into.credit > 0 and any(run.parts for run in others):
                into.credit -= self._move(into, [run for run in others if run.parts])
            if others and not any(run.parts for run in others):  # it is done, and another one may begin
                self._remove_empty()
                self._begin(credit)
                start = len(self._runs)
            end = start
        self._remove_empty()

    def _begin(self, credit: int) -> None:
        """Let runs drain into the first run that is small compared with them; runs of other merges stay."""
        runs, stop = self._runs, len(self._runs)
        while stop > 0:
            start = stop
            while start > 0 and not runs[start - 1].draining:
                start -= 1
            later_rows = [0, *accumulate(run.rows for run in reversed(runs[start:stop]))][::-1]
            for place in range(start, stop - 1):
                if later_rows[place - start + 1] > _fan(runs[place].rows) * runs[place].rows:
                    runs[place].credit = credit
                    for run in runs[place + 1 : stop]:
                        run.draining = True
                    break
            while start > 0 and runs[start - 1].draining:
                start -= 1
            stop = start - 1  # without the run that they drain into

    def _move(self, into: _Run, others: Sequence[_Run]) -> int:
        """Merge the rows with the lowest hashes of some runs into another; return the number of rows processed."""
        low = min(run.parts[0].low for run in others)
        place = bisect_left(into.parts, low, key=lambda part: part.high)
        meeting = [(run, run.parts[0]) for run in others] + [(into, part) for part in into.parts[place : place + 1]]
        # From each run a share of rows in proportion to its size: together hardly more than a segment, for any hashes.
        total = sum(run.share for run, _ in meeting)
        limit = max(low, min(part.hash_at(self.block * run.share // total) for run, part in meeting))
        # A small part that the previous slice has left is merged with this one.
        start = place - 1 if place and into.parts[place - 1].rows < self.block // 4 else place
        heads, cost = [], 0
        for run, first, last in [(into, start, place + 1), *((run, 0, 1) for run in others)]:
            rests = []
            for part in run.parts[first:last]:
                head, count, rest = part.split(limit, self._floor)
                heads.append(head)
                cost += count
                rests += [rest] if rest is not None and rest.living else []
            run.parts[first:last] = rests
        merged = concat(heads)
        merged = self._compact(merged) if merged.num_rows else merged
        into.parts[start:start] = cut(merged, self.block)
        return cost

    # --- looking up --------------------------------------------------------------------------------------------------

    @property
    def _parts(self) -> Iterator[Part]:
        return (part for run in self._runs for part in run.parts)

    def lookup(self, hashes: Hashes) -> pa.Table | None:
        """The living rows with one of these hashes, without `HASH` and `TIME`; None if there are none."""
        return self._gather((part, rows) for part, rows in self._found(hashes))

    def count(self, hashes: Hashes) -> int:
        """The number of living rows with one of these hashes."""
        return sum(len(rows) for _, rows in self._found(hashes))

    def _found(self, hashes: Hashes) -> Iterator[tuple[Part, Int64s]]:
        wanted = np.sort(hashes)
        wanted = wanted[np.r_[True, wanted[1:] != wanted[:-1]]] if len(wanted) else wanted
        for run in self._runs:
            for part, some in run.meeting(wanted):
                yield part, part.find(some, self._floor)

    def until(self, time: int) -> pa.Table | None:
        """The living rows whose time is at most `time`."""
        return self._gather((part, part.until(time, self._floor)) for part in self._parts if part.first <= time)

    def scan(self, *names: str) -> pa.Table | None:
        """All living rows, or some of their columns."""
        tables = [part.table(self._floor, names) for part in self._parts]
        if not tables:
            return None
        return concat(tables) if names else concat(tables).drop_columns([HASH, TIME])

    @staticmethod
    def _gather(found: Iterable[tuple[Part, Int64s]]) -> pa.Table | None:
        tables = [part.take(rows) for part, rows in found if len(rows)]
        return concat(tables).drop_columns([HASH, TIME]) if tables else None

    # --- forgetting --------------------------------------------------------------------------------------------------

    def drop(self, time: int) -> None:
        """Forget every row whose time is at most `time`."""
        if time <= self._floor:
            return
        self._floor = time
        for part in self._parts:
            part.forget(time)
        budget, self._added = self.block + EFFORT * self._added, 0
        for run in self._runs:
            run.parts = [part for part in run.parts if part.living]
            budget -= self._tidy(run, budget)
        self._remove_empty()

    def _tidy(self, run: _Run, budget: int) -> int:
        """Rewrite parts with more than a quarter of dead rows, within the budget; return the number of rows read."""
        kept: list[Part] = []
        cost = 0
        for part in run.parts:
            if cost >= budget or 4 * part.dead <= part.rows:
                kept.append(part)
                continue
            small = [kept.pop()] if kept and kept[-1].rows < self.block // 4 else []
            cost += part.rows + sum(other.rows for other in small)
            kept += cut(concat([other.table(self._floor) for other in [*small, part]]), self.block)
        run.parts = kept
        return cost

    def _remove_empty(self) -> None:
        """Remove runs without rows; runs that drained into one of them become ordinary runs."""
        filled = False
        for run in self._runs:
            filled = filled if run.draining else bool(run.parts)
            run.draining &= filled
        self._runs = [run for run in self._runs if run.parts]

    # --- content -----------------------------------------------------------------------------------------------------

    @property
    def floor(self) -> int:
        """Rows up to this time are forgotten."""
        return self._floor

    @property
    def rows(self) -> int:
        """The number of living rows."""
        return sum(part.living for part in self._parts)

    @property
    def nbytes(self) -> int:
        """The bytes of its rows, including dead rows that are not removed yet."""
        return sum(part.nbytes for part in self._parts)

    @property
    def segments(self) -> list[Segment]:
        """All segments that it uses."""
        return [part.segment for part in self._parts]

    def saved(self) -> dict[str, Any]:
        """Everything but the rows, as JSON values."""
        return saved_form(self._floor, [[part.saved() for part in run.parts] for run in self._runs])

    def restore(self, saved: Mapping[str, Any], held: Mapping[str, Segment]) -> None:
        """Restore a saved trace, with its segments."""
        self._floor = saved["floor"]
        self._runs = [_Run(parts) for parts in saved_runs(saved, held)]


#: The keys of a saved trace.
SAVED = ("floor", "segments", "parts", "runs")


def saved_form(floor: int, runs: Sequence[Sequence[tuple[str, list[int]]]]) -> dict[str, Any]:
    """A saved trace of these runs; each part is the name of its segment and its numbers."""
    parts = [part for run in runs for part in run]
    values = floor, [name for name, _ in parts], [about for _, about in parts], [len(run) for run in runs]
    return dict(zip(SAVED, values, strict=True))


def saved_runs(saved: Mapping[str, Any], held: Mapping[str, Segment]) -> list[list[Part]]:
    """The runs of a saved trace, with its segments."""
    names = saved["segments"]
    # An earlier Headrace had runs of one segment, and did not save which rows are dead.
    about = saved.get("parts", [None] * len(names))
    parts = [restored(held[name], part) for name, part in zip(names, about, strict=True)]
    ends = np.cumsum(saved.get("runs", [1] * len(names))).tolist()
    if "parts" not in saved:
        for part in parts:
            part.forget(saved["floor"])
    runs = [parts[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return [run for run in runs if any(part.living for part in run)]


def stored_segments(
    traces: Iterable[Mapping[str, Any]], read: Callable[[str], bytes | pa.Buffer]
) -> dict[str, Segment]:
    """The segments of saved traces, by name; `read` returns the bytes of a segment when they are needed."""
    found: dict[str, Segment] = {}
    for saved in traces:
        if "parts" not in saved:  # by an earlier Headrace, without descriptions of segments
            found |= {name: Segment.load(name, read(name)) for name in saved["segments"]}
            continue
        for name, part in zip(saved["segments"], saved["parts"], strict=True):
            found[name] = Segment.stored(name, SegmentInfo(*part[: len(SegmentInfo._fields)]), partial(read, name))
    return found


def _fan(rows: int) -> float:
    return FAN if rows > FEW_ROWS else FAN_OF_FEW
