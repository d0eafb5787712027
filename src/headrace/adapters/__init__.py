"""Adapters to the places where events live: the base classes for adapters of your own, and ours.

registry.py  sources and sinks of installed packages, by name
delta/       Delta tables, as sinks, and their versions as a source
kafka/       topics of Kafka, as sources and sinks
postgres/    PostgreSQL: changes of tables as a source, tables as sinks

Each of ours needs an extra of the package (`pip install headrace[kafka]`), which is imported when it is used.
"""

from headrace.adapters.registry import InstalledAdapter, installed_adapters
from headrace.io.adapter import DeliveryId, Offsets, ReadRange, SinkAdapter, SourceAdapter
from headrace.io.decoded import DecodedBlock, decoded

__all__ = [
    "DecodedBlock", "DeliveryId", "InstalledAdapter", "Offsets", "ReadRange", "SinkAdapter", "SourceAdapter", "decoded",
    "installed_adapters",
]  # fmt: skip
