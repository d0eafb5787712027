"""Data frames in: of pandas, Polars and Arrow, which are in this process, and of Spark."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from headrace.api.inputs import Names, name_pairs, picked, stream_of
from headrace.api.stream import Stream
from headrace.errors import PlanError
from headrace.frames import frame_kind, frame_table
from headrace.io.origins import Events, FrameRead, SparkRead
from headrace.io.spark_frames import frame_schema
from headrace.plan.policies import BadRowPolicy, Lifetime, ProgressPolicy
from headrace.schema import Schema, SchemaLike

__all__ = ["from_arrow", "from_pandas", "from_polars", "read_spark"]


def from_pandas(
    frame: Any, schema: SchemaLike | None = None, *, lifetime: Lifetime, progress: ProgressPolicy | None = None,
    bad_rows: BadRowPolicy = "divert", rename: Names | None = None,
) -> Stream:  # fmt: skip
    """The rows of a pandas frame as a stream, in their order.

    `schema` picks columns and their types. Values that are missing are null, times without a zone are UTC, fractions of
    a microsecond are cut off, and an index (or a level of one) that has a name is a column like the others. The frame
    has an end, so `cht` and `run` work on every host; a started query keeps the rows in its checkpoint. `rename` is
    that of `read_csv`.
    """
    return _from_frame("pandas", frame, schema, lifetime, progress, bad_rows, rename)


def from_polars(
    frame: Any, schema: SchemaLike | None = None, *, lifetime: Lifetime, progress: ProgressPolicy | None = None,
    bad_rows: BadRowPolicy = "divert", rename: Names | None = None,
) -> Stream:  # fmt: skip
    """The rows of a data frame of Polars as a stream, as `from_pandas` reads them; `collect` a lazy frame first."""
    return _from_frame("polars", frame, schema, lifetime, progress, bad_rows, rename)


def from_arrow(
    table: Any, schema: SchemaLike | None = None, *, lifetime: Lifetime, progress: ProgressPolicy | None = None,
    bad_rows: BadRowPolicy = "divert", rename: Names | None = None,
) -> Stream:  # fmt: skip
    """The rows of an Arrow table as a stream, as `from_pandas` reads them; or of anything that hands out Arrow data."""
    return _from_frame("arrow", table, schema, lifetime, progress, bad_rows, rename)


_READERS = {"pandas": "hr.from_pandas", "polars": "hr.from_polars", "arrow": "hr.from_arrow", "spark": "hr.read_spark"}
_NAMES = {"pandas": "a pandas frame", "polars": "a data frame of Polars", "arrow": "Arrow data"}


def _from_frame(
    kind: str, frame: Any, schema: SchemaLike | None, lifetime: Lifetime, progress: ProgressPolicy | None,
    bad_rows: BadRowPolicy, rename: Names | None,
) -> Stream:  # fmt: skip
    found = frame_kind(frame)
    if found != kind:
        raise PlanError(
            f"this is not {_NAMES[kind]}",
            given=type(frame).__name__,
            allowed=_NAMES[kind],
            instead="frame.collect()" if found == "lazy" else f"{_READERS.get(found, 'hr.events')}(frame, ...)",
        )
    wanted = None if schema is None else Schema.of(schema)
    table = frame_table(frame, None if wanted is None else wanted.names)
    names = dict(name_pairs(rename))
    columns = (wanted or Schema.of(table.schema)).renamed(names)
    table = table.rename_columns([names.get(name, name) for name in table.column_names])
    return stream_of(Events(picked(table, columns, "the frame")), columns, lifetime, progress, bad_rows)


def read_spark(
    source: Any, schema: SchemaLike | None = None, *, lifetime: Lifetime, options: Mapping[str, object] | None = None,
    path: str = "", name: str = "", progress: ProgressPolicy | None = None, bad_rows: BadRowPolicy = "divert",
    rename: Names | None = None,
) -> Stream:  # fmt: skip
    """A source of Spark as a stream; `schema` names the columns to read.

    `source` is the name of a streaming reader of Spark, with its `options` and `path`, for sources that only Spark can
    read (Kafka, Delta, …). It needs the Spark host; for files, the other readers are faster. `rename` renames columns.
    Or `source` is a Spark data frame: a streaming one runs on Spark until stopped; a batch one runs on every host, in
    the order of its partitions. A checkpoint identifies a data frame by its `name` and columns, and keeps the rows of
    the first start.
    """
    if frame_kind(source) == "spark":
        return _read_frame(source, schema, name, lifetime, progress, bad_rows, options=bool(options or path or rename))
    if not isinstance(source, str) or name:
        raise PlanError(
            "only data frames have names" if isinstance(source, str) else "this is nothing that Spark reads",
            given=name or type(source).__name__,
            allowed="the name of a reader of Spark's, or a data frame",
            instead="read_spark('kafka', schema, ...), or read_spark(frame, name='trades', ...)",
        )
    if schema is None:
        raise PlanError(
            "a reader of Spark's needs a schema", given=source, instead="read_spark('kafka', 'value STRING')"
        )
    texts = tuple(sorted((option, str(value)) for option, value in (options or {}).items()))
    origin = SparkRead(source, texts, str(path), name_pairs(rename))
    return stream_of(origin, Schema.of(schema).renamed(dict(origin.rename)), lifetime, progress, bad_rows)


def _read_frame(
    frame: Any, schema: SchemaLike | None, name: str, lifetime: Lifetime, progress: ProgressPolicy | None,
    bad_rows: BadRowPolicy, *, options: bool,
) -> Stream:  # fmt: skip
    if options:
        raise PlanError(
            "options of a reader do not apply to a data frame",
            given="options, path or rename",
            instead="spark.read.option(...), frame.withColumnRenamed(...)",
        )
    columns = frame_schema(frame, None if schema is None else Schema.of(schema))
    label, streaming = name or f"#{secrets.token_hex(4)}", bool(frame.isStreaming)
    origin = FrameRead("dataframe", path=label, frame=frame, streaming=streaming, named=bool(name))
    return stream_of(origin, columns, lifetime, progress, bad_rows)
