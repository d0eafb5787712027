"""The reader of keyed changes: the log of a table as a stream of its rows (`io/keyed_changes.py`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from headrace.api.inputs import (
    Names,
    Sparse,
    check_picked,
    name_pairs,
    refuse_lists,
    sparse_names,
    stream_of,
    time_expr,
)
from headrace.api.stream import Stream
from headrace.errors import PlanError
from headrace.events import plain_table
from headrace.expr import Expr
from headrace.expr.functions import EpochUnit
from headrace.io.adapter import SourceAdapter
from headrace.io.drift import DriftPolicy, checked_drift
from headrace.io.files import FileOrder
from headrace.io.formats import Format, infer_schema
from headrace.io.keyed_changes import ChangeEncodingName, changed, encoding_of, log_columns, table_columns, tombstone
from headrace.io.origins import AdapterRead, Events, Files, Origin
from headrace.plan.policies import BadRowPolicy, Changed, ProgressPolicy
from headrace.schema import STAMPS, Schema, SchemaLike

__all__ = ["read_changes"]


def read_changes(
    source: Any, schema: SchemaLike | None = None, *, key: str | Sequence[str] = (),
    encoding: ChangeEncodingName = "rows", op: str | None = None, at: str | Expr | None = None,
    unit: EpochUnit | None = None, deletes: Expr | None = None, progress: ProgressPolicy | None = None,
    bad_rows: BadRowPolicy = "divert", format: str | None = None, rename: Names | None = None,
    order: FileOrder = "time", sparse: Sparse = False, on_drift: DriftPolicy | None = None,
) -> Stream:  # fmt: skip
    """The log of a table's changes as a stream: each row of the table lasts until the next change of its key.

    `source` is a path or a pattern of files of CSV, JSON lines or Parquet, an adapter such as `hr.kafka_topics(...)`,
    or rows in memory: a drawn table, a list of dicts, an Arrow table, or a data frame of pandas or Polars. `schema` has
    the columns of the table and `key` those of its key; both may be left out for an adapter that knows them, as a
    database does. `encoding` is how the log is written, and `op` the column of the operation, by default the one in
    brackets:

    - `rows` (`op`): insert, update and delete; or I, U and D; or c, r, u and d;
    - `upsert`: each row is the new row of its key. A row for which `deletes` holds deletes it; by default one with only
      nulls beside the key and the time;
    - `debezium` (`_op`): c, r, u and d;
    - `flink` (`row_kind`): +I, -U, +U and -D;
    - `spark` (`_change_type`): insert, update_preimage, update_postimage and delete.

    `at` is the time of a change, in a `unit` as that of `point`. Without it a change happens when it arrives, in the
    order of the log, and none is late; on Spark such a source reads one file per batch. Of several changes of a key at
    one time, the last in the log counts. Rows with an unknown operation or a null in their key are malformed. `format`
    is that of a directory's files; `rename`, `order` and `on_drift` are those of `read_csv`, `sparse` that of
    `read_json`.
    """
    keys = (key,) if isinstance(key, str) else tuple(key)
    if isinstance(source, SourceAdapter) and encoding == "rows":
        encoding = source.change_encoding
    if isinstance(source, SourceAdapter) and source.table_log is not None:
        keys, schema = keys or source.table_log.key, source.table_log.columns if schema is None else schema
        op = source.table_log.op if op is None and encoding == "rows" else op
    _check(encoding, keys, op, deletes)
    time = _time(at, unit)
    lifetime = changed(encoding, keys, op=op, at=time, deletes=deletes)
    names = dict(name_pairs(rename))
    declared = None if schema is None else Schema.of(schema).renamed(names)
    columns = None if declared is None else log_columns(declared, lifetime)
    if isinstance(source, SourceAdapter):
        if on_drift is not None or sparse:
            given = ", ".join([*(["on_drift"] if on_drift is not None else []), *(["sparse"] if sparse else [])])
            instead = "hr.kafka_topics(..., on_drift=..., sparse=...)"
            raise PlanError("these options are for files; an adapter has its own", given=given, instead=instead)
        log = source.as_log(encoding)
        if declared is not None:
            check_picked(declared, log)
        origin, columns = _log_of(log, columns, lifetime)
    else:
        envelope: Literal["", "debezium"] = "debezium" if encoding == "debezium" else ""
        origin, columns = _log(source, columns, format, names, order, envelope, sparse_names(sparse))
        if on_drift is not None:
            origin = _with_drift(origin, on_drift)
    if lifetime.op is not None:
        columns[lifetime.op]  # an error that names the columns, if there is none of this name
    if encoding == "upsert" and deletes is None:
        others = [n for n in table_columns(lifetime, columns) if n not in {*keys, *lifetime.columns()}]
        lifetime = replace(lifetime, closes=tombstone(others))
    return stream_of(origin, columns, lifetime, progress, bad_rows)


def _time(at: str | Expr | None, unit: EpochUnit | None) -> Expr | None:
    if at is None and unit is not None:
        raise PlanError("unit= is the unit of a time", given=f"unit={unit!r}", instead="at='ts', unit='ms'")
    return None if at is None else time_expr(at, unit, "the time of a change", "at='ts', or at=col('ts')")


def _check(encoding: str, keys: Sequence[str], op: str | None, deletes: Expr | None) -> None:
    how = encoding_of(encoding)
    if not keys:
        raise PlanError("changes are those of keys", given="no key", instead="key='id'")
    if op is not None and how.op is None:
        raise PlanError(
            "upserts have no operation column", given=f"op={op!r}", instead=f"deletes=col({op!r}) == 'delete'"
        )
    if deletes is not None and how.op is not None:
        raise PlanError(
            f"in the encoding {encoding!r} the operation column says what is deleted",
            given=f"deletes={deletes}",
            instead="encoding='upsert', deletes=...",
        )


def _log_of(adapter: SourceAdapter, columns: Schema | None, lifetime: Changed) -> tuple[Origin, Schema]:
    """The log that an adapter reads, with the columns of the table, the operation and the time."""
    if columns is None:
        return AdapterRead(adapter), adapter.schema
    wanted = {*columns.names, *lifetime.columns()} - set(STAMPS.names)
    return AdapterRead(adapter), Schema(tuple(adapter.schema[name] for name in adapter.schema.names if name in wanted))


def _with_drift(origin: Origin, on_drift: DriftPolicy) -> Origin:
    policy = checked_drift(on_drift)
    if not isinstance(origin, Files):
        raise PlanError("on_drift is for files", given=type(origin).__name__, instead="a path")
    return replace(origin, format=replace(origin.format, on_drift=policy))


def _log(
    source: Any,
    columns: Schema | None,
    format: str | None,
    names: Names,
    order: FileOrder,
    envelope: Literal["", "debezium"],
    sparse: tuple[str, ...],
) -> tuple[Origin, Schema]:
    """The place of a log, and its columns: the one place that knows what a log can be."""
    path = os.fspath(source) if isinstance(source, os.PathLike) else source
    if isinstance(path, Files):  # as SQL describes them
        path, how, order = source.path, source.format, source.order
    elif not isinstance(path, str) or "\n" in path or "|" in path:
        if format or names:
            raise PlanError("format and rename are for files", given=type(source).__name__, instead="rows as they are")
        table = plain_table(source, columns)
        return Events(table), Schema.of(table.schema)
    else:
        how = Format(format) if format else Format.of_path(path)
        how = replace(how, rename=tuple(names.items()), sparse=sparse)
    if envelope and how.name == "json":
        how = replace(how, envelope=envelope)
        if columns is None:
            raise PlanError(
                "envelopes need a schema: the columns of the table", given=path, instead="'id LONG, v LONG'"
            )
    files = Files(path, how, order=order)
    if columns is None:
        columns = infer_schema(files.files()[0].path, how, path).renamed(names)
    refuse_lists(columns, how)
    return files, columns
