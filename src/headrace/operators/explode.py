"""The elements of a list, one row for each; no state is kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.expr.arrow.arrays import list_lengths
from headrace.plan.nodes import Explode

__all__ = ["explode"]


def explode(node: Explode, changes: Changes) -> Changes:
    """Repeat each row for the elements of its list."""
    column = changes.payload.column(node.column)
    lists = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    lengths = list_lengths(lists)
    times = np.maximum(lengths, 1) if node.outer else lengths
    owners = np.repeat(np.arange(len(lists)), times)
    places = np.arange(len(owners)) - np.repeat(np.cumsum(times) - times, times)
    missing = places >= lengths[owners]
    rows = np.repeat(np.cumsum(lengths) - lengths, times) + places
    flat = pc.list_flatten(lists).take(pa.array(np.where(missing, 0, rows), mask=missing))
    repeated = changes.take(owners)
    columns = [*repeated.payload.columns, flat]
    if node.position is not None:
        columns.append(pa.array(places + 1, mask=missing))
    return repeated.with_payload(pa.Table.from_arrays(columns, schema=node.schema.arrow))
