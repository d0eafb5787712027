"""Built-in aggregates of windows as sums that are kept, so that a change is added and the members are not read.

Counts, sums, averages and variances also subtract. The least and the greatest value do not: a window is read again when
a value is taken back that may be one of them. Aggregates that need all values are not kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Bools, concat, to_numpy
from headrace.operators.aggregate.accumulators import COUNT, PART, Argument, Layout
from headrace.operators.aggregate.combine import compact
from headrace.operators.evaluate import evaluate_changes
from headrace.operators.per_window.items import EarlierState, Members, StoredMembers
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

    def reads(self, earlier: EarlierState, windows: int) -> Bools:
        """The windows without sums, and those that may lose their least or greatest value."""
        result = np.ones(windows, bool)
        if earlier.sums is None or COUNT not in earlier.sums.column_names:
            return result
        known = np.asarray(earlier.sums.column(COUNT).is_valid())
        result[to_numpy(earlier.sums.column(WINDOW))[known]] = False
        lost = earlier.loses_items
        extremes = [a for a in self.layout.arguments.values() if a.mergeable_extremes]
        if len(lost) and extremes:
            window, events = earlier.changed.window[lost], earlier.changed.events.take(earlier.changed.row[lost])
            sums = by_window(earlier.sums, windows).take(pa.array(window))
            for argument in extremes:
                result[window[~_inside(argument, events, sums)]] = True
        return result

    def totals(self, members: Members | StoredMembers, earlier: EarlierState, windows: int) -> pa.Table:
        """The sums of each window that has members; of those that are not read, the earlier sums and what changed."""
        nothing = Members(*(np.empty(0, np.int64),) * 2, earlier.changed.events)
        read, new = np.ones(windows, bool), nothing
        if isinstance(members, StoredMembers):
            read = members.ready
            new = earlier.changed.of(np.flatnonzero(~read))
        here = members.of(np.flatnonzero(read))
        events = [part.events.take(part.row) for part in (here, new)]
        number = pa.array(np.r_[here.window, new.window])
        sums = self.layout.sums_table(Changes.concat(events), pa.table({WINDOW: number}))
        lost = pa.array(np.r_[events[0].weight, events[1].weight] < 0)
        for name in self.layout.extreme_columns:
            kept = pc.if_else(lost, pa.scalar(None, sums.column(name).type), sums.column(name))
            sums = sums.set_column(sums.schema.get_field_index(name), name, kept)
        if earlier.sums is not None:
            known = earlier.sums.filter(pa.array(~read[to_numpy(earlier.sums.column(WINDOW))]))
            sums = concat([known, sums])
        sums = sums.add_column(0, PART, pa.array(np.zeros(sums.num_rows, np.int8)))
        return compact(sums, self.layout, [WINDOW])


def _inside(argument: Argument, events: Changes, sums: pa.Table) -> Bools:
    """Whether values are null, or greater than the least and less than the greatest one of their window."""
    values = evaluate_changes(argument.expr, events.payload, events.weight)
    inside = np.ones(len(events), bool)
    for function, beyond in (("min", pc.greater), ("max", pc.less)):
        if function in argument.functions:
            apart = beyond(values, sums.column(f"{argument.prefix}{function}"))
            inside &= np.asarray(pc.or_(pc.is_null(values), pc.fill_null(apart, False)))
    return inside


def by_window(rows: pa.Table, windows: int) -> pa.Table:
    """The row of each window, in order; nulls for a window that has none."""
    place = np.full(windows, -1, np.int64)
    place[to_numpy(rows.column(WINDOW))] = np.arange(rows.num_rows)
    return rows.take(pa.array(place, mask=place < 0))
