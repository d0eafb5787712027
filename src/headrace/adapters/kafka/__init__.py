"""Kafka: topics as sources and sinks, by librdkafka (`confluent-kafka`, the extra `kafka`).

source.py      a source: topics or a pattern, where to begin, columns
discovery.py   which partitions there are and how far they reach
reading.py     exact ranges of offsets, by consumers that run ahead
columns.py     records as columns: values, keys, and the record's own
sink.py        a sink: a topic, an encoding, keys
messages.py    rows as messages
delivery.py    exactly once: a batch is one transaction that records its number
topics.py      whether the topic of a sink exists, its creation
options.py, clients.py   options of clients, and the clients that a process keeps

**Reading.** Ranges are planned by offsets, not by the offsets of a consumer group, so that a batch that is run again
reads the same records. `group_id` only shows others how far the query is.

**Writing.** A part of a batch is written in one transaction, which also commits the batch's number as an offset of a
group of its own. A process that delivers for the first time ends the transactions of its predecessors, then reads this
offset: it knows whether the batch was delivered, at whichever moment the other process was killed.
"""

from headrace.adapters.kafka.sink import KafkaSink
from headrace.adapters.kafka.source import KafkaSource

__all__ = ["KafkaSink", "KafkaSource"]
