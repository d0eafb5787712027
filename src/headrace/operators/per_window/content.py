"""From the events in a window to outputs: by built-in aggregates, a ranking, or a user's module.

Each kind names the expressions that it needs of an event (`columns`), and turns the members of many windows into
outputs in one call. Members are pairs of a window and an event, with the number of its copies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, canonical_floats, concat, factorize, to_numpy
from headrace.expr import Expr, col, evaluate
from headrace.modules import Module, ModuleCall
from headrace.operators.aggregate.accumulators import PART, Layout
from headrace.operators.aggregate.answers import answers
from headrace.operators.aggregate.combine import compact
from headrace.operators.groups import number_rows
from headrace.operators.per_window.around import RankedRows, argument_of, seen_around
from headrace.operators.per_window.calling import Caller
from headrace.operators.per_window.divide import Windows
from headrace.operators.per_window.items import (
    Calls,
    EarlierState,
    MemberOrder,
    Members,
    Needed,
    StoredMembers,
    goes_on,
    ranks,
)
from headrace.operators.per_window.ranking import PLACES, places_of
from headrace.operators.per_window.sums import WINDOW, WindowSums, by_window
from headrace.plan.around import Around
from headrace.plan.nodes import Aggregate, Contents, Operate, PerWindow, Select, Top
from headrace.plan.windows import Snapshot
from headrace.time import INFINITY

__all__ = ["Content", "EarlierState", "Outputs", "content_of"]


@dataclass(frozen=True)
class Outputs:
    """Outputs of windows: the number of the window, the lifetime, the payload without keys."""

    window: Int64s
    le: Int64s
    re: Int64s
    payload: pa.Table
    #: Windows that failed, with the reason.
    failures: tuple[tuple[int, str], ...] = ()
    #: The new states of incremental modules and sums of built-in aggregates, a row for each window.
    states: pa.Table | None = None

    def of_windows_from(self, first: int) -> Outputs:
        """The outputs, if window 0 has another number."""
        failures = tuple((first + number, reason) for number, reason in self.failures)
        return replace(self, window=self.window + first, failures=failures)

    @classmethod
    def concat(cls, parts: Sequence[Outputs]) -> Outputs:
        """The outputs of several windows, without their states."""
        if len(parts) == 1:
            return parts[0]
        window, le, re = (np.concatenate([getattr(part, name) for part in parts]) for name in ("window", "le", "re"))
        failures = tuple(failure for part in parts for failure in part.failures)
        return cls(window, le, re, concat([part.payload for part in parts]), failures)


class Content(ABC):
    """How a window's events become outputs."""

    #: Whether each event has outputs of its own, so that the outputs of changes are the changes of outputs.
    adds_up: ClassVar[bool] = False
    #: Whether windows continue from their outputs.
    from_outputs: bool = False
    #: The sums that are kept of built-in aggregates.
    sums: WindowSums | None = None

    def __init__(self, node: PerWindow) -> None:
        self.node = node

    @property
    @abstractmethod
    def columns(self) -> tuple[tuple[str, Expr], ...]:
        """The expressions that are needed of an event, by the name under which they are stored."""

    @property
    def stateful(self) -> tuple[str, ...]:
        """The names of the states that incremental modules keep for each window."""
        return ()

    @property
    def keeps_states(self) -> bool:
        """Whether windows have states of modules, or sums."""
        return bool(self.stateful)

    @property
    def continues(self) -> bool:
        """Whether a window that changes need not be read as a rule."""
        return self.keeps_states or self.from_outputs

    def needs(self, earlier: EarlierState, windows: int) -> Needed:  # noqa: ARG002 - for those that need not
        """The windows, of so many, whose members are needed: all, unless the earlier state is enough."""
        return Needed(np.ones(windows, bool), np.zeros(windows, bool))

    @property
    def orders(self) -> tuple[MemberOrder, ...]:
        """The orders of members in which the first ones are enough for some windows."""
        return ()

    @abstractmethod
    def outputs(
        self, windows: Windows, members: Members | StoredMembers, keys: pa.Table, shown: Bools, earlier: EarlierState
    ) -> Outputs:
        """The outputs of the windows that are `shown`; `keys` has the keys of each."""

    def _aligned(self, windows: Windows, of: Int64s, payload: pa.Table) -> Outputs:
        return Outputs(of, windows.le[of], windows.re[of], payload)


