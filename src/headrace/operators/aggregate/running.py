"""Partial results that enter and leave: negation, running sums, and removal of zeros."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace import coding
from headrace.columnar import Int64s, to_numpy

__all__ = ["negate", "order_of_steps", "running_sums", "without_zeros"]


def _sums(table: pa.Table, others: Collection[str]) -> list[str]:
    return [name for name in table.column_names if name not in others]


def _set(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)


def negate(table: pa.Table, others: Collection[str]) -> pa.Table:
    """Rows that take back these rows; `others` are the columns that are not sums."""
    for name in _sums(table, others):
        table = _set(table, name, pc.negate(table.column(name)))
    return table


def without_zeros(table: pa.Table, others: Collection[str]) -> pa.Table:
    """Rows of which some sum is not zero."""
    nonzero = np.zeros(table.num_rows, bool)
    for name in _sums(table, others):
        nonzero |= to_numpy(pc.fill_null(table.column(name), 0)) != 0
    return table if nonzero.all() else table.filter(pa.array(nonzero))


def order_of_steps(groups: Int64s, at: Int64s) -> tuple[Int64s, Int64s]:
    """The order of rows by group and time, and the places in it where a row is the last one of its group and time."""
    if len(groups) == 0:
        return groups, groups
    low, high = coding.ends(at)
    span = high - low + 1
    if (int(groups.max()) + 1) * span < 2**62:
        numbers = coding.with_digit(groups, 0, at, low, span)
        order = np.argsort(numbers)
        return order, np.flatnonzero(np.r_[np.diff(numbers[order]) != 0, True])
    order = np.lexsort((at, groups))
    groups, at = groups[order], at[order]
    return order, np.flatnonzero(np.r_[(np.diff(groups) != 0) | (np.diff(at) != 0), True])


def running_sums(columns: Mapping[str, Int64s], groups: Int64s, order: Int64s, last: Int64s) -> dict[str, Int64s]:
    """Sums up to each `last` place of the order, from the first row of its group on. Overflow on the way cancels."""
    groups = groups[order]
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]]) if len(groups) else np.empty(0, np.int64)
    sizes = np.diff(np.r_[starts, len(groups)])
    result = {}
    for name, column in columns.items():
        values = column[order]
        sums = np.cumsum(values)
        result[name] = (sums - np.repeat(sums[starts] - values[starts], sizes))[last]
    return result
