"""Rows of the grid whose input, answers or checkpoint are at a service: a broker, a database, an object store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.grid.features import Feature, Pairs, two_streams, write_two
from tests.grid.inputs import PAYLOAD, SCHEMA, Row, changes, events, points
from tests.grid.servers import execute, place_of, place_with, servers
from tests.grid.sinks import NO_FILES, answers, latest
from tests.grid.sources import ROWS, counted

import headrace as hr
from headrace.events import events_table, history, to_changes
from headrace.io.avro_writing import avro_schema, encode_avro
from headrace.io.object_batches import ObjectBatches
from headrace.io.sinks import read_events_output
from headrace.io.values import ValueFormat
from headrace.store.objects import ObjectStorage

__all__ = ["SERVICES"]

AVRO = avro_schema(SCHEMA)
NO_INPUT_FILES = {"files": "the input is at a service", "clock": "the input has no files"}
OF_ROWS = {"rows_per_batch": 10}
AT_BROKER: dict[str, Any] = {"services": ("broker",), "adapters": True, "anew": True}
_POINTS: dict[str, Any] = {"lifetime": hr.point("t"), "progress": hr.advance(delay=10)}


# --- Kafka ------------------------------------------------------------------------------------------------------------


def _as_json(rows: Iterable[Row]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def _as_avro(rows: Iterable[Row]) -> list[bytes]:
    batch = pa.RecordBatch.from_pylist(list(rows), SCHEMA)
    return [value.as_py() for value in encode_avro(batch, AVRO)]


def topic(encode: Callable[[Iterable[Row]], list[bytes]], *more: str) -> Callable[[Path], None]:
    """Writes rows to a new topic with two partitions."""

    def write(folder: Path) -> None:
        from confluent_kafka import Producer  # an extra

        place = place_with(folder, "broker", *more)
        servers.broker.create_topic(place.topic("in"), 2)
        producer = Producer({"bootstrap.servers": servers.broker.bootstrap, "linger.ms": 0})
        for number, value in enumerate(encode(row for rows in points(1) for row in rows)):
            producer.produce(place.topic("in"), value, partition=number % 2)
        assert producer.flush(60) == 0

    return write


def from_kafka(folder: Path, **options: Any) -> hr.Stream:
    place = place_of(folder)
    rest = {"bad_rows": "raise", **_POINTS, **options}
    return counted(hr.read_kafka(place.topic("in"), ROWS, bootstrap=place.bootstrap, **rest))


def to_kafka(folder: Path, encoding: Any = "events", **options: Any) -> Any:
    place = place_of(folder)
    return hr.kafka(
        place.topic("out"), bootstrap=place.bootstrap, encoding=encoding, create=True, partitions=2, **options
    )


def topic_rows(folder: Path, stream: hr.Stream, sink: Any) -> list[Row]:
    """What the committed records of a topic mean: their history, or the latest of each key."""
    from tests.services.lives import records  # an extra

    if place_of(folder).topic("out") not in servers.broker.topics():
        return []
    found = [record for partition in records(servers.broker, sink.topic) for record in partition]
    if sink.encoding == "upsert":
        rows = dict(found)  # a key is always in the same partition
        return [json.loads(value) for value in rows.values() if value is not None]
    entries = [json.loads(value or b"") for _, value in found]
    if sink.encoding != "events":
        return entries
    changed = [entry | entry.pop("payload") for entry in entries if entry["kind"] != "cti"]
    return history(to_changes(events_table(changed, stream.schema), stream.schema)).to_pylist()


def kafka_sink(name: str, encoding: str, stream: Callable[[Path], hr.Stream] = answers, **options: Any) -> Feature:
    """Files of events, and answers in a topic."""

    def write(folder: Path) -> None:
        write_two(folder)
        place_with(folder, "broker")

    def pairs(folder: Path) -> Pairs:
        return [(stream(folder), to_kafka(folder, encoding, **options))]

    return Feature(name, "service", write, pairs, lacks=NO_FILES, rows=topic_rows, **AT_BROKER)


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


def insert(table: str, batches: Iterable[list[Row]]) -> list[str]:
    """Statements that insert rows, with numbers from 1 on: one for each batch."""
    found, number = [], 0
    for rows in batches:
        values = []
        for row in rows:
            number += 1
            values.append(f"({number}, {row['t']}, '{row['k']}', {row['i']}, {row['x']})")
        found.append(f"INSERT INTO {table} VALUES {', '.join(values)}")
    return found


def polled_table(folder: Path) -> None:
    """A table to which rows were appended."""
    table = place_with(folder, "database").table("rows")
    columns = "id bigint PRIMARY KEY, t bigint, k text, i bigint, x float8"
    execute(f"CREATE TABLE {table} ({columns})", *insert(table, points(2)))


def polled(folder: Path) -> Pairs:
    place = place_of(folder)
    rows = hr.read_postgres(
        place.dsn, place.table("rows"), f"id LONG, {ROWS}", cursor="id", bad_rows="raise", **_POINTS
    )
    return [(counted(rows), hr.files(str(folder / "out" / "events")))]


def changing_table(folder: Path) -> None:
    """A table with its first rows."""
    table = place_with(folder, "database").table("rows")
    execute(f"CREATE TABLE {table} (k text PRIMARY KEY, g bigint, x float8)",
            f"INSERT INTO {table} VALUES ('z', 1, 2.5), ('y', 2, 0.5)")  # fmt: skip


def table_changes(folder: Path) -> None:
    """Transactions that change the table."""
    table = place_of(folder).table("rows")
    for rows in changes(8, {"insert": "I", "update": "U", "delete": "D"}):
        execute("; ".join(_statement(table, row) for row in rows))


def _statement(table: str, row: Row) -> str:
    return {
        "I": f"INSERT INTO {table} VALUES ('{row['k']}', {row['i']}, {row['x']})",
        "U": f"UPDATE {table} SET g = {row['i']}, x = {row['x']} WHERE k = '{row['k']}'",
        "D": f"DELETE FROM {table} WHERE k = '{row['k']}'",
    }[row["op"]]


def replicated(folder: Path) -> Pairs:
    """Totals of a table's rows as they are, kept up to date in another table."""
    place = place_of(folder)
    rows = hr.read_postgres(
        place.dsn, place.table("rows"), "k STRING, g LONG, x DOUBLE", key="k", slot=place.mark, publication=place.mark,
        bad_rows="raise",
    )  # fmt: skip
    totals = rows.group_by("g").window(hr.snapshot()).aggregate(n=hr.count(), s=hr.sum("x"))
    return [(totals, to_postgres(folder, "upsert", key="g", ended="delete"))]


