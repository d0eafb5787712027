"""Patterns (rule 9.4): the matches of each group, emitted early and corrected.

For the groups that a batch changes, the kernel orders the kept tuples and searches again from the first open one; the
matches found replace the earlier ones. All groups of a batch are in one call of the machine.

Traces carry the state:

- `events`: the tuples from each group's first open one on, and as many before it as conditions refer to;
- `given`: the outputs of matches that begin there; all others are final;
- `groups`: for each group the number of kept tuples before the first open one, the time at which the output CTI waits,
  and the number of final matches, if matches have numbers;
- `alarms`: the CTI at which a group is due.
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
from headrace.operators.pattern.tables import FoundMatches, Searcher, with_neighbours
from headrace.plan.nodes import Match
from headrace.plan.ordered import order_columns
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY, add, format_ticks
from headrace.trace import Trace

__all__ = ["MatchKernel"]

_SKIP, _COUNT = "__skip", "__count"


@dataclass(frozen=True)
class _Search:
    """The groups to search: their keys, their tuples in order, and the first tuple of the search in each."""

    keys: pa.Table
    order: OrderedTuples
    begin: Int64s
    #: The number of final matches.
    count: Int64s
    known: Changes | None
    #: A mask of the tuples that were known; None if a known tuple is gone.
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
        # A key that is a column is stored already.
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
            result = self._recompute(touched, delta, cti)
        self.scalars = {"cti": cti}
        self.traces["alarms"].drop(cti)
        if cti == INFINITY:
            for trace in self.traces.values():
                trace.drop(cti)
        return result, Progress(self._promise(cti), now.high)

    # --- the groups to look at ----------------------------------------------------------------------------------------

    def _recompute(self, touched: Hashes, delta: Changes, cti: int) -> Changes:
        search = self._search(touched, delta)
        order = search.order
        tuples = with_neighbours(self.match, order, without_prefix(order.events.payload))
        settled = np.bincount(order.group[order.le < cti], minlength=order.groups)
        settle = order.start[:-1] + settled
        # If conditions look ahead, the last tuples before the CTI are not settled either.
        decided = np.maximum(search.begin, settle - self.match.references.ahead)
        matches = self.searcher.search(order, tuples, search.begin, decided, cti).with_numbers(search.count)
        waiting = decided < settle
        matches.hold[waiting] = np.minimum(matches.hold[waiting], order.le[decided[waiting]])
        final = self._final(matches, decided, cti) if self.match.final else None
        result = self._exchange(touched, search, tuples, matches, final)
        if cti != INFINITY:
            self._keep(touched, search, matches, settle, decided)
        return result

    def _search(self, touched: Hashes, delta: Changes) -> _Search:
        known, pasts = self.groups.known("events", touched), self.groups.known("groups", touched)
        after = delta if known is None else Changes.concat([known, delta]).cancelled()
        codes, keys = self.groups.number(*(x.payload for x in (after, known, pasts) if x is not None))
        order, which = order_tuples(after, codes[0], keys.num_rows, self.order)
        begin, count = order.start[:-1].copy(), np.zeros(keys.num_rows, np.int64)
        if pasts is not None:
            begin[codes[-1]] += to_numpy(pasts.payload.column(_SKIP))
            count[codes[-1]] = to_numpy(pasts.payload.column(_COUNT))
        before = 0 if known is None else len(known)
        old = which < before if len(after) == before + len(delta) else None
        return _Search(keys, order, begin, count, known, old)

    def _final(self, matches: FoundMatches, decided: Int64s, cti: int) -> Bools:
        """Which matches are final, when the tuples before `decided` are settled."""
        if cti == INFINITY:
            return np.ones(len(matches.group), bool)
        if self.match.pattern.matches == "all":
            return np.asarray(matches.last < decided[matches.group])
        return ~matches.open if self.match.alone else np.asarray(matches.first < matches.opened[matches.group])

    def _exchange(
        self, touched: Hashes, search: _Search, tuples: pa.Table, matches: FoundMatches, final: Bools | None
    ) -> Changes:
        """Replace the outputs of the touched groups by those of the matches, or of the final ones.

        Keep the outputs of matches that the next search finds again.
        """
        outputs = self.measures.outputs(matches, tuples)
        table = search.keys.take(pa.array(matches.group[outputs.match]))
        for name in outputs.payload.column_names:
            table = table.append_column(OUT + name, outputs.payload.column(name))
        le = search.order.le[outputs.row]
        fresh = Changes.inserts(le, le + 1, table)
        again = (matches.first >= matches.opened[matches.group])[outputs.match]
        if final is not None:
            fresh, again = fresh.filter(final[outputs.match]), again[final[outputs.match]]
        stale = self.groups.known("given", touched)
        self._replace("given", touched, stale, fresh.filter(again))
        return self.groups.leaving(difference(fresh, stale))

    # --- state to keep ------------------------------------------------------------------------------------------------

    def _keep(self, touched: Hashes, search: _Search, matches: FoundMatches, settle: Int64s, decided: Int64s) -> None:
        """Keep the tuples from the first open one on, and the past of each group."""
        order = search.order
        since = np.maximum(matches.opened - self.match.references.back, order.start[:-1])
        stay: Bools = np.arange(len(order)) >= since[order.group]
        self._keep_tuples(touched, search, stay)
        skip, alarm = matches.opened - since, self._alarm(order, matches, settle, decided)
        count = self._final_counts(search, matches)
        known = search.keys.append_column(_SKIP, pa.array(skip)).append_column(HOLD, pa.array(matches.hold))
        known = known.append_column(_COUNT, pa.array(count))
        some = (skip > 0) | (matches.hold != INFINITY) | (count > 0)
        self._replace("groups", touched, self.groups.known("groups", touched), as_rows(known.filter(pa.array(some))))
        alarms = search.keys.append_column(AT, pa.array(alarm)).filter(pa.array(alarm != INFINITY))
        self._replace("alarms", touched, self.groups.known("alarms", touched), as_rows(alarms), AT)

    def _final_counts(self, search: _Search, matches: FoundMatches) -> Int64s:
        """The number of final matches of each group: those that begin before its first open tuple."""
        if not self.match.numbered:
            return search.count
        final = matches.group[matches.first < matches.opened[matches.group]]
        return np.asarray(search.count + np.bincount(final, minlength=len(search.count)))

    def _keep_tuples(self, touched: Hashes, search: _Search, stay: Bools) -> None:
        tuples, old = search.order.events, search.old
        if old is None or 2 * np.count_nonzero(stay != old) >= np.count_nonzero(stay):
            self._replace("events", touched, search.known, tuples.filter(stay))
            return
        # Known tuples that stay are in the trace already.
        moved = tuples.filter(stay != old)
        weight = np.where(old[stay != old], -1, 1)
        self.traces["events"].append(*self.groups.stamped(Changes(moved.le, moved.re, weight, moved.payload)))

    def _replace(
        self, trace: str, touched: Hashes, old: Changes | None, new: Changes, until: str | None = None
    ) -> None:
        """Replace the rows of the touched groups. If these are most rows of the trace, write the others again instead
        of taking the old ones back.
        """
        target = self.traces[trace]
        rows = target.rows
        others = rows - target.count(touched)
        if old is None or 2 * others > rows:
            self.groups.exchange(trace, old, new, until)
            return
        if others:
            left = Changes.from_table(target.scan())
            left = left.filter(~_are_among(self.groups.hashes(left.payload), touched)).cancelled()
            new = Changes.concat([left, new])
        target.replace(*self.groups.stamped(new, until))

    def _alarm(self, order: OrderedTuples, matches: FoundMatches, settle: Int64s, decided: Int64s) -> Int64s:
        """When each group is due: its next tuple is settled, or its first open tuple is no longer open."""
        alarm = np.full(order.groups, INFINITY, np.int64)
        waiting = settle < order.start[1:]
        alarm[waiting] = add(order.le[settle[waiting]], 1)
        span, opened = self.match.pattern.span, matches.opened < decided
        if span is not None:
            alarm[opened] = np.minimum(alarm[opened], add(order.le[matches.opened[opened]], span + 1))
        return alarm

    # --- progress -----------------------------------------------------------------------------------------------------

    def _promise(self, cti: int) -> int:
        return cti if cti in (INFINITY, NEG_INFINITY) else min(cti, self.groups.least("groups", HOLD))

    def held_by(self) -> str:
        back = self.match.references.back
        before = f" and {back} before" if back else ""
        return f"tuples of runs that may go on{before}; CTI {format_ticks(self.scalars['cti'])}"


def _are_among(hashes: Hashes, touched: Hashes) -> Bools:
    """Which hashes are among these sorted ones."""
    place = np.minimum(np.searchsorted(touched, hashes), len(touched) - 1)
    return np.asarray(touched[place] == hashes)
