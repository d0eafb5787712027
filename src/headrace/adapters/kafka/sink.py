"""A topic as a sink: where rows go, in which encoding, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, get_args

import pyarrow as pa

from headrace.adapters.kafka.messages import KeyFormat, MessageFormat
from headrace.adapters.kafka.options import (
    FORMAT_OPTIONS,
    client_module,
    config_of,
    connection,
    pairs,
    reserved,
    value_format,
)
from headrace.errors import PlanError, SinkError
from headrace.io.adapter import DeliveryId, SinkAdapter
from headrace.io.values import ValueFormat
from headrace.schema import Schema

__all__ = ["KafkaSink"]

Delivery = Literal["exactly_once", "at_least_once"]
_FIXED = ("bootstrap.servers", "transactional.id", "enable.idempotence", "delivery.report.only.error", "acks")
_JSON = ValueFormat("json")


@dataclass(frozen=True, repr=False)
class KafkaSink(SinkAdapter):
    """A topic of Kafka as a sink.

    `message_key` names the columns of a message's key; for upserts it is `key`. Keys are JSON objects, or under
    `key_format="text"` the plain text of one column.

    `create` lets the query create a missing topic, with `partitions` and `topic_config`; topics for upserts are
    compacted, unless the configuration says otherwise. `options` are passed to librdkafka.
    """

    more_options: ClassVar[tuple[str, ...]] = tuple(name for name in FORMAT_OPTIONS if name != "envelope")
    bootstrap: str = ""
    topic: str = ""
    format: ValueFormat = _JSON
    message_key: tuple[str, ...] = ()
    key_format: KeyFormat = "json"
    delivery: Delivery = "exactly_once"
    create: bool = False
    partitions: int | None = None
    topic_config: Any = field(default=())
    options: Any = field(default=())

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """The sink; `format` is a name, with the options of a `ValueFormat`."""
        given = {name: value for name, value in options.items() if name not in cls.more_options}
        given["format"] = value_format(given.get("format", "json"), options)
        given["topic_config"] = config_of(given.get("topic_config", ()))
        return super().from_options(given)

    def __post_init__(self) -> None:
        for name in ("key", "message_key"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        for name in ("options", "topic_config"):
            object.__setattr__(self, name, pairs(getattr(self, name)))
        super().__post_init__()
        self._check()

    def _check(self) -> None:
        for name in ("bootstrap", "topic"):
            if not getattr(self, name):
                raise PlanError(
                    f"a Kafka sink needs a {name}", instead="KafkaSink(bootstrap='host:9092', topic='answers')"
                )
        for name, allowed in (("delivery", get_args(Delivery)), ("key_format", get_args(KeyFormat))):
            if getattr(self, name) not in allowed:
                raise PlanError(f"unknown {name}", given=getattr(self, name), allowed=", ".join(allowed))
        if self.key and self.message_key:
            raise PlanError("the key of upserts is their message key", given=self.message_key, instead="key alone")
        if self.key_format == "text" and len(self.keys) != 1:
            raise PlanError(
                "a key of plain text is one column", given=self.keys, allowed="one column", instead="key_format='json'"
            )
        if not self.create and (self.partitions is not None or self.topic_config):
            raise PlanError("partitions and topic_config are for a topic that is created", instead="create=True")
        reserved(self.options, _FIXED)

    @property
    def exactly_once(self) -> bool:  # type: ignore[override] # here it depends on an option
        return self.delivery == "exactly_once"

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of a message's key."""
        return self.key or self.message_key

    def __str__(self) -> str:
        key = [f"key {', '.join(self.keys)} as {self.key_format}"] if self.keys else []
        return f"kafka({'; '.join([self.topic, f'{self.encoding} as {self.format}', *key, self.delivery])})"

    __repr__ = __str__

    @property
    def written_place(self) -> str:
        return f"kafka({self.topic})"

    @property
    def _connection(self) -> tuple[tuple[str, str], ...]:
        return connection(self.bootstrap, self.options)

    def open(self, query: str, output: int, columns: Schema, batch: int) -> None:  # noqa: ARG002 - of all sinks
        for name in self.keys:
            columns[name]
        config = dict(self.topic_config)
        if self.encoding == "upsert":
            config.setdefault("cleanup.policy", "compact")
        topics = client_module("topics", SinkError)
        # A topic that is missing when there are batches was deleted with them: it is not created again.
        creates = self.create and batch < 0
        topics.ensure(self._connection, self.topic, (self.partitions or -1, config) if creates else None)

    def deliver(self, delivery: DeliveryId, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        shape = MessageFormat(self.encoding, self.keys, self.format, self.key_format)
        partitions = client_module("topics", SinkError).partition_count(self._connection, self.topic)
        sending = client_module("delivery", SinkError)
        if self.exactly_once:
            sending.deliver_once(
                self._connection, self.topic, delivery, lambda: shape.messages(rows, delivery.part, partitions)
            )
        else:
            sending.deliver_simply(self._connection, self.topic, shape.messages(rows, delivery.part, partitions))

    def interrupt(self) -> None:
        client_module("delivery", SinkError).interrupt(self._connection, self.topic)

    def close(self) -> None:
        client_module("delivery", SinkError).close_producers(self._connection, self.topic)
