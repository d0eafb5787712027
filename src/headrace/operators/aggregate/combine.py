"""Combining: the first half of a windowed aggregate, before rows are brought together by key.

Rows of one group that belong to the same run of windows `FIRST..LAST` are combined into one row of partial results. For
points under tumbling windows that is one row per group and window; under hopping windows it is the *pane* of the
papers; for events with lifetimes it is the same idea, for any lifetime.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Int64s, canonical_floats, concat, factorize, group_sum, to_numpy
from headrace.operators.aggregate.accumulators import BAG_LE, COUNT, PART, Argument, Layout
from headrace.operators.evaluate import evaluate_changes
from headrace.plan.nodes import Combine
from headrace.plan.windows import Grid

__all__ = ["FIRST", "LAST", "combine", "compact"]

FIRST, LAST = "__first", "__last"
_WORTH_COUNTING = 4096


def combine(node: Combine, changes: Changes) -> pa.Table:
    """Partial results per group and run of windows."""
    layout = Layout(node.aggregate)
    window = node.aggregate.window
    assert isinstance(window, Grid)
    first, last = window.first(changes.le), window.last(changes.le, changes.re)
    # Under jumping windows an event may be in no window: its run is empty, but its end still counts (rule 5.3).
    keys = pa.Table.from_arrays(
        [evaluate_changes(expr, changes.payload, changes.weight) for _, expr in node.aggregate.keys],
        schema=node.schema.arrow,
    ) if node.aggregate.keys else pa.table({"__all": pa.nulls(len(changes))}).select([])  # fmt: skip
    keys = canonical_floats(keys)
    keys = keys.append_column(FIRST, pa.array(first)).append_column(LAST, pa.array(last))
    sums = layout.sums_table(changes, keys)
    sums = sums.add_column(0, PART, pa.array(np.zeros(len(changes), np.int8)))
    return concat([compact(part, layout, [FIRST, LAST]) for part in [sums, *layout.bag_tables(changes, keys)]])


def compact(table: pa.Table, layout: Layout, windows: list[str]) -> pa.Table:
    """Sum rows of the same part, group and windows (and value, in a bag); drop rows that cancel."""
    if table.num_rows == 0:
        return table
    table = _least_hashes(_only_ends(table, layout, windows), layout, windows)
    by = [name for name in [PART, *layout.keys, *windows, *layout.bag_columns] if name in table.column_names]
    rest = [name for name in table.column_names if name not in by]
    for name in rest:  # a limb that one part lacks is zero there
        if _merge_of(name) == "sum" and table.column(name).null_count:
            table = table.set_column(table.schema.get_field_index(name), name, pc.fill_null(table.column(name), 0))
    merged = _sum_by_group(table, by, [(name, _merge_of(name)) for name in rest])
    if layout.insert_only:
        return merged
    zero = pc.equal(merged.column(COUNT), 0)
    for name in rest:
        if _merge_of(name) == "sum" and name != COUNT:
            zero = pc.and_(zero, pc.equal(merged.column(name), 0))
    return merged.filter(pc.invert(zero)) if pc.any(zero).as_py() else merged


def _sum_by_group(table: pa.Table, by: list[str], merges: list[tuple[str, str]]) -> pa.Table:
    """Sums by group. Redundant columns (constant, or a last window that follows from the first) are not grouped by,
    which saves time, and added afterwards.
    """
    constants = {PART: _constant(table.column(PART))} if PART in by else {}
    runs = FIRST in by and LAST in by
    length = _constant(pc.subtract(table.column(LAST), table.column(FIRST))) if runs else None
    keys = [n for n in by if constants.get(n) is None and not (n == LAST and length is not None)]
    merged = _sum_by_counting(table, keys, merges)
    if merged is None:
        merged = table.group_by(keys, use_threads=False).aggregate(merges)
        merged = merged.rename_columns({f"{name}_{how}": name for name, how in merges})
    if length is not None:
        merged = merged.append_column(LAST, pc.add(merged.column(FIRST), length))
    if constants.get(PART) is not None:
        merged = merged.append_column(PART, pa.array(np.full(merged.num_rows, constants[PART], np.int8)))
    return merged.select([*by, *(name for name, _ in merges)])


def _sum_by_counting(table: pa.Table, keys: list[str], merges: list[tuple[str, str]]) -> pa.Table | None:
    """The same sums with numbered groups, one pass over the rows for each sum.

    Faster than hashing; None if not all merges are sums, or there are few rows.
    """
    if table.num_rows < _WORTH_COUNTING or not keys or any(how != "sum" for _, how in merges):
        return None
    codes, first = factorize(table.select(keys))
    result = table.select(keys).take(pa.array(first))
    for name, _ in merges:
        result = result.append_column(name, pa.array(_sums(codes, to_numpy(table.column(name)), len(first))))
    return result


def _sums(codes: Int64s, values: Int64s, groups: int) -> Int64s:
    """Exact sums per code; the quick way adds in floats, which hold whole numbers up to 2**53."""
    low, high = int(values.min()), int(values.max())
    if max(-low, high) * len(values) >= 2**53:
        return group_sum(codes, values, groups)
    return np.bincount(codes, weights=None if low == high == 1 else values, minlength=groups).astype(np.int64)


def _constant(column: pa.ChunkedArray) -> int | None:
    """The value of a constant column of integers; None for others."""
    ends = pc.min_max(column).as_py()
    return ends["min"] if ends["min"] == ends["max"] else None


def _merge_of(column: str) -> str:
    return {"min": "min", "max": "max"}.get(column.rpartition(".")[2], "sum")


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
