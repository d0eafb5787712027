"""Helpers on the rows that windows are remembered by."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Int64s
from headrace.time import INFINITY

__all__ = ["beside", "cancelled_rows", "followed", "one_more"]


def cancelled_rows(table: pa.Table) -> pa.Table:
    """How a trace of changes compacts where equal rows may stay apart."""
    changes = Changes.from_table(table)
    return table if bool((changes.weight > 0).all()) else changes.consolidate().to_table()


def beside(table: pa.Table, columns: pa.Table) -> pa.Table:
    """A table with the columns of another behind its own."""
    for name in columns.column_names:
        table = table.append_column(name, columns.column(name))
    return table


def one_more(times: Int64s) -> Int64s:
    """The tick behind each time; what never ends still never ends."""
    return np.where(times == INFINITY, INFINITY, np.minimum(times, INFINITY - 1) + 1)


def followed(column: pa.ChunkedArray, nothing: pa.Array) -> pa.ChunkedArray:
    """A column with nulls behind it."""
    return pa.chunked_array([*column.chunks, nothing.cast(column.type)], column.type) if len(nothing) else column
