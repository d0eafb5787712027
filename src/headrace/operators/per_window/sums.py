"""Built-in aggregates of windows as sums that are kept, so that a change is added and the members are not read.

Counts, sums, averages and variances also subtract. The least and the greatest value do not: when a value is taken back
that may be one of them, the next one is found in an order of the members, or the window is read again. Aggregates that
need all values are not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Bools, concat, to_numpy
from headrace.operators.aggregate.accumulators import COUNT, PART, Argument, Layout
from headrace.operators.aggregate.combine import compact
from headrace.operators.evaluate import evaluate_changes
from headrace.operators.per_window.items import EarlierState, Members, Needed, StoredMembers
from headrace.plan.nodes import Aggregate

__all__ = ["WINDOW", "WindowSums", "by_window"]

#: The number of a row's window.
WINDOW = "__window"


class _Kept(Layout):
    """The layout of an input without retractions: the least and greatest value are columns."""

    insert_only = True


@dataclass(frozen=True)
class WindowSums:
    """The sums of windows."""

    layout: Layout

    @classmethod
    def of(cls, node: Aggregate) -> WindowSums | None:
        """The sums of these aggregates; None if one of them needs all values."""
        layout = _Kept(node)
        return None if any(argument.bag for argument in layout.arguments.values()) else cls(layout)

    def stored_in(self, rows: pa.Table) -> pa.Table:
        """The columns of sums in rows of states, with the number of the window."""
        prefixes = (COUNT, *(argument.prefix for argument in self.layout.arguments.values()))
        return rows.select([WINDOW, *(name for name in rows.column_names if name.startswith(prefixes))])

    @property
    def extremes(self) -> list[Argument]:
        """The arguments of which the least or the greatest value is kept."""
        return [argument for argument in self.layout.arguments.values() if argument.mergeable_extremes]

    def _lost(self, earlier: EarlierState, windows: int) -> list[_Lost]:
        """The least and greatest values that a change may have taken back, and in which windows."""
        lost = earlier.loses_items
        if earlier.sums is None or len(lost) == 0 or COUNT not in earlier.sums.column_names:
            return []
        window, events = earlier.changed.window[lost], earlier.changed.events.take(earlier.changed.row[lost])
        sums = by_window(earlier.sums, windows).take(pa.array(window))
        found = []
        for number, argument in enumerate(self.extremes):
            values = evaluate_changes(argument.expr, events.payload, events.weight)
            for function, beyond in (("min", pc.greater), ("max", pc.less)):
                if function in argument.functions:
                    name, some = f"{argument.prefix}{function}", np.zeros(windows, bool)
                    some[window[~_beyond(beyond, values, sums.column(name))]] = True
                    found.append(_Lost(number, name, some, back=function == "max"))
        return found

    def needs(self, earlier: EarlierState, windows: int) -> Needed:
        """All of windows without sums; the first ones of windows that may lose their least or greatest value."""
        whole = np.ones(windows, bool)
        if earlier.sums is not None and COUNT in earlier.sums.column_names:
            known = np.asarray(earlier.sums.column(COUNT).is_valid())
            whole[to_numpy(earlier.sums.column(WINDOW))[known]] = False
        first = np.zeros(windows, bool)
        for one in self._lost(earlier, windows):
            first |= one.windows
        return Needed(whole, first & ~whole)

    def totals(self, members: Members | StoredMembers, earlier: EarlierState, windows: int) -> pa.Table:
        """The sums of each window that has members; of those that are not read, the earlier sums and what changed."""
        nothing = Members(*(np.empty(0, np.int64),) * 2, earlier.changed.events)
        read, new, known = np.ones(windows, bool), nothing, earlier.sums
        if isinstance(members, StoredMembers):
            read = members.ready
            new = earlier.changed.of(np.flatnonzero(~read))
        here = members.of(np.flatnonzero(read))
        events = [part.events.take(part.row) for part in (here, new)]
        number = pa.array(np.r_[here.window, new.window])
        sums = self.layout.sums_table(Changes.concat(events), pa.table({WINDOW: number}))
        lost = pa.array(np.r_[events[0].weight, events[1].weight] < 0)
        for name in self.layout.extreme_columns:
            sums = _without(sums, name, lost)
        if known is not None:
            known = known.filter(pa.array(~read[to_numpy(known.column(WINDOW))]))
            sums = concat([*self._found(members, earlier, known, windows), sums])
        sums = sums.add_column(0, PART, pa.array(np.zeros(sums.num_rows, np.int8)))
        return compact(sums, self.layout, [WINDOW])

    def _found(
        self, members: Members | StoredMembers, earlier: EarlierState, known: pa.Table, windows: int
    ) -> list[pa.Table]:
        """The known sums without the extremes that are lost, and the extremes that are found instead."""
        if not isinstance(members, StoredMembers) or members.first is None or not members.sought.any():
            return [known]
        found = []
        for one in self._lost(earlier, windows):
            some = one.windows & members.sought
            known = _without(known, one.name, pa.array(some[to_numpy(known.column(WINDOW))]))
            first = members.first(np.flatnonzero(some), one.argument, 1, back=one.back)
            argument = self.extremes[one.argument]
            values = evaluate_changes(argument.expr, first.events.payload, first.events.weight)
            found.append(pa.table({WINDOW: first.window, one.name: values.take(pa.array(first.row))}))
        return [known, *found]


@dataclass(frozen=True)
class _Lost:
    """The windows that may lose the least or greatest value of an argument, kept in a column."""

    argument: int
    name: str
    windows: Bools
    back: bool


def _beyond(beyond: Callable[..., pa.Array], values: pa.Array, extreme: pa.ChunkedArray) -> Bools:
    """Whether values are null, or not as far out as the extreme of their window."""
    return np.asarray(pc.or_(pc.is_null(values), pc.fill_null(beyond(values, extreme), False)))


def _without(sums: pa.Table, name: str, rows: pa.Array) -> pa.Table:
    """Sums with nulls in a column, in some rows."""
    kept = pc.if_else(rows, pa.scalar(None, sums.column(name).type), sums.column(name))
    return sums.set_column(sums.schema.get_field_index(name), name, kept)


def by_window(rows: pa.Table, windows: int) -> pa.Table:
    """The row of each window, in order; nulls for a window that has none."""
    place = np.full(windows, -1, np.int64)
    place[to_numpy(rows.column(WINDOW))] = np.arange(rows.num_rows)
    return rows.take(pa.array(place, mask=place < 0))
