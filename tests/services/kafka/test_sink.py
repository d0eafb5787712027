"""A Kafka sink against a real broker: each batch is in the topic once, whoever delivers it and is killed at it."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec
from tests.fixtures.waiting import PATIENCE
from tests.services.broker import Broker
from tests.services.kafka.deliverer import ROWS, batch_rows

from headrace.adapters.kafka import KafkaSink, delivery
from headrace.adapters.kafka.delivery import transaction_name
from headrace.errors import SinkError, Superseded, Unavailable
from headrace.io.adapter import DeliveryId, patiently
from headrace.io.values import ValueFormat
from headrace.schema import Schema

Topic = Callable[..., str]
_ROOT = Path(__file__).parents[3]


def sink(broker: Broker, topic: str, encoding: str = "final", **options: Any) -> KafkaSink:
    return KafkaSink(encoding, bootstrap=broker.bootstrap, topic=topic, **options)  # type: ignore[arg-type]


def records(broker: Broker, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """The committed records of a topic: partition, key and value."""
    client = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": "read_committed",
        "enable.auto.commit": False, "enable.partition.eof": True,
    })  # fmt: skip
    unfinished = set(range(broker.topics()[topic]))
    client.assign([TopicPartition(topic, partition, 0) for partition in unfinished])
    found = []
    while unfinished:
        message = client.poll(30)
        assert message is not None, f"nothing more comes from {topic}"
        if message.error() is not None:
            unfinished.discard(message.partition())
        else:
            found.append((message.partition() or 0, message.key(), message.value()))
    client.close()
    return found


def numbers(broker: Broker, topic: str) -> list[int]:
    return sorted(json.loads(value or b"")["n"] for _, _, value in records(broker, topic))


def as_another_process() -> None:
    """Forget the producers of this process, as if it had started again; they are not ended."""
    _forgotten.append(dict(delivery._parts))
    delivery._parts.clear()


_forgotten: list[Any] = []


def test_a_batch_is_delivered_once_however_often_it_is_called(broker: Broker, topic: Topic) -> None:
    name = topic(3)
    adapter = sink(broker, name, message_key=("n",))
    for batch in (0, 1, 1, 3, 3, 0):
        adapter.deliver(DeliveryId("q", 0, 0, batch), batch_rows(batch, 10))
    as_another_process()
    again = pickle.loads(pickle.dumps(adapter))  # noqa: S301 - our own bytes
    for batch in (3, 4, 4):
        again.deliver(DeliveryId("q", 0, 0, batch), batch_rows(batch, 10))
    assert numbers(broker, name) == [*range(20), *range(30, 50)]
    again.close()


def test_parts_and_outputs_and_queries_are_apart(broker: Broker, topic: Topic) -> None:
    name = topic(2)
    adapter = sink(broker, name)
    places = [("q", 0, 0), ("q", 0, 1), ("q", 1, 0), ("other", 0, 0)]
    for number, place in enumerate(places):
        for _ in range(2):
            adapter.deliver(DeliveryId(*place, 0), batch_rows(number, 5))
    assert numbers(broker, name) == [*range(20)]


def test_a_producer_that_was_fenced_since_its_last_batch_is_replaced(broker: Broker, topic: Topic) -> None:
    """As on Spark, where one worker delivers a part now and another one later."""
    name = topic()
    adapter = sink(broker, name)
    adapter.deliver(DeliveryId("q", 0, 0, 0), batch_rows(0, 5))
    here = dict(delivery._parts)
    as_another_process()
    adapter.deliver(DeliveryId("q", 0, 0, 1), batch_rows(1, 5))
    delivery._parts.clear()
    delivery._parts.update(here)
    adapter.deliver(DeliveryId("q", 0, 0, 1), batch_rows(1, 5))
    adapter.deliver(DeliveryId("q", 0, 0, 2), batch_rows(2, 5))
    assert numbers(broker, name) == [*range(15)]


def test_a_process_that_is_fenced_while_it_delivers_is_superseded(
    broker: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    adapter, place = sink(broker, name), DeliveryId("q", 0, 0, 0)
    produce = delivery.produce

    def taken_over(producer: Producer, *rest: Any) -> None:
        produce(producer, *rest)
        other = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transaction_name(place)})
        other.init_transactions(30)

    monkeypatch.setattr(delivery, "produce", taken_over)
    with pytest.raises(Superseded, match="another process delivers"):
        adapter.deliver(place, batch_rows(0, 5))
    monkeypatch.undo()
    assert records(broker, name) == []
    adapter.deliver(place, batch_rows(0, 5))
    assert numbers(broker, name) == [*range(5)]


def test_two_processes_deliver_the_same_batches(broker: Broker, topic: Topic) -> None:
    name = topic(2)
    both = [started(broker, name, "q", 0, 10) for _ in range(2)]
    for process in both:
        process.communicate(timeout=120)  # one of them, or both, may end with Superseded
    last = started(broker, name, "q", 0, 10)
    last.communicate(timeout=120)
    assert last.returncode == 0
    assert numbers(broker, name) == [*range(10 * ROWS)]


def started(broker: Broker, topic: str, query: str, first: int, last: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.services.kafka.deliverer", broker.bootstrap, topic, query]
    return subprocess.Popen(
        [*command, str(first), str(last)], cwd=_ROOT, env=os.environ | {"PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT}"},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def test_a_process_killed_at_random_moments_delivers_each_batch_once(broker: Broker, topic: Topic) -> None:
    name = topic(2)
    drawn = random.Random(17)
    noted, kills = -1, 0
    while kills < 8:
        process = started(broker, name, "killed", noted + 1, 10_000)
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, "the process ended by itself"
        noted = int(first)
        timer = threading.Timer(drawn.uniform(0.0, 0.25), process.kill)
        timer.start()
        for line in process.stdout:
            noted = int(line)
        process.wait(PATIENCE)
        process.stdout.close()
        kills += 1
        noted = max(noted - drawn.choice([0, 1]), -1)  # the note of the last batch may be lost, too
    finish = started(broker, name, "killed", noted + 1, noted + 3)
    finish.communicate(timeout=PATIENCE)
    assert finish.returncode == 0
    found = numbers(broker, name)
    assert found == [*range(len(found))]
    assert len(found) >= (noted + 3) * ROWS


def settled(broker: Broker, topic: str) -> None:
    """Wait until Kafka has finished the last transaction.

    A broker that is its own controller and is killed before that may never finish it: see `delivery.py`.
    """
    partition = TopicPartition(topic, 0)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        asked = [
            broker.admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=level)[partition]
            .result(30)
            .offset
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        if asked[0] == asked[1]:
            time.sleep(0.5)  # the offsets of the group have their own marker
            return
    raise AssertionError(f"a transaction of {topic} does not end")


def test_a_broker_killed_between_batches_and_within(broker: Broker, topic: Topic, monkeypatch: Any) -> None:
    name = topic()
    adapter = sink(broker, name)
    adapter.deliver(DeliveryId("q", 0, 0, 0), batch_rows(0, 10))
    settled(broker, name)
    monkeypatch.setattr(delivery, "_STEP", 2.0)
    broker.kill()
    with pytest.raises(Unavailable):
        adapter.deliver(DeliveryId("q", 0, 0, 1), batch_rows(1, 10))
    broker.start()
    patiently(lambda: adapter.deliver(DeliveryId("q", 0, 0, 1), batch_rows(1, 10)), "test")
    adapter.deliver(DeliveryId("q", 0, 0, 1), batch_rows(1, 10))
    settled(broker, name)
    steps = {"_send_all": delivery._send_all, "_until": delivery._until}
    for batch, step in enumerate(
        steps, start=2
    ):  # killed before the rows are sent or while they are, and before the record

        def killed(*arguments: Any, step: str = step) -> None:
            monkeypatch.setattr(delivery, step, steps[step])
            broker.kill()
            steps[step](*arguments)

        adapter.deliver(DeliveryId("q", 0, 0, batch - 1), batch_rows(batch - 1, 10))
        monkeypatch.setattr(delivery, step, killed)
        with pytest.raises(Unavailable):
            adapter.deliver(DeliveryId("q", 0, 0, batch), batch_rows(batch, 10))
        broker.start()
        again = DeliveryId("q", 0, 0, batch)
        patiently(lambda: adapter.deliver(again, batch_rows(again.batch, 10)), "test")  # noqa: B023 - called at once
        settled(broker, name)
    assert numbers(broker, name) == [*range(40)]


def test_a_queue_that_is_full_only_waits(broker: Broker, topic: Topic) -> None:
    name = topic()
    adapter = sink(broker, name, options={"queue.buffering.max.messages": 100})
    adapter.deliver(DeliveryId("q", 0, 0, 0), batch_rows(0, 5000))
    assert numbers(broker, name) == [*range(5000)]


def _deliver_first(adapter: KafkaSink) -> None:
    """Deliver batch 0, though steps may take longer than the test allows them."""
    patiently(lambda: adapter.deliver(DeliveryId("q", 0, 0, 0), batch_rows(0, 10)), "test")


def test_a_queue_that_stays_full_because_the_broker_is_down_is_unavailable(
    broker: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    monkeypatch.setattr(delivery, "_STEP", 2.0)
    for way in ("exactly_once", "at_least_once"):
        adapter = sink(broker, name, delivery=way, options={"queue.buffering.max.messages": 100})
        _deliver_first(adapter)
        settled(broker, name)
        broker.kill()
        with pytest.raises(Unavailable):
            adapter.deliver(DeliveryId("q", 0, 0, 1), batch_rows(1, 1000))
        broker.start()
    patiently(lambda: sink(broker, name).deliver(DeliveryId("q", 0, 0, 2), batch_rows(200, 10)), "test")
    found = numbers(broker, name)
    assert {*range(2000, 2010)} <= {*found}
    assert found.count(0) == 2


def test_at_least_once_has_no_transactions(broker: Broker, topic: Topic) -> None:
    name = topic()
    adapter = sink(broker, name, delivery="at_least_once")
    assert not adapter.exactly_once
    for _ in range(2):
        adapter.deliver(DeliveryId("q", 0, 0, 0), batch_rows(0, 5))
    assert numbers(broker, name) == sorted([*range(5)] * 2)
    adapter.close()


def test_upserts_and_tombstones(broker: Broker) -> None:
    name = f"created-{time.monotonic_ns()}"
    adapter = sink(broker, name, "upsert", key="s", key_format="text", create=True, partitions=3)
    adapter.open("q", 0, Schema.of("s STRING, v LONG"), -1)
    adapter.open("q", 0, Schema.of("s STRING, v LONG"), 5)
    rows = pa.table({
        "op": ["upsert", "upsert", "delete"], "_batch": [0, 0, 0], "le": [1, 2, 3], "s": ["a", "b", "c"],
        "v": pa.array([1, 2, None], pa.int64()),
    })  # fmt: skip
    adapter.deliver(DeliveryId("q", 0, 0, 0), rows)
    found = sorted((key, value and json.loads(value)) for _, key, value in records(broker, name))
    assert found == [(b"a", {"le": 1, "s": "a", "v": 1}), (b"b", {"le": 2, "s": "b", "v": 2}), (b"c", None)]
    assert broker.topics()[name] == 3
    nothing = rows.set_column(3, "s", pa.array([None] * 3, pa.string()))
    with pytest.raises(SinkError, match="3 rows have no key"):
        adapter.deliver(DeliveryId("q", 0, 0, 1), nothing)


def test_ctis_go_to_every_partition_and_keys_stay_together(broker: Broker, topic: Topic) -> None:
    name = topic(3)
    rows = pa.table({
        "kind": ["insert", "insert", "cti", "insert"], "le": [1, 2, 5, 6], "re": pa.array([3, 4, None, 8], pa.int64()),
        "re_new": pa.nulls(4, pa.int64()), "s": ["a", "b", None, "a"],
    })  # fmt: skip
    sink(broker, name, "events", message_key="s").deliver(DeliveryId("q", 0, 0, 0), rows)
    found = [(partition, key, json.loads(value or b"")) for partition, key, value in records(broker, name)]
    assert sorted(partition for partition, _, event in found if event["kind"] == "cti") == [0, 1, 2]
    assert len({partition for partition, key, _ in found if key == b'{"s": "a"}'}) == 1
    assert {"kind": "insert", "le": 1, "re": 3, "re_new": None, "payload": {"s": "a"}} in [
        event for _, _, event in found
    ]


def test_rows_without_a_key_stay_in_the_partition_of_their_part(broker: Broker, topic: Topic) -> None:
    name = topic(2)
    adapter = sink(broker, name, format=ValueFormat("csv"))
    for part in range(3):
        adapter.deliver(DeliveryId("q", 0, part, 0), batch_rows(part, 2))
    assert sorted(records(broker, name)) == [
        (0, None, b"0,0,0"), (0, None, b"1,1,1"), (0, None, b"4,4,4"), (0, None, b"5,5,5"),
        (1, None, b"2,2,2"), (1, None, b"3,3,3"),
    ]  # fmt: skip


def test_a_missing_topic_is_an_error_that_says_what_to_do(broker: Broker) -> None:
    with pytest.raises(SinkError, match="there is no topic 'none'"):
        sink(broker, "none").open("q", 0, Schema.of("n LONG"), -1)
    with pytest.raises(SinkError, match="there is no topic 'none'"):  # it was deleted, with the batches that it had
        sink(broker, "none", create=True).open("q", 0, Schema.of("n LONG"), 3)
    with pytest.raises(SinkError, match="there is no topic 'none'"):
        sink(broker, "none").deliver(DeliveryId("q", 0, 0, 0), batch_rows(0, 1))
