"""Writing test records, in transactions that commit or abort."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from tests.services.broker import Broker

__all__ = ["transaction", "value", "write"]


def value(number: int) -> bytes:
    """The value of a record: its number, and a text."""
    return json.dumps({"n": number, "text": f"record {number}"}).encode()


def write(broker: Broker, topic: str, numbers: Iterable[int], partition: int = 0) -> None:
    """Write records one after another, without a transaction."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1})
    for number in numbers:
        producer.produce(
            topic, value(number), str(number % 7).encode(), partition, timestamp=1_700_000_000_000 + number
        )
    assert producer.flush(30) == 0


@contextmanager
def transaction(producer: Producer, *, commit: bool = True) -> Iterator[Producer]:
    """A transaction that commits or aborts; aborted records are in the log all the same."""
    producer.begin_transaction()
    yield producer
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
