"""Joining a stream with a table (rule 4): a lookup per event, without state.

A process sorts the table's rows once by the hash of their keys, and answers every batch by a binary search and a
comparison of the keys found.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import Int64s, hash_rows
from headrace.io.tables import TableRows
from headrace.plan.table import TableJoin

__all__ = ["table_join"]


@lru_cache(maxsize=32)  # by content: on Spark every task brings its own copy of the plan
def _index(rows: TableRows, keys: tuple[str, ...]) -> tuple[NDArray[np.uint64], Int64s]:
    """The hashes of the table's keys in order, and the row of each."""
    hashes = hash_rows(rows.table.select(list(keys)))
    order = np.argsort(hashes, kind="stable")
    return hashes[order], order


def table_join(node: TableJoin, changes: Changes) -> Changes:
    """Every change with each row of the table that has its keys."""
    assert isinstance(node.table, TableRows), "tables are read before the query runs"
    events, rows = _matches(node, node.table, changes)
    if node.how == "left":
        matched = np.zeros(len(changes), bool)
        matched[events] = True
        unmatched = np.flatnonzero(~matched)
        events, rows = np.concatenate([events, unmatched]), np.concatenate([rows, np.full(len(unmatched), -1)])
    kept = changes.take(events)
    places = pa.array(rows, mask=rows < 0)  # a missing place gives nulls
    added = [node.table.table.column(name).take(places) for name in node.table_columns]
    return kept.with_payload(pa.Table.from_arrays([*kept.payload.columns, *added], schema=node.schema.arrow))


def _matches(node: TableJoin, table: TableRows, changes: Changes) -> tuple[Int64s, Int64s]:
    """Row numbers of events and of table rows with equal keys."""
    keys, table_keys = [a for a, _ in node.on], [b for _, b in node.on]
    hashes, order = _index(table, tuple(table_keys))
    wanted = hash_rows(changes.payload.select(keys))
    low = np.searchsorted(hashes, wanted, "left")
    count = np.searchsorted(hashes, wanted, "right") - low
    events = np.repeat(np.arange(len(changes)), count)
    offset = np.arange(len(events)) - np.repeat(np.cumsum(count) - count, count)
    rows = order[low[events] + offset]
    same = np.ones(len(events), bool)
    for a, b in node.on:
        same &= _equal(changes.payload.column(a).take(pa.array(events)), table.table.column(b).take(pa.array(rows)))
    return events[same], rows[same]


def _equal(a: pa.ChunkedArray, b: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Where two columns are the same data; null equals nothing, NaN equals NaN."""
    equal = pc.fill_null(pc.equal(a, b), False)
    if pa.types.is_floating(a.type):
        equal = pc.or_(equal, pc.fill_null(pc.and_(pc.is_nan(a), pc.is_nan(b)), False))
    return np.asarray(equal)
