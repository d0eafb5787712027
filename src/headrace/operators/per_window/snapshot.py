"""Snapshot windows whose answers do not depend on lifetimes: new windows continue from old ones (rules 5.1 and 6.4).

The events alive at an instant are those alive there before, with the changes that are alive there. So a new window
continues from the old window at its start, its *source*, whatever has been split or joined: from the source's states,
sums or outputs, and the number of its items. Without a source, nothing was alive: its members are among the changes.
Events are read only where that is not enough (`Content.needs`). The cost of a change depends on the windows that the
CTI has not passed, not on the events alive, which may be many and endless.

Traces carry the state, found by group:

- `states`: a row for each window that is not forgotten: its bounds, the number of its items, and states;
- `given`: the outputs of these windows;
- `ends`: how many events start or end at each time that the CTI has not passed: where none does any more, windows join;
- `events`: the events that have not ended before the CTI.

A window is kept one tick longer than its end: an event that ends at the CTI may still be extended (rule 3.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, factorize, group_sum, to_numpy
from headrace.operators.aggregate.window_runs import expand_runs
from headrace.operators.groups import OUT, UNTIL, Groups, positions_among
from headrace.operators.kernel import (
    Data,
    Kernel,
    SavedTraces,
    cancelled_rows,
    consolidated_rows,
    expression_texts,
)
from headrace.operators.per_window.bands import Bands
from headrace.operators.per_window.content import content_of
from headrace.operators.per_window.divide import GroupedLifetimes, Windows, are_among, are_in, divide, pairs
from headrace.operators.per_window.items import EarlierState, Members, StoredMembers
from headrace.operators.per_window.rows import (
    ITEMS,
    WLE,
    WRE,
    earlier_state,
    next_tick,
    output_rows,
    window_texts,
    with_columns,
    with_outputs,
    with_window_columns,
)
from headrace.plan.nodes import PerWindow
from headrace.plan.source import DIVERTED
from headrace.plan.windows import Snapshot
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY
from headrace.trace import Segment, Trace

__all__ = ["SnapshotWindowKernel", "continues"]

#: The time of an end or start.
_TIME = "__at"
_NONE = np.empty(0, np.int64)
#: How many times of a group are compared with windows at once, and how many changes at these times.
_MOST, _MOST_ALIKE = 500, 10_000


def continues(node: PerWindow) -> bool:
    """Whether the windows of a node are snapshots that see no lifetimes, and need not be read when they change."""
    return isinstance(node.window, Snapshot) and not node.sensitive and content_of(node).continues


@dataclass(frozen=True)
class _Old:
    """The windows of the touched groups before a batch, in order, with their rows."""

    windows: Windows
    rows: Changes

    @property
    def items(self) -> Int64s:
        return to_numpy(self.rows.payload.column(ITEMS))

    def at(self, group: Int64s, time: Int64s) -> Int64s:
        """The window at a time in a group, or -1."""
        windows = self.windows
        if len(windows) == 0:
            return np.full(len(group), -1, np.int64)
        # A window that starts at the time comes before the question; the last one before it may hold the time.
        order = np.lexsort(
            (np.r_[np.zeros(len(windows)), np.ones(len(group))], np.r_[windows.le, time], np.r_[windows.group, group])
        )
        last = np.maximum.accumulate(np.where(order < len(windows), order, -1))
        found = np.empty(len(order), np.int64)
        found[order] = last
        found = found[len(windows) :]
        inside = (found >= 0) & (windows.group[found] == group) & (windows.re[found] > time)
        return np.where(inside, found, -1)


@dataclass(frozen=True)
class _SnapshotWork:
    """The windows to compute, the old window that each continues from, or -1, and the changes alive in it."""

    keys: pa.Table
    windows: Windows
    source: Int64s
    changed: Members


@dataclass(frozen=True)
class _NetChanges:
    """Some changes, with the two halves of a retraction together, and their net: what is alive where it was not.

    The end of an event that moves from 9 to 5 is a change of -1 from 5 to 9, whenever the event began. Before 5 the
    halves cancel, and windows may be forgotten there.
    """

    changes: Changes
    #: Each event that comes, goes or has another end, with +1 or -1.
    net: Changes
    #: Where it is alive now and was not, or the other way round.
    start: Int64s
    end: Int64s
    #: For each change its row in `net`.
    of: Int64s

    @classmethod
    def of_delta(cls, delta: Changes) -> _NetChanges:
        pairing = delta.pair()
        single, count = np.r_[pairing.inserts, pairing.deletes], len(pairing.inserts) + len(pairing.deletes)
        old, new = delta.re[pairing.retract_from], delta.re[pairing.retract_to]
        changes = delta.take(np.r_[single, pairing.retract_from, pairing.retract_to])
        changes = replace(changes, weight=np.sign(changes.weight))
        moved = np.arange(count, count + len(old))
        net = changes.slice(0, count + len(old))
        return cls(
            changes,
            replace(net, weight=np.r_[net.weight[:count], np.where(new > old, 1, -1)]),
            np.r_[net.le[:count], np.minimum(old, new)],
            np.r_[net.re[:count], np.maximum(old, new)],
            np.r_[np.arange(count), moved, moved],
        )

    def filter(self, mask: Bools) -> _NetChanges:
        """The changes with these nets."""
        if mask.all():
            return self
        changes, net = self.changes.filter(mask[self.of]), self.net.filter(mask)
        return _NetChanges(changes, net, self.start[mask], self.end[mask], _NONE)


class SnapshotWindowKernel(Kernel):
    """Outputs for as long as the same events are alive."""

    divisible = True

    def __init__(self, node: PerWindow) -> None:
        super().__init__(node)
        self.content = content_of(node)
        self.traces = {name: Trace(cancelled_rows) for name in ("events", "given")}
        self.traces["states"] = Trace(cancelled_rows, pickled=bool(self.content.stateful))
        self.traces["ends"] = Trace(consolidated_rows)
        self.groups = Groups(node, self.content.columns, self.traces)
        self.keys = self.groups.keys
        self.bands = self._bands()
        self.scalars = {"cti": NEG_INFINITY}

    def _bands(self) -> list[Bands]:
        """The events in each order of the content: the first one has all their columns."""
        bands = []
        for number, order in enumerate(self.content.orders):
            columns = order.names if number else [name for name, _ in self.groups.projection]
            bands.append(Bands(self.groups, order, columns))
            suffix = str(number) if number else ""
            self.traces |= {f"events{suffix}": bands[-1].events, f"bounds{suffix}": bands[-1].bounds}
        return bands

    def column_names(self) -> dict[str, str]:
        return expression_texts(self.groups.projection) | {OUT + name: name for name in self.node.schema.names}

    # --- one batch ---------------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        cti = max(now.cti, self.scalars["cti"])
        delta = self.groups.project(changes, changes.re).cancelled()
        self.side = Changes.empty(DIVERTED)
        result = self._corrections(delta)
        for name in ("events", "given", "states"):
            self.traces[name].drop(cti)
        for bands in self.bands[1:]:
            bands.events.drop(cti)
        self.traces["ends"].drop(cti if cti in (INFINITY, NEG_INFINITY) else cti - 1)
        self.scalars = {"cti": cti}
        return result, Progress(cti, now.high)

    def _corrections(self, delta: Changes) -> Changes:
        results, sides = [Changes.empty(self.node.schema)], [Changes.empty(DIVERTED)]
        for part in self._parts(delta):
            results.append(self._correct(part))
            assert self.side is not None
            sides.append(self.side)
        if len(results) <= 2:
            return results[-1]
        self.side = Changes.concat(sides).consolidate()
        return Changes.concat(results).consolidate()

    def _parts(self, delta: Changes) -> list[_NetChanges]:
        """The changes, a few times of each group at once, in the order of the instants from which they matter.

        Each change is compared with the windows in which it is alive: of many endless events that start one after the
        other, all at once, that would be the square of their number.
        """
        part = _NetChanges.of_delta(delta)
        if len(delta) <= _MOST:
            return [part] if len(delta) else []
        group = factorize(part.net.payload.select(self.keys))[0]
        order = np.lexsort((part.start, group))
        group, time = group[order], part.start[order]
        number = np.cumsum(np.r_[True, (group[1:] != group[:-1]) | (time[1:] != time[:-1])])
        first = np.searchsorted(group, group)
        numbers = np.empty(len(order), np.int64)
        numbers[order] = (number - number[first]) // _MOST + (np.arange(len(order)) - first) // _MOST_ALIKE
        return [part.filter(numbers == number) for number in range(int(numbers.max()) + 1)]

    def _correct(self, part: _NetChanges) -> Changes:
        """Take back the old outputs of windows that change, and give the new ones."""
        net = part.net
        self._store(part.changes)
        touched = np.unique(self.groups.hashes(net.payload))
        standing = {name: self.groups.known(name, touched) for name in ("states", "given")}
        tables = [rows.payload for rows in standing.values() if rows is not None]
        (of_change, group, *_), keys = self.groups.number(part.changes.payload, net.payload, *tables)
        old = self._old(standing["states"], keys)
        current = self._divided(old.windows, *self._moved_ends(part.changes, of_change))
        source = old.at(current.group, current.le)
        instants = replace(current, re=next_tick(current.le))
        i, j = pairs(instants, GroupedLifetimes(group, part.start, part.end))
        items = np.where(source >= 0, old.items[source], 0) if len(old.windows) else np.zeros(len(current), np.int64)
        items += group_sum(i, net.weight[j], len(current))
        same = are_in(current, old.windows)
        same[i] = False
        wanted = ~same & (items > 0)
        place = np.cumsum(wanted) - 1
        inside = wanted[i]
        changed = Members(place[i[inside]], j[inside], net)
        work = _SnapshotWork(keys, current.filter(wanted), source[wanted], changed)
        return self._exchange(work, old, standing, items[wanted], current.filter(same))

    def _store(self, delta: Changes) -> None:
        """Add the changes to the events."""
        for bands in self.bands:
            bands.store(delta)
        if not self.bands:
            self.traces["events"].append(delta.to_table(), self.groups.hashes(delta.payload), next_tick(delta.re))

    def _old(self, rows: Changes | None, keys: pa.Table) -> _Old:
        if rows is None:
            return _Old(Windows(_NONE, _NONE, _NONE, _NONE), Changes(_NONE, _NONE, _NONE, pa.table({ITEMS: _NONE})))
        windows = self._windows_of(rows, keys)
        order = np.lexsort((windows.le, windows.group))
        return _Old(windows.take(order), rows.take(order))

    def _windows_of(self, rows: Changes, keys: pa.Table) -> Windows:
        """The window of each row."""
        group = positions_among(keys, rows.payload.select(self.keys))
        return Windows(group, to_numpy(rows.payload.column(WLE)), to_numpy(rows.payload.column(WRE)), _NONE)

    # --- the new windows ---------------------------------------------------------------------------------------------

    def _moved_ends(self, delta: Changes, group: Int64s) -> tuple[GroupedLifetimes, Bools]:
        """The times whose number of starts and ends has changed, and at which of them there are any now."""
        keys = delta.payload.select(self.keys)
        rows = [keys.append_column(_TIME, pa.array(time)) for time in (delta.le, delta.re)]
        zero = np.zeros(2 * len(delta), np.int64)
        table = pa.concat_tables([row.append_column("__group", pa.array(group)) for row in rows])
        moved = Changes(zero, zero + 1, np.r_[delta.weight, delta.weight], table).consolidate()
        time, group = (to_numpy(moved.payload.column(name)) for name in (_TIME, "__group"))
        moved = moved.with_payload(moved.payload.drop_columns(["__group"]))
        hashes = self.groups.hashes(moved.payload)
        known = self.groups.known("ends", np.unique(hashes))
        count = moved.weight.copy()
        if known is not None:
            of = positions_among(moved.payload, known.payload.select(moved.payload.column_names))
            np.add.at(count, of[of >= 0], known.weight[of >= 0])
        self.traces["ends"].append(moved.to_table(), hashes, time)
        return GroupedLifetimes(group, time, time), count > 0

    @staticmethod
    def _divided(windows: Windows, ends: GroupedLifetimes, there: Bools) -> Windows:
        """The spaces between neighbouring endpoints; in some of them nothing may be alive."""
        group = np.r_[windows.group, windows.group, ends.group]
        time = np.r_[windows.le, windows.re, ends.le]
        if len(time) == 0:
            return windows
        stays = np.r_[np.ones(2 * len(windows), bool), there]
        order = np.lexsort((time, group))
        group, time, stays = group[order], time[order], stays[order]
        first = np.flatnonzero(np.r_[True, (group[1:] != group[:-1]) | (time[1:] != time[:-1])])
        stays = np.logical_and.reduceat(stays, first)  # a time at which nothing starts or ends any more is no border
        group, time = group[first][stays], time[first][stays]
        inside = group[1:] == group[:-1]
        return Windows(group[:-1][inside], time[:-1][inside], time[1:][inside], _NONE)

    # --- old and new outputs -----------------------------------------------------------------------------------------

    def _exchange(
        self, work: _SnapshotWork, old: _Old, standing: dict[str, Changes | None], items: Int64s, same: Windows
    ) -> Changes:
        """Replace the states and outputs of windows that are not the same."""
        windows, keys = work.windows, work.keys
        earlier = self._earlier(work, old, standing["given"])
        closing = next_tick(windows.re)
        outputs = self.content.outputs(
            windows,
            self._members(work, earlier),
            self.groups.key_columns(keys, windows.group),
            np.ones(len(windows), bool),
            earlier,
        )
        kept = with_window_columns(keys.take(pa.array(windows.group)), windows, closing)
        kept = kept.append_column(ITEMS, pa.array(items))
        if outputs.states is not None:
            kept = with_columns(kept, outputs.states)
        stale = {name: self._without(rows, keys, same) for name, rows in standing.items()}
        self.groups.exchange("states", stale["states"], Changes.inserts(windows.le, windows.re, kept), UNTIL)
        moved = self.groups.exchange("given", stale["given"], output_rows(outputs, windows, closing, keys), UNTIL)
        self.side = self.groups.diverted(moved, partial(window_texts, dates=self.node.dates))
        return self.groups.leaving(moved)

    def _without(self, rows: Changes | None, keys: pa.Table, same: Windows) -> Changes | None:
        return None if rows is None else rows.filter(~are_among(self._windows_of(rows, keys), same))

    def _earlier(self, work: _SnapshotWork, old: _Old, given: Changes | None) -> EarlierState:
        """What the sources of the windows say about them."""
        count, known = len(work.windows), np.flatnonzero(work.source >= 0)
        states = old.rows.take(work.source[known]) if len(known) else None
        earlier = earlier_state(self.content, work.changed, count, states, known)
        if given is None or states is None or not self.content.from_outputs:
            return earlier
        of = self._windows_of(given, work.keys)
        at = old.at(of.group, of.le)
        order = np.argsort(at, kind="stable")
        first, last = (np.searchsorted(at[order], work.source[known], side) for side in ("left", "right"))
        number, place = expand_runs(first, last - 1, Snapshot())
        return with_outputs(earlier, given.take(order[place]), known[number], count)

    def _members(self, work: _SnapshotWork, earlier: EarlierState) -> StoredMembers:
        """The members of windows where the earlier state is not enough."""
        needed = self.content.needs(earlier, len(work.windows))
        sought = needed.first & (work.source >= 0)  # of windows without a source, the changes are all members
        reads = needed.any & ~sought
        here = self._read(work, np.flatnonzero(reads))
        return StoredMembers(here, reads, partial(self._read, work), sought, partial(self._first, work))

    def _first(self, work: _SnapshotWork, some: Int64s, order: int, need: int, *, back: bool = False) -> Members:
        """The first members of some windows in an order."""
        found = self.bands[order].first(work.keys, work.windows.take(some), need, back=back)
        return replace(found, window=some[found.window])

    def _read(self, work: _SnapshotWork, some: Int64s) -> Members:
        """The members of some windows; where nothing was alive before, the changes are all of them."""
        if (work.source[some] < 0).all():
            return work.changed.of(some)
        windows = work.windows.take(some)
        touched = np.unique(self.groups.hashes(work.keys)[windows.group])
        rows = self.bands[0].all(touched) if self.bands else self.groups.events(touched)
        group = positions_among(work.keys, rows.payload.select(self.keys))
        rows, group = rows.filter(group >= 0), group[group >= 0]
        i, j = pairs(windows, GroupedLifetimes(group, rows.le, rows.re))
        return Members(some[i], j, rows)

    # --- state from a checkpoint -------------------------------------------------------------------------------------

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        """Restore the saved state; an earlier Headrace kept events and outputs, and windows are found from these."""
        if "ends" in traces:
            self.scalars = scalars
            for name in self.traces.keys() & traces.keys():
                self.traces[name].restore(traces[name], held)
            self._fill_orders(traces)
            return
        cti = scalars["cti"]
        self.scalars = {"cti": cti}
        self.traces["given"].restore(traces["given"], held)
        saved = Trace(cancelled_rows)
        saved.restore(traces["events"], held)
        rows = saved.scan()
        if rows is None:
            return
        events = Changes.from_table(rows).cancelled()
        self._store(events.filter(next_tick(events.re) > cti))
        (group,), keys = self.groups.number(events.payload)
        self._moved_ends(events, group)
        lifetimes = GroupedLifetimes(group, events.le, events.re)
        windows = divide(Snapshot(), lifetimes, keys.num_rows)
        windows = windows.filter(next_tick(windows.re) > cti)
        i, j = pairs(windows, lifetimes)
        kept = with_window_columns(keys.take(pa.array(windows.group)), windows, next_tick(windows.re))
        kept = kept.append_column(ITEMS, pa.array(group_sum(i, events.weight[j], len(windows))))
        for name in self.content.stateful:
            kept = kept.append_column(name, pa.nulls(len(windows), pa.binary()))
        self.groups.exchange("states", None, Changes.inserts(windows.le, windows.re, kept), UNTIL)

    def _fill_orders(self, traces: SavedTraces) -> None:
        """Put the events that an earlier Headrace kept by group alone into the other orders, too."""
        missing = [bands for number, bands in enumerate(self.bands) if number and f"events{number}" not in traces]
        rows = self.traces["events"].scan() if missing else None
        for bands in missing if rows is not None else ():
            bands.store(Changes.from_table(rows).cancelled())

    def held_by(self) -> str:
        return f"windows and events that the CTI has not passed; CTI {self.time_text(self.scalars['cti'])}"
