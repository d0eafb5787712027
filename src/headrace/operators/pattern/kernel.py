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
from headrace.columnar import Bools, Int64s, canonical_floats, factorize, hash_rows, to_numpy
from headrace.expr import Column, col, lit
from headrace.operators.evaluated import evaluated
from headrace.operators.kernel import Data, Kernel, names_of
from headrace.operators.ordered.divide import PREFIX, without_prefix
from headrace.operators.ordered.kernel import Hashes
from headrace.operators.ordered.line import Line, lined_up
from headrace.operators.pattern.measures import Measures
from headrace.operators.pattern.tables import Found, Searcher, with_earlier
from headrace.operators.windows.rows import cancelled_rows
from headrace.plan.nodes import Match
from headrace.plan.ordered import order_columns
from headrace.progress import Progress
from headrace.schema import Field, Schema
from headrace.time import INFINITY, NEG_INFINITY, add, format_ticks
from headrace.trace import Trace

__all__ = ["MatchKernel"]

_SKIP, _AT, _HOLD, _COUNT, _OUT = "__skip", "__at", "__hold", "__count", "out."


@dataclass(frozen=True)
class _Groups:
    """The groups to look at: their keys, their tuples in order, and where the search begins in each."""

    keys: pa.Table
    line: Line
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
        keys = [expr for _, expr in node.keys] or [lit(0)]  # all tuples of one group are a group too
        #: What each key is called here: a column is there already.
        self.key_of = [PREFIX + e.column if isinstance(e, Column) else f"key{i}" for i, e in enumerate(keys)]
        self.keys = list(dict.fromkeys(self.key_of))
        computed = dict(zip(self.key_of, keys, strict=True))
        self.projection = list((computed | {PREFIX + name: col(name) for name in below.names}).items())
        self.schema = Schema(tuple(Field(name, expr.type(below)) for name, expr in self.projection))
        self.order = [PREFIX + name for name in order_columns(below)]
        self.traces = {name: Trace(cancelled_rows) for name in ("events", "given", "groups", "alarms")}
        self.scalars = {"cti": NEG_INFINITY}

    def column_names(self) -> dict[str, str]:
        return names_of(self.projection)

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        cti = max(now.cti, self.scalars["cti"])
        delta = self._projected(changes)
        result = Changes.empty(self.node.schema)
        touched = self._touched(delta, cti)
        if len(touched):
            result = self._look(touched, delta, cti)
        self.scalars = {"cti": cti}
        self.traces["alarms"].drop(cti)
        if cti == INFINITY:
            for trace in self.traces.values():
                trace.drop(cti)
        return result, Progress(self._promise(cti), now.high)

    def _projected(self, changes: Changes) -> Changes:
        """The changes of the tuples; their ends do not matter."""
        columns = [evaluated(expr, changes.payload, changes.weight) for _, expr in self.projection]
        payload = canonical_floats(pa.Table.from_arrays(columns, schema=self.schema.arrow))
        return Changes(changes.le, changes.le + 1, changes.weight, payload).cancelled()

    def _touched(self, delta: Changes, cti: int) -> Hashes:
        """The hashes of the groups that change, or whose time has come."""
        due = [self.traces["alarms"].until(cti)]
        if self.match.final and cti == INFINITY:  # what is held back leaves
            due.append(self.traces["groups"].until(cti))
        tables = [delta.payload, *(table for table in due if table is not None)]
        return np.unique(np.concatenate([self._hashes(table) for table in tables]))

    def _hashes(self, table: pa.Table) -> Hashes:
        return hash_rows(table.select(self.keys))

    # --- the groups to look at ----------------------------------------------------------------------------------------

    def _look(self, touched: Hashes, delta: Changes, cti: int) -> Changes:
        groups = self._groups(touched, delta)
        line = groups.line
        tuples = with_earlier(self.match, line, without_prefix(line.events.payload))
        settled = np.bincount(line.group[line.le < cti], minlength=line.groups)
        settle = line.start[:-1] + settled
        # Where conditions look ahead, the last tuples before the CTI are not settled either.
        decided = np.maximum(groups.begin, settle - self.match.references.ahead)
        found = self.searcher.search(line, tuples, groups.begin, decided, cti).numbered(groups.count)
        waiting = decided < settle
        found.hold[waiting] = np.minimum(found.hold[waiting], line.le[decided[waiting]])
        final = self._final(found, decided, cti) if self.match.final else None
        result = self._exchange(touched, groups, tuples, found, final)
        if cti != INFINITY:
            self._keep(touched, groups, found, settle, decided)
        return result

    def _groups(self, touched: Hashes, delta: Changes) -> _Groups:
        known, pasts = self._standing("events", touched), self._standing("groups", touched)
        after = delta if known is None else Changes.concat([known, delta]).cancelled()
        tables = [x.payload.select(self.keys) for x in (after, known, pasts) if x is not None]
        whole = pa.concat_tables(tables)
        codes, first = factorize(whole)
        line, which = lined_up(after, codes[: len(after)], len(first), self.order)
        begin, count = line.start[:-1].copy(), np.zeros(len(first), np.int64)
        if pasts is not None:
            whose = codes[len(codes) - len(pasts) :]
            begin[whose] += to_numpy(pasts.payload.column(_SKIP))
            count[whose] = to_numpy(pasts.payload.column(_COUNT))
        before = 0 if known is None else len(known)
        old = which < before if len(after) == before + len(delta) else None
        return _Groups(whole.take(pa.array(first)), line, begin, count, known, old)

    def _standing(self, trace: str, touched: Hashes) -> Changes | None:
        """What is remembered of some groups."""
        found = self.traces[trace].lookup(touched)
        return None if found is None else Changes.from_table(found).cancelled()

    def _final(self, found: Found, decided: Int64s, cti: int) -> Bools:
        """Which matches no tuple can change any more, when the tuples before `decided` are settled."""
        if cti == INFINITY:
            return np.ones(len(found.group), bool)
        if self.match.pattern.matches == "all":
            return np.asarray(found.last < decided[found.group])
        return ~found.open if self.match.alone else np.asarray(found.first < found.opened[found.group])

    def _exchange(
        self, touched: Hashes, groups: _Groups, tuples: pa.Table, found: Found, final: Bools | None
    ) -> Changes:
        """The outputs of the matches that are, or of those that are final, for those that were given.

        What was given of matches that will be found again is kept.
        """
        measured = self.measures.measured(found, tuples)
        table = groups.keys.take(pa.array(found.group[measured.match]))
        for name in measured.payload.column_names:
            table = table.append_column(_OUT + name, measured.payload.column(name))
        le = groups.line.le[measured.row]
        fresh = Changes.inserts(le, le + 1, table)
        again = (found.first >= found.opened[found.group])[measured.match]
        if final is not None:
            fresh, again = fresh.filter(final[measured.match]), again[final[measured.match]]
        stale = self._standing("given", touched)
        self._replace("given", touched, stale, fresh.filter(again))
        return self._leaving(_difference(fresh, stale))

    def _leaving(self, moved: Changes) -> Changes:
        """The changes as the next operator sees them."""
        there = moved.payload.column_names
        keys = {name: mine for mine, (name, _) in zip(self.key_of, self.match.keys, strict=False)}
        names = self.node.schema.names
        columns = [moved.payload.column(_OUT + n if _OUT + n in there else keys[n]) for n in names]
        payload = pa.Table.from_arrays(columns, schema=self.node.schema.arrow)
        return Changes(moved.le, moved.re, moved.weight, payload).cancelled()

    # --- what is remembered -------------------------------------------------------------------------------------------

    def _keep(self, touched: Hashes, groups: _Groups, found: Found, settle: Int64s, decided: Int64s) -> None:
        """The tuples from the first open one on, and what is known of each group."""
        line = groups.line
        since = np.maximum(found.opened - self.match.references.back, line.start[:-1])
        stay: Bools = np.arange(len(line)) >= since[line.group]
        self._keep_tuples(touched, groups, stay)
        skip, alarm = found.opened - since, self._alarm(line, found, settle, decided)
        count = self._counted(groups, found)
        known = groups.keys.append_column(_SKIP, pa.array(skip)).append_column(_HOLD, pa.array(found.hold))
        known = known.append_column(_COUNT, pa.array(count))
        self._set("groups", touched, known, (skip > 0) | (found.hold != INFINITY) | (count > 0))
        self._set("alarms", touched, groups.keys.append_column(_AT, pa.array(alarm)), alarm != INFINITY)

    def _counted(self, groups: _Groups, found: Found) -> Int64s:
        """How many matches of each group are final: those that begin before its first open tuple."""
        if not self.match.numbered:
            return groups.count
        final = found.group[found.first < found.opened[found.group]]
        return np.asarray(groups.count + np.bincount(final, minlength=len(groups.count)))

    def _keep_tuples(self, touched: Hashes, groups: _Groups, stay: Bools) -> None:
        tuples, old = groups.line.events, groups.old
        if old is None or 2 * np.count_nonzero(stay != old) >= np.count_nonzero(stay):
            self._replace("events", touched, groups.known, tuples.filter(stay))
            return
        # What is known and stays is written already.
        moved = tuples.filter(stay != old)
        weight = np.where(old[stay != old], -1, 1)
        self._write("events", Changes(moved.le, moved.re, weight, moved.payload))

    def _set(self, trace: str, touched: Hashes, table: pa.Table, some: Bools) -> None:
        """One row a group, for those of which there is something to say."""
        zero = np.zeros(table.num_rows, np.int64)
        new = Changes.inserts(zero, zero + 1, table).filter(some)
        self._replace(trace, touched, self._standing(trace, touched), new)

    def _replace(self, trace: str, touched: Hashes, old: Changes | None, new: Changes) -> None:
        """What is remembered of the touched groups, for what was; old rows need not be taken back one by one if they
        are most of all: then those of other groups are written again.
        """
        target = self.traces[trace]
        rows = target.rows
        others = rows - target.count(touched)
        if old is None or 2 * others > rows:
            self._write(trace, _difference(new, old))
            return
        if others:
            left = Changes.from_table(target.scan())
            left = left.filter(~_among(self._hashes(left.payload), touched)).cancelled()
            new = Changes.concat([left, new])
        self._write(trace, new, whole=True)

    def _write(self, trace: str, moved: Changes, *, whole: bool = False) -> None:
        times = np.full(len(moved), INFINITY, np.int64)
        if trace == "alarms":
            times = to_numpy(moved.payload.column(_AT))
        target = self.traces[trace]
        (target.replace if whole else target.append)(moved.to_table(), self._hashes(moved.payload), times)

    def _alarm(self, line: Line, found: Found, settle: Int64s, decided: Int64s) -> Int64s:
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
        if cti in (INFINITY, NEG_INFINITY):
            return cti
        held = self.traces["groups"].scan()
        if held is None:
            return cti
        left = Changes.from_table(held).cancelled()
        return min(cti, int(np.min(to_numpy(left.payload.column(_HOLD)), initial=INFINITY)))

    def held_by(self) -> str:
        back = self.match.references.back
        before = f" and {back} before" if back else ""
        return f"tuples of runs that may go on{before}; CTI {format_ticks(self.scalars['cti'])}"


def _among(hashes: Hashes, touched: Hashes) -> Bools:
    """Which hashes are among these, which are in order."""
    place = np.minimum(np.searchsorted(touched, hashes), len(touched) - 1)
    return np.asarray(touched[place] == hashes)


def _difference(new: Changes, old: Changes | None) -> Changes:
    if old is None:
        return new
    return Changes.concat([new, Changes(old.le, old.re, -old.weight, old.payload)]).cancelled()
