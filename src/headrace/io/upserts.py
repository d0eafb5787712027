"""Upsert rows: per key the latest row (the one with the greatest LE), as a log that can be folded.

Each row says what became of a key in one batch, whose number is its column `_batch`; a batch has at most one row a key.
*upsert*: this is the key's latest row. *delete*: the key has no row left at or after `le`; an earlier row, if it had
one, holds again. So the latest rows follow from the log alone, whatever files it is in: of each key take the `upsert`
with the greatest `_batch` whose `le` is before every `delete` of the same or a later batch. `fold` does that.

**What has to be remembered.** A CTI `c` settles which rows of a key start before `c`: none can come there or be deleted
any more. A new row starts at `c` or later, so it is later than every settled one, and no settled row is needed to know
that it is the latest. One case is left: all rows from `c` on are deleted, and the last settled one holds again. While a
key has rows from `c` on, the operator (`operators/edge.py`) remembers the last settled one and writes it then. When it
has none, the last settled row is its latest, and is in the log. So the operator forgets that key.

If the key gets rows later, the operator remembers the CTI `b` at which they began. If all of them are deleted before
one is settled, it says *delete* from `b` on and leaves the rest to the reader. The CTI at the time of the deletion
would not do: the log may have rows between the two which were the latest once, and were replaced and deleted since. All
rows that the log has of the key since it was forgotten start at `b` or later, and what was settled starts before `b`.
So the delete ends all of the former, and the row that was the latest when the key was forgotten holds again. What the
operator keeps is bounded by the CTI, however many keys there have been.

**Trips.** A batch may consist of several trips (loops across buckets), of which the log has only what became of a key
in the end. So the operator forgets keys only between batches: a row that it leaves to the log must be there.

Over streams that take nothing back (`final`, rows of files) there is never a *delete*: each row replaces the one before
it.
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

__all__ = ["BATCH", "OP", "check_columns", "fold", "latest_of", "upserts"]

OP, BATCH = "op", "_batch"


def check_columns(schema: Schema, key: Sequence[str]) -> None:
    """Raise unless the key is there and no column is called as those that upsert rows have besides."""
    for name in key:
        schema[name]
    for name in (OP, BATCH):
        if name in schema:
            raise PlanError(
                f"upsert rows have a column {name!r} of their own",
                given=str(schema),
                allowed=f"any name but {OP}, {BATCH}",
                instead=f"select(..., {name.strip('_')}_=col({name!r}))",
            )


def upserts(changes: Changes, key: Sequence[str], batch: int) -> pa.Table:
    """The rows of one batch: a key with a new latest row is upserted, one that only lost rows is deleted."""
    new, gone = changes.filter(changes.weight > 0), changes.filter(changes.weight < 0)
    codes, _ = factorize(pa.concat_tables([part.payload.select(list(key)) for part in (new, gone)]))
    of_new, of_gone = codes[: len(new)], codes[len(new) :]
    gone, of_gone = gone.filter(~np.isin(of_gone, of_new)), of_gone[~np.isin(of_gone, of_new)]
    order = np.lexsort((gone.le, of_gone))  # of each key the earliest row that is gone
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
    """The changes of a batch, from those of its trips, one after the other: of each key those of its last trip.

    They say all there is to say: a row replaces every earlier one, and a key of which no row is left has lost all since
    its rows began, which is the same time throughout a batch.
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
    # The earliest delete from each row on, among the rows of its key: keys are kept apart by the multiple of a rank.
    step = len(times) + 1
    bound = np.minimum.accumulate((codes * step + np.where(deleted, rank, step - 1))[::-1])[::-1] - codes * step
    kept = np.flatnonzero(~deleted & (rank < bound))
    last = np.r_[np.diff(codes[kept]) != 0, True][: len(kept)]
    return rows.take(pa.array(kept[last])).drop_columns([OP, BATCH])
