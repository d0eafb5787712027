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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, to_numpy
from headrace.expr import Column, col
from headrace.operators.groups import AT, HOLD, OUT, PREFIX, Groups, Hashes, as_rows, difference
from headrace.operators.kernel import Data, Kernel, SavedTraces, cancelled_rows, expression_texts
from headrace.operators.ordered.divide import without_prefix
from headrace.operators.ordered.tuples import OrderedTuples, order_tuples
from headrace.operators.pattern.holds import Holds, are_among
from headrace.operators.pattern.measures import Measures
from headrace.operators.pattern.tables import FoundMatches, Searcher, with_neighbours
from headrace.plan.nodes import Match
from headrace.plan.ordered import order_columns
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY, add
from headrace.trace import Segment, Trace

__all__ = ["MatchKernel"]

_SKIP, _COUNT = "__skip", "__count"


class _Known(NamedTuple):
    """The rows of the touched groups in a trace, and how many the trace has of them, with those that cancel."""

    rows: Changes | None
    stored: int


@dataclass(frozen=True)
class _Search:
    """The groups to search: their keys, their tuples in order, and the first tuple of the search in each."""

    touched: Hashes
    keys: pa.Table
    order: OrderedTuples
    begin: Int64s
    #: The number of final matches.
    count: Int64s
    #: The alarm of each group; infinite if it has none.
    alarm: Int64s
    #: What the traces `events`, `groups` and `alarms` have of these groups.
    events: _Known
    pasts: _Known
    alarms: _Known
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
        #: From the trace `groups`; None if it has to be read.
        self.holds: Holds | None = Holds()

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        super().restore(scalars, traces, held)
        self.holds = None

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
        result = self._exchange(search, tuples, matches, final)
        if cti != INFINITY:
            self._keep(search, matches, settle, decided, cti)
        return result

    def _search(self, touched: Hashes, delta: Changes) -> _Search:
        events, pasts, alarms = (self._known(name, touched) for name in ("events", "groups", "alarms"))
        known = events.rows
        after = delta if known is None else Changes.concat([known, delta]).cancelled()
        states = [known, pasts.rows, alarms.rows]
        codes, keys = self.groups.number(after.payload, *(rows.payload for rows in states if rows is not None))
        order, which = order_tuples(after, codes[0], keys.num_rows, self.order)
        begin, count = order.start[:-1].copy(), np.zeros(keys.num_rows, np.int64)
        alarm = np.full(keys.num_rows, INFINITY, np.int64)
        if alarms.rows is not None:
            alarm[codes.pop()] = to_numpy(alarms.rows.payload.column(AT))
        if pasts.rows is not None:
            at = codes.pop()
            begin[at] += to_numpy(pasts.rows.payload.column(_SKIP))
            count[at] = to_numpy(pasts.rows.payload.column(_COUNT))
        before = 0 if known is None else len(known)
        old = which < before if len(after) == before + len(delta) else None
        return _Search(touched, keys, order, begin, count, alarm, events, pasts, alarms, old)

    def _known(self, trace: str, touched: Hashes) -> _Known:
        table = self.traces[trace].lookup(touched)
        if table is None:
            return _Known(None, 0)
        return _Known(Changes.from_table(table).cancelled(), table.num_rows)

    def _final(self, matches: FoundMatches, decided: Int64s, cti: int) -> Bools:
        """Which matches are final, when the tuples before `decided` are settled."""
        if cti == INFINITY:
            return np.ones(len(matches.group), bool)
        if self.match.pattern.matches == "all":
            return np.asarray(matches.last < decided[matches.group])
        return ~matches.open if self.match.alone else np.asarray(matches.first < matches.opened[matches.group])

    def _exchange(self, search: _Search, tuples: pa.Table, matches: FoundMatches, final: Bools | None) -> Changes:
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
        stale = self._known("given", search.touched)
        self._replace("given", search.touched, stale, fresh.filter(again))
        return self.groups.leaving(difference(fresh, stale.rows))

    # --- state to keep ------------------------------------------------------------------------------------------------

    def _keep(self, search: _Search, matches: FoundMatches, settle: Int64s, decided: Int64s, cti: int) -> None:
        """Keep the tuples from the first open one on, and the past of each group."""
        order, touched = search.order, search.touched
        since = np.maximum(matches.opened - self.match.references.back, order.start[:-1])
        stay: Bools = np.arange(len(order)) >= since[order.group]
        self._keep_tuples(search, stay)
        skip, count = matches.opened - since, self._final_counts(search, matches)
        pasts = search.keys.append_column(_SKIP, pa.array(skip)).append_column(HOLD, pa.array(matches.hold))
        pasts = pasts.append_column(_COUNT, pa.array(count))
        some = (skip > 0) | (matches.hold != INFINITY) | (count > 0)
        self._replace("groups", touched, search.pasts, as_rows(pasts.filter(pa.array(some))))
        self._held.exchange(touched, *_holding(self.groups, pasts, matches.hold))
        alarm = self._alarm(search, matches, settle, decided, cti)
        alarms = search.keys.append_column(AT, pa.array(alarm)).filter(pa.array(alarm != INFINITY))
        self._replace("alarms", touched, search.alarms, as_rows(alarms), AT)

    def _final_counts(self, search: _Search, matches: FoundMatches) -> Int64s:
        """The number of final matches of each group: those that begin before its first open tuple."""
        if not self.match.numbered:
            return search.count
        final = matches.group[matches.first < matches.opened[matches.group]]
        return np.asarray(search.count + np.bincount(final, minlength=len(search.count)))

    def _keep_tuples(self, search: _Search, stay: Bools) -> None:
        tuples, old = search.order.events, search.old
        if old is None or 2 * np.count_nonzero(stay != old) >= np.count_nonzero(stay):
            self._replace("events", search.touched, search.events, tuples.filter(stay))
            return
        # Known tuples that stay are in the trace already.
        moved = tuples.filter(stay != old)
        weight = np.where(old[stay != old], -1, 1)
        self.traces["events"].append(*self.groups.stamped(Changes(moved.le, moved.re, weight, moved.payload)))

    def _replace(self, trace: str, touched: Hashes, old: _Known, new: Changes, until: str | None = None) -> None:
        """Replace the rows of the touched groups. If these are most rows of the trace, write the others again instead
        of taking the old ones back.
        """
        target = self.traces[trace]
        rows = target.rows
        others = rows - old.stored
        if old.rows is None or 2 * others > rows:
            self.groups.exchange(trace, old.rows, new, until)
            return
        if others:
            left = Changes.from_table(target.scan())
            left = left.filter(~are_among(self.groups.hashes(left.payload), touched)).cancelled()
            new = Changes.concat([left, new])
        target.replace(*self.groups.stamped(new, until))

    def _alarm(self, search: _Search, matches: FoundMatches, settle: Int64s, decided: Int64s, cti: int) -> Int64s:
        """When each group is due: its next tuple is settled, or its first open tuple is no longer open.

        If a group does not hold back the CTI, the second only frees state, and may happen up to a span later: mostly
        another tuple of the group has arrived by then. A group keeps an alarm that is early enough, or not needed.
        """
        order, span = search.order, self.match.pattern.span
        alarm = np.full(order.groups, INFINITY, np.int64)
        waiting = settle < order.start[1:]
        alarm[waiting] = add(order.le[settle[waiting]], 1)
        opened = matches.opened < decided
        if span is not None:
            over = add(order.le[matches.opened[opened]], span + 1)
            over = np.where(matches.hold[opened] == INFINITY, add(over, span), over)
            alarm[opened] = np.minimum(alarm[opened], over)
        return np.where(search.alarm > cti, np.minimum(search.alarm, alarm), alarm)

    # --- progress -----------------------------------------------------------------------------------------------------

    def _promise(self, cti: int) -> int:
        return cti if cti in (INFINITY, NEG_INFINITY) else min(cti, self._held.least)

    @property
    def _held(self) -> Holds:
        if self.holds is None:
            self.holds = Holds()
            rows = self.traces["groups"].scan()
            if rows is not None:
                pasts = Changes.from_table(rows).cancelled().payload
                self.holds.exchange(np.empty(0, np.uint64), *_holding(self.groups, pasts, to_numpy(pasts.column(HOLD))))
        return self.holds

    def held_by(self) -> str:
        back = self.match.references.back
        before = f" and {back} before" if back else ""
        return f"tuples of runs that may go on{before}; CTI {self.time_text(self.scalars['cti'])}"


def _holding(groups: Groups, pasts: pa.Table, hold: Int64s) -> tuple[Hashes, Int64s]:
    """The hashes of the groups that hold back the CTI, and the times."""
    holding = hold != INFINITY
    return groups.hashes(pasts.filter(pa.array(holding))), hold[holding]