def to_postgres(folder: Path, encoding: Any, **options: Any) -> Any:
    place = place_of(folder)
    return hr.postgres(place.dsn, place.table("answers"), encoding=encoding, create=True, times="ticks", **options)


def table_rows(folder: Path, stream: hr.Stream, sink: Any) -> list[Row]:  # noqa: ARG001 - as others
    """The rows of the table of answers; when those of a table that changes began is another time each time."""
    import psycopg  # an extra
    from psycopg.rows import dict_row

    schema, name = sink.table.split(".")
    with psycopg.connect(servers.database.dsn, row_factory=dict_row) as connection:
        if not connection.execute("SELECT 1 FROM pg_tables WHERE (schemaname, tablename) = (%s, %s)", [schema, name]):
            return []
        rows = connection.execute(f"SELECT * FROM {sink.table}".encode()).fetchall()
    return [{n: v for n, v in row.items() if not (n == "le" and sink.ended == "delete")} for row in rows]


def postgres_sink(name: str, encoding: str, stream: Callable[[Path], hr.Stream] = answers, **options: Any) -> Feature:
    """Files of events, and answers in a table."""

    def write(folder: Path) -> None:
        write_two(folder)
        place_with(folder, "database")

    def pairs(folder: Path) -> Pairs:
        return [(stream(folder), to_postgres(folder, encoding, **options))]

    return Feature(
        name, "service", write, pairs, lacks=NO_FILES, services=("database",), adapters=True, anew=True, rows=table_rows
    )


def both(folder: Path) -> Pairs:
    """From a topic into a topic and a table, both exactly once."""
    stream = from_kafka(folder)
    rows = stream.select("k", "n", "s", at=hr.start())
    return [(stream, to_kafka(folder)), (rows, to_postgres(folder, "upsert", key=("k", "at")))]


