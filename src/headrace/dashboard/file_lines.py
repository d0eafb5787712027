"""Where input events come from: the lines of their files, which are read again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.border import as_ticks
from headrace.columnar import concat, factorize, to_numpy
from headrace.io.ingress import lifetimes_of
from headrace.io.origins import Files
from headrace.io.reading import read_listed
from headrace.operators.reference.rows import Row, table_of
from headrace.plan.nodes import Source
from headrace.plan.policies import Arrival, Changed, Interval, Lifetime, Physical

__all__ = ["lines_of"]

#: The most rows that are read to find a line, and the most lines of one event.
_MOST_ROWS, _MOST_LINES = 5_000_000, 20


def lines_of(source: Source, row: Row) -> tuple[list[dict[str, Any]], bool]:
    """The files and lines that have the values and the lifetime of an event, and whether there may be more.

    If none has the lifetime, which ingress may have adjusted, those that have the values. None if the input is not
    files.
    """
    if not isinstance(source.origin, Files):
        return [], False
    wanted = table_of([row], source.schema).select(list(source.schema.names))
    exact: list[dict[str, Any]] = []
    alike: list[dict[str, Any]] = []
    read = 0
    for file in source.origin.files():
        for block in read_listed(source, file):
            places = _places(block.table, wanted)
            timed = _has_lifetime(source.lifetime, block.table.take(pa.array(places)), row)
            for found, chosen in ((alike, places), (exact, places[timed])):
                left = chosen[: _MOST_LINES + 1 - len(found)]
                found += [{"file": str(file.path), "line": _line(block.lines, place)} for place in left]
            read += block.table.num_rows
            if len(exact) > _MOST_LINES or read > _MOST_ROWS:
                return (exact or alike)[:_MOST_LINES], True
    chosen_lines = exact or alike
    return chosen_lines[:_MOST_LINES], len(chosen_lines) > _MOST_LINES


def _places(table: pa.Table, wanted: pa.Table) -> NDArray[np.int64]:
    """The rows of a block that have the values."""
    if not table.num_rows or not wanted.num_columns:
        return np.arange(table.num_rows)
    codes, _ = factorize(concat([wanted, table.select(wanted.column_names).cast(wanted.schema)]))
    return np.flatnonzero(codes[1:] == codes[0])


def _has_lifetime(lifetime: Lifetime, rows: pa.Table, row: Row) -> NDArray[np.bool_]:
    """Which rows have the times of an event, as far as a row alone says them."""
    le, re, _ = row
    if not rows.num_rows:
        return np.zeros(0, bool)
    if isinstance(lifetime, Physical):
        return np.asarray(to_numpy(pc.equal(as_ticks(rows)["le"], le).fill_null(False)), bool)
    if isinstance(lifetime, Arrival) or (isinstance(lifetime, Changed) and lifetime.in_log_order):
        return np.ones(rows.num_rows, bool)
    starts, ends = lifetimes_of(lifetime, rows)
    same = pc.equal(starts, le)
    if isinstance(lifetime, Interval):
        same = pc.and_(same, pc.equal(ends, re))
    return np.asarray(to_numpy(same.fill_null(False)), bool)


def _line(lines: Any, place: int) -> int | None:
    return None if lines is None or lines[place] < 0 else int(lines[place])
