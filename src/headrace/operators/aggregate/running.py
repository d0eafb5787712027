"""Partial results that enter and leave: negation, running sums, and removal of zeros."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.columnar import Int64s, to_numpy

__all__ = ["negate", "running_sums", "without_zeros"]


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


def running_sums(table: pa.Table, codes: Int64s, others: Collection[str]) -> pa.Table:
    """Sums up to each row of its group; rows of a group are neighbours. Overflow on the way cancels."""
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]]) if len(codes) else np.empty(0, np.int64)
    sizes = np.diff(np.r_[starts, len(codes)])
    for name in _sums(table, others):
        values = to_numpy(pc.fill_null(table.column(name), 0))
        sums = np.cumsum(values)
        table = _set(table, name, pa.array(sums - np.repeat(sums[starts] - values[starts], sizes)))
    return table