def content_of(node: PerWindow) -> Content:
    """The content of a node's windows."""
    return _CONTENTS[type(node)](node)


class AggregateContent(Content):
    """Built-in aggregates and users' aggregates, and expressions over them."""

    def __init__(self, node: Aggregate) -> None:
        super().__init__(node)
        calls, self.outputs_over = node.split
        self.modules = {name: call for name, call in calls.items() if isinstance(call, ModuleCall)}
        self.callers = {name: Caller(call.module, node.policy) for name, call in self.modules.items()}
        built_in = {name: call for name, call in calls.items() if name not in self.modules}
        arguments = [call.argument for call in built_in.values() if call.argument is not None]
        arguments += [expr for call in self.modules.values() for expr in call.arguments]
        distinct = {str(expr): expr for expr in arguments}
        self._names = {text: f"arg{i}" for i, text in enumerate(distinct)}
        self._columns = tuple((self._names[text], expr) for text, expr in distinct.items())
        self.built_in = {
            name: call.with_children([col(self._names[str(child)]) for child in call.children])
            for name, call in built_in.items()
        }
        bare = self._bare(node)
        self.layout = None if bare is None else Layout(bare)
        #: The sums of built-in aggregates, if they can be kept and no module needs all items each time.
        self.sums = WindowSums.of(bare) if bare is not None and self._all_incremental else None

    def _bare(self, node: Aggregate) -> Aggregate | None:
        """The built-in aggregates over an input that has only their arguments."""
        calls = {f"c{i}": call for i, call in enumerate(self.built_in.values())}
        below = Select(node.input, self._columns) if self._columns else node.input
        any_window = Snapshot()  # the layout of a bag does not depend on it
        return Aggregate(below, (), any_window, tuple(calls.items())) if calls else None

    @property
    def _all_incremental(self) -> bool:
        return all(call.module.incremental for call in self.modules.values())

    @property
    def columns(self) -> tuple[tuple[str, Expr], ...]:
        return self._columns

    @property
    def stateful(self) -> tuple[str, ...]:
        return tuple(name for name, call in self.modules.items() if call.module.incremental)

    @property
    def keeps_states(self) -> bool:
        return bool(self.stateful) or self.sums is not None

    @property
    def continues(self) -> bool:
        return self._all_incremental and (self.sums is not None or not self.built_in)

    @property
    def orders(self) -> tuple[MemberOrder, ...]:
        """By the values of each argument whose least or greatest value is kept."""
        extremes = [] if self.sums is None else self.sums.extremes
        return tuple(MemberOrder(((str(a.expr), "ascending"),), total=False) for a in extremes)

    def needs(self, earlier: EarlierState, windows: int) -> Needed:
        if not self.continues:
            return super().needs(earlier, windows)
        modules = {name: call.module for name, call in self.modules.items()}
        needed = _without_states(modules, earlier, windows)
        if self.sums is None:
            return needed
        sums = self.sums.needs(earlier, windows)
        return Needed(needed.whole | sums.whole, sums.first & ~needed.whole)

    def outputs(
        self, windows: Windows, members: Members | StoredMembers, keys: pa.Table, shown: Bools, earlier: EarlierState
    ) -> Outputs:
        table, sums = pa.table({WINDOW: np.arange(len(windows))}), None
        if self.sums is not None:
            sums = self.sums.totals(members, earlier, len(windows))
            table = self._with_built_ins(table, self.sums.layout, sums)
        elif self.layout is not None:
            totals = self._totals(self.layout, members.of(np.arange(len(windows))))
            table = self._with_built_ins(table, self.layout, totals)
        failures: dict[int, str] = {}  # the first failure of each window
        states = {}
        for name, call in self.modules.items():
            fields = [self._names[str(expr)] for expr in call.arguments]
            calls = Calls(self.callers[name], self.node, fields, windows, members, keys)
            values, failed, states[name] = calls.run(shown, earlier.changed, earlier.states.get(name))
            table = table.append_column(name, pa.array(values, call.module.gives.arrow))
            prefix = f"{call.module}: " if len(self.modules) > 1 else ""
            failures = {number: prefix + reason for number, reason in failed} | failures
        of = np.asarray(table.column(WINDOW))
        good = shown & ~np.isin(of, list(failures))
        if not good.all():
            table, of = table.filter(pa.array(good)), of[good]
        aligned = self._aligned(windows, of, self._payload(table))
        kept = {name: pa.array(states[name], pa.binary()) for name in self.stateful}
        if sums is not None:
            rows = by_window(sums, len(windows))
            kept |= {name: rows.column(name) for name in rows.column_names if name not in (PART, WINDOW)}
        return replace(aligned, failures=tuple(failures.items()), states=pa.table(kept) if kept else None)

    def answers_of(self, sums: pa.Table) -> pa.Table:
        """The payload of windows without modules, given the sums of each."""
        assert self.layout is not None
        table = pa.table({WINDOW: np.arange(sums.num_rows)})
        sums = sums.append_column(WINDOW, table.column(WINDOW))
        sums = sums.append_column(PART, pa.array(np.zeros(sums.num_rows, np.int8)))
        return self._payload(self._with_built_ins(table, self.layout, sums))

    def _payload(self, table: pa.Table) -> pa.Table:
        """The outputs, without keys, from the values of aggregates."""
        columns = [evaluate(expr, table) for expr in self.outputs_over.values()]
        schema = pa.schema([self.node.schema.arrow.field(name) for name in self.outputs_over])
        return pa.Table.from_arrays(columns, schema=schema)

    def _totals(self, layout: Layout, members: Members) -> pa.Table:
        events = members.events.take(members.row)
        numbers = pa.table({WINDOW: members.window})
        sums = layout.sums_table(events, numbers)
        sums = sums.add_column(0, PART, pa.array(np.zeros(len(events), np.int8)))
        return concat([compact(part, layout, [WINDOW]) for part in [sums, *layout.bag_tables(events, numbers)]])

    def _with_built_ins(self, table: pa.Table, layout: Layout, totals: pa.Table) -> pa.Table:
        results = by_window(answers(totals, layout, WINDOW), table.num_rows)
        for name, inner in zip(self.built_in, layout.node.split[0], strict=True):
            table = table.append_column(name, results.column(inner))
        return table


