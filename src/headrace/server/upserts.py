"""Upserts: what changes for a client that keeps one row for each key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import factorize

__all__ = ["OP", "upserts"]

OP = "_op"
Int64s = NDArray[np.int64]


def upserts(before: Changes, after: Changes, changes: Changes, key: Sequence[str]) -> pa.Table:
    """The row that starts last of every key for which it is another than before, or the deletion of the key.

    `before` and `after` are the rows that count, without and with the changes.
    """
    keys = pa.concat_tables([part.payload.select(list(key)) for part in (changes, before, after)])
    codes = factorize(keys)[0]
    of_changes, of_before, of_after = np.split(codes, [len(changes), len(changes) + len(before)])
    changed, first = np.unique(of_changes, return_index=True)
    old, new = (_last(part, of_part, changed) for part, of_part in ((before, of_before), (after, of_after)))
    same = _same_rows(before.take(old), after.take(new))
    latest = after.take(new[~np.isin(of_after[new], of_before[old][same])])
    lost = changes.take(first[np.isin(changed, of_before[old]) & ~np.isin(changed, of_after[new])])
    table = pa.table({
        OP: pa.array(["upsert"] * len(latest) + ["delete"] * len(lost), pa.string()),
        "le": pa.array(np.concatenate([latest.le, lost.le])),
    })  # fmt: skip
    for field in latest.payload.schema:
        gone = lost.payload.column(field.name)
        nulls = pa.chunked_array([pa.nulls(len(lost), field.type)])
        parts = [*latest.payload.column(field.name).chunks, *(gone if field.name in key else nulls).chunks]
        table = table.append_column(field.name, pa.chunked_array(parts, field.type))
    return table


def _last(rows: Changes, codes: Int64s, wanted: Int64s) -> Int64s:
    """The places of the rows that start last, one for each of the wanted keys that has rows."""
    order = np.lexsort((rows.le, codes))
    of_row = codes[order]
    last: Int64s = order[np.r_[of_row[1:] != of_row[:-1], True][: len(order)]]
    return last[np.isin(codes[last], wanted)]


def _same_rows(old: Changes, new: Changes) -> NDArray[np.bool_]:
    """Which of the old rows are among the new ones."""
    both = pa.concat_tables([part.payload.append_column(OP, pa.array(part.le)) for part in (old, new)])
    codes = factorize(both)[0]
    return np.isin(codes[: len(old)], codes[len(old) :])
