"""Helpers for the rows that traces keep of windows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Int64s, factorize, to_numpy
from headrace.operators.groups import OUT, REASON, UNTIL
from headrace.operators.per_window.content import Content, Outputs
from headrace.operators.per_window.divide import Windows
from headrace.operators.per_window.items import EarlierState, Members
from headrace.operators.per_window.sums import WINDOW, by_window
from headrace.time import INFINITY, format_ticks

__all__ = [
    "ITEMS",
    "WLE",
    "WRE",
    "earlier_state",
    "next_tick",
    "output_rows",
    "window_texts",
    "with_columns",
    "with_outputs",
    "with_window_columns",
    "without_forgotten",
]

#: The bounds of the window that a row belongs to.
WLE, WRE = "__wle", "__wre"
#: Of the state of a window: how many items it has.
ITEMS = "__items"


def output_rows(outputs: Outputs, windows: Windows, closing: Int64s, keys: pa.Table) -> Changes:
    """Outputs as a trace keeps them: keys, payload, window, when to forget them, and the reason of a failure."""
    failed = np.array([number for number, _ in outputs.failures], np.int64)
    of = np.r_[outputs.window, failed]
    table = keys.take(pa.array(windows.group[of]))
    nulls = pa.nulls(len(failed))
    for name in outputs.payload.column_names:
        table = table.append_column(OUT + name, _with_nulls(outputs.payload.column(name), nulls))
    reasons = [*[None] * len(outputs.window), *(reason for _, reason in outputs.failures)]
    table = with_window_columns(table, windows.take(of), closing[of]).append_column(
        REASON, pa.array(reasons, pa.string())
    )
    return Changes.inserts(np.r_[outputs.le, windows.le[failed]], np.r_[outputs.re, windows.re[failed]], table)


def with_window_columns(table: pa.Table, windows: Windows, closing: Int64s) -> pa.Table:
    """Rows with the bounds of their window, and the CTI at which it is forgotten."""
    return with_columns(table, pa.table({WLE: windows.le, WRE: windows.re, UNTIL: closing}))


def earlier_state(content: Content, changed: Members, windows: int, states: Changes | None, of: Int64s) -> EarlierState:
    """What rows of states say about windows; `of` is the number of each one's window."""
    if states is None:
        return EarlierState({name: [None] * windows for name in content.stateful}, changed)
    rows = states.payload.append_column(WINDOW, pa.array(of))
    by_number = by_window(rows, windows)
    saved = {name: by_number.column(name).to_pylist() for name in content.stateful}
    return EarlierState(saved, changed, None if content.sums is None else content.sums.stored_in(rows))


def with_outputs(earlier: EarlierState, outputs: Changes, of: Int64s, windows: int) -> EarlierState:
    """The earlier state with outputs; `of` is the number of each one's window."""
    answered = np.zeros(windows, bool)
    answered[of] = True
    names = {name: name.removeprefix(OUT) for name in outputs.payload.column_names if name.startswith(OUT)}
    table = outputs.payload.select(list(names)).rename_columns(list(names.values()))
    copies = pa.array(np.repeat(np.arange(len(outputs)), outputs.weight))
    return replace(earlier, answered=answered, outputs=table.append_column(WINDOW, pa.array(of)).take(copies))


def window_texts(rows: Changes, *, dates: bool) -> list[str]:
    """The windows of rows, as texts for users."""
    starts, ends = (to_numpy(rows.payload.column(name)).tolist() for name in (WLE, WRE))
    shown = partial(format_ticks, dates=dates)
    return [f"window {shown(a)} .. {shown(b)}" for a, b in zip(starts, ends, strict=True)]


def without_forgotten(delta: Changes, known: Changes, cti: int) -> Changes:
    """Changes without those of the ends of forgotten events, whose windows are closed and hide later ends."""
    starts = [x.payload.append_column("__start", pa.array(x.le)) for x in (known, delta)]
    codes, _ = factorize(pa.concat_tables(starts))
    forgotten = (delta.le < cti) & ~np.isin(codes[len(known) :], codes[: len(known)])
    return delta.filter(~forgotten)


def with_columns(table: pa.Table, columns: pa.Table) -> pa.Table:
    """A table with the columns of another after its own."""
    for name in columns.column_names:
        table = table.append_column(name, columns.column(name))
    return table


def next_tick(times: Int64s) -> Int64s:
    """The tick after each time; infinite times stay infinite."""
    return np.where(times == INFINITY, INFINITY, np.minimum(times, INFINITY - 1) + 1)


def _with_nulls(column: pa.ChunkedArray, nulls: pa.Array) -> pa.ChunkedArray:
    """A column followed by nulls."""
    return pa.chunked_array([*column.chunks, nulls.cast(column.type)], column.type) if len(nulls) else column
