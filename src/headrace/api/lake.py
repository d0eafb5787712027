"""Delta tables: the public functions. The adapters behind them are in `headrace.adapters.delta`.

They need a package that is an extra (`pip install 'headrace[delta]'`), so they are imported when they are used.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from headrace.api.inputs import stream_of
from headrace.api.keyed_changes import read_changes
from headrace.api.services import columns_of
from headrace.api.stream import Stream
from headrace.border import LIFETIME, TimeColumns
from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.io.origins import AdapterRead
from headrace.io.sinks import Encoding
from headrace.plan.policies import BadRowPolicy, Lifetime, Physical, ProgressPolicy
from headrace.schema import Schema, SchemaLike

if TYPE_CHECKING:
    from headrace.adapters.delta import DeltaSink

__all__ = ["delta_lake", "delta_table", "read_delta"]


def read_delta(
    path: str | os.PathLike[str], schema: SchemaLike | None = None, *, lifetime: Lifetime | None = None,
    key: str | Sequence[str] = (), at: str | Expr | None = None, start: int | str | datetime = "snapshot",
    deletes: Literal["raise", "ignore"] = "raise", progress: ProgressPolicy | None = None,
    bad_rows: BadRowPolicy = "divert",
) -> Stream:  # fmt: skip
    """A Delta table as a stream, version by version.

    With a `lifetime`, the rows of a table to which rows are appended. A version that deletes or updates rows is an
    error, or with `deletes="ignore"` only adds its new rows. With a `key`, a table whose rows change: a row is alive
    from the commit that inserts it until the next change of its key, or `at` the time in a column. Changes come from
    the table's change data feed, and from the difference of files where a version has none.

    `start` is where a query begins that has read nothing: with a `"snapshot"` of the table as it is then, which later
    versions follow; with the `"earliest"` version or after the `"latest"` one; with the changes of a version, by its
    number, or of the first one at or after a time. A log of physical events begins with the earliest one.

    `schema` picks columns; `_commit_version` and `_commit_timestamp` are columns, too.
    """
    # Imported when it is used: it needs an extra.
    from headrace.adapters.delta import DeltaSource

    if (lifetime is None) == (not key):
        raise PlanError(
            "rows of a Delta table have a lifetime, or are those of a key",
            given=f"lifetime={lifetime}, key={key!r}",
            instead="lifetime=hr.point('ts') for rows that are appended, key='id' for rows that change",
        )
    if isinstance(lifetime, Physical) and start == "snapshot":
        start = "earliest"  # a snapshot has the rows of a log in no order
    keys = (key,) if isinstance(key, str) else tuple(key)
    rest: dict[str, Any] = {"start": start, "deletes": deletes}
    adapter = DeltaSource.of(os.fspath(path), None if schema is None else Schema.of(schema), keys, **rest)
    if lifetime is None:
        return read_changes(adapter, at=at, progress=progress, bad_rows=bad_rows)
    if at is not None:
        raise PlanError("at= is the time of changes", given=f"at={at}", instead="the lifetime alone, or key= and at=")
    adapter = adapter.with_commit_columns(columns_of(lifetime))
    return stream_of(AdapterRead(adapter), adapter.schema, lifetime, progress, bad_rows)


def delta_table(
    path: str | os.PathLike[str], *, version: int | None = None, schema: SchemaLike | None = None
) -> pa.Table:
    """The rows of a Delta table as they are now, or as of a version: for `join_table`."""
    # Imported when it is used: it needs an extra.
    from headrace.adapters.delta import read_table

    return read_table(os.fspath(path), version, None if schema is None else Schema.of(schema))


def delta_lake(
    path: str | os.PathLike[str], *, encoding: Encoding = "final", key: str | Sequence[str] = (),
    ended: Literal["keep", "delete"] = "keep", partition_by: str | Sequence[str] = (), change_data_feed: bool = False,
    compact: int | None = None, time_columns: TimeColumns = LIFETIME,
) -> DeltaSink:  # fmt: skip
    """A Delta table as a sink, created if it is missing; every batch is a version, which records its number.

    `encoding="final"` appends rows that nothing can change any more. `"upsert"` keeps the latest row of each `key`: it
    merges rows into the table. `ended="delete"` also deletes rows whose lifetime has ended, so that the table has only
    rows that still hold. `"events"` and `"changes"` are logs, with the number of the batch in `_batch`.

    `partition_by` divides the files of a new table by the values of columns. `change_data_feed=True` makes a new table
    keep the changes that merges make. `compact=100` makes small files into larger ones after every hundredth version; a
    reader sees each row once, at any moment. `time_columns` names the columns of `le` and `re`.
    """
    # Imported when it is used: it needs an extra.
    from headrace.adapters.delta import DeltaSink

    names = [(value,) if isinstance(value, str) else tuple(value) for value in (key, partition_by)]
    return DeltaSink(
        encoding, names[0], ended=ended, path=os.fspath(path), partition_by=names[1],
        change_data_feed=change_data_feed, compact=compact, time_columns=time_columns,
    )  # fmt: skip
