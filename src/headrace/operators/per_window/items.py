"""The events of windows as a user's module sees them, and the calls of one module for many windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, canonical_floats, sortable
from headrace.modules import Module
from headrace.modules.base import Window as Seen
from headrace.modules.items import items_of
from headrace.operators.per_window.calling import Caller, Failure, module_error
from headrace.operators.per_window.divide import Windows
from headrace.plan.nodes import PerWindow
from headrace.schema import Type

__all__ = [
    "Calls", "EarlierState", "FindFirst", "MemberOrder", "Members", "Needed", "StoredMembers", "goes_on", "ranks",
]  # fmt: skip


@dataclass(frozen=True)
class Members:
    """Which events are in which windows: `events[row[i]]` is in window `window[i]`."""

    window: Int64s
    row: Int64s
    events: Changes

    def of(self, windows: Int64s) -> Members:
        """The members of these windows."""
        some = np.isin(self.window, windows)
        return self if some.all() else Members(self.window[some], self.row[some], self.events)


@dataclass(frozen=True)
class MemberOrder:
    """An order of events by columns, each ascending or descending."""

    columns: tuple[tuple[str, str], ...]
    #: Whether events with a null or NaN in the first column have a place in it.
    total: bool = True

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [name for name, _ in self.columns]


@dataclass(frozen=True)
class Needed:
    """The windows of which all members are needed, and those for which the first ones in some order are enough."""

    whole: Bools
    first: Bools

    @property
    def any(self) -> Bools:
        """The windows of which members are needed."""
        return self.whole | self.first


class FindFirst(Protocol):
    """A function that finds the first members of windows in an order, or the last ones."""

    def __call__(self, windows: Int64s, order: int, need: int, *, back: bool = False) -> Members: ...


@dataclass(frozen=True)
class StoredMembers:
    """Members that are read from the state when they are needed; those of the windows in `ready` are here."""

    here: Members
    ready: Bools
    read: Callable[[Int64s], Members]
    #: The windows whose first members are enough, found in one of the orders of the content.
    sought: Bools
    first: FindFirst | None = None

    def of(self, windows: Int64s) -> Members:
        """The members of these windows."""
        return self.here.of(windows) if self.ready[windows].all() else self.read(windows)


@dataclass(frozen=True)
class EarlierState:
    """What is known of windows without their members: states, old outputs, and the members that have changed since."""

    #: The states of modules, by name; None for a window that has none.
    states: dict[str, list[bytes | None]]
    changed: Members
    #: The sums of built-in aggregates, with the number of their window.
    sums: pa.Table | None = None
    #: The windows that have outputs, and these outputs, with the number of their window.
    answered: Bools | None = None
    outputs: pa.Table | None = None

    @property
    def loses_items(self) -> Int64s:
        """The pairs of `changed` that are taken back."""
        return np.flatnonzero(self.changed.events.weight[self.changed.row] < 0)


class Calls:
    """The calls of one module for some windows."""

    def __init__(
        self,
        caller: Caller,
        node: PerWindow,
        fields: list[str],
        windows: Windows,
        members: Members | StoredMembers,
        keys: pa.Table,
    ) -> None:
        self.caller, self.node, self.fields = caller, node, fields
        self.windows, self.members, self.keys = windows, members, keys

    def run(
        self, shown: Bools, changed: Members, states: list[bytes | None] | None
    ) -> tuple[list[Any], list[tuple[int, str]], list[bytes | None]]:
        """The module's answer for each shown window, the windows that failed, and the new states."""
        new_states: list[Any] = self._states(changed, states) if states is not None else []
        answers: list[Any] = [None] * len(self.windows)
        failures = []
        items = [] if new_states else self.items(np.arange(len(self.windows)))
        for number in range(len(self.windows)):
            answer: Any = new_states[number] if new_states else None
            if not isinstance(answer, Failure) and shown[number]:
                window = self._window(number)
                answer = self.caller.read(answer, window) if new_states else self.caller.compute(items[number], window)
            if isinstance(answer, Failure) and new_states and shown[number]:
                # A window is left out because of its items, not because of the changes of its state.
                again = self.caller.compute_all(self.items(np.array([number]))[0], self._window(number))
                answer = again if isinstance(again, Failure) or self.node.policy.on_error == "skip" else answer
            if isinstance(answer, Failure) and shown[number]:
                self.fail(number, answer)
                failures.append((number, answer.reason))
            elif shown[number]:
                answers[number] = answer
        return answers, failures, [None if isinstance(state, Failure) else state for state in new_states]

    def fail(self, number: int, failure: Failure) -> None:
        """Stop the query, unless its policy skips such windows."""
        if self.node.policy.on_error == "fail":
            key = self.keys.slice(number, 1).to_pylist()[0] if self.keys.num_columns else {}
            raise module_error(self.caller.module, key, self._window(number), failure, dates=self.node.dates)

    def _states(self, changed: Members, states: list[bytes | None]) -> list[Any]:
        """Each window's state: the earlier one, with changed items; or a new one from all its items."""
        module, coming = self.caller.module, changed.events.weight > 0
        changes, loses_items = np.zeros(len(self.windows), bool), np.zeros(len(self.windows), bool)
        changes[changed.window] = True
        loses_items[changed.window[~coming[changed.row]]] = True
        has_state = np.array([state is not None for state in states], bool)
        continues = has_state & goes_on(module, changes, loses_items)
        numbers = np.flatnonzero(continues)
        added = self.items(numbers, _members_of(changed, coming))
        removed = self.items(numbers, _members_of(changed, ~coming))
        result: list[Any] = [None] * len(self.windows)
        for number, gained, lost in zip(numbers.tolist(), added, removed, strict=True):
            state = states[number]
            assert state is not None
            result[number] = self.caller.move_state(state, gained, lost) if gained or lost else state
        fresh = np.flatnonzero(~continues)
        for number, items in zip(fresh.tolist(), self.items(fresh), strict=True):
            result[number] = self.caller.start_state(items)
        return result

    def _window(self, number: int) -> Seen:
        return Seen(int(self.windows.le[number]), int(self.windows.re[number]))

    def items(self, numbers: Int64s, members: Members | None = None) -> list[list[Any]]:
        """The items of some windows as the module sees them: clipped, in order, in all their copies."""
        members = (self.members if members is None else members).of(numbers)
        events, window, row = members.events, members.window, members.row
        module = self.caller.module
        wle, wre = self.windows.le[window], self.windows.re[window]
        le, re = _clipped(self.node, wle, wre, events.le[row], events.re[row])
        values = events.payload.select(list(dict.fromkeys(self.fields)))
        rank = ranks(values, [(name, "ascending") for name in values.column_names])[row]
        # Ends do not decide for a module that does not see them: one may move after the window is closed. Nor does
        # clipping, which such a module does not see either.
        order = np.lexsort((rank, re, le, window) if module.time_sensitive else (rank, events.le[row], window))
        order = np.repeat(order, np.abs(events.weight[row[order]]))
        columns = [
            _cast(values.column(name), field.type).take(pa.array(row[order])).to_pylist()
            for name, field in zip(self.fields, module.fields, strict=True)
        ]
        items = _shape_items(module, le[order], re[order], columns)
        starts = np.searchsorted(window[order], numbers, "left").tolist()
        ends = np.searchsorted(window[order], numbers, "right").tolist()
        return [items[a:b] for a, b in zip(starts, ends, strict=True)]


