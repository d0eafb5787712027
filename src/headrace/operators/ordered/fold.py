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
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, Lists, canonical_floats, factorize, group_sum, hash_rows, to_numpy
from headrace.errors import ModuleFailed
from headrace.expr import Expr, col, evaluate, lit
from headrace.modules.folding import FoldFailure, Folding, FoldResult
from headrace.operators.evaluated import evaluated
from headrace.operators.kernel import Data, Kernel, consolidated_rows, names_of
from headrace.operators.ordered.divide import PREFIX, without_prefix
from headrace.operators.ordered.gathered import ARGUMENT, COUNT, START, STATE, Arrivals, FoldAnswers, Groups
from headrace.operators.ordered.line import runs
from headrace.operators.ordered.stepping import Stepping
from headrace.operators.ordered.yields import open_since, slot_end, ties, yields
from headrace.plan.fold import Fold
from headrace.plan.ordered import Frame, Time, Tuples, order_columns
from headrace.plan.per_window import PerWindow
from headrace.plan.source import DIVERTED, diverted_rows
from headrace.progress import Progress
from headrace.schema import Field, Schema
from headrace.time import INFINITY, NEG_INFINITY, add, format_ticks
from headrace.trace import Trace

__all__ = ["FoldKernel", "Folds", "fold_kernel"]

