"""Upsert rows: for each key the latest row (with the greatest LE), as a log that can be folded.

Each row is the result of one batch for one key; its column `_batch` has the number of the batch. *upsert*: this is the
key's latest row. *delete*: the key has no row left at or after `le`; an earlier row, if there is one, holds again. So
the latest rows follow from the log alone, in any division into files: for each key take the `upsert` with the greatest
`_batch` whose `le` is before every `delete` of the same or a later batch. `fold` does that.

**State.** A CTI `c` settles the rows of a key that start before `c`: none can be added or deleted there any more. A new
row starts at `c` or later, so it is later than every settled row and needs none of them to be the latest. One case is
left: all rows from `c` on are deleted, and the last settled row holds again. While a key has rows from `c` on, the
operator (`operators/edge.py`) keeps the last settled row, to write it in this case. When the key has no rows from `c`
on, its last settled row is its latest and is in the log, so the operator forgets the key.

If the key gets rows later, the operator keeps the CTI `b` at which they began. If all of them are deleted before one is
settled, it writes a *delete* from `b` on and leaves the rest to the reader. The CTI at the time of the deletion would
be wrong: the log may have rows between the two that were the latest once, and were replaced and deleted since. All
rows of the key that the log got after the operator forgot it start at `b` or later, and settled rows start before `b`.
So the delete ends the former, and the row that was the latest when the operator forgot the key holds again. The CTI
bounds the state, however many keys there have been.

**Trips.** A batch may consist of several trips (loops across buckets); the log has only the final result of a batch for
each key. So the operator forgets keys only between batches: a row that it leaves to the log must be in the log.

Over streams without retractions (`final`, rows of files) there is never a *delete*: each row replaces the row before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import factorize, to_numpy
from headrace.errors import PlanError
from headrace.schema import Schema

__all__ = ["BATCH", "ENDED", "OP", "check_columns", "fold", "latest_of", "upserts"]

OP, BATCH = "op", "_batch"
#: Marks samples that only end a row; not part of upsert rows.
ENDED = "_ended"


def check_columns(schema: Schema, key: Sequence[str]) -> None:
    """Raise unless the columns of the key exist and no column has the name of one that upsert rows add."""
    for name in key:
        schema[name]
    for name in (OP, BATCH, ENDED):
        if name in schema:
            raise PlanError(
                f"upsert rows add a column {name!r}",
                given=str(schema),
                allowed=f"any name but {OP}, {BATCH}, {ENDED}",
                instead=f"select(..., {name.strip('_')}_=col({name!r}))",
            )


def upserts(changes: Changes, key: Sequence[str], batch: int) -> pa.Table:
    """The rows of one batch: an upsert for a key with a new latest row, a delete for a key that only lost rows."""
    if ENDED in changes.payload.column_names:
        changes = changes.with_payload(changes.payload.drop_columns([ENDED]))
    new, gone = changes.filter(changes.weight > 0), changes.filter(changes.weight < 0)
    codes, _ = factorize(pa.concat_tables([part.payload.select(list(key)) for part in (new, gone)]))
    of_new, of_gone = codes[: len(new)], codes[len(new) :]
    gone, of_gone = gone.filter(~np.isin(of_gone, of_new)), of_gone[~np.isin(of_gone, of_new)]
    order = np.lexsort((gone.le, of_gone))  # for each key, the earliest deleted row
    lost = gone.take(order[np.r_[True, np.diff(of_gone[order]) != 0][: len(order)]])
    size = len(new) + len(lost)
    table = pa.table({
        OP: pa.array(["upsert"] * len(new) + ["delete"] * len(lost), pa.string()),
        BATCH: pa.array(np.full(size, batch, np.int64)),
        "le": pa.array(np.concatenate([new.le, lost.le])),
    })  # fmt: skip
    for name, kind in zip(changes.payload.column_names, changes.payload.schema.types, strict=True):
        kept = lost.payload.column(name) if name in key else pa.chunked_array([pa.nulls(len(lost), kind)])
        chunks = [*new.payload.column(name).chunks, *kept.chunks]
        table = table.append_column(name, pa.chunked_array(chunks, kind))
    return table


def latest_of(trips: Sequence[Changes], key: Sequence[str]) -> Changes:
    """The changes of a batch, from those of its trips in order: for each key, those of its last trip.

    These suffice: a row replaces every earlier one, and a key without rows has lost all rows since the CTI at which
    they began, which does not change within a batch.
    """
    changes = Changes.concat(trips)
    if not len(changes):
        return changes
    codes = factorize(changes.payload.select(list(key)))[0]
    trip = np.repeat(np.arange(len(trips)), [len(part) for part in trips])
    last = np.zeros(int(codes.max()) + 1, np.int64)
    np.maximum.at(last, codes, trip)
    return changes.filter(trip == last[codes])


def fold(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The latest row of each key, from upsert rows of any number of batches in any order; without `op` and `_batch`."""
    if not rows.num_rows:
        return rows.drop_columns([OP, BATCH])
    codes = factorize(rows.select(list(key)))[0] if key else np.zeros(rows.num_rows, np.int64)
    order = np.lexsort((to_numpy(rows[BATCH]), codes))
    rows, codes = rows.take(pa.array(order)), codes[order]
    times, rank = np.unique(to_numpy(rows["le"]), return_inverse=True)
    deleted = np.asarray(pc.equal(rows[OP], "delete"))
    # The earliest delete at or after each row, among the rows of its key: an offset for each key separates the keys.
    step = len(times) + 1
    bound = np.minimum.accumulate((codes * step + np.where(deleted, rank, step - 1))[::-1])[::-1] - codes * step
    kept = np.flatnonzero(~deleted & (rank < bound))
    last = np.r_[np.diff(codes[kept]) != 0, True][: len(kept)]
    return rows.take(pa.array(kept[last])).drop_columns([OP, BATCH])
