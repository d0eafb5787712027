"""Patterns (rule 9.4): the matches of each group, given early and corrected.

For the groups that a batch changes the tuples that are kept are put in their order, and the search begins again at the
first open one; what it finds takes the place of what was given. All groups of a batch are in one call of the machine.

Traces carry the state:

- `events`: the tuples from each group's first open one on, and as many before it as conditions look back at;
- `given`: what was given of matches that begin there, all others are final;
- `groups`: of each group how many of the kept tuples come before the first open one, where the output CTI waits, and
  how many matches are final, if they have numbers;
- `alarms`: the CTI at which to look at a group again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, to_numpy
from headrace.expr import Column, col
from headrace.operators.groups import AT, HOLD, OUT, PREFIX, Groups, Hashes, as_rows, difference
from headrace.operators.kernel import Data, Kernel, cancelled_rows, expression_texts
from headrace.operators.ordered.divide import without_prefix
from headrace.operators.ordered.tuples import OrderedTuples, order_tuples
from headrace.operators.pattern.measures import Measures
from headrace.operators.pattern.tables import Found, Searcher, with_earlier
from headrace.plan.nodes import Match
from headrace.plan.ordered import order_columns
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY, add, format_ticks
from headrace.trace import Trace

__all__ = ["MatchKernel"]

_SKIP, _COUNT = "__skip", "__count"


@dataclass(frozen=True)
class _Search:
    """The groups to look at: their keys, their tuples in order, and where the search begins in each."""

    keys: pa.Table
    line: OrderedTuples
    begin: Int64s
    #: How many matches are final.
    count: Int64s
    known: Changes | None
    #: Which of the tuples are known ones; None if one of those has gone.
    old: Bools | None


class MatchKernel(Kernel):
    """The matches of a pattern."""

    divisible = True

    def __init__(self, node: Match) -> None:
        super().__init__(node)
        self.match = node
        self.searcher, self.measures = Searcher(node), Measures(node)
        below = node.input.schema
        self.order = [PREFIX + name for name in order_columns(below)]
        self.traces = {name: Trace(cancelled_rows) for name in ("events", "given", "groups", "alarms")}
        # A key that is a column is there already.
        stored = [PREFIX + e.column if isinstance(e, Column) else f"key{i}" for i, (_, e) in enumerate(node.keys)]
        columns = [(PREFIX + name, col(name)) for name in below.names]
        self.groups = Groups(node, columns, self.traces, stored=stored)
        self.scalars = {"cti": NEG_INFINITY}

    def column_names(self) -> dict[str, str]:
        return expression_texts(self.groups.projection)

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        cti = max(now.cti, self.scalars["cti"])
        delta = self.groups.project(changes, changes.le + 1).cancelled()  # ends do not matter
        result = Changes.empty(self.node.schema)
        held_back = {"groups": cti} if self.match.final and cti == INFINITY else {}
        touched = self.groups.touched(delta, alarms=cti, **held_back)
        if len(touched):
            result = self._look(touched, delta, cti)
        self.scalars = {"cti": cti}
        self.traces["alarms"].drop(cti)
        if cti == INFINITY:
            for trace in self.traces.values():
                trace.drop(cti)
        return result, Progress(self._promise(cti), now.high)

    # --- the groups to look at ----------------------------------------------------------------------------------------

    def _look(self, touched: Hashes, delta: Changes, cti: int) -> Changes:
        search = self._search(touched, delta)
        line = search.line
        tuples = with_earlier(self.match, line, without_prefix(line.events.payload))
        settled = np.bincount(line.group[line.le < cti], minlength=line.groups)
        settle = line.start[:-1] + settled
        # Where conditions look ahead, the last tuples before the CTI are not settled either.
        decided = np.maximum(search.begin, settle - self.match.references.ahead)
        found = self.searcher.search(line, tuples, search.begin, decided, cti).numbered(search.count)
        waiting = decided < settle
        found.hold[waiting] = np.minimum(found.hold[waiting], line.le[decided[waiting]])
        final = self._final(found, decided, cti) if self.match.final else None
        result = self._exchange(touched, search, tuples, found, final)
        if cti != INFINITY:
            self._keep(touched, search, found, settle, decided)
        return result

    def _search(self, touched: Hashes, delta: Changes) -> _Search:
        known, pasts = self.groups.known("events", touched), self.groups.known("groups", touched)
        after = delta if known is None else Changes.concat([known, delta]).cancelled()
        codes, keys = self.groups.number(*(x.payload for x in (after, known, pasts) if x is not None))
        line, which = order_tuples(after, codes[0], keys.num_rows, self.order)
        begin, count = line.start[:-1].copy(), np.zeros(keys.num_rows, np.int64)
        if pasts is not None:
            begin[codes[-1]] += to_numpy(pasts.payload.column(_SKIP))
            count[codes[-1]] = to_numpy(pasts.payload.column(_COUNT))
        before = 0 if known is None else len(known)
        old = which < before if len(after) == before + len(delta) else None
        return _Search(keys, line, begin, count, known, old)

    def _final(self, found: Found, decided: Int64s, cti: int) -> Bools:
        """Which matches no tuple can change any more, when the tuples before `decided` are settled."""
        if cti == INFINITY:
            return np.ones(len(found.group), bool)
        if self.match.pattern.matches == "all":
            return np.asarray(found.last < decided[found.group])
        return ~found.open if self.match.alone else np.asarray(found.first < found.opened[found.group])

    def _exchange(
        self, touched: Hashes, search: _Search, tuples: pa.Table, found: Found, final: Bools | None
    ) -> Changes:
        """The outputs of the matches that are, or of those that are final, for those that were given.

        What was given of matches that will be found again is kept.
        """
        measured = self.measures.measured(found, tuples)
        table = search.keys.take(pa.array(found.group[measured.match]))
        for name in measured.payload.column_names:
            table = table.append_column(OUT + name, measured.payload.column(name))
        le = search.line.le[measured.row]
        fresh = Changes.inserts(le, le + 1, table)
        again = (found.first >= found.opened[found.group])[measured.match]
        if final is not None:
            fresh, again = fresh.filter(final[measured.match]), again[final[measured.match]]
        stale = self.groups.known("given", touched)
        self._replace("given", touched, stale, fresh.filter(again))
        return self.groups.leaving(difference(fresh, stale))

    # --- what is remembered -------------------------------------------------------------------------------------------

    def _keep(self, touched: Hashes, search: _Search, found: Found, settle: Int64s, decided: Int64s) -> None:
        """The tuples from the first open one on, and what is known of each group."""
        line = search.line
        since = np.maximum(found.opened - self.match.references.back, line.start[:-1])
        stay: Bools = np.arange(len(line)) >= since[line.group]
        self._keep_tuples(touched, search, stay)
        skip, alarm = found.opened - since, self._alarm(line, found, settle, decided)
        count = self._counted(search, found)
        known = search.keys.append_column(_SKIP, pa.array(skip)).append_column(HOLD, pa.array(found.hold))
        known = known.append_column(_COUNT, pa.array(count))
        some = (skip > 0) | (found.hold != INFINITY) | (count > 0)
        self._replace("groups", touched, self.groups.known("groups", touched), as_rows(known.filter(pa.array(some))))
        alarms = search.keys.append_column(AT, pa.array(alarm)).filter(pa.array(alarm != INFINITY))
        self._replace("alarms", touched, self.groups.known("alarms", touched), as_rows(alarms), AT)

    def _counted(self, search: _Search, found: Found) -> Int64s:
        """How many matches of each group are final: those that begin before its first open tuple."""
        if not self.match.numbered:
            return search.count
        final = found.group[found.first < found.opened[found.group]]
        return np.asarray(search.count + np.bincount(final, minlength=len(search.count)))

    def _keep_tuples(self, touched: Hashes, search: _Search, stay: Bools) -> None:
        tuples, old = search.line.events, search.old
        if old is None or 2 * np.count_nonzero(stay != old) >= np.count_nonzero(stay):
            self._replace("events", touched, search.known, tuples.filter(stay))
            return
        # What is known and stays is written already.
        moved = tuples.filter(stay != old)
        weight = np.where(old[stay != old], -1, 1)
        self.traces["events"].append(*self.groups.stamped(Changes(moved.le, moved.re, weight, moved.payload)))

    def _replace(
        self, trace: str, touched: Hashes, old: Changes | None, new: Changes, until: str | None = None
    ) -> None:
        """What is remembered of the touched groups, for what was; old rows need not be taken back one by one if they
        are most of all: then those of other groups are written again.
        """
        target = self.traces[trace]
        rows = target.rows
        others = rows - target.count(touched)
        if old is None or 2 * others > rows:
            self.groups.exchange(trace, old, new, until)
            return
        if others:
            left = Changes.from_table(target.scan())
            left = left.filter(~_among(self.groups.hashes(left.payload), touched)).cancelled()
            new = Changes.concat([left, new])
        target.replace(*self.groups.stamped(new, until))

    def _alarm(self, line: OrderedTuples, found: Found, settle: Int64s, decided: Int64s) -> Int64s:
        """When to look at each group again: its next tuple is settled then, or its first open one no more open."""
        alarm = np.full(line.groups, INFINITY, np.int64)
        waiting = settle < line.start[1:]
        alarm[waiting] = add(line.le[settle[waiting]], 1)
        span, opened = self.match.pattern.span, found.opened < decided
        if span is not None:
            alarm[opened] = np.minimum(alarm[opened], add(line.le[found.opened[opened]], span + 1))
        return alarm

    # --- progress -----------------------------------------------------------------------------------------------------

    def _promise(self, cti: int) -> int:
        return cti if cti in (INFINITY, NEG_INFINITY) else min(cti, self.groups.least("groups", HOLD))

    def held_by(self) -> str:
        back = self.match.references.back
        before = f" and {back} before" if back else ""
        return f"tuples of runs that may go on{before}; CTI {format_ticks(self.scalars['cti'])}"


def _among(hashes: Hashes, touched: Hashes) -> Bools:
    """Which hashes are among these, which are in order."""
    place = np.minimum(np.searchsorted(touched, hashes), len(touched) - 1)
    return np.asarray(touched[place] == hashes)
