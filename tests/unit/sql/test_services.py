"""Kafka and PostgreSQL in SQL: the same sources and sinks as in Python, without a server."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import headrace as hr
from headrace.adapters.kafka import KafkaSink
from headrace.adapters.postgres import PostgresPolled
from headrace.errors import SqlError
from headrace.io.values import ValueFormat
from headrace.sql.session import ShownTable

COLUMNS = "symbol STRING, ts DATETIME, price DOUBLE"
DSN = "postgresql://me@host/shop"


def trades(columns: str = COLUMNS, **options: object) -> hr.Stream:
    given = {"bootstrap": "host:9092", "lifetime": hr.point("ts"), "progress": hr.advance("10 s")} | options
    return hr.read_kafka(*(() if "pattern" in given else ("trades",)), schema=columns, **given)  # type: ignore[arg-type]


SOURCES = {
    f"({COLUMNS}) ORDER BY ts SOURCE kafka ('host:9092', 'trades')": trades,
    f"({COLUMNS}) ORDER BY ts SOURCE TOPIC ('host:9092', 'trades')": trades,
    f"({COLUMNS}, _offset LONG, _timestamp DATETIME) ORDER BY _timestamp SOURCE kafka ('host:9092', 'trades')":
        lambda: trades(lifetime=hr.point("_timestamp"), metadata="_offset"),
    f"({COLUMNS}) ORDER BY ts SOURCE kafka ('host:9092', pattern => 't.*', start => 'latest', group_id => 'g', "
    "on_gap => 'continue', isolation => 'read_uncommitted', \"sasl.username\" => 'me', \"fetch.min.bytes\" => 5)":
        lambda: trades(pattern="t.*", start="latest", group_id="g", on_gap="continue", isolation="read_uncommitted",
                       options={"sasl.username": "me", "fetch.min.bytes": 5}),
    f"({COLUMNS}) ORDER BY ts SOURCE kafka ('host:9092', 'trades', start => '2024-05-01 12:00:00')":
        lambda: trades(start=datetime(2024, 5, 1, 12, tzinfo=UTC)),
    f"({COLUMNS}) ORDER BY ts SOURCE kafka ('host:9092', 'trades', start => '2024-05-01T14:00:00+02:00')":
        lambda: trades(start=datetime(2024, 5, 1, 12, tzinfo=UTC)),
    f"({COLUMNS}) ORDER BY ts SOURCE kafka ('host:9092', 'trades', start => 'trades/0: 500, trades/1: 7')":
        lambda: trades(start={"trades/0": 500, "trades/1": 7}),
    f"({COLUMNS}) ORDER BY ts SOURCE kafka ('host:9092', 'trades', format => 'avro', registry => 'http://r:8081')":
        lambda: trades(format=ValueFormat("avro", registry="http://r:8081")),
    f"({COLUMNS}) ORDER BY ts SOURCE kafka ('host:9092', 'trades', format => 'csv', delimiter => ';')":
        lambda: trades(format=ValueFormat("csv", delimiter=";")),
    f"({COLUMNS}) ORDER BY ts SOURCE kafka ('host:9092', 'trades', key_columns => 'symbol', key_format => 'text')":
        lambda: trades("ts DATETIME, price DOUBLE", key_schema="symbol STRING", key_format="text"),
    f"({COLUMNS}) ORDER BY ts SOURCE kafka ('host:9092', 'trades', key_columns => 'symbol STRING', "
    "key_format => 'avro', key_avro_schema => '\"string\"')":
        lambda: trades("ts DATETIME, price DOUBLE", key_schema="symbol STRING",
                       key_format=ValueFormat("avro", avro_schema='"string"')),
    f"({COLUMNS}, _tombstone BOOLEAN) ORDER BY ts SOURCE kafka ('host:9092', 'trades')":
        lambda: trades(tombstones=True, metadata="_tombstone"),
    "(kind STRING, le LONG, re LONG, re_new LONG, price DOUBLE) LIFETIME PHYSICAL SOURCE kafka ('host:9092', 'trades')":
        lambda: trades("price DOUBLE", lifetime=hr.physical()),
    "(id LONG, ts DATETIME) ORDER BY ts SOURCE postgres (env('DSN'), 'log', cursor => 'id', lag => '5 s')":
        lambda: hr.read_source(
            PostgresPolled(DSN, "log", hr.Schema.of("id LONG, ts DATETIME"), "id", "5 s"), lifetime=hr.point("ts"),
            progress=hr.advance("10 s"),
        ),
}  # fmt: skip


@pytest.mark.parametrize("clauses", SOURCES)
def test_a_source_is_what_python_reads(clauses: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DSN", DSN)
    made = hr.sql(f"CREATE STREAM t {clauses} WITH PROGRESS ADVANCE 10 s; SELECT * FROM t")
    assert made.node == SOURCES[clauses]().node


KAFKA = {"bootstrap": "host:9092"}
SINKS = {
    "kafka ('host:9092', 'answers')": hr.kafka("answers", **KAFKA),
    "kafka ('host:9092', 'answers', encoding => 'upsert', key => 'symbol, ts', ended => 'delete', create => TRUE, "
    "partitions => 3, topic_config => 'retention.ms = 1000, cleanup.policy = compact')":
        hr.kafka("answers", **KAFKA, encoding="upsert", key=("symbol", "ts"), ended="delete", create=True, partitions=3,
                 topic_config={"retention.ms": 1000, "cleanup.policy": "compact"}),
    "kafka ('host:9092', 'answers', 'csv', 'symbol', 'text', 'at_least_once', delimiter => ';', \"linger.ms\" => 5)":
        hr.kafka("answers", **KAFKA, format=ValueFormat("csv", delimiter=";"), message_key="symbol",
                 key_format="text", delivery="at_least_once", options={"linger.ms": 5}),
    "kafka ('host:9092', 'answers', 'avro', registry => 'http://r', subject => 'answers-value')":
        hr.kafka("answers", **KAFKA, format=ValueFormat("avro", registry="http://r", subject="answers-value")),
    "postgres (env('DSN'), 'totals')": hr.postgres(DSN, "totals"),
    "postgres (env('DSN'), 'totals', encoding => 'upsert', key => 'symbol', ended => 'delete', create => TRUE, "
    "times => 'ticks', columns => 'symbol AS item, price AS cost')":
        hr.postgres(DSN, "totals", encoding="upsert", key="symbol", ended="delete", create=True, times="ticks",
                    columns={"symbol": "item", "price": "cost"}),
}  # fmt: skip
READ = f"CREATE STREAM t ({COLUMNS}) ORDER BY ts SOURCE kafka ('host:9092', 'trades');\n"


@pytest.mark.parametrize("place", SINKS)
def test_a_sink_is_what_python_makes(place: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DSN", DSN)
    ((_, sink),) = hr.script(f"{READ} SELECT * FROM t INTO {place}").deliveries.values()
    assert sink == SINKS[place]


def test_adapters_by_name_take_objects_too():
    by_name = hr.read_source("kafka", COLUMNS, lifetime=hr.point("ts"), progress=hr.advance("10 s"), topics="trades",
                             bootstrap="host:9092", format=ValueFormat("json"))  # fmt: skip
    assert by_name.node == trades().node
    assert hr.sink("kafka", bootstrap="h", topic="t", format=ValueFormat("json")) == KafkaSink(bootstrap="h", topic="t")


WRONG = [
    ("ORDER BY ts SOURCE kafka ('h')", "give topics or a pattern", "SOURCE kafka"),
    ("ORDER BY ts SOURCE kafka ('h', 't', topic => 'u')", "KAFKA has no 'topic'", "topic"),
    ("ORDER BY ts SOURCE kafka ('h', 't', start => 'now')", "unknown start", "'now'"),
    ("ORDER BY ts SOURCE kafka ('h', 't', format => 'avro')", "Avro values need a schema", "SOURCE kafka"),
    ("ORDER BY ts SOURCE kafka ('h', 't', format => 5)", "format is a text", "5"),
    ("ORDER BY ts SOURCE kafka ('h', 't', registry => 'http://r')", "json values have no Avro schema", "SOURCE kafka"),
    ("ORDER BY ts SOURCE kafka ('h', 't', key_columns => 'id')", "id", "'id'"),
    ("ORDER BY ts SOURCE kafka ('h', 't', \"group.id\" => 'x')", "is set by the adapter", "SOURCE kafka"),
    (
        "ORDER BY ts SOURCE postgres ('d', 'log', cursor => 'ts', slot => 'x')",
        "has no option 'slot'",
        "SOURCE postgres",
    ),
    ("ORDER BY ts SOURCE postgres ('d', 'log', lag => '5 s')", "needs the option 'cursor'", "SOURCE postgres"),
]


@pytest.mark.parametrize(("clauses", "message", "place"), WRONG)
def test_errors_point_at_the_place(clauses: str, message: str, place: str):
    with pytest.raises(SqlError) as caught:
        hr.script(f"CREATE STREAM t (ts DATETIME, _offset LONG)\n{clauses};")
    assert message in caught.value.message
    assert caught.value.text[slice(*caught.value.at)].startswith(place)
    assert caught.value.line == 2


@pytest.mark.parametrize(("statement", "message"), [
    ("SELECT * FROM t INTO kafka ('h')", "a Kafka sink needs a topic"),
    ("SELECT * FROM t INTO kafka ('h', 'x', encoding => 'upsert')", "upsert rows need a key"),
    ("SELECT * FROM t INTO kafka ('h', 'x', create => TRUE, topic_config => 'compact')", "no settings of a topic"),
    ("SELECT * FROM t INTO postgres ('host=h', 'x', columns => 'a b')", "no new names of columns"),
    ("SELECT * FROM t INTO postgres ('host=h', 'x', ended => 'delete')", "ended= says what becomes"),
    ("CREATE TABLE names SOURCE postgres ('host=h')", "either a table or a query"),
    ("CREATE TABLE names SOURCE kafka ('h', 't')", "there is no source of a table 'KAFKA'"),
    ("CREATE STREAM x SOURCE kafka ('h', 't')", "a stream from a source needs columns"),
])  # fmt: skip
def test_errors_of_sinks_and_tables(statement: str, message: str):
    with pytest.raises(SqlError, match=message.replace("'", ".")):
        hr.script(READ + statement)


def test_sessions_that_may_use_some_folders_reach_no_servers(tmp_path: Path):
    for statement in ("SELECT * FROM t INTO kafka ('h', 'x')", "CREATE TABLE n SOURCE postgres ('d', 'n')", READ):
        with pytest.raises(SqlError, match="may only use some folders"):
            hr.script(statement, roots=[tmp_path], t=trades())


def test_they_are_listed_without_being_installed():
    sources, sinks = hr.script("SHOW SOURCES; SHOW SINKS").outcomes
    assert isinstance(sources, ShownTable)
    assert isinstance(sinks, ShownTable)
    assert {"kafka", "postgres"} < {row[0] for row in sources.rows}
    assert {row[0]: row[2] for row in sinks.rows}["postgres"] == "headrace"
