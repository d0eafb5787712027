"""Kafka and PostgreSQL: the public functions. The adapters behind them are in `headrace.adapters`.

Each adapter needs a package that is an extra (`pip install 'headrace[kafka]'`), so it is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from headrace.api.inputs import Sparse, sparse_names, stream_of
from headrace.api.keyed_changes import read_changes
from headrace.api.stream import Stream
from headrace.border import LIFETIME, TimeColumns
from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.io.drift import DriftPolicy, checked_drift
from headrace.io.encode import PHYSICAL
from headrace.io.origins import AdapterRead
from headrace.io.sinks import Encoding
from headrace.io.values import ValueFormat
from headrace.plan.policies import (
    Arrival,
    BadRowPolicy,
    Interval,
    Lifetime,
    Physical,
    ProgressPolicy,
    starts_are_dates,
)
from headrace.schema import Schema, SchemaLike
from headrace.time import DurationLike

if TYPE_CHECKING:
    from headrace.adapters.kafka import KafkaSink, KafkaSource
    from headrace.adapters.postgres import PostgresSink

__all__ = ["columns_of", "kafka", "kafka_topics", "postgres", "postgres_table", "read_kafka", "read_postgres"]

ValueFormatLike = str | ValueFormat
Metadata = Literal["_key", "_topic", "_partition", "_offset", "_timestamp", "_headers", "_tombstone"]


def _format(format: ValueFormatLike) -> ValueFormat:
    return format if isinstance(format, ValueFormat) else ValueFormat(format)  # type: ignore[arg-type]


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def kafka_topics(
    topics: str | Sequence[str] = (), schema: SchemaLike = "", *, bootstrap: str = "localhost:9092",
    pattern: str | None = None, format: ValueFormatLike = "json", key_schema: SchemaLike = "",
    key_format: ValueFormatLike | None = None, start: Any = "earliest", tombstones: bool = False,
    group_id: str | None = None, on_gap: Literal["raise", "continue"] = "raise",
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    on_drift: DriftPolicy | None = None, sparse: Sparse = False, options: Mapping[str, object] | None = None,
) -> KafkaSource:  # fmt: skip
    """Topics of Kafka, for `read_changes` and `read_source`; the options are those of `read_kafka`."""
    # Imported when it is used: it needs an extra.
    from headrace.adapters.kafka import KafkaSource

    keys = Schema.of(key_schema) if key_schema else Schema(())
    how = None if key_format is None else _format(key_format)
    if keys and how is None:
        how = ValueFormat("json")
    return KafkaSource(
        bootstrap, _names(topics), Schema.of(schema) if schema else Schema(()), pattern=pattern,
        format=_format(format), key_format=how, key_columns=keys, start=start, tombstones=tombstones,
        group_id=group_id, isolation=isolation, on_gap=on_gap, on_drift=checked_drift(on_drift),
        sparse=sparse_names(sparse), options=dict(options or {}),
    )  # fmt: skip


def read_kafka(
    topics: str | Sequence[str] = (), schema: SchemaLike = "", *, lifetime: Lifetime,
    progress: ProgressPolicy | None = None, metadata: Metadata | Sequence[Metadata] = (),
    bad_rows: BadRowPolicy = "divert", **options: Any,
) -> Stream:  # fmt: skip
    """Topics of Kafka as a stream: each message is a row, decoded from its value by `schema`.

    `topics` are names; or `pattern=` is a regular expression, and topics that appear later are read, too. `format` is
    `"json"`, `"csv"`, `"avro"`, `"text"` or `"bytes"`, or a `ValueFormat` with options, such as the schema registry of
    Avro. `key_schema` and `key_format` decode the message's key into columns.

    Metadata are columns named `_key`, `_topic`, `_partition`, `_offset`, `_timestamp` and `_headers`: those that
    `metadata` names, or that the lifetime uses: `lifetime=hr.point("_timestamp")`. With `tombstones=True` messages
    without a value are rows, too, and `_tombstone` marks them.

    `start` is where a query begins that has read nothing: `"earliest"`, `"latest"`, a time, or offsets by partition
    (`{"trades/0": 500}`). Positions are part of the checkpoint; with `group_id` they are also shown to Kafka's tools.
    `bootstrap` are the addresses of brokers, and `options` are passed to the client (librdkafka). Messages that expired
    before they were read are an error, or with `on_gap="continue"` counted.

    `on_drift` is for messages of JSON or Avro with other columns than `schema`: `"raise"` ends the query with an error,
    `"divert"` diverts them, `"widen"` reads null for what is missing; all are counted. `sparse` names columns that a
    message may lack, `sparse=True` is for all. Without it what is missing is null, and not counted.

    The partition that is farthest behind decides the CTI; `idle=` of the progress policy excepts silent ones. With
    `lifetime=hr.physical()` the messages are physical events, as `hr.kafka(...)` writes them; `le DATETIME` in the
    schema declares that their times are dates.
    """
    physical, declared = isinstance(lifetime, Physical), Schema.of(schema)
    if physical:
        schema = Schema((*PHYSICAL, *declared.payload))
        how = _format(options.get("format", "json"))
        options["format"] = replace(how, nested=True) if how.name == "json" else how
    adapter = kafka_topics(topics, schema, **options)
    used = set() if physical else columns_of(lifetime)
    wanted = {*_names(metadata), *used, *adapter.columns.names, *adapter.key_columns.names}
    for name in wanted:
        adapter.schema[name]  # an error that names the columns, if there is none of this name
    columns = Schema(tuple(column for column in adapter.schema if column.name in wanted))
    dated = starts_are_dates(declared) if physical else None
    return stream_of(AdapterRead(adapter), columns, lifetime, progress, bad_rows, dated)


def columns_of(lifetime: Any) -> set[str]:
    """The columns from which a lifetime is computed."""
    if isinstance(lifetime, Interval):
        return set(lifetime.start.columns() | lifetime.end.columns())
    if isinstance(lifetime, Arrival) or not hasattr(lifetime, "at"):
        return set()
    return set(lifetime.at.columns())


def kafka(
    topic: str, *, bootstrap: str = "localhost:9092", encoding: Encoding = "events", key: str | Sequence[str] = (),
    format: ValueFormatLike = "json", message_key: str | Sequence[str] = (),
    key_format: Literal["json", "text"] = "json", ended: Literal["keep", "delete"] = "keep",
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once", create: bool = False,
    partitions: int | None = None, topic_config: Mapping[str, object] | None = None,
    options: Mapping[str, object] | None = None, time_columns: TimeColumns = LIFETIME,
) -> KafkaSink:  # fmt: skip
    """A topic of Kafka as a sink: each row is a message, every batch a transaction.

    Physical events, changes and final rows are appended; `message_key` names the columns of the message's key. With
    `encoding="upsert"`, `key` is the message's key, and a key without a row gets a message without a value: the form of
    a compacted topic. `ended="delete"` also deletes rows whose lifetime has ended, for copies of tables.

    Readers that read committed messages only (`isolation.level=read_committed`) see every batch once, whatever
    crashes. `delivery="at_least_once"` writes without transactions. `create=True` creates the topic if it is missing.
    `time_columns=("start", "end")` gives `le` and `re` other names.
    """
    # Imported when it is used: it needs an extra.
    from headrace.adapters.kafka import KafkaSink

    return KafkaSink(
        encoding, _names(key), ended=ended, bootstrap=bootstrap, topic=topic, format=_format(format),
        message_key=_names(message_key), key_format=key_format, delivery=delivery, create=create,
        partitions=partitions, topic_config=dict(topic_config or {}), options=dict(options or {}),
        time_columns=time_columns,
    )  # fmt: skip


def read_postgres(
    dsn: str, table: str, schema: SchemaLike | None = None, *, key: str | Sequence[str] = (),
    at: str | Expr | None = None, cursor: str | None = None, lag: DurationLike = 0, lifetime: Lifetime | None = None,
    progress: ProgressPolicy | None = None, bad_rows: BadRowPolicy = "divert", name: str = "", slot: str = "",
    publication: str = "", snapshot: bool = True, create: bool = True,
    on_gap: Literal["raise", "continue"] = "raise",
) -> Stream:  # fmt: skip
    """A table of PostgreSQL as a stream, by its changes: a row is alive until its next change or its deletion.

    The first batch has the rows of the table; later ones follow the server's log (logical decoding, which needs
    `wal_level = logical`). A change happens at the time of its commit, or `at` a column. `schema` and `key` come from
    the table by default. Every query needs a replication slot of its own: `name` distinguishes those of several queries
    over one table, and `create=False` uses a slot and a publication that exist.

    With `cursor`, the table is read by a column that only grows, such as an id: rows that are appended, each once, with
    the `lifetime` that is given. Rows may become visible in another order than that of the cursor: `lag` is how far the
    query stays behind the last one, a number or a duration.
    """
    if cursor is not None:
        return _polled(dsn, table, schema, cursor, lag, lifetime, progress, bad_rows)
    if lifetime is not None or lag:
        raise PlanError(
            "lifetime and lag are for a table that is read by a cursor",
            given=f"lifetime={lifetime}, lag={lag}",
            instead="read_postgres(dsn, table, cursor='id', lifetime=...), or at= for the time of changes",
        )
    # Imported when it is used: it needs an extra.
    from headrace.adapters.postgres import PostgresChanges

    columns = None if schema is None else Schema.of(schema)
    adapter = PostgresChanges.of(
        dsn, table, columns, _names(key), name=name, slot=slot, publication=publication, snapshot=snapshot,
        create=create, on_gap=on_gap,
    )  # fmt: skip
    return read_changes(adapter, at=at, progress=progress, bad_rows=bad_rows)


def _polled(
    dsn: str, table: str, schema: SchemaLike | None, cursor: str, lag: DurationLike, lifetime: Lifetime | None,
    progress: ProgressPolicy | None, bad_rows: BadRowPolicy,
) -> Stream:  # fmt: skip
    # Imported when it is used: it needs an extra.
    from headrace.adapters.postgres import PostgresPolled

    if lifetime is None:
        raise PlanError(
            "rows that are read by a cursor need a lifetime",
            given=f"cursor={cursor!r}",
            instead="lifetime=hr.point('ts')",
        )
    adapter = PostgresPolled.of(dsn, table, cursor, None if schema is None else Schema.of(schema), lag)
    return stream_of(AdapterRead(adapter), adapter.schema, lifetime, progress, bad_rows)


def postgres_table(dsn: str, table: str = "", *, query: str = "", schema: SchemaLike | None = None) -> pa.Table:
    """The rows of a table of PostgreSQL, or of a query, as they are now: for `join_table`."""
    # Imported when it is used: it needs an extra.
    from headrace.adapters.postgres import read_table

    rows, _ = read_table(dsn, table, query=query, columns=None if schema is None else Schema.of(schema))
    return rows


def postgres(
    dsn: str, table: str, *, encoding: Encoding = "final", key: str | Sequence[str] = (), create: bool = False,
    ended: Literal["keep", "delete"] = "keep", times: Literal["timestamp", "ticks"] | None = None,
    columns: Mapping[str, str] | None = None, time_columns: TimeColumns = LIFETIME,
) -> PostgresSink:  # fmt: skip
    """A table of PostgreSQL as a sink; every batch is a transaction, which records its number.

    `encoding="final"` inserts rows that nothing can change any more. `"upsert"` keeps the latest row of each `key`:
    rows are inserted, updated and deleted. `ended="delete"` also deletes rows whose lifetime has ended, so that the
    table has only rows that still hold. `"events"` and `"changes"` are logs. `create=True` creates a missing table;
    `columns` maps names of columns to those of the table, and `time_columns` names those of `le` and `re`. In a created
    table these are of type timestamptz if the times of the stream are dates, else bigint; `times=` sets it.
    """
    # Imported when it is used: it needs an extra.
    from headrace.adapters.postgres import PostgresSink

    mapping = tuple((columns or {}).items())
    return PostgresSink(
        encoding, _names(key), ended=ended, dsn=dsn, table=table, create=create, times=times, columns=mapping,
        time_columns=time_columns,
    )  # fmt: skip