def goes_on(module: Module, changes: Bools, loses_items: Bools) -> Bools:
    """Whether the state of each window can be kept when its items change; otherwise it is made of all of them."""
    if module.order_sensitive:
        return ~changes
    return np.ones_like(changes) if module.invertible else ~loses_items


def _members_of(members: Members, events: Bools) -> Members:
    some = events[members.row]
    return Members(members.window[some], members.row[some], members.events)


def _shape_items(module: Module, le: Int64s, re: Int64s, columns: list[list[Any]]) -> list[Any]:
    if module.time_sensitive:
        columns = [le.tolist(), re.tolist(), *columns]
    elif len(columns) == 1:
        return columns[0]
    return items_of(module.fields.names, zip(*columns, strict=True), timed=module.time_sensitive)


def _cast(column: pa.ChunkedArray, wanted: Type) -> pa.ChunkedArray:
    return column if column.type == wanted.arrow else pc.cast(column, wanted.arrow)


def _clipped(node: PerWindow, wle: Int64s, wre: Int64s, le: Int64s, re: Int64s) -> tuple[Int64s, Int64s]:
    """Lifetimes as a module sees them (rule 6.3); an event that ends at its window's start is an instant (rule 5.1)."""
    if node.clips_right:
        re = np.minimum(re, wre)
    if node.policy.clipping in ("left", "full"):
        le = np.maximum(le, wle)
    return le, np.maximum(re, le + 1)


def ranks(table: pa.Table, order: Sequence[tuple[str, str]]) -> Int64s:
    """Each row's place in an order by several columns: nulls last, NaN greater than any number."""
    rank = np.empty(table.num_rows, np.int64)
    table, keys = sortable(canonical_floats(table)), []
    for name, direction in order:
        if pa.types.is_floating(table.schema.field(name).type):  # Arrow itself would put NaN last either way
            table = table.append_column(f"{name} nan", pc.is_nan(table.column(name)))
            keys.append((f"{name} nan", direction))
        keys.append((name, direction))
    rank[pc.sort_indices(table, keys).to_numpy()] = np.arange(table.num_rows)
    return rank
