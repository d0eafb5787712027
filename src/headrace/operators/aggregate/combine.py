"""Combining: the first half of a windowed aggregate, before rows are brought together by key.

Rows of one group that belong to the same run of windows `FIRST..LAST` are combined into one row of partial results. For
points under tumbling windows that is one row per group and window; under hopping windows it is the *pane* of the
papers; for events with lifetimes it is the same idea, for any lifetime.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Int64s, canonical_floats, concat, factorize, group_sum, to_numpy
from headrace.operators.aggregate.accumulators import BAG_LE, PART, Argument, Layout
from headrace.operators.aggregate.extremes import extremes
from headrace.operators.aggregate.running import without_zeros
from headrace.operators.evaluate import evaluate_changes
from headrace.plan.nodes import Combine
from headrace.plan.windows import Grid

__all__ = ["FIRST", "LAST", "combine", "compact", "merged_column"]

FIRST, LAST = "__first", "__last"
_EXTREMES = ("min", "max")


def combine(node: Combine, changes: Changes) -> pa.Table:
    """Partial results per group and run of windows."""
    layout = Layout(node.aggregate)
    window = node.aggregate.window
    assert isinstance(window, Grid)
    keys = pa.Table.from_arrays(
        [evaluate_changes(expr, changes.payload, changes.weight) for _, expr in node.aggregate.keys],
        schema=node.schema.arrow,
    ) if node.aggregate.keys else pa.table({"__all": pa.nulls(len(changes))}).select([])  # fmt: skip
    # Under jumping windows an event may be in no window: its run is empty, but its end still counts (rule 5.3).
    first, later = window.runs(changes.le, changes.re)
    by = canonical_floats(keys).append_column(FIRST, pa.array(first))
    if isinstance(later, int) and not layout.bag_columns:  # the last windows follow from the first
        sums = layout.combined_sums(changes, by)
        sums = sums.add_column(by.num_columns, LAST, pa.array(to_numpy(sums.column(FIRST)) + later))
        bags = []
    else:
        by = by.append_column(LAST, pa.array(first + later))
        sums = layout.combined_sums(changes, by)
        bags = [compact(bag, layout, [FIRST, LAST]) for bag in layout.bag_tables(changes, by)]
    sums = sums.add_column(0, PART, pa.array(np.zeros(sums.num_rows, np.int8)))
    return concat([_without_cancelled(sums, [PART, *layout.keys, FIRST, LAST], layout), *bags])


def compact(table: pa.Table, layout: Layout, windows: list[str], along: Sequence[str] = ()) -> pa.Table:
    """Sum rows of the same part, group and windows (and value, in a bag); drop rows that cancel.

    The columns `along` are equal where the others are.
    """
    if table.num_rows == 0:
        return table
    table = _least_hashes(_only_ends(table, layout, windows), layout, windows)
    by = [name for name in [PART, *layout.keys, *windows, *layout.bag_columns] if name in table.column_names]
    codes, first = factorize(_without_redundant(table.select(by)))
    by += along
    rest = [name for name in table.column_names if name not in by]
    merged = table.select(by).take(pa.array(first))
    for name in rest:
        merged = merged.append_column(name, merged_column(name, table.column(name), codes, len(first)))
    return _without_cancelled(merged, by, layout)


def _without_cancelled(table: pa.Table, by: list[str], layout: Layout) -> pa.Table:
    return table if layout.insert_only else without_zeros(table, [*by, *layout.extreme_columns])


def _without_redundant(by: pa.Table) -> pa.Table:
    """Without the last windows, if they follow from the first."""
    if FIRST not in by.column_names or LAST not in by.column_names:
        return by
    later = to_numpy(by.column(LAST)) - to_numpy(by.column(FIRST))
    return by.drop_columns([LAST]) if (later == later[0]).all() else by


def merged_column(name: str, column: pa.ChunkedArray, codes: Int64s, size: int) -> pa.Array:
    """The sum, or the least or greatest value, per code."""
    how = name.rpartition(".")[2]
    column = column.combine_chunks()
    if how in _EXTREMES:
        return extremes(column, codes, size)[_EXTREMES.index(how)]
    # A limb that one part lacks is zero there.
    return pa.array(group_sum(codes, to_numpy(pc.fill_null(column, 0) if column.null_count else column), size))


def _only_ends(table: pa.Table, layout: Layout, windows: list[str]) -> pa.Table:
    """Without retractions, a bag kept for `first` and `last` needs only its ends."""
    for argument in layout.arguments.values():
        if argument.bag and argument.only_ends and argument.value in table.column_names:
            rows, codes = _rows_of(argument, table, layout, windows)
            bag = table.select([BAG_LE, argument.value]).take(pa.array(rows)).add_column(0, "__code", pa.array(codes))
            order = pc.sort_indices(bag, [(name, "ascending") for name in bag.column_names]).to_numpy()
            border = np.flatnonzero(np.diff(codes[order]))
            ends = np.unique(np.r_[0, border, border + 1, len(order) - 1]) if len(order) else order
            table = _without(table, np.delete(rows[order], ends))
    return table


def _least_hashes(table: pa.Table, layout: Layout, windows: list[str]) -> pa.Table:
    """Keep the least hashes of each group, up to the size of a sketch."""
    for argument in layout.arguments.values():
        if argument.sketch and argument.value in table.column_names:
            rows, codes = _rows_of(argument, table, layout, windows)
            large = np.bincount(codes)[codes] > argument.sketch_size if len(codes) else codes > 0
            if not large.any():
                continue
            rows, codes = rows[large], codes[large]
            hashes = to_numpy(table.column(argument.value).take(pa.array(rows)))
            order = np.lexsort((hashes, codes))
            groups, hashes = codes[order], hashes[order]
            begins = np.diff(groups, prepend=-1) != 0
            number = np.cumsum(begins | (np.diff(hashes, prepend=hashes[:1]) != 0))
            place = number - np.repeat(number[begins], np.diff(np.r_[np.flatnonzero(begins), len(order)]))
            table = _without(table, rows[order[place >= argument.sketch_size]])
    return table


def _rows_of(argument: Argument, table: pa.Table, layout: Layout, windows: list[str]) -> tuple[Int64s, Int64s]:
    """The rows of an argument's bag, and a code for the group and windows of each."""
    rows = np.flatnonzero(to_numpy(table.column(PART)) == argument.part)
    codes, _ = factorize(table.select([*layout.keys, *windows]).take(pa.array(rows)))
    return rows, codes


def _without(table: pa.Table, rows: Int64s) -> pa.Table:
    if len(rows) == 0:
        return table
    kept = np.ones(table.num_rows, bool)
    kept[rows] = False
    return table.filter(pa.array(kept))
