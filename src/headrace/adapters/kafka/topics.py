"""The topic of a sink: whether it exists, its partitions, its creation."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import NewTopic

from headrace.adapters.kafka.clients import PATIENCE, Kept, Options, address, admin, failure
from headrace.errors import SinkError

__all__ = ["ensure", "partition_count"]

#: How old the number of partitions may be, in seconds.
REFRESH = 3.0
_CREATED = 10.0


@dataclass
class _Count:
    lock: threading.Lock = field(default_factory=threading.Lock)
    time: float = -REFRESH
    partitions: int = 0


_counts: Kept[_Count] = Kept()


def ensure(options: Options, topic: str, creation: tuple[int, Mapping[str, str]] | None) -> None:
    """Raise unless the topic exists, or create it with its partitions (-1: the default of the broker) and config."""
    if _described(options, topic):
        return
    if creation is None:
        raise SinkError(
            f"there is no topic {topic!r}",
            instead="create the topic first, or create=True, which creates it for a new checkpoint",
        )
    partitions, config = creation
    new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(config))
    try:
        admin(options).create_topics([new], request_timeout=PATIENCE)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise failure(error, f"topic {topic!r} cannot be created", SinkError) from error
    deadline = time.monotonic() + _CREATED
    while not _described(options, topic) and time.monotonic() < deadline:
        time.sleep(0.05)


def partition_count(options: Options, topic: str) -> int:
    """The number of partitions; new ones are seen after a few seconds."""
    count = _counts.once((options, topic), _Count)
    with count.lock:
        if time.monotonic() - count.time > REFRESH:
            count.partitions = _described(options, topic)
            if not count.partitions:
                raise SinkError(f"there is no topic {topic!r}", instead="create the topic first, or create=True")
            count.time = time.monotonic()
        return count.partitions


def _described(options: Options, topic: str) -> int:
    """The number of partitions, 0 if there is no such topic."""
    asked = admin(options).describe_topics(TopicCollection([topic]), request_timeout=PATIENCE)
    try:
        return len(asked[topic].result().partitions)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return 0
        raise failure(
            error, f"topic {topic!r} of {address(options)} cannot be described", SinkError, options
        ) from error
