"""Helpers on the rows that windows are remembered by."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Int64s, factorize, to_numpy
from headrace.operators.groups import OUT, REASON, UNTIL
from headrace.operators.per_window.content import Outputs
from headrace.operators.per_window.divide import Windows
from headrace.time import INFINITY, format_ticks

__all__ = ["WLE", "WRE", "beside", "of_kept", "one_more", "output_rows", "stamped", "where"]

#: The bounds of the window that a row belongs to.
WLE, WRE = "__wle", "__wre"


def output_rows(outputs: Outputs, windows: Windows, closing: Int64s, keys: pa.Table) -> Changes:
    """Outputs as they are remembered: keys, payload, window, when to forget them, and why if they failed."""
    failed = np.array([number for number, _ in outputs.failures], np.int64)
    of = np.r_[outputs.window, failed]
    table = keys.take(pa.array(windows.group[of]))
    nothing = pa.nulls(len(failed))
    for name in outputs.payload.column_names:
        table = table.append_column(OUT + name, _followed(outputs.payload.column(name), nothing))
    reasons = [*[None] * len(outputs.window), *(reason for _, reason in outputs.failures)]
    table = stamped(table, windows.take(of), closing[of]).append_column(REASON, pa.array(reasons, pa.string()))
    return Changes.inserts(np.r_[outputs.le, windows.le[failed]], np.r_[outputs.re, windows.re[failed]], table)


def stamped(table: pa.Table, windows: Windows, closing: Int64s) -> pa.Table:
    """Rows with the window they belong to, and the CTI at which it is forgotten."""
    return beside(table, pa.table({WLE: windows.le, WRE: windows.re, UNTIL: closing}))


def where(rows: Changes) -> list[str]:
    """The windows of rows, for people."""
    starts, ends = (to_numpy(rows.payload.column(name)).tolist() for name in (WLE, WRE))
    return [f"window {format_ticks(a)} .. {format_ticks(b)}" for a, b in zip(starts, ends, strict=True)]


def of_kept(delta: Changes, known: Changes, cti: int) -> Changes:
    """Without changes to the ends of events that are forgotten: their windows are closed, and hide later ends."""
    starts = [x.payload.append_column("__start", pa.array(x.le)) for x in (known, delta)]
    codes, _ = factorize(pa.concat_tables(starts))
    forgotten = (delta.le < cti) & ~np.isin(codes[len(known) :], codes[: len(known)])
    return delta.filter(~forgotten)


def beside(table: pa.Table, columns: pa.Table) -> pa.Table:
    """A table with the columns of another behind its own."""
    for name in columns.column_names:
        table = table.append_column(name, columns.column(name))
    return table


def one_more(times: Int64s) -> Int64s:
    """The tick behind each time; what never ends still never ends."""
    return np.where(times == INFINITY, INFINITY, np.minimum(times, INFINITY - 1) + 1)


def _followed(column: pa.ChunkedArray, nothing: pa.Array) -> pa.ChunkedArray:
    """A column with nulls behind it."""
    return pa.chunked_array([*column.chunks, nothing.cast(column.type)], column.type) if len(nothing) else column
