"""Inputs: lifetimes, progress, and the readers that make a stream of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, Unpack

import pyarrow as pa

from headrace.adapters.registry import source_adapter
from headrace.api.checks import checked_progress, column_or_expr
from headrace.api.options import GeneratorOptions, shows_options
from headrace.api.stream import Stream
from headrace.errors import ExpressionError, PlanError, SchemaError, UnknownColumn, nearest
from headrace.events import check_events, events_and_dates
from headrace.expr import Expr, col
from headrace.expr.functions import EpochUnit, from_epoch
from headrace.io import generator
from headrace.io.adapter import SourceAdapter
from headrace.io.drift import DriftPolicy, checked_drift
from headrace.io.encode import PHYSICAL
from headrace.io.files import MAX_EXPANSION, FileOrder, listing
from headrace.io.formats import Format, infer_schema, starts_with_dates
from headrace.io.keyed_changes import table_columns
from headrace.io.origins import AdapterRead, Events, Files, Origin
from headrace.io.records import MAX_LINE
from headrace.io.tables import fitted
from headrace.plan.nodes import Admit, EdgeLifetimes, Source
from headrace.plan.policies import (
    BAD_ROWS,
    Advance,
    Arrival,
    BadRowPolicy,
    Changed,
    Edge,
    Explicit,
    Heartbeat,
    Interval,
    LatePolicy,
    Lifetime,
    Physical,
    Point,
    ProgressPolicy,
    arrives,
    at_midnights,
    starts_are_dates,
)
from headrace.schema import POSITION, RESERVED, Schema, SchemaLike, Type
from headrace.time import DurationLike, duration

__all__ = [
    "advance", "by_arrival", "edge", "events", "explicit", "generated", "heartbeat", "interval", "ordered", "physical",
    "point", "read_csv", "read_events", "read_json", "read_parquet", "read_source",
]  # fmt: skip

Names: TypeAlias = "Mapping[str, str]"
Sparse: TypeAlias = "bool | str | Sequence[str]"


def time_expr(value: str | Expr, unit: EpochUnit | None, where: str, instead: str) -> Expr:
    """The time of a row: a column or an expression; with `unit`, a number of these units since 1970."""
    time = column_or_expr(value, where, instead)
    return time if unit is None else from_epoch(time, unit)


def _expr(value: str | Expr, unit: EpochUnit | None) -> Expr:
    return time_expr(value, unit, "a lifetime", "hr.point('ts'), or hr.point(col('ts'))")


def point(at: str | Expr, *, unit: EpochUnit | None = None) -> Point:
    """Every row is an instant; `at` is a DATETIME, or a number of ticks.

    With `unit`, `at` is a number of seconds (`"s"`), milliseconds (`"ms"`) or microseconds (`"us"`) since 1970.
    """
    return Point(_expr(at, unit))


def interval(start: str | Expr, end: str | Expr, *, unit: EpochUnit | None = None, endless: bool = False) -> Interval:
    """Every row says when it starts and ends; with `endless`, a null end is none. `unit` is that of `point`."""
    return Interval(_expr(start, unit), _expr(end, unit), endless)


def edge(
    at: str | Expr, key: str | Sequence[str] = (), closes: Expr | None = None, *, unit: EpochUnit | None = None
) -> Edge:
    """Every row samples a signal and lasts until the next row with its key; rows that pass `closes` only end it.

    `unit` is that of `point`.
    """
    return Edge(_expr(at, unit), (key,) if isinstance(key, str) else tuple(key), closes)


def by_arrival() -> Arrival:
    """Every row is an instant: when it arrived. For rows without a time of their own.

    Rows of files arrive when their file was last modified, each at least one tick after the row before. So they are
    always in order and never late. On Spark such a source reads one file per batch.
    """
    return Arrival()


def physical() -> Physical:
    """The rows are physical events, with the columns `kind, le, re, re_new`."""
    return Physical()


def explicit(late: LatePolicy = "divert", idle: DurationLike | None = None) -> Explicit:
    """CTIs come with the data, as rows of kind `cti`. `idle` is that of `advance`."""
    return Explicit(late, idle=_idle(idle))


def _idle(idle: DurationLike | None) -> int | None:
    return None if idle is None else duration(idle)


def advance(
    delay: DurationLike, every: DurationLike = 1, late: LatePolicy = "divert", max_skew: DurationLike | None = None,
    idle: DurationLike | None = None, per: str | None = None,
) -> Advance:  # fmt: skip
    """The CTI follows the highest LE seen at a distance of `delay`, in steps of `every`.

    An event more than `max_skew` ahead of the reference time is data but does not advance the CTI. The reference time
    is the clock where there is one, else the highest time trusted so far, else the median of the batch. So `max_skew`
    must be longer than the longest pause of the input. CTI rows in the data are promises too.

    A source with partitions (Kafka) has the CTI of the partition that is farthest behind. `idle` is the time after
    which a partition without new rows no longer holds back the others; rows that it sends later may be late.

    With `per`, each value of a column has its own highest LE, and the CTI follows the value that is farthest behind:
    `hr.advance("5 s", per="sensor", idle="30 s")`. Here `idle` counts in the time of the data: a sensor that is 30 s
    or more behind the farthest one no longer holds back the others.
    """
    skew = None if max_skew is None else duration(max_skew)
    return Advance(late, duration(delay), duration(every), skew, idle=_idle(idle), per=per)


def heartbeat(every: DurationLike = "1 s", delay: DurationLike = 0, late: LatePolicy = "divert") -> Heartbeat:
    """The CTI follows the clock at a distance of `delay`, in steps of `every`, even when the input is idle."""
    return Heartbeat(late, duration(every), duration(delay))


def ordered(late: LatePolicy = "divert", idle: DurationLike | None = None) -> Advance:
    """The rows come in the order of their times: the CTI is the LE of the last row. `idle` is that of `advance`."""
    return Advance(late, idle=_idle(idle))


def events(
    data: Any,
    schema: SchemaLike | None = None,
    *,
    progress: ProgressPolicy | None = None,
    batches: Sequence[int] = (),
    bad_rows: BadRowPolicy = "raise",
) -> Stream:
    """A stream of physical events: a drawn table, a list of dicts, an Arrow table, or a frame of pandas or Polars.

    `batches` is the number of rows of each batch. By default, late events and rows that are no events are errors.
    """
    table, dates = events_and_dates(data, schema)
    if bad_rows == "raise":
        check_events(table)
    if batches and sum(batches) != table.num_rows:
        raise PlanError(
            "the batches do not add up to the rows", given=list(batches), allowed=f"sizes that sum to {table.num_rows}"
        )
    origin = Events(table, tuple(batches))
    columns, policy = Schema.of(table.schema), Explicit("raise") if progress is None else checked_progress(progress)
    return Stream(Admit(Source(origin, columns, Physical(), policy, bad_rows, dated=dates)))


def read_csv(
    path: str, schema: SchemaLike | None = None, *, lifetime: Lifetime, progress: ProgressPolicy | None = None,
    delimiter: str = ",", header: bool = True, bad_rows: BadRowPolicy = "divert", rename: Names | None = None,
    max_line: int = MAX_LINE, max_expansion: int = MAX_EXPANSION, order: FileOrder = "time",
    on_drift: DriftPolicy | None = None,
) -> Stream:  # fmt: skip
    """CSV files as a stream: a file, a directory or a pattern.

    `order="time"` reads files in the order of their modification, `order="name"` in the order of their paths. A file
    that appears later is read later, in either order.

    Dates without a zone are UTC. A bare number in a DATETIME column is microseconds since 1970: read seconds or
    milliseconds as LONG, with `unit` in `lifetime`, such as `hr.point("ts", unit="s")`.

    `bad_rows="divert"` diverts rows that cannot be read, with the reason (see `Stream.diverted`); `bad_rows="raise"`
    ends the query with an error at the first one.

    `on_drift` is for files with other columns than the declared ones: `"raise"` ends the query with an error,
    `"divert"` diverts the rows of such a file, `"widen"` reads null for a missing column, ignores a new one and
    converts other types. Without it, a missing column is an error. All is counted, see
    [schema drift](../schema_drift.md).

    `rename={"kind": "sort"}` renames columns of the file: `kind`, `le`, `re` and `re_new` are reserved for the parts
    of an event. A line of more than `max_line` bytes is an error, and so is a compressed file that decompresses to more
    than `max_expansion` times its size.
    """
    how = Format("csv", delimiter, header, rename=name_pairs(rename), max_line=max_line, max_expansion=max_expansion)
    return _read(path, how, schema, lifetime, progress, bad_rows, order, on_drift=on_drift)


def read_json(
    path: str, schema: SchemaLike | None = None, *, lifetime: Lifetime, progress: ProgressPolicy | None = None,
    bad_rows: BadRowPolicy = "divert", rename: Names | None = None, max_line: int = MAX_LINE,
    max_expansion: int = MAX_EXPANSION, order: FileOrder = "time", sparse: Sparse = False,
    on_drift: DriftPolicy | None = None,
) -> Stream:  # fmt: skip
    """Files of JSON lines as a stream; times, `bad_rows`, `rename`, `order` and the limits are those of `read_csv`.

    A row may lack a field of `schema`, which is then null. If no row has it, that is an error, unless `sparse` names
    the column; `sparse=True` is for all columns. All files count that are there when the first rows are read.
    `on_drift` is that of `read_csv`; it looks at the first lines of each file. Without it, a column that they lack is
    null, and counted.
    """
    how = Format("json", rename=name_pairs(rename), max_line=max_line, max_expansion=max_expansion)
    how = replace(how, sparse=sparse_names(sparse))
    return _read(path, how, schema, lifetime, progress, bad_rows, order, on_drift=on_drift)


def read_parquet(
    path: str, schema: SchemaLike | None = None, *, lifetime: Lifetime, progress: ProgressPolicy | None = None,
    bad_rows: BadRowPolicy = "divert", rename: Names | None = None, order: FileOrder = "time",
    on_drift: DriftPolicy | None = None,
) -> Stream:  # fmt: skip
    """Parquet files as a stream; `bad_rows`, `rename`, `order` and `on_drift` are those of `read_csv`."""
    how = Format("parquet", rename=name_pairs(rename))
    return _read(path, how, schema, lifetime, progress, bad_rows, order, on_drift=on_drift)


def read_events(
    path: str, schema: SchemaLike, *, format: str | None = None, progress: ProgressPolicy | None = None,
    bad_rows: BadRowPolicy = "divert", rename: Names | None = None, max_line: int = MAX_LINE,
    max_expansion: int = MAX_EXPANSION, order: FileOrder = "time", sparse: Sparse = False,
    on_drift: DriftPolicy | None = None,
) -> Stream:  # fmt: skip
    """Files of physical events as a stream: columns `kind, le, re, re_new` beside the payload of `schema`.

    Times are ticks, or dates; null is the end of dates without an end. The stream's times are dates if `schema` has
    `le DATETIME`; without `le`, if they are dates in the first file, where there is one.

    In JSON the payload may also be a nested object, `"payload"`, as `files(...)` writes it. `rename`, `order`,
    `on_drift` and the limits are those of `read_csv`, `sparse` that of `read_json`.
    """
    declared = Schema.of(schema)
    columns = Schema((*PHYSICAL, *declared.payload))
    how = Format(format) if format else Format.of_path(path)
    how = replace(how, rename=name_pairs(rename), max_line=max_line, max_expansion=max_expansion)
    how = replace(how, sparse=sparse_names(sparse))
    if how.name == "json" and "payload" not in columns:
        how = replace(how, nested=None)
    files = listing(str(path), order) if "le" not in declared and Files(str(path), how).exists() else []
    dated = starts_with_dates(files[0].path, how) if files else starts_are_dates(declared)
    return _read(path, how, columns, Physical(), progress, bad_rows, order, dated, on_drift)


def sparse_names(sparse: Sparse) -> tuple[str, ...]:
    """The columns that no row need have, as a format has them."""
    if isinstance(sparse, bool):
        return ("*",) if sparse else ()
    names: Any = [sparse] if isinstance(sparse, str) else sparse
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise SchemaError("sparse names the columns that rows may lack", given=repr(sparse), instead="sparse=['note']")
    return tuple(names)


def name_pairs(rename: Names | None) -> tuple[tuple[str, str], ...]:
    """New names of columns as a format has them."""
    like = "rename={'name in the file': 'new name'}"
    if rename is not None and not isinstance(rename, Mapping):
        raise SchemaError("rename is a dictionary", given=repr(rename), instead=like)
    pairs = tuple((rename or {}).items())
    if not all(isinstance(name, str) for pair in pairs for name in pair):
        raise SchemaError("names of columns are texts", given=dict(pairs), instead=like)
    if len({new for _, new in pairs}) < len(pairs):
        raise SchemaError("two columns cannot get one name", given=dict(pairs), allowed="a new name for each column")
    return pairs


def read_source(
    adapter: SourceAdapter | str, schema: SchemaLike | None = None, *, lifetime: Lifetime,
    progress: ProgressPolicy | None = None, bad_rows: BadRowPolicy = "divert", **options: Any,
) -> Stream:  # fmt: skip
    """The rows of an adapter as a stream: of a place that holds rows in partitions, numbered by offsets.

    `adapter` is an object, or the name of an installed adapter, with its `options`. `schema` picks columns; an adapter
    that is found by name gets it as its option `columns`, if it has one. `headrace.adapters` has the base class for
    adapters of your own.
    """
    columns = None if schema is None else Schema.of(schema)
    if isinstance(adapter, str):
        adapter = source_adapter(adapter, columns, options)
    elif options or not isinstance(adapter, SourceAdapter):
        raise PlanError(
            "options are for adapters by name" if options else "this is not an adapter of a source",
            given=", ".join(options) or type(adapter).__name__,
            allowed="the name of an installed adapter and its options, or an object of a class derived from "
            "headrace.adapters.SourceAdapter",
        )
    if columns is not None:
        check_picked(columns, adapter)
    return stream_of(AdapterRead(adapter), columns or adapter.schema, lifetime, progress, bad_rows)


def check_picked(columns: Schema, adapter: SourceAdapter) -> None:
    """Refuse columns that an adapter does not have."""
    for column in columns:
        if column not in adapter.schema.fields:
            close = nearest(column.name, adapter.schema.names)
            raise SchemaError(
                f"{adapter} has no column {column}",
                given=str(columns),
                allowed=str(adapter.schema),
                instead=str(adapter.schema[close]) if close else "",
            )


@shows_options(GeneratorOptions)
def generated(
    name: str, schema: SchemaLike | None = None, *, rows: int = 1000, seed: int = 0, lifetime: Lifetime | None = None,
    progress: ProgressPolicy | None = None, bad_rows: BadRowPolicy = "divert",
    **options: Unpack[GeneratorOptions],
) -> Stream:  # fmt: skip
    """A made-up stream, the same for the same seed: 'trades', or an auction house's 'persons', 'auctions' and 'bids'.

    `schema` picks columns; `options` are the generator's, such as `disorder=0.1`. By default rows are points at their
    column `ts`, and the CTI follows at the generator's `max_delay`.
    """
    table, delay = generator.rows_of(name, rows=rows, seed=seed, **options)
    if schema is not None:
        table = picked(table, Schema.of(schema), f"generated {name}")
    at, policy = point("ts") if lifetime is None else lifetime, progress
    if policy is None and "ts" in table.column_names and isinstance(at, Point) and str(at.at) == str(col("ts")):
        policy = Advance(delay=delay)
    return stream_of(Events(table), Schema.of(table.schema), at, policy, bad_rows)


def picked(table: pa.Table, columns: Schema, owner: str) -> pa.Table:
    """The columns of a table in memory that a schema names, in its types; a value that does not fit is an error."""
    block = fitted(table, columns, owner)
    if block.refused.num_rows:
        row = block.refused.slice(0, 1).to_pylist()[0]
        raise SchemaError(
            f"row {row['row'] + 1} of {owner} does not fit: {row['reason']}", given=row["raw"], allowed=str(columns)
        )
    return block.table


def _read(
    path: str,
    format: Format,
    schema: SchemaLike | None,
    lifetime: Lifetime,
    progress: ProgressPolicy | None,
    bad_rows: BadRowPolicy,
    order: FileOrder,
    dated: bool | None = None,
    on_drift: DriftPolicy | None = None,
) -> Stream:
    format = replace(format, on_drift=checked_drift(on_drift), whole=schema is None)
    origin = Files(str(path), format, order=order)
    columns = Schema.of(schema) if schema is not None else infer_schema(origin.files()[0].path, format, str(path))
    columns = columns.renamed(dict(format.rename))
    refuse_lists(columns, format)
    return stream_of(origin, columns, lifetime, progress, bad_rows, dated)


def refuse_lists(columns: Schema, format: Format) -> None:
    """Refuse columns that a format cannot hold."""
    lists = [column for column in columns if column.type.is_nested]
    if lists and format.name == "csv":
        raise SchemaError(
            "CSV has no lists or structs",
            given=str(lists[0]),
            allowed="columns of one value; JSON and Parquet hold lists",
            instead=f"{lists[0].name} STRING, taken apart by a function: hr.udf(..., returns={lists[0].type.value!r})",
        )


def stream_of(
    origin: Origin, columns: Schema, lifetime: Lifetime, progress: ProgressPolicy | None, bad_rows: BadRowPolicy,
    dated: bool | None = None,
) -> Stream:  # fmt: skip
    """The rows of an origin with these columns, as a stream; `dated`: if the lifetime does not show it."""
    if bad_rows not in BAD_ROWS:
        raise PlanError("unknown policy for bad rows", given=bad_rows, allowed=", ".join(BAD_ROWS))
    if bad_rows == "raise" and isinstance(origin, Files) and origin.format.on_drift == "divert":
        raise PlanError(
            "rows cannot be diverted where bad rows are errors",
            given="on_drift='divert', bad_rows='raise'",
            allowed="on_drift='raise' or 'widen' beside bad_rows='raise'",
            instead="on_drift='raise'",
        )
    _check_lifetime(origin, lifetime, columns)
    lifetime = at_midnights(lifetime, columns)
    _refuse_reserved(columns, lifetime, isinstance(origin, AdapterRead))
    if not len(columns.payload):
        raise PlanError(
            "a stream needs at least one payload column",
            given=str(columns),
            allowed=f"columns beside {', '.join(RESERVED)}",
            instead="a schema with another column, or another name for the column of the time",
        )
    policy = _default_progress(lifetime) if progress is None else checked_progress(progress)
    per = policy.per if isinstance(policy, Advance) else None
    if per is not None and isinstance(origin, AdapterRead):
        raise PlanError(
            "the partitions of this source are channels already, so keys are not",
            given=f"{origin}, progress {policy}",
            allowed="per= for files, events and data frames",
            instead="idle= alone, which excepts silent partitions",
        )
    if policy.idle is not None and per is None and not isinstance(origin, AdapterRead):
        raise PlanError(
            "idle= is for sources with partitions, of which one may be silent",
            given=f"{origin}, progress {policy}",
            allowed="sources that adapters read, such as read_kafka; or per= a column",
            instead="per='sensor' beside it, or hr.heartbeat(...), whose CTI follows the clock when the input is idle",
        )
    source = Source(origin, columns, lifetime, policy, bad_rows, dated=dated)
    if isinstance(lifetime, Arrival):  # the column of the arrival is read only where a query uses it
        return Stream(replace(origin.stamped(source), read_columns=source.schema.names))
    if isinstance(lifetime, Changed):
        return _table_of(origin.stamped(source), lifetime, (POSITION,) if lifetime.in_log_order else origin.row_order)
    if isinstance(lifetime, Edge):
        return Stream(EdgeLifetimes(source, lifetime.key, lifetime.closes))
    return Stream(Admit(source) if isinstance(lifetime, Physical) else source)


def _table_of(source: Source, lifetime: Changed, order: tuple[str, ...]) -> Stream:
    """A log as the rows of its table."""
    kept = table_columns(lifetime, source.schema)
    hides = tuple(name for name in source.schema.names if name not in kept)
    return Stream(EdgeLifetimes(source, lifetime.key, lifetime.closes, order=order, hides=hides))


def _refuse_reserved(columns: Schema, lifetime: Lifetime, of_adapter: bool) -> None:
    """Refuse columns with the names of parts of an event, except those that the lifetime is read from."""
    if isinstance(lifetime, Physical):
        return
    start, end = (lifetime.start, lifetime.end) if isinstance(lifetime, Interval) else (lifetime.at, None)
    own = {name for name, expr in (("le", start), ("re", end)) if expr is not None and str(expr) == str(col(name))}
    for name in columns.names:
        if name.startswith("__") or (name in RESERVED and name not in own):
            rename = f"rename={{{name!r}: {(name.strip('_') or 'column') + '_'!r}}}"
            raise SchemaError(
                f"a payload column may not be named {name!r}: every event has a part of that name",
                given=str(columns),
                allowed=f"any name but {', '.join(RESERVED)} and those that begin with '__'",
                instead=f"only other columns: {', '.join(map(str, columns.payload))}" if of_adapter else rename,
            )


def _default_progress(lifetime: Lifetime) -> ProgressPolicy:
    return Advance() if arrives(lifetime) else Explicit()


def _check_lifetime(origin: Origin, lifetime: Lifetime, columns: Schema) -> None:
    if not isinstance(lifetime, Lifetime):
        raise PlanError(
            "this is not a lifetime",
            given=lifetime,
            allowed="hr.point(...), hr.interval(...), hr.edge(...), hr.by_arrival()",
            instead=f"lifetime=hr.point({lifetime!r})" if isinstance(lifetime, str) else "lifetime=hr.point('ts')",
        )
    if isinstance(lifetime, Physical) or arrives(lifetime):
        return
    exprs = [lifetime.start, lifetime.end] if isinstance(lifetime, Interval) else [lifetime.at]
    for expr in exprs:
        kind = _time_type(expr, columns)
        if kind not in (Type.DATETIME, Type.DATE) and not kind.is_integer:
            raise PlanError(
                f"{origin}: {expr} cannot be a time",
                given=kind.value,
                allowed="DATETIME, or a whole number of ticks (microseconds)",
                instead=_instead_of_time(expr, kind, columns),
            )


def _instead_of_time(at: Expr, kind: Type, columns: Schema) -> str:
    if kind.is_text:
        dated = (replace(field, type=Type.DATETIME) if field.name in at.columns() else field for field in columns)
        return f"schema={', '.join(map(str, dated))!r}"
    return "unit='s' in the lifetime, if these are seconds" if kind.is_numeric else "a column with dates"


def _time_type(expr: Expr, columns: Schema) -> Type:
    try:
        return expr.type(columns)
    except UnknownColumn:
        raise
    except ExpressionError as error:
        raise PlanError(
            f"{expr} cannot be a time: {error.message}",
            given=error.given,
            allowed="DATETIME, or a whole number of ticks (microseconds); with unit= a number",
        ) from error
