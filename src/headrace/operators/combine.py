"""Combining: the first half of a windowed aggregate, wherever the rows are.

Rows of one group that belong to the same run of windows `FIRST..LAST` are combined into one row of partial results. For
points under tumbling windows that is one row per group and window; under hopping windows it is the *pane* of the
papers; for events with lifetimes it is the same idea, for any lifetime.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import canonical_floats, concat, factorize, to_numpy
from headrace.expr import evaluate
from headrace.operators.accumulators import BAG_LE, COUNT, PART, Layout
from headrace.plan.nodes import Combine

__all__ = ["FIRST", "LAST", "combine", "compact"]

FIRST, LAST = "__first", "__last"
_WINDOWS = (FIRST, "__window")
_WORTH_COUNTING = 4096


def combine(node: Combine, changes: Changes) -> pa.Table:
    """Partial results per group and run of windows."""
    layout = Layout(node.aggregate)
    window = node.aggregate.window
    first, last = window.first(changes.le), window.last(changes.le, changes.re)
    somewhere = first <= last  # under jumping windows an event may belong to none
    if not somewhere.all():
        changes, first, last = changes.filter(somewhere), first[somewhere], last[somewhere]
    keys = pa.Table.from_arrays(
        [evaluate(expr, changes.payload) for _, expr in node.aggregate.keys], schema=node.schema.arrow
    ) if node.aggregate.keys else pa.table({"__all": pa.nulls(len(changes))}).select([])  # fmt: skip
    keys = canonical_floats(keys)
    keys = keys.append_column(FIRST, pa.array(first)).append_column(LAST, pa.array(last))
    sums = layout.sums_table(changes, keys)
    sums = sums.add_column(0, PART, pa.array(np.zeros(len(changes), np.int8)))
    return concat([compact(part, layout, [FIRST, LAST]) for part in [sums, *layout.bag_tables(changes, keys)]])


def compact(table: pa.Table, layout: Layout, windows: list[str]) -> pa.Table:
    """Rows of the same part, group and windows (and value, in a bag) added up; rows that cancel dropped."""
    if table.num_rows == 0:
        return table
    table = _only_best(table, layout, windows)
    by = [name for name in [PART, *layout.keys, *windows, *layout.bag_columns] if name in table.column_names]
    rest = [name for name in table.column_names if name not in by]
    merged = _grouped(table, by, [(name, _merge_of(name)) for name in rest])
    for name in rest:  # a limb that one part lacks is zero there
        if _merge_of(name) == "sum" and merged.column(name).null_count:
            merged = merged.set_column(merged.schema.get_field_index(name), name, pc.fill_null(merged.column(name), 0))
    if layout.insert_only:
        return merged
    zero = pc.equal(merged.column(COUNT), 0)
    for name in rest:
        if _merge_of(name) == "sum" and name != COUNT:
            zero = pc.and_(zero, pc.equal(merged.column(name), 0))
    return merged.filter(pc.invert(zero)) if pc.any(zero).as_py() else merged


def _grouped(table: pa.Table, by: list[str], merges: list[tuple[str, str]]) -> pa.Table:
    """Sums by group. Columns that say nothing new (the same everywhere, or a window that follows from the first) are
    left out of the grouping, which costs by the column, and put back.
    """
    told = {PART: _constant(table.column(PART))} if PART in by else {}
    runs = FIRST in by and LAST in by
    length = _constant(pc.subtract(table.column(LAST), table.column(FIRST))) if runs else None
    keys = [n for n in by if told.get(n) is None and not (n == LAST and length is not None)]
    merged = _dense(table, keys, merges)
    if merged is None:
        merged = table.group_by(keys, use_threads=False).aggregate(merges)
        merged = merged.rename_columns({f"{name}_{how}": name for name, how in merges})
    if length is not None:
        merged = merged.append_column(LAST, pc.add(merged.column(FIRST), length))
    if told.get(PART) is not None:
        merged = merged.append_column(PART, pa.array(np.full(merged.num_rows, told[PART], np.int8)))
    return merged.select([*by, *(name for name, _ in merges)])


def _dense(table: pa.Table, keys: list[str], merges: list[tuple[str, str]]) -> pa.Table | None:
    """The same sums, found by counting: groups × windows are numbered, and each sum is one pass over the rows.

    Quicker than hashing where there are many rows to a group. None when there are not, or when a sum might not be
    exact: counting adds in floats, which hold whole numbers up to 2**53.
    """
    rows = table.num_rows
    places = [name for name in keys if name in _WINDOWS]
    if rows < _WORTH_COUNTING or len(places) != 1 or any(how != "sum" for _, how in merges):
        return None
    columns = {name: to_numpy(table.column(name)) for name, _ in merges if not table.column(name).null_count}
    ends = {name: (int(column.min()), int(column.max())) for name, column in columns.items()}
    if len(columns) < len(merges) or max(max(-low, high) for low, high in ends.values()) * rows >= 2**53:
        return None
    groups = [name for name in keys if name not in places]
    codes, first = factorize(table.select(groups)) if groups else (np.zeros(rows, np.int64), np.zeros(1, np.int64))
    window = to_numpy(table.column(places[0]))
    start, span = int(window.min()), int(window.max()) - int(window.min()) + 1
    if len(first) * span > rows:
        return None
    number = codes * span + (window - start)
    size = len(first) * span
    counts = np.bincount(number, minlength=size)
    found = np.flatnonzero(counts)
    result = table.select([*groups, places[0]]).take(pa.array(first[found // span]))
    result = result.set_column(len(groups), places[0], pa.array(found % span + start))
    for name, column in columns.items():
        ones = ends[name] == (1, 1)
        sums = counts if ones else np.bincount(number, weights=column, minlength=size)
        result = result.append_column(name, pa.array(sums[found].astype(np.int64)))
    return result


def _constant(column: pa.ChunkedArray) -> int | None:
    """The one value of a column of integers, if it has only one."""
    ends = pc.min_max(column).as_py()
    return ends["min"] if ends["min"] == ends["max"] else None


def _merge_of(column: str) -> str:
    return {"min": "min", "max": "max"}.get(column.rpartition(".")[2], "sum")


def _only_best(table: pa.Table, layout: Layout, windows: list[str]) -> pa.Table:
    """Without retractions, a bag kept for `first` and `last` needs only its ends."""
    if not layout.insert_only or BAG_LE not in table.column_names:
        return table
    group = [PART, *layout.keys, *windows]
    codes, _ = factorize(table.select(group))
    values = [name for name in layout.bag_columns if name != BAG_LE and name in table.column_names]
    ranked = table.append_column("__code", pa.array(codes))
    order = pc.sort_indices(ranked, [(name, "ascending") for name in ["__code", BAG_LE, *values]]).to_numpy()
    border = np.flatnonzero(np.diff(codes[order]))
    ends = np.unique(np.r_[0, border, border + 1, len(order) - 1])
    sums = np.asarray(pc.equal(table.column(PART), 0))[order]
    return table.take(pa.array(order[np.isin(np.arange(len(order)), ends) | sums]))