class OperateContent(Content):
    """A user's operator."""

    def __init__(self, node: Operate) -> None:
        super().__init__(node)
        self.operate = node
        self.caller = Caller(node.module, node.policy)

    @property
    def columns(self) -> tuple[tuple[str, Expr], ...]:
        return tuple((f"arg{i}", expr) for i, (_, expr) in enumerate(self.operate.mapping))

    @property
    def stateful(self) -> tuple[str, ...]:
        return ("operator",) if self.operate.module.incremental else ()

    def needs(self, earlier: EarlierState, windows: int) -> Needed:
        if not self.stateful:
            return super().needs(earlier, windows)
        return _without_states(dict.fromkeys(self.stateful, self.operate.module), earlier, windows)

    def outputs(
        self, windows: Windows, members: Members | StoredMembers, keys: pa.Table, shown: Bools, earlier: EarlierState
    ) -> Outputs:
        fields = [name for name, _ in self.columns]
        calls = Calls(self.caller, self.node, fields, windows, members, keys)
        answers, failures, states = calls.run(shown, earlier.changed, earlier.states.get("operator"))
        out = replace(self._with_lifetimes(windows, answers), failures=tuple(failures))
        return replace(out, states=pa.table({"operator": pa.array(states, pa.binary())}) if self.stateful else None)

    def _with_lifetimes(self, windows: Windows, answers: list[Any]) -> Outputs:
        rows = [(number, *output) for number, outputs in enumerate(answers) for output in outputs or ()]
        schema = self.operate.module.gives.arrow
        columns = list(zip(*rows, strict=True)) or [()] * (3 + len(schema))
        payload = pa.Table.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns[3:], schema, strict=True)], schema=schema
        )
        of = np.array(columns[0], np.int64)
        if self.node.timestamping == "align":
            return self._aligned(windows, of, payload)
        le, re = np.array(columns[1], np.int64), np.array(columns[2], np.int64)
        if self.node.timestamping == "clip":
            le, re = np.maximum(le, windows.le[of]), np.minimum(re, windows.re[of])
            nonempty = le < re
            return Outputs(of[nonempty], le[nonempty], re[nonempty], payload.filter(pa.array(nonempty)))
        return Outputs(of, le, re, payload)


