"""Adapters to the places where events live: the base classes for adapters of your own, and ours.

kafka/     topics of Kafka, as sources and sinks
postgres/  PostgreSQL: changes of tables as a source, tables as sinks

Each needs an extra of the package (`pip install headrace[kafka]`), which is imported when it is used.
"""

from headrace.io.adapter import DeliveryId, Offsets, ReadRange, SinkAdapter, SourceAdapter
from headrace.io.decoded import DecodedBlock, decoded

__all__ = ["DecodedBlock", "DeliveryId", "Offsets", "ReadRange", "SinkAdapter", "SourceAdapter", "decoded"]
