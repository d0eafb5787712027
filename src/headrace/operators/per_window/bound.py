"""Outputs that are bound in time: a change of the input changes the output at or after its sync time (rule 6.3).

The output CTI is then the input's, whichever windows are open. So the kernel checks a module's outputs before they
leave.

**Causes.** A batch is a bag of changes, without an order of arrival. The kernel takes them in the order of their sync
times, as if each came in a batch of its own: first those at the earliest time, then the next. At each step it compares
the module's outputs with the earlier ones, window by window. They may differ only at or after the earliest cause that
touches the window. Where windows depend on events (snapshot, count, session) a cause may change their borders, so all
windows of the group are compared together. The check of a stream in order therefore does not depend on how it is cut
into batches; a stream out of order is checked as if the events of a batch came in order. Groups, and grid windows that
share no event, have steps of their own, which run side by side.

**Cost.** A module is called for every distinct sync time in a window, as if events came one by one. If a batch has more
than `MOST_STEPS` of them in one place, it is taken in that many steps, each of neighbouring times and checked against
the earliest. In either case the outputs never break the output CTI.

**Breach.** It stops the query, or under `on_error="skip"` is diverted and counted. The window then keeps its outputs
from before the cause, cut there, because they are promised; later outputs are left out until a correction makes them
agree again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, canonical_floats, factorize, to_numpy
from headrace.errors import ModuleFailed
from headrace.expr import evaluate
from headrace.operators.groups import OUT, REASON, UNTIL, number_rows
from headrace.operators.kernel import Data
from headrace.operators.per_window.divide import GroupedLifetimes, Windows, pairs
from headrace.operators.per_window.kernel import WindowKernel
from headrace.operators.per_window.rows import WLE, WRE, with_window_columns
from headrace.plan.nodes import PerWindow
from headrace.plan.windows import Grid
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY, format_ticks

__all__ = ["MOST_STEPS", "BoundWindowKernel"]

#: The most steps in which the changes of one batch are taken.
MOST_STEPS = 100


@dataclass(frozen=True)
class _Causes:
    """The changes of one step, with their sync times and the keys of their groups."""

    changes: Changes
    sync: Int64s
    keys: pa.Table


@dataclass(frozen=True)
class _Breach:
    """Changes of outputs, each with the time at which it takes effect and the earliest time allowed."""

    moved: Changes
    sync: Int64s
    cause: Int64s

    @property
    def early(self) -> Bools:
        return self.sync < self.cause


class BoundWindowKernel(WindowKernel):
    """Outputs per group and window that change only at or after the cause."""

    def __init__(self, node: PerWindow) -> None:
        super().__init__(node)
        self._causes: _Causes | None = None

    # --- steps -------------------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        if len(changes) == 0:
            return super().step(inputs, progress)
        # Windows that have begun come first: their outputs are later than all times seen. The CTI comes last.
        before = Progress(self.scalars["cti"], now.high)
        nothing = Changes.empty(self.per_window.input.schema)
        results: list[Changes] = []
        sides: list[Changes | None] = []
        for causes in [None, *self._in_order(changes.consolidate()), None]:
            self._causes, done = causes, causes is None and bool(results)
            part = nothing if causes is None else causes.changes
            result, reached = super().step([part], [now if done else before])
            results.append(result)
            sides.append(self.side)
        self.side = Changes.concat([side for side in sides if side is not None]).cancelled()
        return Changes.concat(results).cancelled(), reached

    def _in_order(self, changes: Changes) -> Iterator[_Causes]:
        """The changes in the order of their sync times."""
        pieces, sync = changes.pieces()
        columns = [evaluate(expr, pieces.payload) for name, expr in self.groups.projection if name in self.keys]
        keys = canonical_floats(pa.table(columns, names=self.keys))
        step = _ranked(self._places(pieces, factorize(keys)[0]), sync)
        for number in range(int(step.max(initial=-1)) + 1):
            some = step == number
            yield _Causes(pieces.filter(some), sync[some], keys.filter(pa.array(some)))

    def _places(self, changes: Changes, group: Int64s) -> Int64s:
        """A number for each change; changes that share a window have the same."""
        if not isinstance(self.window, Grid):
            return group
        first, last = self.window.first(changes.le), self.window.last(changes.le, changes.re)
        starts = np.unique(first)
        begin = np.searchsorted(starts, first)
        end = np.maximum(begin, np.searchsorted(starts, last, "right") - 1)
        order = np.lexsort((begin, group))
        offset = group[order] * (len(starts) + 1)
        reach = np.maximum.accumulate(offset + end[order])
        apart = np.r_[True, offset[1:] + begin[order][1:] > reach[:-1]]
        place = np.empty(len(order), np.int64)
        place[order] = np.cumsum(apart)
        return place

    # --- the check ---------------------------------------------------------------------------------------------------

    def _admit(
        self, stale: Changes | None, fresh: Changes, windows: Windows, closing: Int64s, keys: pa.Table
    ) -> Changes:
        standing = fresh.filter(np.zeros(len(fresh), bool)) if stale is None else stale
        if self._causes is None:  # time alone shows grid windows; other windows stay
            return fresh if isinstance(self.window, Grid) else standing
        breach = self._compare(_without_failures(standing), _without_failures(fresh), self._causes)
        if not breach.early.any():
            return fresh
        if self.per_window.policy.on_error == "fail":
            raise self._error(breach, Changes.concat([fresh, standing]))
        alive = with_window_columns(keys.take(pa.array(windows.group)), windows, closing)
        return self._settle_breach(breach, standing, fresh, alive)

    @property
    def _unit(self) -> list[str]:
        """The columns of the unit of comparison: a window, or a group if its windows depend on each other."""
        return [*self.keys, WLE, WRE] if isinstance(self.window, Grid) else self.keys

    def _compare(self, standing: Changes, fresh: Changes, causes: _Causes) -> _Breach:
        names = [*self._unit, *(name for name in fresh.payload.column_names if name.startswith(OUT))]
        old, new = (x.with_payload(x.payload.select(names)) for x in (standing, fresh))
        moved, sync = Changes.concat([old.negated(), new]).consolidate().pieces()
        (of_causes, of_moved), _ = self.groups.number(causes.keys, moved.payload)
        cause = np.full(len(moved), INFINITY, np.int64)
        if isinstance(self.window, Grid):
            wle, wre = (to_numpy(moved.payload.column(name)) for name in (WLE, WRE))
            events = GroupedLifetimes(of_causes, causes.changes.le, causes.changes.re)
            i, j = pairs(Windows(of_moved, wle, wre, wle), events)
            np.minimum.at(cause, i, causes.sync[j])
        else:
            first = np.full(int(max(of_moved.max(initial=0), of_causes.max(initial=0))) + 1, INFINITY, np.int64)
            np.minimum.at(first, of_causes, causes.sync)
            cause = first[of_moved]
        # Units without a cause are not restricted.
        return _Breach(moved, sync, np.where(cause == INFINITY, NEG_INFINITY, cause))

    def _row_of(self, moved: Changes, outputs: Changes) -> int:
        """The row of an output of the window of the first of these changes."""
        (first, units), _ = number_rows(
            *(x.payload.select(self._unit) for x in (moved.take(np.zeros(1, int)), outputs))
        )
        same = units == first[0]
        exact = same & (outputs.le == moved.le[0])
        return int(np.flatnonzero(exact if exact.any() else same)[0])

    def _reason(self, sync: int, cause: int) -> str:
        return f"it changed its output at {self._text(sync)}, before the input that caused it, at {self._text(cause)}"

    def _text(self, time: int) -> str:
        return format_ticks(time, dates=self.per_window.dates)

    def _error(self, breach: _Breach, outputs: Changes) -> ModuleFailed:
        first = np.flatnonzero(breach.early)
        first = first[np.lexsort((breach.moved.le[first], breach.sync[first], breach.cause[first]))[:1]]
        moved, sync, cause = breach.moved.take(first), int(breach.sync[first[0]]), int(breach.cause[first[0]])
        row = outputs.payload.slice(self._row_of(moved, outputs), 1).to_pylist()[0]
        group = ", ".join(
            f"{name} = {row[key]!r}" for key, (name, _) in zip(self.keys, self.per_window.keys, strict=False)
        )
        shown = breach.moved.filter(breach.early)
        return ModuleFailed(
            f"{', '.join(map(str, self.per_window.modules))} broke its time bound in the window "
            f"{self._text(row[WLE])} .. {self._text(row[WRE])}{f' of {group}' if group else ''}: "
            f"{self._reason(sync, cause)}",
            given=[self._change_text(shown.take(np.array([i]))) for i in range(min(len(shown), 5))],
            allowed="under timestamping='time_bound', outputs that change only at or after the input that caused it",
            instead="timestamping='unchanged', whose output CTI waits for open windows; or on_error='skip'",
        )

    def _change_text(self, change: Changes) -> str:
        life = f"[{self._text(int(change.le[0]))}, {self._text(int(change.re[0]))})"
        row = change.payload.to_pylist()[0]
        values = {name[len(OUT) :]: value for name, value in row.items() if name.startswith(OUT)}
        return f"{'gives' if change.weight[0] > 0 else 'takes back'} {life} {values}"

    # --- windows with a breach ---------------------------------------------------------------------------------------

    def _settle_breach(self, breach: _Breach, standing: Changes, fresh: Changes, alive: pa.Table) -> Changes:
        """For units that break the bound: the earlier outputs up to the cause, and a failure."""
        tables = [breach.moved.payload, standing.payload, fresh.payload, alive]
        (moved, old, new, now), units = number_rows(*(table.select(self._unit) for table in tables))
        limit = np.full(units.num_rows, INFINITY, np.int64)
        early = breach.early
        np.minimum.at(limit, moved[early], breach.cause[early])
        until = np.full(units.num_rows, NEG_INFINITY, np.int64)
        np.maximum.at(until, old, to_numpy(standing.payload.column(UNTIL)))
        np.maximum.at(until, now, to_numpy(alive.column(UNTIL)))
        kept = Changes(
            standing.le, np.minimum(standing.re, limit[old]), standing.weight, _until(standing.payload, until[old])
        )
        kept = kept.filter((limit[old] != INFINITY) & _succeeded(standing) & (standing.le < limit[old]))
        failed = new[~_succeeded(fresh)]  # these already have a reason
        parts = [fresh.filter((limit[new] == INFINITY) | ~_succeeded(fresh)), kept]
        outputs = Changes.concat([fresh, standing])
        for unit in np.setdiff1d(moved[early], failed).tolist():
            worst = np.flatnonzero((moved == unit) & early)
            worst = worst[np.argsort(breach.sync[worst], kind="stable")[:1]]
            row = outputs.take(np.array([self._row_of(breach.moved.take(worst), outputs)]))
            reason = self._reason(int(breach.sync[worst[0]]), int(limit[unit]))
            parts.append(_failure(row, reason, int(until[unit])))
        return Changes.concat(parts)


def _ranked(place: Int64s, sync: Int64s) -> Int64s:
    """The number of each sync time among those of its place, or of a run of times if there are many."""
    order = np.lexsort((sync, place))
    place, sync = place[order], sync[order]
    first = np.r_[True, place[1:] != place[:-1]]
    later = np.cumsum(np.r_[True, (place[1:] != place[:-1]) | (sync[1:] != sync[:-1])]) - 1
    start = np.flatnonzero(first)
    size = np.diff(np.r_[start, len(place)])
    rank = later - np.repeat(later[start], size)
    count = np.repeat(rank[np.r_[start[1:], len(place)] - 1] + 1, size)
    steps = np.empty(len(order), np.int64)
    steps[order] = np.where(count > MOST_STEPS, rank * MOST_STEPS // count, rank)
    return steps


def _succeeded(changes: Changes) -> Bools:
    return np.asarray(changes.payload.column(REASON).is_null())


def _without_failures(changes: Changes) -> Changes:
    return changes.filter(_succeeded(changes))


def _set(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), table.schema.field(name), values)


def _until(payload: pa.Table, until: Int64s) -> pa.Table:
    return _set(payload, UNTIL, pa.array(until))


def _failure(row: Changes, reason: str, until: int) -> Changes:
    """The failure of an output's window."""
    payload = _until(row.payload, np.array([until], np.int64))
    for name in payload.column_names:
        if name.startswith(OUT):
            payload = _set(payload, name, pa.nulls(1, payload.schema.field(name).type))
    payload = _set(payload, REASON, pa.array([reason], pa.string()))
    return Changes.inserts(to_numpy(payload.column(WLE)), to_numpy(payload.column(WRE)), payload)
