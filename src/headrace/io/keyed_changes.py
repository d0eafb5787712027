"""Keyed changes: the log of a table's changes, read as lifetimes (rules 1.2 and 8.4).

A table has one row for each key. Its log says how the rows change, and systems write it in different ways. Every
*encoding* here is a small table of what the values of an *operation column* mean:

- **upsert**: the row is the new row of its key, whether there was one or not;
- **delete**: the key has no row from now on; only the columns of the key are read;
- **pre-image**: the row repeats what was there before the change, which the engine knows already. It is skipped, and
  counted.

A value that is not in the table is an error of the row: it is diverted or raised, never used. So is a row whose key
has a null. The encoding `upsert` has no operation column: a condition says which rows delete; by default it is a
*tombstone*, a row with only nulls beside its key.

A row lasts from its change until the next change of its key. That is the signal of `EdgeLifetimes`, which deletions
close. Several changes of a key may have the same time; then the last in the log wins. So the rows are stamped with
arrival and position (`origins.py`), and the stamps order the samples of a time.

Time comes from one of two places. If a column has the time of the change, application time rules: a change that comes
out of order takes its place in the history. If there is none, the log rules: a change happens when it arrived, or at
the time of the change before it in the log if that is later. Then nothing is late, and the state of the table after
every row of the log is the state that the log means.

All of it is expressions over columns, in the lifetime policy `Changed`. Ingress evaluates them, and batch SQL prints
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import PlanError, nearest
from headrace.expr import Expr, col, predicate_mask
from headrace.plan.policies import Changed
from headrace.schema import ARRIVAL, STAMPS, Field, Schema, Type

__all__ = [
    "ENCODINGS", "ChangeEncoding", "ChangeEncodingName", "changed", "encoding_of", "is_preimage",
    "log_columns", "row_problems", "table_columns", "tombstone",
]  # fmt: skip

Flags = NDArray[np.bool_]
ChangeEncodingName = Literal["rows", "upsert", "debezium", "flink", "spark"]


@dataclass(frozen=True)
class ChangeEncoding:
    """The operation column of an encoding, and what its values mean; values are compared without regard to case."""

    #: The usual name of the operation column; None if there is none.
    op: str | None
    upserts: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    preimages: tuple[str, ...] = ()
    #: Other columns of the log, which are not part of the table.
    extra: tuple[Field, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        """All values of the operation column."""
        return (*self.upserts, *self.deletes, *self.preimages)


ENCODINGS: Mapping[str, ChangeEncoding] = {
    "rows": ChangeEncoding("op", ("insert", "update", "i", "u", "c", "r"), ("delete", "d")),
    "upsert": ChangeEncoding(None),
    "debezium": ChangeEncoding("_op", ("c", "u", "r"), ("d",), extra=(Field("_ts", Type.DATETIME),)),
    "flink": ChangeEncoding("row_kind", ("+I", "+U"), ("-D",), ("-U",)),
    "spark": ChangeEncoding(
        "_change_type",
        ("insert", "update_postimage"),
        ("delete",),
        ("update_preimage",),
        (Field("_commit_version", Type.LONG), Field("_commit_timestamp", Type.DATETIME)),
    ),
}


def encoding_of(name: str) -> ChangeEncoding:
    """The encoding of this name."""
    if name not in ENCODINGS:
        near = nearest(name, ENCODINGS) or "rows"
        raise PlanError(
            "unknown encoding of changes", given=name, allowed=", ".join(ENCODINGS), instead=f"encoding={near!r}"
        )
    return ENCODINGS[name]


def changed(
    encoding: str, key: Sequence[str], *, op: str | None = None, at: Expr | None = None, deletes: Expr | None = None
) -> Changed:
    """The lifetime policy of changes; without `at` in the order of the log. `deletes` is for `upsert`."""
    how = encoding_of(encoding)
    time = col(ARRIVAL) if at is None else at
    if how.op is None:
        return Changed(time, tuple(key), deletes, encoding)
    name = op or how.op
    return Changed(
        time,
        tuple(key),
        _is(name, how.deletes),
        encoding,
        name,
        _is(name, how.preimages) if how.preimages else None,
        _is(name, how.values),
    )


def _is(op: str, values: Sequence[str]) -> Expr:
    return col(op).lower().isin(*(value.lower() for value in values))


def log_columns(columns: Schema, lifetime: Changed) -> Schema:
    """The columns of a log: those of a table, the operation column, and others that the time is computed from."""
    how = ENCODINGS[lifetime.encoding]
    own = [field for field in how.extra if field.name in lifetime.at.columns()]
    own += [Field(lifetime.op, Type.STRING)] if lifetime.op is not None else []
    return Schema((*columns, *(field for field in own if field.name not in columns)))


def table_columns(lifetime: Changed, columns: Schema) -> tuple[str, ...]:
    """The columns of the table: those of the log without its own."""
    own = {lifetime.op, *STAMPS.names, *(field.name for field in ENCODINGS[lifetime.encoding].extra)}
    return tuple(name for name in columns.names if name not in own)


def tombstone(columns: Sequence[str]) -> Expr | None:
    """Whether all these columns are null; None if there are none."""
    return reduce(and_, (col(name).is_null() for name in columns)) if columns else None


def is_preimage(lifetime: Changed, table: pa.Table) -> Flags:
    """Which rows repeat what was there before a change."""
    if lifetime.skips is None:
        return np.zeros(table.num_rows, bool)
    return np.asarray(predicate_mask(lifetime.skips, table), bool)


def row_problems(lifetime: Changed, table: pa.Table, bad: Flags, reasons: NDArray[Any]) -> tuple[Flags, NDArray[Any]]:
    """Which rows are no changes, and why; `bad` and `reasons` are those of rows without a time, which come first."""
    found: list[tuple[Flags, str]] = []
    if lifetime.knows is not None:
        allowed = ", ".join(ENCODINGS[lifetime.encoding].values)
        unknown = ~np.asarray(predicate_mask(lifetime.knows, table), bool)
        found.append((unknown, f"the operation in {lifetime.op!r} is unknown: it must be one of {allowed}"))
    nulls = {name: np.asarray(pc.is_null(table.column(name)), bool) for name in lifetime.key}
    found += [(mask, f"{name!r}, a column of the key, is null") for name, mask in nulls.items()]
    wrong = np.logical_or.reduce([bad, *(mask for mask, _ in found)])
    if not (wrong & ~bad).any():
        return bad, reasons
    texts = np.full(len(wrong), "", object)
    for mask, reason in reversed(found):
        texts[mask] = reason
    texts[bad] = reasons[bad] if bad.any() else ""
    return wrong, texts
