"""The kernel of folds: states as of the CTI, and what may still change behind it (rule 7.6).

Traces carry the state:

- `events`: the tuples that are not before the CTI;
- `states`: a row a group, with the state as of a CTI and the tuples of its window that are before that CTI, as lists.
  A later row of a group takes the place of earlier ones;
- `given`: what was given and may change: outputs that are not before the CTI, and those whose tuple may still end
  elsewhere;
- `alarms` and `show`: when to look at a group again though it has no tuples: at a CTI, and at a time that was seen.

When a tuple comes or goes, those of its group that are not before the CTI are gone through anew from the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, Lists, factorize, to_numpy
from headrace.errors import ModuleFailed
from headrace.expr import Expr, col, evaluate
from headrace.modules.folding import FoldFailure, Folding, FoldResult
from headrace.operators.groups import OUT, PREFIX, REASON, SILENT, UNTIL, Groups, Hashes
from headrace.operators.kernel import Data, Kernel, consolidated_rows, expression_texts
from headrace.operators.ordered.divide import without_prefix
from headrace.operators.ordered.gathered import ARGUMENT, COUNT, START, STATE, Arrivals, FoldAnswers, FoldGroups
from headrace.operators.ordered.stepping import Stepping
from headrace.operators.ordered.yields import TIE, moved_ends, open_since, slot_end, ties, yields
from headrace.plan.fold import Fold
from headrace.plan.ordered import Frame, Time, Tuples, order_columns
from headrace.plan.per_window import PerWindow
from headrace.plan.source import DIVERTED
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.time import INFINITY, NEG_INFINITY, add, format_ticks
from headrace.trace import Trace

__all__ = ["FoldKernel", "Folds", "fold_kernel"]

_ASOF, _GROUP = "__asof", "__group"


@dataclass(frozen=True)
class Folds:
    """What a node asks of its fold."""

    node: PerWindow
    #: What is asked of each tuple, under the names the fold knows it by.
    arguments: tuple[tuple[str, Expr], ...]
    #: The columns that the fold gives.
    answers: Schema
    #: Whether an output stands beside its tuple and lasts as long; else beside the keys, for an instant.
    beside: bool


def fold_kernel(node: Fold) -> FoldKernel:
    """The kernel of a module that goes from tuple to tuple."""
    below = node.input.schema
    pairs = zip(node.mapping, node.module.fields, strict=True)
    arguments = [expr if expr.type(below) is field.type else expr.cast(field.type) for (_, expr), field in pairs]
    named = tuple(zip(node.module.fields.names, arguments, strict=True))
    at_once = node.folder.folding(node.frame, node.answers, active=node.active)
    return FoldKernel(Folds(node, named, node.answers, beside=not node.active), at_once or Stepping(node))


class FoldKernel(Kernel):
    """Outputs of a fold, given early and corrected."""

    divisible = True

    def __init__(self, folds: Folds, folding: Folding) -> None:
        super().__init__(folds.node)
        self.folds, self.folding = folds, folding
        node, below = folds.node, folds.node.input.schema
        self.order = [PREFIX + name for name in order_columns(below)]
        #: Whether the end of a tuple may move once its start is settled, and that of its outputs with it.
        self.moves = folds.beside and not node.input.properties.settled
        latest = {name: Trace(self._latest) for name in ("alarms", "show")}
        latest["states"] = Trace(self._latest, pickled=folding.pickled)
        changes = {name: Trace(consolidated_rows) for name in ("events", "given")}
        self.traces = changes | latest
        self.groups = Groups(node, [(PREFIX + name, col(name)) for name in below.names], self.traces)
        self.keys = self.groups.keys
        self.scalars = {"cti": NEG_INFINITY, "seen": NEG_INFINITY}
        self.seen = NEG_INFINITY
        assert isinstance(node.window, Frame)
        self.frame = node.window

    def column_names(self) -> dict[str, str]:
        return expression_texts(self.groups.projection)

    # --- one batch ---------------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        delta = self.groups.project(changes, changes.re if self.folds.beside else changes.le + 1).cancelled()
        cti = max(now.cti, self.scalars["cti"])
        seen = max(now.seen, self.scalars["seen"])
        self.side = Changes.empty(DIVERTED)
        result = self._look(delta, cti, seen)
        upto = self._settled(cti)
        for name in ("events", "given", "alarms"):
            self.traces[name].drop(upto)
        self.traces["show"].drop(seen)
        if cti == INFINITY:
            self.traces["states"].drop(cti)
        self.scalars = {"cti": cti, "seen": seen}
        return result, Progress(self._promise(cti), now.high)

    def _look(self, delta: Changes, cti: int, seen: int) -> Changes:
        since, upto = self._settled(self.scalars["cti"]), self._settled(cti)
        is_fresh = delta.le >= since
        fresh = delta if is_fresh.all() else delta.filter(is_fresh)
        ends = delta.filter(~is_fresh)
        codes, first = factorize(fresh.payload.select(self.keys))
        keys = fresh.payload.select(self.keys).take(pa.array(first))
        hashes = self.groups.hashes(keys)
        moving = np.union1d(hashes, self.groups.due(show=seen))
        touched = np.union1d(moving, self.groups.due(events=upto, alarms=upto))
        if len(touched) == 0 and len(ends) == 0:
            return Changes.empty(self.node.schema)
        gathered = self._gathered(touched, fresh, codes, keys)
        result = self.folding.go(gathered.work(since, upto, seen))
        self.traces["events"].drop(upto)
        later = fresh.le >= upto
        self.traces["events"].append(fresh.filter(later).to_table(), hashes[codes[later]], add(fresh.le[later], 1))
        self.seen = INFINITY if cti == INFINITY else seen
        self._remember(gathered, result, upto)
        return self._exchange(gathered, result, np.isin(gathered.hashes, moving), moving, ends, upto)

    def _settled(self, cti: int) -> int:
        """Up to when nothing changes any more but ends: under a slide of time, slots are settled as a whole."""
        return open_since(self.frame, cti)

    def _yields(self, gathered: FoldGroups, row: Int64s, group: Int64s) -> Bools:
        """Which outputs count: under a slide, those of the last tuple of each slot."""
        slide = self.frame.slide
        if slide is None:
            return np.ones(len(row), bool)
        if isinstance(slide, Tuples):
            number: Int64s = gathered.counts[group] + row - gathered.begin[group] + 1
            return np.asarray(number % slide.count == 0)
        return yields(self.frame, gathered.line, self.seen)[gathered.place(row, group)]

    def _next_shown(self, gathered: FoldGroups, due: Int64s) -> Int64s:
        if not isinstance(self.frame.slide, Time):
            return due
        end = slot_end(self.frame.slide, gathered.arrivals.le)
        later = end > self.seen
        due = due.copy()
        np.minimum.at(due, gathered.arrivals.group[later], end[later])
        return due

    # --- the groups to look at ---------------------------------------------------------------------------------------

    def _gathered(self, touched: Hashes, fresh: Changes, numbers: Int64s, fresh_keys: pa.Table) -> FoldGroups:
        """The groups, of which the fresh tuples have these keys and are numbered by them."""
        found = self.traces["events"].lookup(touched)
        pending = Changes.empty(self.groups.schema) if found is None else Changes.from_table(found)
        states = self.traces["states"].lookup(touched)
        states = None if states is None else self._latest(states)
        tables = [pending.payload, fresh_keys, fresh_keys.slice(0, 0) if states is None else states]
        (mine, of_fresh, of_states), keys = self.groups.number(*tables)
        both = Changes.concat([pending, fresh])
        group = np.r_[mine, of_fresh[numbers]] if len(pending) else of_fresh[numbers]
        if (both.weight < 0).any():
            numbered = both.with_payload(both.payload.append_column(_GROUP, pa.array(group))).cancelled()
            group = to_numpy(numbered.payload.column(_GROUP))
            both = numbered.with_payload(numbered.payload.drop_columns([_GROUP]))
        tuples = without_prefix(both.payload)
        columns = pa.table({name: evaluate(expr, tuples) for name, expr in self.folds.arguments})
        arrivals = Arrivals.of(both, group, keys.num_rows, self.order, columns)
        return FoldGroups(keys, self.groups.hashes(keys), arrivals, states, of_states)

    def _remember(self, gathered: FoldGroups, result: FoldResult, cti: int) -> None:
        """The states as of the CTI, with the tuples that are wanted again."""
        if cti == INFINITY:
            return
        old_state, old_kept = gathered.states, gathered.kept_counts
        before = np.r_[0, np.cumsum(result.keep)]
        kept = before[gathered.start[1:]] - before[gathered.start[:-1]]
        same = pc.fill_null(pc.equal(old_state, result.states.cast(pa.binary())), False)
        settled = gathered.settle(cti) - gathered.begin
        some = ((settled > 0) | (kept != old_kept) | ~np.asarray(same)) & np.asarray(result.states.is_valid())
        rows = np.flatnonzero(some)
        if len(rows):
            table = gathered.keys.take(pa.array(rows))
            table = table.append_column(STATE, result.states.cast(pa.binary()).take(pa.array(rows)))
            inside = result.keep & np.repeat(some, np.diff(gathered.start))
            offsets = np.r_[0, np.cumsum(kept[rows])]
            values = gathered.merged.filter(pa.array(inside))
            for name in values.column_names:
                elements = values.column(name).combine_chunks()
                elements = pa.concat_arrays(elements.chunks) if isinstance(elements, pa.ChunkedArray) else elements
                table = table.append_column(
                    ARGUMENT + name, Lists(offsets, elements, np.zeros(len(rows), bool)).array()
                )
            le = pa.array(gathered.le[inside])
            table = table.append_column(ARGUMENT + START, Lists(offsets, le, np.zeros(len(rows), bool)).array())
            table = table.append_column(COUNT, pa.array((gathered.counts + settled)[rows]))
            table = table.append_column(_ASOF, pa.array(np.full(len(rows), cti)))
            self.traces["states"].append(table, gathered.hashes[rows], np.full(len(rows), INFINITY))
        self._set("show", gathered, self._next_shown(gathered, result.due), cti)
        if result.alarm is not None:
            self._set("alarms", gathered, result.alarm, cti)

    def _set(self, trace: str, gathered: FoldGroups, time: Int64s, cti: int) -> None:
        rows = np.flatnonzero(time != INFINITY)
        if len(rows):
            table = gathered.keys.take(pa.array(rows)).append_column(_ASOF, pa.array(np.full(len(rows), cti)))
            self.traces[trace].append(table, gathered.hashes[rows], time[rows])

    def _latest(self, table: pa.Table) -> pa.Table:
        """The last row of each group."""
        codes, first = factorize(table.select(self.keys))
        if len(first) == table.num_rows:
            return table
        asof = to_numpy(table.column(_ASOF))
        order = np.lexsort((np.arange(len(codes)), asof, codes))
        last = np.r_[np.diff(codes[order]) != 0, True]
        return table.take(pa.array(np.sort(order[last])))

    # --- what is taken back and what is given ------------------------------------------------------------------------

    def _exchange(
        self, gathered: FoldGroups, result: FoldResult, moves: Bools, moving: Hashes, ends: Changes, cti: int
    ) -> Changes:
        """Outputs of the groups that move for those that were given, and new ends."""
        parts, times = [], np.empty(0, np.int64)
        standing = self.groups.known("given", np.union1d(moving, self.groups.hashes(ends.payload)))
        if standing is not None:
            open_ = standing.le >= self._settled(self.scalars["cti"])
            stale = standing.filter(open_ & np.isin(self.groups.hashes(standing.payload), moving))
            times = np.unique(stale.le)
            parts.append(stale.negated())
            if len(ends):
                before, after = moved_ends(standing.filter(~open_), ends, self.groups.schema.names)
                parts += [before.negated(), after]
        given = self._given(gathered, result, moves)
        # What is settled, and was not given before, need not be remembered.
        last = (given.until <= cti) & ~np.isin(given.time, times) & (given.output >= 0)
        if last.all() and not parts:
            return self._final(gathered, result, given)
        moved = Changes.concat([self._outputs(gathered, result, given.filter(~last)), *parts]).cancelled()
        kept = moved.filter(to_numpy(moved.payload.column(UNTIL)) > cti)
        if len(kept):
            self.traces["given"].append(*self.groups.stamped(kept, UNTIL))
        self.side = self.groups.diverted(
            moved, lambda failures: (f"at {format_ticks(time)}" for time in failures.le.tolist())
        )
        return Changes.concat([self._final(gathered, result, given.filter(last)), self.groups.leaving(moved)])

    def _given(self, gathered: FoldGroups, result: FoldResult, moves: Bools) -> FoldAnswers:
        """What there is to say of the groups that move: outputs, failures, and tuples at which nothing was returned."""
        failed = result.failures
        if failed and self.folds.node.policy.on_error == "fail":
            raise self._failure(gathered, failed[0])
        group = gathered.of(result.row) if result.group is None else result.group
        made = FoldAnswers.outputs(result.row, group, result.time)
        made = made.filter(self._yields(gathered, result.row, group))
        if failed:
            row, of, time = np.array([(f.row, f.group, f.time) for f in failed], np.int64).T
            made = made.with_more(FoldAnswers.failures(row, of, time))
        if self.moves:
            silent = self._silent(gathered, made.row)
            made = made.with_more(FoldAnswers.silences(silent, gathered.of(silent), gathered.le[silent]))
        made = made if moves.all() else made.filter(moves[made.group])
        if not self.moves:
            return replace(made, until=add(made.time, 1))
        end = gathered.arrivals.events.re[gathered.arrivals.order[gathered.place(made.row, made.group)]]
        return replace(made, until=np.where(end == INFINITY, INFINITY, add(end, 1)))

    def _silent(self, gathered: FoldGroups, row: Int64s) -> Int64s:
        """Tuples at which nothing was returned: their ends tell those of equal tuples apart."""
        quiet = np.ones(len(gathered.le), bool)
        quiet[row[row >= 0]] = False
        here = np.arange(len(gathered.le)) >= np.repeat(gathered.begin, np.diff(gathered.start))
        return np.flatnonzero(quiet & here)

    def _final(self, gathered: FoldGroups, result: FoldResult, given: FoldAnswers) -> Changes:
        """Outputs that will not change, as the next operator sees them."""
        events, columns, place = gathered.arrivals.events, [], None
        if self.folds.beside:
            place = gathered.arrivals.order[gathered.place(given.row, given.group)]
            given, place = _as_they_came(given, place, len(events))
        keys = {name: key for key, (name, _) in zip(self.keys, self.folds.node.keys, strict=False)}
        for name in self.node.schema.names:
            if name in self.folds.answers.names:
                columns.append(_taken(result.payload.column(name), given.output))
            elif place is not None and PREFIX + name in events.payload.column_names:
                columns.append(_taken(events.payload.column(PREFIX + name), place))
            else:
                columns.append(gathered.keys.column(keys[name]).take(pa.array(given.group)))
        end = add(given.time, 1) if place is None else events.re[place]
        return Changes.inserts(given.time, end, pa.Table.from_arrays(columns, schema=self.node.schema.arrow))

    def _outputs(self, gathered: FoldGroups, result: FoldResult, given: FoldAnswers) -> Changes:
        """Outputs, failures and what is silent, as they are remembered."""
        table = gathered.keys.take(pa.array(given.group))
        end = add(given.time, 1)
        if self.folds.beside:
            place = gathered.place(given.row, given.group)
            events, rows = gathered.arrivals.events, gathered.arrivals.order[place]
            for name in self.groups.schema.names[len(self.keys) :]:
                table = table.append_column(name, _taken(events.payload.column(name), rows))
            end = events.re[rows]
            if self.moves:
                table = table.append_column(TIE, pa.array(ties(gathered.line)[place]))
        number = pa.array(given.output, mask=given.output < 0)
        for name in result.payload.column_names:
            table = table.append_column(OUT + name, result.payload.column(name).take(number))
        reasons = pa.array([f.reason for f in result.failures], pa.string())
        table = table.append_column(REASON, reasons.take(pa.array(given.failure, mask=given.failure < 0)))
        table = table.append_column(SILENT, pa.array(given.silent))
        return Changes.inserts(given.time, end, table.append_column(UNTIL, pa.array(given.until)))

    def _failure(self, gathered: FoldGroups, failed: FoldFailure) -> ModuleFailed:
        names = [name for name, _ in self.folds.node.keys]
        values = gathered.keys.slice(failed.group, 1).to_pylist()[0].values()
        of = ", ".join(f"{name} = {value!r}" for name, value in zip(names, values, strict=False))
        given = gathered.merged.slice(failed.row, 1).to_pylist() if failed.row >= 0 else "no tuple: one left the window"
        return ModuleFailed(
            f"{', '.join(map(str, self.folds.node.modules))} failed at {format_ticks(failed.time)}"
            + (f" of {of}" if of else "")
            + f": {failed.reason}",
            given=given,
            allowed="what the module can compute",
            instead="mend the module, or on_error='skip' in over(...) to divert such groups",
        )

    # --- progress ----------------------------------------------------------------------------------------------------

    def _promise(self, cti: int) -> int:
        if cti in (INFINITY, NEG_INFINITY):
            return cti
        return min([cti, *self._open_slots(cti)])

    def _open_slots(self, cti: int) -> list[int]:
        """Where the promise waits: at the last tuple before the CTI of each group whose slot is not over."""
        found = self.traces["events"].scan() if isinstance(self.frame.slide, Time) else None
        if found is None:
            return []
        before = Changes.from_table(found).cancelled()
        before = before.filter(before.le < cti)
        codes, first = factorize(before.payload.select(self.keys))
        last = np.full(len(first), NEG_INFINITY, np.int64)
        np.maximum.at(last, codes, before.le)
        return [int(last.min())] if len(last) else []

    def state(self) -> dict[str, Any]:
        found = self.traces["states"].scan()
        kept = 0 if found is None else pc.sum(pc.list_value_length(found.column(ARGUMENT + START))).as_py()
        told = super().state()
        return told | {"rows": told["rows"] + kept}

    def held_by(self) -> str:
        return f"a state a group, and tuples of windows to come; CTI {format_ticks(self.scalars['cti'])}"


def _as_they_came(given: FoldAnswers, place: Int64s, count: int) -> tuple[FoldAnswers, Int64s]:
    """Outputs in the order of their events, if no event has several: their columns are then found where they are."""
    number = np.full(count, -1, np.int64)
    number[place] = np.arange(len(place))
    if (number[place] != np.arange(len(place))).any():
        return given, place
    rows = np.flatnonzero(number >= 0)
    return given.take(number[rows]), rows


def _taken(column: pa.ChunkedArray, rows: Int64s) -> pa.ChunkedArray:
    """Rows of a column; those that follow each other are not copied."""
    if len(rows) == 0 or (np.diff(rows) == 1).all():
        return column.slice(int(rows[0]) if len(rows) else 0, len(rows))
    return column.take(pa.array(rows))