Hashes = NDArray[np.uint64]
_OUT = "out."
_TIE, _UNTIL, _REASON, _SILENT = "__tie", "__until", "__reason", "__silent"
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
        keys = [expr for _, expr in node.keys] or [lit(0)]
        self.keys = [f"key{i}" for i in range(len(keys))]
        self.projection = [*zip(self.keys, keys, strict=True), *((PREFIX + name, col(name)) for name in below.names)]
        self.schema = Schema(tuple(Field(name, expr.type(below)) for name, expr in self.projection))
        self.order = [PREFIX + name for name in order_columns(below)]
        #: Whether the end of a tuple may move once its start is settled, and that of its outputs with it.
        self.moves = folds.beside and not node.input.properties.settled
        latest = {name: Trace(self._latest) for name in ("alarms", "show")}
        latest["states"] = Trace(self._latest, pickled=folding.pickled)
        changes = {name: Trace(consolidated_rows) for name in ("events", "given")}
        self.traces = changes | latest
        self.scalars = {"cti": NEG_INFINITY, "seen": NEG_INFINITY}
        self.seen = NEG_INFINITY
        assert isinstance(node.window, Frame)
        self.frame = node.window

    def column_names(self) -> dict[str, str]:
        return names_of(self.projection)

    # --- one batch ---------------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        delta = self._projected(changes)
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

    def _projected(self, changes: Changes) -> Changes:
        columns = [evaluated(expr, changes.payload, changes.weight) for _, expr in self.projection]
        payload = canonical_floats(pa.Table.from_arrays(columns, schema=self.schema.arrow))
        re = changes.re if self.folds.beside else changes.le + 1
        return Changes(changes.le, re, changes.weight, payload).cancelled()

    def _look(self, delta: Changes, cti: int, seen: int) -> Changes:
        since, upto = self._settled(self.scalars["cti"]), self._settled(cti)
        is_fresh = delta.le >= since
        fresh = delta if is_fresh.all() else delta.filter(is_fresh)
        ends = delta.filter(~is_fresh)
        codes, first = factorize(fresh.payload.select(self.keys))
        keys = fresh.payload.select(self.keys).take(pa.array(first))
        hashes = self._hashes(keys)
        moving = np.unique(np.r_[hashes, self._hashes_of("show", seen)])
        touched = np.unique(np.r_[moving, self._hashes_of("events", upto), self._hashes_of("alarms", upto)])
        if len(touched) == 0 and len(ends) == 0:
            return Changes.empty(self.node.schema)
        groups = self._gathered(touched, fresh, codes, keys)
        result = self.folding.go(groups.work(since, upto, seen))
        self.traces["events"].drop(upto)
        later = fresh.le >= upto
        self.traces["events"].append(fresh.filter(later).to_table(), hashes[codes[later]], add(fresh.le[later], 1))
        self.seen = INFINITY if cti == INFINITY else seen
        self._remember(groups, result, upto)
        return self._exchange(groups, result, np.isin(groups.hashes, moving), moving, ends, upto)

    def _settled(self, cti: int) -> int:
        """Up to when nothing changes any more but ends: under a slide of time, slots are settled as a whole."""
        return open_since(self.frame, cti)

    def _yields(self, groups: Groups, row: Int64s, group: Int64s) -> Bools:
        """Which outputs count: under a slide, those of the last tuple of each slot."""
        slide = self.frame.slide
        if slide is None:
            return np.ones(len(row), bool)
        if isinstance(slide, Tuples):
            number: Int64s = groups.counts[group] + row - groups.begin[group] + 1
            return np.asarray(number % slide.count == 0)
        return yields(self.frame, groups.line, self.seen)[groups.place(row, group)]

    def _next_shown(self, groups: Groups, due: Int64s) -> Int64s:
        if not isinstance(self.frame.slide, Time):
            return due
        end = slot_end(self.frame.slide, groups.arrivals.le)
        later = end > self.seen
        due = due.copy()
        np.minimum.at(due, groups.arrivals.group[later], end[later])
        return due

    def _hashes(self, table: pa.Table) -> Hashes:
        return hash_rows(table.select(self.keys))

    def _hashes_of(self, trace: str, time: int) -> Hashes:
        found = self.traces[trace].until(time)
        return np.empty(0, np.uint64) if found is None else np.unique(self._hashes(found))

    # --- the groups to look at ---------------------------------------------------------------------------------------

    def _gathered(self, touched: Hashes, fresh: Changes, numbers: Int64s, fresh_keys: pa.Table) -> Groups:
        """The groups, of which the fresh tuples have these keys and are numbered by them."""
        found = self.traces["events"].lookup(touched)
        pending = Changes.empty(self.schema) if found is None else Changes.from_table(found)
        states = self.traces["states"].lookup(touched)
        states = None if states is None else self._latest(states)
        tables = [
            pending.payload.select(self.keys),
            fresh_keys,
            *([] if states is None else [states.select(self.keys)]),
        ]
        whole = pa.concat_tables(tables)
        codes, first = factorize(whole)
        keys = whole.take(pa.array(first))
        mine, of_fresh, of_states = np.split(codes, [len(pending), len(pending) + fresh_keys.num_rows])
        both = Changes.concat([pending, fresh])
        group = np.r_[mine, of_fresh[numbers]] if len(pending) else of_fresh[numbers]
        if (both.weight < 0).any():
            numbered = both.with_payload(both.payload.append_column(_GROUP, pa.array(group))).cancelled()
            group = to_numpy(numbered.payload.column(_GROUP))
            both = numbered.with_payload(numbered.payload.drop_columns([_GROUP]))
        tuples = without_prefix(both.payload)
        columns = pa.table({name: evaluate(expr, tuples) for name, expr in self.folds.arguments})
        arrivals = Arrivals.of(both, group, len(first), self.order, columns)
        return Groups(keys, self._hashes(keys), arrivals, states, of_states)

    def _remember(self, groups: Groups, result: FoldResult, cti: int) -> None:
        """The states as of the CTI, with the tuples that are wanted again."""
        if cti == INFINITY:
            return
        old_state, old_kept = groups.states, groups.kept_counts
        before = np.r_[0, np.cumsum(result.keep)]
        kept = before[groups.start[1:]] - before[groups.start[:-1]]
        same = pc.fill_null(pc.equal(old_state, result.states.cast(pa.binary())), False)
        settled = groups.settle(cti) - groups.begin
        some = ((settled > 0) | (kept != old_kept) | ~np.asarray(same)) & np.asarray(result.states.is_valid())
        rows = np.flatnonzero(some)
        if len(rows):
            table = groups.keys.take(pa.array(rows))
            table = table.append_column(STATE, result.states.cast(pa.binary()).take(pa.array(rows)))
            inside = result.keep & np.repeat(some, np.diff(groups.start))
            offsets = np.r_[0, np.cumsum(kept[rows])]
            values = groups.merged.filter(pa.array(inside))
            for name in values.column_names:
                elements = values.column(name).combine_chunks()
                elements = pa.concat_arrays(elements.chunks) if isinstance(elements, pa.ChunkedArray) else elements
                table = table.append_column(
                    ARGUMENT + name, Lists(offsets, elements, np.zeros(len(rows), bool)).array()
                )
            le = pa.array(groups.le[inside])
            table = table.append_column(ARGUMENT + START, Lists(offsets, le, np.zeros(len(rows), bool)).array())
            table = table.append_column(COUNT, pa.array((groups.counts + settled)[rows]))
            table = table.append_column(_ASOF, pa.array(np.full(len(rows), cti)))
            self.traces["states"].append(table, groups.hashes[rows], np.full(len(rows), INFINITY))
        self._set("show", groups, self._next_shown(groups, result.due), cti)
        if result.alarm is not None:
            self._set("alarms", groups, result.alarm, cti)

    def _set(self, trace: str, groups: Groups, time: Int64s, cti: int) -> None:
        rows = np.flatnonzero(time != INFINITY)
        if len(rows):
            table = groups.keys.take(pa.array(rows)).append_column(_ASOF, pa.array(np.full(len(rows), cti)))
            self.traces[trace].append(table, groups.hashes[rows], time[rows])

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
        self, groups: Groups, result: FoldResult, moves: Bools, moving: Hashes, ends: Changes, cti: int
    ) -> Changes:
        """Outputs of the groups that move for those that were given, and new ends."""
        parts, times = [], np.empty(0, np.int64)
        found = self.traces["given"].lookup(np.unique(np.r_[moving, self._hashes(ends.payload)]))
        if found is not None:
            standing = Changes.from_table(found).cancelled()
            open_ = standing.le >= self._settled(self.scalars["cti"])
            stale = standing.filter(open_ & np.isin(self._hashes(standing.payload), moving))
            times = np.unique(stale.le)
            parts.append(Changes(stale.le, stale.re, -stale.weight, stale.payload))
            if len(ends):
                parts += _moved(standing.filter(~open_), ends, self.schema.names)
        given = self._given(groups, result, moves)
        # What is settled, and was not given before, need not be remembered.
        last = (given.until <= cti) & ~np.isin(given.time, times) & (given.output >= 0)
        if last.all() and not parts:
            return self._final(groups, result, given)
        moved = Changes.concat([self._outputs(groups, result, given.filter(~last)), *parts]).cancelled()
        until = to_numpy(moved.payload.column(_UNTIL))
        kept = moved.filter(until > cti)
        if len(kept):
            self.traces["given"].append(kept.to_table(), self._hashes(kept.payload), until[until > cti])
        return Changes.concat([self._final(groups, result, given.filter(last)), self._leaving(moved)])

    def _given(self, groups: Groups, result: FoldResult, moves: Bools) -> FoldAnswers:
        """What there is to say of the groups that move: outputs, failures, and tuples at which nothing was returned."""
        failed = result.failures
        if failed and self.folds.node.policy.on_error == "fail":
            raise self._failure(groups, failed[0])
        group = groups.of(result.row) if result.group is None else result.group
        made = FoldAnswers.outputs(result.row, group, result.time)
        made = made.filter(self._yields(groups, result.row, group))
        if failed:
            row, of, time = np.array([(f.row, f.group, f.time) for f in failed], np.int64).T
            made = made.with_more(FoldAnswers.failures(row, of, time))
        if self.moves:
            silent = self._silent(groups, made.row)
            made = made.with_more(FoldAnswers.silences(silent, groups.of(silent), groups.le[silent]))
        made = made if moves.all() else made.filter(moves[made.group])
        if not self.moves:
            return replace(made, until=add(made.time, 1))
        end = groups.arrivals.events.re[groups.arrivals.order[groups.place(made.row, made.group)]]
        return replace(made, until=np.where(end == INFINITY, INFINITY, add(end, 1)))

    def _silent(self, groups: Groups, row: Int64s) -> Int64s:
        """Tuples at which nothing was returned: their ends tell those of equal tuples apart."""
        quiet = np.ones(len(groups.le), bool)
        quiet[row[row >= 0]] = False
        here = np.arange(len(groups.le)) >= np.repeat(groups.begin, np.diff(groups.start))
        return np.flatnonzero(quiet & here)

    def _final(self, groups: Groups, result: FoldResult, given: FoldAnswers) -> Changes:
        """Outputs that will not change, as the next operator sees them."""
        events, columns, place = groups.arrivals.events, [], None
        if self.folds.beside:
            place = groups.arrivals.order[groups.place(given.row, given.group)]
            given, place = _as_they_came(given, place, len(events))
        keys = {name: key for key, (name, _) in zip(self.keys, self.folds.node.keys, strict=False)}
        for name in self.node.schema.names:
            if name in self.folds.answers.names:
                columns.append(_taken(result.payload.column(name), given.output))
            elif place is not None and PREFIX + name in events.payload.column_names:
                columns.append(_taken(events.payload.column(PREFIX + name), place))
            else:
                columns.append(groups.keys.column(keys[name]).take(pa.array(given.group)))
        end = add(given.time, 1) if place is None else events.re[place]
        return Changes.inserts(given.time, end, pa.Table.from_arrays(columns, schema=self.node.schema.arrow))

    def _outputs(self, groups: Groups, result: FoldResult, given: FoldAnswers) -> Changes:
        """Outputs, failures and what is silent, as they are remembered."""
        table = groups.keys.take(pa.array(given.group))
        end = add(given.time, 1)
        if self.folds.beside:
            place = groups.place(given.row, given.group)
            events, rows = groups.arrivals.events, groups.arrivals.order[place]
            for name in self.schema.names[len(self.keys) :]:
                table = table.append_column(name, _taken(events.payload.column(name), rows))
            end = events.re[rows]
            if self.moves:
                table = table.append_column(_TIE, pa.array(ties(groups.line)[place]))
        number = pa.array(given.output, mask=given.output < 0)
        for name in result.payload.column_names:
            table = table.append_column(_OUT + name, result.payload.column(name).take(number))
        reasons = pa.array([f.reason for f in result.failures], pa.string())
        table = table.append_column(_REASON, reasons.take(pa.array(given.failure, mask=given.failure < 0)))
        table = table.append_column(_SILENT, pa.array(given.silent))
        return Changes.inserts(given.time, end, table.append_column(_UNTIL, pa.array(given.until)))

    def _leaving(self, moved: Changes) -> Changes:
        """The changes as the next operator sees them; failures go to the side stream."""
        good = np.asarray(moved.payload.column(_REASON).is_null())
        if not good.all():
            self.side = self._diverted(moved.filter(~good))
        good &= ~np.asarray(moved.payload.column(_SILENT))
        if not good.all():
            moved = moved.filter(good)
        there = moved.payload.column_names
        mine = {name: key for key, (name, _) in zip(self.keys, self.folds.node.keys, strict=False)}
        answers = self.folds.answers.names
        names = [
            _OUT + name if name in answers else PREFIX + name if PREFIX + name in there else mine[name]
            for name in self.node.schema.names
        ]
        payload = pa.Table.from_arrays([moved.payload.column(n) for n in names], schema=self.node.schema.arrow)
        return Changes(moved.le, moved.re, moved.weight, payload).cancelled()

    def _failure(self, groups: Groups, failed: FoldFailure) -> ModuleFailed:
        names = [name for name, _ in self.folds.node.keys]
        values = groups.keys.slice(failed.group, 1).to_pylist()[0].values()
        of = ", ".join(f"{name} = {value!r}" for name, value in zip(names, values, strict=False))
        given = groups.merged.slice(failed.row, 1).to_pylist() if failed.row >= 0 else "no tuple: one left the window"
        return ModuleFailed(
            f"{', '.join(map(str, self.folds.node.modules))} failed at {format_ticks(failed.time)}"
            + (f" of {of}" if of else "")
            + f": {failed.reason}",
            given=given,
            allowed="what the module can compute",
            instead="mend the module, or on_error='skip' in over(...) to divert such groups",
        )

    def _diverted(self, failures: Changes) -> Changes:
        who = ", ".join(map(str, self.folds.node.modules))
        names = [name for name, _ in self.folds.node.keys]
        keys = [dict(zip(names, row.values(), strict=False)) for row in failures.payload.select(self.keys).to_pylist()]
        rows = [
            f"at {format_ticks(time)}" + "".join(f", {k} = {v!r}" for k, v in key.items())
            for time, key in zip(failures.le.tolist(), keys, strict=True)
        ]
        payload = diverted_rows(who, failures.payload.column(_REASON), rows)
        return Changes(failures.le, failures.re, failures.weight, payload).cancelled()

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


