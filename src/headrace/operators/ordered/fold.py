"""The kernel of folds: states as of the CTI, and outputs that may still change (rule 7.6).

Traces carry the state:

- `events`: the tuples that are not before the CTI;
- `states`: a row per group, with the state as of a CTI and the tuples of its window that are before that CTI, as
  lists. A later row of a group replaces earlier ones;
- `given`: the outputs that may change: those not before the CTI, and those whose tuple may still change its end;
- `alarms` and `show`: when a group without new tuples is due: a CTI, and a time m (rule 5.3).

When a tuple comes or goes, the fold goes from the state through the group's tuples that are not before the CTI.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, Lists, factorize, to_numpy
from headrace.errors import CheckpointError, ModuleFailed
from headrace.expr import Expr, col, evaluate
from headrace.modules.folding import FoldFailure, Folding, FoldResult
from headrace.operators.groups import OUT, PREFIX, REASON, SILENT, UNTIL, Groups, Hashes
from headrace.operators.kernel import Data, Kernel, SavedTraces, consolidated_rows, expression_texts
from headrace.operators.ordered.divide import without_prefix
from headrace.operators.ordered.fold_groups import ARGUMENT, COUNT, START, STATE, Arrivals, FoldAnswers, FoldGroups
from headrace.operators.ordered.stepping import Stepping
from headrace.operators.ordered.yields import TIE, moved_ends, open_since, slot_end, ties, yields
from headrace.plan.fold import Fold
from headrace.plan.ordered import Frame, Time, Tuples, order_columns
from headrace.plan.per_window import PerWindow
from headrace.plan.source import DIVERTED
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.time import INFINITY, NEG_INFINITY, add
from headrace.trace import Segment, Trace

__all__ = ["FoldKernel", "Folds", "fold_kernel"]

_ASOF, _GROUP = "__asof", "__group"


@dataclass(frozen=True)
class Folds:
    """The fold of a node."""

    node: PerWindow
    #: The arguments of each tuple, under the fold's names for them.
    arguments: tuple[tuple[str, Expr], ...]
    #: The columns of the fold's answers.
    answers: Schema
    #: Whether an output has the columns and lifetime of its tuple; else it has the keys, and is an instant.
    beside: bool


def fold_kernel(node: Fold) -> FoldKernel:
    """The kernel of a module that runs from tuple to tuple."""
    below = node.input.schema
    pairs = zip(node.mapping, node.module.fields, strict=True)
    arguments = [expr if expr.type(below) is field.type else expr.cast(field.type) for (_, expr), field in pairs]
    named = tuple(zip(node.module.fields.names, arguments, strict=True))
    native = node.folder.folding(node.frame, node.answers, active=node.active)
    return FoldKernel(Folds(node, named, node.answers, beside=not node.active), native or Stepping(node))


class FoldKernel(Kernel):
    """Outputs of a fold, given early and corrected."""

    divisible = True

    def __init__(self, folds: Folds, folding: Folding) -> None:
        super().__init__(folds.node)
        self.folds, self.folding = folds, folding
        node, below = folds.node, folds.node.input.schema
        self.order = [PREFIX + name for name in order_columns(below)]
        #: Whether the end of a tuple, and of its outputs, may move after its start is settled.
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

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        if "states" not in traces:  # aggregates over frames ran in another kernel
            raise CheckpointError(
                f"the state of {self.node.describe()} is of an earlier version of Headrace",
                given=f"the traces {', '.join(traces)}",
                allowed=f"the traces {', '.join(self.traces)}",
                instead="a new checkpoint, or the version that wrote this one",
            )
        super().restore(scalars, traces, held)

    # --- one batch ---------------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        delta = self.groups.project(changes, changes.re if self.folds.beside else changes.le + 1).cancelled()
        cti = max(now.cti, self.scalars["cti"])
        seen = max(now.seen, self.scalars["seen"])
        self.side = Changes.empty(DIVERTED)
        result = self._recompute(delta, cti, seen)
        upto = self._settled(cti)
        for name in ("events", "given", "alarms", "states"):
            self.traces[name].drop(upto)
        self.traces["show"].drop(seen)
        self.scalars = {"cti": cti, "seen": seen}
        return result, Progress(self._promise(cti), now.high)

    def _recompute(self, delta: Changes, cti: int, seen: int) -> Changes:
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
        fold_groups = self._gather(touched, fresh, codes, keys)
        result = self.folding.go(fold_groups.work(since, upto, seen))
        self.traces["events"].drop(upto)
        later = fresh.le >= upto
        self.traces["events"].append(fresh.filter(later).to_table(), hashes[codes[later]], add(fresh.le[later], 1))
        self.seen = INFINITY if cti == INFINITY else seen
        self._remember(fold_groups, result, upto)
        return self._exchange(fold_groups, result, np.isin(fold_groups.hashes, moving), moving, ends, upto)

    def _settled(self, cti: int) -> int:
        """The time before which only ends change; under a slide of time, a slot is settled as a whole."""
        return open_since(self.frame, cti)

    def _yields(self, fold_groups: FoldGroups, row: Int64s, group: Int64s) -> Bools:
        """Which outputs count: under a slide, those of the last tuple of each slot."""
        slide = self.frame.slide
        if slide is None:
            return np.ones(len(row), bool)
        if isinstance(slide, Tuples):
            number: Int64s = fold_groups.counts[group] + row - fold_groups.begin[group] + 1
            return np.asarray(number % slide.count == 0)
        return yields(self.frame, fold_groups.ordered, self.seen)[fold_groups.place(row, group)]

    def _next_shown(self, fold_groups: FoldGroups, due: Int64s) -> Int64s:
        if not isinstance(self.frame.slide, Time):
            return due
        end = slot_end(self.frame.slide, fold_groups.arrivals.le)
        later = end > self.seen
        due = due.copy()
        np.minimum.at(due, fold_groups.arrivals.group[later], end[later])
        return due

    # --- the groups to look at ---------------------------------------------------------------------------------------

    def _gather(self, touched: Hashes, fresh: Changes, numbers: Int64s, fresh_keys: pa.Table) -> FoldGroups:
        """The touched groups. `fresh_keys` are the keys of the fresh tuples, and `numbers` the key of each."""
        rows = self.traces["events"].lookup(touched)
        pending = Changes.empty(self.groups.schema) if rows is None else Changes.from_table(rows)
        states = self.traces["states"].lookup(touched)
        states = None if states is None else self._latest(states)
        tables = [pending.payload, fresh_keys, fresh_keys.slice(0, 0) if states is None else states]
        (of_pending, of_fresh, of_states), keys = self.groups.number(*tables)
        both = Changes.concat([pending, fresh])
        group = np.r_[of_pending, of_fresh[numbers]] if len(pending) else of_fresh[numbers]
        if (both.weight < 0).any():
            numbered = both.with_payload(both.payload.append_column(_GROUP, pa.array(group))).cancelled()
            group = to_numpy(numbered.payload.column(_GROUP))
            both = numbered.with_payload(numbered.payload.drop_columns([_GROUP]))
        tuples = without_prefix(both.payload)
        columns = pa.table({name: evaluate(expr, tuples) for name, expr in self.folds.arguments})
        arrivals = Arrivals.of(both, group, keys.num_rows, self.order, columns)
        return FoldGroups(keys, self.groups.hashes(keys), arrivals, states, of_states)

    def _remember(self, fold_groups: FoldGroups, result: FoldResult, cti: int) -> None:
        """Store the states as of the CTI, with the tuples that are needed again."""
        if cti == INFINITY:
            return
        old_state, old_kept = fold_groups.states, fold_groups.kept_counts
        before = np.r_[0, np.cumsum(result.keep)]
        kept = before[fold_groups.start[1:]] - before[fold_groups.start[:-1]]
        same = pc.fill_null(pc.equal(old_state, result.states.cast(pa.binary())), False)
        settled = fold_groups.settle(cti) - fold_groups.begin
        some = ((settled > 0) | (kept != old_kept) | ~np.asarray(same)) & np.asarray(result.states.is_valid())
        rows = np.flatnonzero(some)
        if len(rows):
            table = fold_groups.keys.take(pa.array(rows))
            table = table.append_column(STATE, result.states.cast(pa.binary()).take(pa.array(rows)))
            inside = result.keep & np.repeat(some, np.diff(fold_groups.start))
            offsets = np.r_[0, np.cumsum(kept[rows])]
            values = fold_groups.merged.filter(pa.array(inside))
            if result.kept is not None:
                values = result.kept.filter(pa.array(inside[result.keep]))
            for name in values.column_names:
                elements = values.column(name).combine_chunks()
                elements = pa.concat_arrays(elements.chunks) if isinstance(elements, pa.ChunkedArray) else elements
                table = table.append_column(
                    ARGUMENT + name, Lists(offsets, elements, np.zeros(len(rows), bool)).array()
                )
            le = pa.array(fold_groups.le[inside])
            table = table.append_column(ARGUMENT + START, Lists(offsets, le, np.zeros(len(rows), bool)).array())
            table = table.append_column(COUNT, pa.array((fold_groups.counts + settled)[rows]))
            table = table.append_column(_ASOF, pa.array(np.full(len(rows), cti)))
            until = np.full(len(rows), INFINITY) if result.until is None else result.until[rows]
            self.traces["states"].append(table, fold_groups.hashes[rows], until)
        self._set("show", fold_groups, self._next_shown(fold_groups, result.due), cti)
        if result.alarm is not None:
            self._set("alarms", fold_groups, result.alarm, cti)

    def _set(self, trace: str, fold_groups: FoldGroups, time: Int64s, cti: int) -> None:
        rows = np.flatnonzero(time != INFINITY)
        if len(rows):
            table = fold_groups.keys.take(pa.array(rows)).append_column(_ASOF, pa.array(np.full(len(rows), cti)))
            self.traces[trace].append(table, fold_groups.hashes[rows], time[rows])

    def _latest(self, table: pa.Table) -> pa.Table:
        """The last row of each group."""
        codes, first = factorize(table.select(self.keys))
        if len(first) == table.num_rows:
            return table
        asof = to_numpy(table.column(_ASOF))
        order = np.lexsort((np.arange(len(codes)), asof, codes))
        last = np.r_[np.diff(codes[order]) != 0, True]
        return table.take(pa.array(np.sort(order[last])))

    # --- old and new outputs -----------------------------------------------------------------------------------------

    def _exchange(
        self, fold_groups: FoldGroups, result: FoldResult, moves: Bools, moving: Hashes, ends: Changes, cti: int
    ) -> Changes:
        """Replace the outputs of the groups that move, and move ends."""
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
        answers = self._answers(fold_groups, result, moves)
        # A settled output that replaces nothing need not be stored.
        last = (answers.until <= cti) & ~np.isin(answers.time, times) & (answers.output >= 0)
        if last.all() and not parts:
            return self._final(fold_groups, result, answers)
        moved = Changes.concat([self._outputs(fold_groups, result, answers.filter(~last)), *parts]).cancelled()
        kept = moved.filter(to_numpy(moved.payload.column(UNTIL)) > cti)
        if len(kept):
            self.traces["given"].append(*self.groups.stamped(kept, UNTIL))
        self.side = self.groups.diverted(
            moved, lambda failures: (f"at {self.time_text(time)}" for time in failures.le.tolist())
        )
        return Changes.concat([self._final(fold_groups, result, answers.filter(last)), self.groups.leaving(moved)])

    def _answers(self, fold_groups: FoldGroups, result: FoldResult, moves: Bools) -> FoldAnswers:
        """The answers of the groups that move: outputs, failures, and silences."""
        failed = result.failures
        if failed and self.folds.node.policy.on_error == "fail":
            raise self._failure(fold_groups, failed[0])
        group = fold_groups.of(result.row) if result.group is None else result.group
        answers = FoldAnswers.outputs(result.row, group, result.time)
        answers = answers.filter(self._yields(fold_groups, result.row, group))
        if failed:
            row, of, time = np.array([(f.row, f.group, f.time) for f in failed], np.int64).T
            answers = answers.concat(FoldAnswers.failures(row, of, time))
        if self.moves:
            silent = fold_groups.equal_to(answers.row)
            if len(silent):
                answers = answers.concat(FoldAnswers.silences(silent, fold_groups.of(silent), fold_groups.le[silent]))
        answers = answers if moves.all() else answers.filter(moves[answers.group])
        if not self.moves:
            return replace(answers, until=add(answers.time, 1))
        end = fold_groups.arrivals.events.re[fold_groups.arrivals.order[fold_groups.place(answers.row, answers.group)]]
        return replace(answers, until=np.where(end == INFINITY, INFINITY, add(end, 1)))

    def _final(self, fold_groups: FoldGroups, result: FoldResult, answers: FoldAnswers) -> Changes:
        """Outputs that will not change, as the next operator sees them."""
        events, columns, place = fold_groups.arrivals.events, [], None
        group, output, time = answers.group, answers.output, answers.time
        if self.folds.beside:
            place = fold_groups.arrivals.order[fold_groups.place(answers.row, answers.group)]
            number, place = _in_event_order(place, len(events))
            group, output, time = (column if number is None else column[number] for column in (group, output, time))
        keys = {name: key for key, (name, _) in zip(self.keys, self.folds.node.keys, strict=False)}
        for name in self.node.schema.names:
            if name in self.folds.answers.names:
                columns.append(_take(result.payload.column(name), output))
            elif place is not None and PREFIX + name in events.payload.column_names:
                columns.append(_take(events.payload.column(PREFIX + name), place))
            else:
                columns.append(fold_groups.keys.column(keys[name]).take(pa.array(group)))
        end = add(time, 1) if place is None else events.re[place]
        return Changes.inserts(time, end, pa.Table.from_arrays(columns, schema=self.node.schema.arrow))

    def _outputs(self, fold_groups: FoldGroups, result: FoldResult, answers: FoldAnswers) -> Changes:
        """Outputs, failures and silences, as a trace keeps them."""
        table = fold_groups.keys.take(pa.array(answers.group))
        end = add(answers.time, 1)
        if self.folds.beside:
            place = fold_groups.place(answers.row, answers.group)
            events, rows = fold_groups.arrivals.events, fold_groups.arrivals.order[place]
            for name in self.groups.schema.names[len(self.keys) :]:
                table = table.append_column(name, _take(events.payload.column(name), rows))
            end = events.re[rows]
            if self.moves:
                table = table.append_column(TIE, pa.array(ties(fold_groups.ordered)[place]))
        number = pa.array(answers.output, mask=answers.output < 0)
        for name in result.payload.column_names:
            table = table.append_column(OUT + name, result.payload.column(name).take(number))
        reasons = pa.array([f.reason for f in result.failures], pa.string())
        table = table.append_column(REASON, reasons.take(pa.array(answers.failure, mask=answers.failure < 0)))
        table = table.append_column(SILENT, pa.array(answers.silent))
        return Changes.inserts(answers.time, end, table.append_column(UNTIL, pa.array(answers.until)))

    def _failure(self, fold_groups: FoldGroups, failed: FoldFailure) -> ModuleFailed:
        names = [name for name, _ in self.folds.node.keys]
        values = fold_groups.keys.slice(failed.group, 1).to_pylist()[0].values()
        of = ", ".join(f"{name} = {value!r}" for name, value in zip(names, values, strict=False))
        given = (
            fold_groups.merged.slice(failed.row, 1).to_pylist() if failed.row >= 0 else "no tuple: one left the window"
        )
        return ModuleFailed(
            f"{', '.join(map(str, self.folds.node.modules))} failed at {self.time_text(failed.time)}"
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
        """The times at which the promise waits: the last tuple before the CTI of each group with an open slot."""
        rows = self.traces["events"].scan() if isinstance(self.frame.slide, Time) else None
        if rows is None:
            return []
        before = Changes.from_table(rows).cancelled()
        before = before.filter(before.le < cti)
        codes, first = factorize(before.payload.select(self.keys))
        last = np.full(len(first), NEG_INFINITY, np.int64)
        np.maximum.at(last, codes, before.le)
        return [int(last.min())] if len(last) else []

    def state(self) -> dict[str, Any]:
        rows = self.traces["states"].scan()
        kept = 0 if rows is None else pc.sum(pc.list_value_length(rows.column(ARGUMENT + START))).as_py()
        state = super().state()
        return state | {"rows": state["rows"] + kept}

    def held_by(self) -> str:
        return f"a state a group, and tuples of windows to come; CTI {self.time_text(self.scalars['cti'])}"


def _in_event_order(place: Int64s, count: int) -> tuple[Int64s | None, Int64s]:
    """The order of outputs by their events, so that columns need no copy, and the events; unless one has several."""
    number = np.full(count, -1, np.int64)
    number[place] = np.arange(len(place))
    rows = np.flatnonzero(number >= 0)
    return (number[rows], rows) if len(rows) == len(place) else (None, place)


def _take(column: pa.ChunkedArray, rows: Int64s) -> pa.ChunkedArray:
    """Rows of a column; consecutive rows are not copied."""
    if len(rows) == 0 or (np.diff(rows) == 1).all():
        return column.slice(int(rows[0]) if len(rows) else 0, len(rows))
    return column.take(pa.array(rows))