class EventsContent(Content):
    """Every event of each window, in all its copies."""

    adds_up = True

    def __init__(self, node: Contents) -> None:
        super().__init__(node)
        self.contents = node

    @property
    def columns(self) -> tuple[tuple[str, Expr], ...]:
        return tuple((f"arg{i}", col(name)) for i, name in enumerate(self.contents.input.schema.names))

    def outputs(
        self,
        windows: Windows,
        members: Members | StoredMembers,
        keys: pa.Table,  # noqa: ARG002
        shown: Bools,
        earlier: EarlierState,  # noqa: ARG002
    ) -> Outputs:
        members = members.of(np.flatnonzero(shown))
        window, row = members.window, members.row
        copies = np.repeat(np.arange(len(row)), members.events.weight[row])
        window, row = window[copies], row[copies]
        payload = members.events.payload.select([name for name, _ in self.columns]).take(pa.array(row))
        payload = payload.rename_columns(list(self.contents.input.schema.names))
        if self.contents.start is not None:
            payload = payload.append_column(self.contents.start, pa.array(windows.le[window]))
        return self._aligned(windows, window, payload)


class TopContent(Content):
    """The first k events of each window in an order."""

    def __init__(self, node: Top) -> None:
        super().__init__(node)
        self.top = node
        self.from_outputs = not node.skip  # outputs do not show the events that are skipped
        self._parts = {
            "by": node.by,
            "each": node.each,
            "distinct": node.distinct,
            "arg": tuple(col(name) for name in node.input.schema.names),
            "seen": tuple(expr for _, place in node.around if (expr := argument_of(place)) is not None),
        }

    @property
    def columns(self) -> tuple[tuple[str, Expr], ...]:
        return tuple((f"{part}{i}", expr) for part, exprs in self._parts.items() for i, expr in enumerate(exprs))

    def _names(self, part: str) -> list[str]:
        return [f"{part}{i}" for i in range(len(self._parts[part]))]

    @property
    def continues(self) -> bool:
        return self.from_outputs or bool(self.orders)

    @property
    def orders(self) -> tuple[MemberOrder, ...]:
        """Its own, if the first members decide."""
        if self.top.each or self.top.distinct or self.top.k == INFINITY:
            return ()
        return (self._order,)

    @property
    def _order(self) -> MemberOrder:
        directions = ["descending" if down else "ascending" for down in self.top.directions]
        by = zip(self._names("by"), directions, strict=True)
        return MemberOrder((*by, *((name, "ascending") for name in self._names("arg"))))

    def outputs(
        self,
        windows: Windows,
        members: Members | StoredMembers,
        keys: pa.Table,  # noqa: ARG002
        shown: Bools,
        earlier: EarlierState,
    ) -> Outputs:
        members = self._candidates(members, shown, earlier)
        events = members.events
        payload_names = self._names("arg")
        rank = ranks(events.payload, self._order.columns)
        order = np.lexsort((rank[members.row], members.window))
        window, row = members.window[order], members.row[order]
        # An event with two copies takes two places.
        copies = np.repeat(np.arange(len(row)), events.weight[row])
        window, row = window[copies], row[copies]
        if self.top.distinct:
            best = places_of(self._codes("distinct", events.payload, window, row)) < 1
            window, row = window[best], row[best]
        group = self._codes("each", events.payload, window, row) if self.top.each else window
        place = places_of(group)
        best = (place >= self.top.skip) & (place < self.top.skip + self.top.k)
        payload = events.payload.select(payload_names).take(pa.array(row[best]))
        payload = payload.rename_columns(list(self.top.input.schema.names))
        if self.top.places:  # there are no `each` and `distinct` beside it
            payload = self._with_places(payload, window, row, best, events.payload)
        return self._aligned(windows, window[best], payload)

    def _with_places(self, payload: pa.Table, window: Int64s, row: Int64s, best: Bools, events: pa.Table) -> pa.Table:
        """The best rows with their places among all, and with what they see of the rows around them."""
        peers = factorize(events.select(self._names("by")))[0][row]
        ranked = RankedRows(window, peers, events.column("by0").take(pa.array(row)), self.top.directions[0])
        values = iter(self._names("seen"))
        for name, place in self.top.places:
            if isinstance(place, Around):
                needed = None if argument_of(place) is None else events.column(next(values)).take(pa.array(row))
                column = seen_around(place, ranked, needed, self.top.input)
            else:
                equal = factorize(events.select(self._names("arg")))[0][row] if place == "copy" else peers
                column = pa.array(PLACES[place](window, equal)[best])
            payload = payload.append_column(name, column)
        return payload

    def needs(self, earlier: EarlierState, windows: int) -> Needed:
        """A window is read if it has no outputs, or loses one: otherwise its outputs and new events decide."""
        lost, nothing = self._lost(earlier, windows), np.zeros(windows, bool)
        return Needed(nothing, lost) if self.orders else Needed(lost, nothing)

    def _lost(self, earlier: EarlierState, windows: int) -> Bools:
        result = np.ones(windows, bool)
        if earlier.answered is None or earlier.outputs is None:
            return result
        result[earlier.answered] = False
        lost = earlier.loses_items
        if len(lost):
            names = [*self.top.input.schema.names, WINDOW]
            gone = earlier.changed.events.payload.select(self._names("arg")).take(pa.array(earlier.changed.row[lost]))
            gone = gone.append_column(WINDOW, pa.array(earlier.changed.window[lost])).rename_columns(names)
            (of_gone, of_known), _ = number_rows(gone, earlier.outputs.select(names))
            result[earlier.changed.window[lost[np.isin(of_gone, of_known)]]] = True
        return result

    def _candidates(self, members: Members | StoredMembers, shown: Bools, earlier: EarlierState) -> Members:
        """The members of windows that are read; of others the earlier outputs, and events that are new."""
        if isinstance(members, Members):
            return members.of(np.flatnonzero(shown))
        here, changed, outputs = members.of(np.flatnonzero(members.ready & shown)), earlier.changed, earlier.outputs
        here = self._with_first(here, members, shown)
        if outputs is None:
            return here
        goes_on = ~members.ready & ~members.sought & shown
        new = goes_on[changed.window] & (changed.events.weight[changed.row] > 0)
        of = to_numpy(outputs.column(WINDOW))
        old = np.flatnonzero(goes_on[of])
        known = outputs.take(pa.array(old))
        columns = canonical_floats(pa.table({name: evaluate(expr, known) for name, expr in self.columns}))
        zero = np.zeros(len(old), np.int64)
        parts = [
            here.events.take(here.row),
            changed.events.take(changed.row[new]),
            Changes.inserts(zero, zero, columns),
        ]
        events = Changes.concat([part.with_payload(part.payload.select(columns.column_names)) for part in parts])
        return Members(np.r_[here.window, changed.window[new], of[old]], np.arange(len(events)), events)

    def _with_first(self, here: Members, members: StoredMembers, shown: Bools) -> Members:
        """Members, and the first ones of the windows for which these are enough."""
        if members.first is None or not members.sought.any():
            return here
        first = members.first(np.flatnonzero(members.sought & shown), 0, self.top.skip + self.top.k)
        events = Changes.concat([here.events.take(here.row), first.events.take(first.row)])
        return Members(np.r_[here.window, first.window], np.arange(len(events)), events)

    def _codes(self, part: str, payload: pa.Table, window: Int64s, row: Int64s) -> Int64s:
        """A number for each event, equal for equal windows and equal values of a part."""
        codes, first = factorize(payload.select(self._names(part)))
        return window * max(len(first), 1) + codes[row]


def _without_states(modules: Mapping[str, Module], earlier: EarlierState, windows: int) -> Needed:
    """The windows in which a module keeps no state, or cannot continue from it."""
    changes, loses = np.zeros(windows, bool), np.zeros(windows, bool)
    changes[earlier.changed.window] = True
    loses[earlier.changed.window[earlier.loses_items]] = True
    result = np.zeros(windows, bool)
    for name, module in modules.items():
        has_state = np.array([state is not None for state in earlier.states[name]], bool)
        result |= ~(has_state & goes_on(module, changes, loses))
    return Needed(result, np.zeros(windows, bool))


_CONTENTS: dict[type[PerWindow], Callable[[Any], Content]] = {
    Aggregate: AggregateContent,
    Contents: EventsContent,
    Operate: OperateContent,
    Top: TopContent,
}