def _moved(standing: Changes, delta: Changes, columns: Sequence[str]) -> list[Changes]:
    """Outputs of settled tuples whose ends move: as they were, taken back, and as they are.

    Of tuples that are equal but for their ends, the first ends first; the outputs of a tuple end together.
    """
    tables = [x.payload.select(columns).append_column(START, pa.array(x.le)) for x in (standing, delta)]
    codes, _ = factorize(pa.concat_tables(tables))
    mine, theirs = codes[: len(standing)], codes[len(standing) :]
    involved = np.isin(mine, theirs)
    old, mine = standing.filter(involved), mine[involved]
    order = np.lexsort((to_numpy(old.payload.column(_TIE)), mine))
    old, mine = old.take(order), mine[order]
    heads = runs(mine, to_numpy(old.payload.column(_TIE)))
    known = np.isin(theirs, mine)
    ends, of = np.r_[old.re[heads], delta.re[known]], np.r_[mine[heads], theirs[known]]
    place, first = factorize(pa.table({"of": of, "end": ends}))
    weight = group_sum(place, np.r_[np.ones(len(heads), np.int64), delta.weight[known]], len(first))
    again = np.repeat(first, np.maximum(weight, 0))
    again = again[np.lexsort((ends[again], of[again]))]
    assert len(again) == len(heads), "an end moves of a tuple that is not known"
    re = np.repeat(ends[again], np.diff(np.r_[heads, len(old)]))
    until = pa.array(np.where(re == INFINITY, INFINITY, add(re, 1)))
    payload = old.payload.set_column(old.payload.schema.get_field_index(_UNTIL), _UNTIL, until)
    return [Changes(old.le, old.re, -old.weight, old.payload), Changes(old.le, re, old.weight, payload)]