def rows_of_both(folder: Path, stream: hr.Stream, sink: Any) -> list[Row]:
    return topic_rows(folder, stream, sink) if sink.encoding == "events" else table_rows(folder, stream, sink)


# --- object stores ----------------------------------------------------------------------------------------------------


def home_on_objects(folder: Path) -> str:
    return place_of(folder).url("").rstrip("/")


def checkpoint_on_objects(folder: Path) -> str:
    return place_of(folder).url("state")


def write_for_objects(folder: Path) -> None:
    write_two(folder)
    place_with(folder, "objects")


def write_to_objects(folder: Path) -> None:
    """The input as objects."""
    place = place_with(folder, "objects")
    for number, rows in enumerate(events(1)):
        ObjectStorage(place.url("in")).create(
            f"{number:03d}.json", "".join(f"{json.dumps(r)}\n" for r in rows).encode()
        )


def of_objects(folder: Path) -> Pairs:
    """From files on an object store to files there."""
    place = place_of(folder)
    stream = hr.read_events(
        place.url("in"), PAYLOAD, format="json", order="name", progress=hr.explicit(), bad_rows="raise"
    )
    result = stream.group_by("k").window(hr.tumbling(4)).aggregate(n=hr.count(), s=hr.sum("x"))
    return [(result, hr.files(place.url("out")))]


def object_rows(folder: Path, stream: hr.Stream, sink: Any) -> list[Row]:  # noqa: ARG001 - as others
    """The history of the events in a sink on the store."""
    if not ObjectBatches(sink.path).files():
        return []
    return history(to_changes(read_events_output(sink.path, stream.schema), stream.schema)).to_pylist()


def local_events(folder: Path) -> Pairs:
    stream = two_streams(folder)[0]
    grouped = stream.group_by("k").window(hr.hopping(6, 2)).aggregate(n=hr.count(), s=hr.sum("x"))
    return [(grouped, hr.files(str(folder / "out" / "events")))]


ONCE = "the log of changes is read once"
NO_DIRECTORY = {"checkpoint files": "the checkpoint is no directory"}
SERVICES: list[Feature] = [
    Feature(
        "kafka json", "service", topic(_as_json),
        lambda folder: [(from_kafka(folder), hr.files(str(folder / "out" / "events")))],
        lacks=NO_INPUT_FILES, options=OF_ROWS, services=("broker",), adapters=True,
    ),
    Feature(
        "kafka avro", "service", topic(_as_avro),
        lambda folder: [
            (from_kafka(folder, format=ValueFormat("avro", avro_schema=AVRO)), hr.files(str(folder / "out" / "events")))
        ],
        lacks=NO_INPUT_FILES, options=OF_ROWS, services=("broker",), adapters=True,
    ),
    kafka_sink("kafka events", "events", message_key="k"),
    kafka_sink("kafka changes", "changes"),
    kafka_sink("kafka upserts", "upsert", latest, key="k"),
    Feature(
        "postgres polled", "service", polled_table, polled,
        lacks=NO_INPUT_FILES, options=OF_ROWS, services=("database",), adapters=True,
    ),
    Feature(
        "postgres changes", "service", changing_table, replicated, later=table_changes,
        lacks=NO_INPUT_FILES | NO_FILES | {"batch": ONCE, "past": ONCE},
        options=OF_ROWS, services=("database",), adapters=True, anew=True, rows=table_rows,
    ),
    postgres_sink("postgres upserts", "upsert", latest, key="k"),
    postgres_sink("postgres log", "changes"),
    postgres_sink("postgres final", "final"),
    Feature(
        "kafka to kafka and postgres", "service", topic(_as_json, "database"), both,
        lacks=NO_INPUT_FILES | NO_FILES, options=OF_ROWS, services=("broker", "database"), adapters=True, anew=True,
        rows=rows_of_both,
    ),
    Feature(
        "checkpoint on s3", "service", write_for_objects, local_events,
        lacks=NO_DIRECTORY, services=("objects",), anew=True, home=home_on_objects, checkpoint=checkpoint_on_objects,
    ),
    Feature(
        "files on s3", "service", write_to_objects, of_objects,
        lacks=NO_INPUT_FILES | {"sink files": "the sink's files are on an object store"},
        services=("objects",), anew=True, home=home_on_objects, rows=object_rows,
    ),
]  # fmt: skip
