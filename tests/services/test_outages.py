"""What a person sees when a service is away, wrong, or changes: queries wait, say so, and end with an error that helps.

The queries run in this process. `HEADRACE_KILLS` of more than 2 makes outages as long as real ones.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from tests.fixtures.ports import free_ports
from tests.fixtures.waiting import until
from tests.services.broker import LOGIN, Broker
from tests.services.database import Database
from tests.services.lives import records

import headrace as hr
from headrace.errors import SinkError, SourceError, Unavailable
from headrace.host.driving import ranges
from headrace.io import adapter

AWAY = 30.0 if int(os.environ.get("HEADRACE_KILLS", "2")) > 2 else 4.0
Topic = Callable[..., str]
Table = Callable[..., str]
COLUMNS = "k STRING, ts LONG"


def write(broker: Broker, topic: str, times: list[int], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for ts in times:
        producer.produce(topic, json.dumps({"k": "a", "ts": ts}).encode(), partition=partition)
    assert producer.flush(30) == 0


def events(bootstrap: str, topic: str, idle: Any = None, **options: Any) -> hr.Stream:
    progress = hr.advance(delay=0, idle=idle)
    return hr.read_kafka(topic, COLUMNS, lifetime=hr.point("ts"), progress=progress, bootstrap=bootstrap, **options)


def kill(broker: Broker) -> None:
    """Kill the broker when it has finished the transactions that it has committed (`test_pipelines.kill`)."""
    time.sleep(0.5)
    broker.kill()


def table_of(database: Database, name: str) -> list[int]:
    with psycopg.connect(database.dsn) as connection:
        return [row[0] for row in connection.execute(f"SELECT ts FROM {name} ORDER BY ts".encode())]


@contextmanager
def running(sinks: list[tuple[hr.Stream, Any]], folder: Path) -> Iterator[Any]:
    query = hr.start_all(sinks, host="local", checkpoint=str(folder / "state"))
    try:
        yield query
    finally:
        query.stop()


def failure_of(query: Any) -> BaseException:
    """The error that ends a query."""
    until(lambda: query.exception() is not None)
    error = query.exception()
    assert error is not None
    return error  # type: ignore[no-any-return]


def closed_port() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


# --- away ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["events", "final"])
def test_a_query_waits_for_a_broker_that_is_away(
    encoding: str, broker: Broker, topic: Topic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = topic(2), topic(2)
    write(broker, source, [1, 2, 3])
    sink = hr.kafka(target, bootstrap=broker.bootstrap, encoding=encoding)  # type: ignore[arg-type]
    with running([(events(broker.bootstrap, source), sink)], tmp_path) as query:
        query.process_all_available()
        kill(broker)
        until(lambda: "trying again" in caplog.text)
        time.sleep(AWAY)
        broker.start()
        write(broker, source, [4, 5], 1)
        query.finish()
        assert query.exception() is None
    found = [json.loads(value or b"") for partition in records(broker, target) for _, value in partition]
    assert sorted(row.get("le") for row in found if row.get("kind", "insert") == "insert") == [1, 2, 3, 4, 5]


def test_a_query_waits_for_a_database_that_is_away(
    broker: Broker, database: Database, topic: Topic, table: Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = topic(), table()
    sink = hr.postgres(database.dsn, target, encoding="final", create=True)
    with running([(events(broker.bootstrap, source), sink)], tmp_path) as query:
        database.kill()
        write(broker, source, [1, 2, 3])
        until(lambda: "trying again" in caplog.text)
        time.sleep(AWAY / 2)
        database.start()
        query.finish()
    assert table_of(database, target) == [1, 2, 3]


def test_a_query_that_starts_before_its_servers_waits_for_them(
    broker: Broker, topic: Topic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = topic(), topic()
    write(broker, source, [1, 2])
    broker.kill()
    sink = hr.kafka(target, bootstrap=broker.bootstrap, encoding="final")

    def start() -> None:
        until(lambda: "trying again" in caplog.text)
        broker.start()

    up = threading.Thread(target=start)
    up.start()
    with running([(events(broker.bootstrap, source), sink)], tmp_path) as query:
        query.finish()
    up.join()
    assert sum(map(len, records(broker, target))) == 2


@pytest.mark.parametrize("kind", ["reading", "writing", "both"])
def test_a_query_stops_promptly_while_the_broker_is_away(
    kind: str, broker: Broker, topic: Topic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = topic(2), topic()
    write(broker, source, [1, 2, 3])
    stream = events(broker.bootstrap, source, group_id=f"group-{source}")
    sink: Any = hr.memory() if kind == "reading" else hr.kafka(target, bootstrap=broker.bootstrap)
    if kind == "writing":
        (tmp_path / "in").mkdir()
        stream = hr.read_csv(str(tmp_path / "in"), COLUMNS, lifetime=hr.point("ts"), progress=hr.advance(delay=0))
    query = hr.start_all([(stream, sink)], host="local", checkpoint=str(tmp_path / "state"))
    query.process_all_available()
    kill(broker)
    if kind == "writing":
        draft = tmp_path / "1.csv"
        draft.write_text("k,ts\na,1\n")
        draft.rename(tmp_path / "in" / "1.csv")
        time.sleep(2)
    else:
        until(lambda: "trying again" in caplog.text)
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < 30
    broker.start()
    with running([(stream, sink)], tmp_path) as again:
        again.finish()
    if kind != "reading":
        found = [json.loads(value or b"") for partition in records(broker, target) for _, value in partition]
        assert sorted(e["le"] for e in found if e["kind"] == "insert") == ([1] if kind == "writing" else [1, 2, 3])


# --- wrong -----------------------------------------------------------------------------------------------------------


def test_a_wrong_address_of_a_broker_is_an_error_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(adapter, "PATIENCE", 6.0)
    address = closed_port()
    with running([(events(address, "trades"), hr.memory())], tmp_path) as query:
        error = failure_of(query)
    assert isinstance(error, Unavailable)
    assert address in str(error)
    assert "trying again for 6 seconds" in caplog.text
    with pytest.raises(Unavailable, match=address):
        hr.start_all([(events(address, "trades"), hr.kafka("answers", bootstrap=address))], host="local")


def test_a_wrong_address_or_user_of_a_database_is_an_error_at_once(database: Database) -> None:
    port = free_ports(1)[0]
    with pytest.raises(Unavailable, match=str(port)):
        hr.read_postgres(f"postgresql://postgres@127.0.0.1:{port}/postgres", "accounts")
    with pytest.raises(SourceError, match="nobody_here"):
        hr.read_postgres(database.dsn.replace("postgres@", "nobody_here:secret@"), "accounts")
    with pytest.raises(SourceError, match="no_such_database") as failed:
        hr.read_postgres(database.dsn_of("no_such_database").replace("postgres@", "postgres:secret@"), "accounts")
    assert "secret" not in str(failed.value)


def test_a_wrong_password_of_a_broker_is_an_error_in_time(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    source = topic()
    write(broker, source, [1, 2])

    def login(password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "reader",
            "sasl.password": password,
        }

    address = broker.bootstrap_with_login
    with running([(events(address, source, options=login("wrong")), hr.memory())], tmp_path / "wrong") as query:
        error = failure_of(query)
    assert isinstance(error, SourceError)
    assert "sasl.password" in str(error)
    assert "wrong" not in str(error)
    sink = hr.kafka(topic(), bootstrap=address, options=login("wrong"))
    with pytest.raises(SinkError, match=r"sasl\.password"):
        hr.start_all([(events(broker.bootstrap, source), sink)], host="local")
    stream = events(address, source, options=login(LOGIN))
    with running([(stream, hr.memory())], tmp_path / "right") as query:
        query.process_all_available()
        (counts,) = query.counts.values()
        assert counts["accepted"] == 2


def test_a_missing_topic_is_an_error_that_names_it(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    with running([(events(broker.bootstrap, "no-such-topic"), hr.memory())], tmp_path) as query:
        error = failure_of(query)
    assert isinstance(error, SourceError)
    assert "no-such-topic" in str(error)
    with pytest.raises(SinkError, match="create=True"):
        hr.start_all([(events(broker.bootstrap, topic()), hr.kafka("no-such-topic", bootstrap=broker.bootstrap))],
                 host="local")  # fmt: skip


# --- changes ---------------------------------------------------------------------------------------------------------


def test_a_deleted_topic_is_an_error_that_says_so(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    source = topic()
    write(broker, source, [1])
    with running([(events(broker.bootstrap, source), hr.memory())], tmp_path) as query:
        query.process_all_available()
        broker.delete_topic(source)
        error = failure_of(query)
    assert isinstance(error, SourceError)
    assert source in str(error)


def test_a_new_partition_is_read_from_its_beginning(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    source, target = topic(1), topic(1)
    write(broker, source, [1, 2])
    sink = hr.kafka(target, bootstrap=broker.bootstrap, encoding="changes")
    with running([(events(broker.bootstrap, source, start="latest"), sink)], tmp_path) as query:
        query.process_all_available()
        write(broker, source, [3])
        query.process_all_available()
        broker.add_partitions(source, 3)
        write(broker, source, [4, 5], 2)
        until(lambda: sum(map(len, records(broker, target))) == 3)
    assert [json.loads(value or b"")["ts"] for _, value in records(broker, target)[0]] == [3, 4, 5]


def test_a_silent_partition_is_reported_and_may_become_idle(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ranges, "_REPORTED_AFTER", 1_000_000)
    source = topic(2)
    write(broker, source, [1], 0)
    write(broker, source, [1], 1)
    with running([(events(broker.bootstrap, source), hr.memory())], tmp_path / "held") as query:
        query.process_all_available()
        time.sleep(1.2)
        write(broker, source, [100], 0)
        until(lambda: "holds back" in caplog.text)
        assert f"{source}/1" in caplog.text
        assert query.progress()["cti"] == 1
    caplog.clear()
    with running([(events(broker.bootstrap, source, idle="1 second"), hr.memory())], tmp_path / "idle") as query:
        query.process_all_available()
        time.sleep(1.2)
        write(broker, source, [200], 0)
        until(lambda: query.progress().get("cti") == 200)
        write(broker, source, [201], 1)
        query.process_all_available()
        (counts,) = query.counts.values()
        assert counts["accepted"] == counts["rows"] == 5
    assert "holds back" not in caplog.text


@pytest.mark.parametrize("on_gap", ["raise", "continue"])
def test_expired_records_are_an_error_or_counted(on_gap: Any, broker: Broker, topic: Topic, tmp_path: Path) -> None:
    source, target = topic(), topic()
    stream = events(broker.bootstrap, source, on_gap=on_gap)
    sink = hr.kafka(target, bootstrap=broker.bootstrap, encoding="changes")
    write(broker, source, [1, 2])
    with running([(stream, sink)], tmp_path) as query:
        query.process_all_available()
    write(broker, source, [3, 4, 5, 6])
    broker.delete_records(source, {0: 5})
    with running([(stream, sink)], tmp_path) as query:
        if on_gap == "raise":
            error = failure_of(query)
            assert isinstance(error, SourceError)
            assert "3 offsets" in str(error)
            assert "on_gap='continue'" in str(error)
            return
        query.process_all_available()
        (counts,) = query.counts.values()
        assert counts["lost_offsets"] == 3
    assert [json.loads(value or b"")["ts"] for _, value in records(broker, target)[0]] == [1, 2, 6]


def test_malformed_values_are_diverted_and_counted(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    source = topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in (b'{"k": "a", "ts": 1}', b"{", b'{"k": "a", "ts": "x"}', b'{"k": "a", "ts": 2}'):
        producer.produce(source, value)
    assert producer.flush(30) == 0
    with running([(events(broker.bootstrap, source), hr.memory())], tmp_path) as query:
        query.process_all_available()
        (counts,) = query.counts.values()
        assert (counts["rows"], counts["accepted"], counts["diverted"]) == (4, 2, 2)
    kept = [line for file in tmp_path.glob("state/diverted/0/**/*.jsonl") for line in file.read_text().splitlines()]
    assert len(kept) == 2
    assert all(source in line for line in kept)
