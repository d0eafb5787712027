"""The broker and the database themselves: they answer, and survive what tests do to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType
from tests.services.broker import Broker
from tests.services.database import Database

Topic = Callable[..., str]
Table = Callable[..., str]


def records(broker: Broker, topic: str) -> dict[int, list[bytes]]:
    """The committed values of a topic, by partition, read to where each partition ends."""
    client = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": "read_committed",
        "enable.auto.commit": False, "enable.partition.eof": True,
    })  # fmt: skip
    found: dict[int, list[bytes]] = {partition: [] for partition in range(broker.topics()[topic])}
    client.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in found])
    unfinished = set(found)
    while unfinished:
        message = client.poll(30)
        assert message is not None, f"nothing more comes from {topic}, and partitions {unfinished} have not ended"
        if message.error():
            unfinished.discard(message.partition())
        else:
            found[message.partition()].append(message.value())
    client.close()
    return found


def listening(process: int) -> set[str]:
    """The addresses on which a process waits for connections."""
    sockets = psutil.Process(process).net_connections(kind="tcp")
    return {s.laddr.ip.removeprefix("::ffff:") for s in sockets if s.status == psutil.CONN_LISTEN}


def test_the_broker_keeps_records_of_every_partition(broker: Broker, topic: Topic):
    name = topic(3)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition, value in ((0, b"a"), (2, b"b"), (2, b"c")):
        producer.produce(name, value, partition=partition)
    assert producer.flush(30) == 0
    assert records(broker, name) == {0: [b"a"], 1: [], 2: [b"b", b"c"]}


def test_the_broker_survives_kill_with_its_records_and_its_address(broker: Broker, topic: Topic):
    name, address, process = topic(2), broker.bootstrap, broker.pid
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"committed", partition=0)
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=1)
    assert producer.flush(30) == 0
    broker.restart(kill=True)
    assert (broker.bootstrap, broker.pid == process) == (address, False)
    producer.abort_transaction(30)
    assert records(broker, name) == {0: [b"committed"], 1: []}
    producer.begin_transaction()
    producer.produce(name, b"after", partition=1)
    producer.commit_transaction(30)
    assert records(broker, name) == {0: [b"committed"], 1: [b"after"]}


def test_the_broker_stops_and_starts(broker: Broker, topic: Topic):
    name = topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce(name, b"before")
    assert producer.flush(30) == 0
    broker.stop()
    assert not broker.running
    broker.start()
    producer.produce(name, b"after")
    assert producer.flush(30) == 0
    assert records(broker, name) == {0: [b"before", b"after"]}


def test_topics_change(broker: Broker, topic: Topic):
    name = topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in (b"a", b"b", b"c"):
        producer.produce(name, value, partition=0)
    assert producer.flush(30) == 0
    broker.add_partitions(name, 2)
    broker.delete_records(name, {0: 2})
    assert records(broker, name) == {0: [b"c"], 1: []}
    broker.delete_topic(name)
    assert name not in broker.topics()


def test_a_topic_has_its_settings(broker: Broker, topic: Topic):
    resource = ConfigResource(ResourceType.TOPIC, topic(config={"cleanup.policy": "compact"}))
    (answer,) = broker.admin.describe_configs([resource]).values()
    assert answer.result(30)["cleanup.policy"].value == "compact"


def test_no_topic_comes_into_being_by_itself(broker: Broker):
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 3000, "log_level": 0})
    errors = []
    producer.produce("nobody-made-this", b"a", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert [error is not None for error in errors] == [True]
    assert "nobody-made-this" not in broker.topics()


def test_the_broker_can_be_reached_from_this_machine_only(broker: Broker):
    assert listening(broker.pid) == {"127.0.0.1"}


def test_a_broker_that_does_not_start_shows_its_log(tmp_path: Path):
    broker = Broker(tmp_path / "kafka")
    broker._heap = "1k"
    with pytest.raises(RuntimeError, match="Too small maximum heap"):
        broker.start()
    assert not broker.running


def test_a_topic_has_one_name_once(broker: Broker, topic: Topic):
    name = topic()
    with pytest.raises(KafkaException, match="already exists"):
        broker.create_topic(name)


def test_the_database_survives_kill_with_what_was_committed(database: Database, table: Table):
    name, address = table("id int PRIMARY KEY"), database.dsn
    with psycopg.connect(address) as committed:
        committed.execute(f"INSERT INTO {name} VALUES (1)")
    with psycopg.connect(address, autocommit=True) as slots:
        slots.execute("SELECT pg_create_logical_replication_slot('survives', 'pgoutput')")
    uncommitted = psycopg.connect(address)
    uncommitted.execute(f"INSERT INTO {name} VALUES (2)")
    processes = psutil.Process(database.pid).children(recursive=True)
    database.kill()
    assert not [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    with pytest.raises(psycopg.OperationalError):
        uncommitted.commit()
    uncommitted.close()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(address)
    database.start()
    assert database.dsn == address
    with psycopg.connect(address, autocommit=True) as again:
        assert again.execute(f"SELECT id FROM {name}").fetchall() == [(1,)]
        assert ("survives",) in again.execute("SELECT slot_name FROM pg_replication_slots").fetchall()
        again.execute("SELECT pg_drop_replication_slot('survives')")


def test_the_database_stops_and_starts(database: Database, table: Table):
    name = table("id int")
    with psycopg.connect(database.dsn) as connection:
        connection.execute(f"INSERT INTO {name} VALUES (1)")
    database.restart()
    with psycopg.connect(database.dsn) as connection:
        assert connection.execute(f"SELECT id FROM {name}").fetchall() == [(1,)]


def test_the_database_is_set_up_for_logical_decoding(database: Database):
    with psycopg.connect(database.dsn) as connection:
        shown = {
            name: connection.execute(f"SHOW {name}").fetchone()
            for name in ("wal_level", "fsync", "max_replication_slots", "max_wal_senders")
        }
    assert shown == {
        "wal_level": ("logical",), "fsync": ("on",), "max_replication_slots": ("40",), "max_wal_senders": ("40",),
    }  # fmt: skip


def test_a_server_has_many_databases(database: Database, table: Table):
    here = table("id int")
    with (
        psycopg.connect(database.create_database("another")) as connection,
        pytest.raises(psycopg.errors.UndefinedTable),
    ):
        connection.execute(f"SELECT * FROM {here}")


def test_the_database_can_be_reached_from_this_machine_only(database: Database):
    assert listening(database.pid) == {"127.0.0.1"}


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_what_a_test_leaves_down(broker: Broker, database: Database, end: str):
    assert broker.running  # also after the first of the two
    assert database.running
    getattr(broker, end)()
    getattr(database, end)()
    assert not broker.running
    assert not database.running


def test_is_up_for_the_next(broker: Broker, database: Database):
    assert broker.running
    assert database.running
    broker.topics()  # raises if there is no answer
    psycopg.connect(database.dsn).close()
