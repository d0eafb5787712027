"""Rows of a batch as messages: values, keys, and the partition where it is not the key that decides.

| encoding | value | without a value |
|---|---|---|
| `events` | a physical event (`io/encode.py`); in formats other than JSON its columns | |
| `changes` | the row with its `_change_type`, `le`, `re` | |
| `final` | the row with its `le`, `re` | |
| `upsert` | the row with its `le` | a deleted key: a tombstone |

Messages with a key go to the partition that the hash of the key gives, the one that Kafka's Java clients choose too.
Without a key all rows of a part go to one partition, so that a correction follows what it corrects. A CTI concerns all
readers, and goes to every partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SinkError
from headrace.io.encode import physical_to_jsonl
from headrace.io.sinks import Encoding
from headrace.io.upserts import BATCH, OP
from headrace.io.values import ValueFormat, encode_values

__all__ = ["BY_KEY", "KeyFormat", "Message", "MessageFormat"]

#: The partition of messages that the hash of their key places.
BY_KEY = -1
_ROWS = 50_000
_JSON = ValueFormat("json")

KeyFormat = Literal["json", "text"]
#: A value, a key and a partition.
Message = tuple[bytes | None, bytes | None, int]


@dataclass(frozen=True)
class MessageFormat:
    """How rows become messages."""

    encoding: Encoding
    key: tuple[str, ...]
    value_format: ValueFormat = _JSON
    key_format: KeyFormat = "json"

    def messages(self, rows: pa.Table, part: int, partitions: int) -> Iterator[Message]:
        """The messages of a part, in order."""
        for start in range(0, rows.num_rows, _ROWS):
            yield from self._messages(rows.slice(start, _ROWS), part, partitions)

    def _messages(self, rows: pa.Table, part: int, partitions: int) -> Iterator[Message]:
        values = self._values(rows)
        if not self.key:
            messages: Iterator[Message] = ((value, None, part % partitions) for value in values)
        else:
            messages = ((value, key, BY_KEY) for value, key in zip(values, self._keys(rows), strict=True))
        if self.encoding != "events" or not (cti := pc.equal(rows["kind"], "cti")).combine_chunks().true_count:
            return messages
        return _everywhere(messages, cti.to_pylist(), partitions)

    def _values(self, rows: pa.Table) -> Sequence[bytes | None]:
        if self.encoding == "events" and self.value_format == _JSON:
            return physical_to_jsonl(rows).split(b"\n")[:-1]  # line ends inside texts are escaped
        if self.encoding != "upsert":
            return _as_list(encode_values(rows, self.value_format))
        values = encode_values(rows.drop_columns([OP, BATCH]), self.value_format)
        kept = pc.equal(rows[OP], "upsert").combine_chunks()
        return _as_list(values if kept.false_count == 0 else pc.if_else(kept, values, pa.scalar(None, values.type)))

    def _keys(self, rows: pa.Table) -> Sequence[bytes | None]:
        columns = rows.select(list(self.key))
        if self.key_format == "json":
            return _as_list(encode_values(columns, _JSON))
        keys = encode_values(columns, ValueFormat("text"))
        missing = keys.null_count if self.encoding == "upsert" else 0
        if missing:
            raise SinkError(
                f"{missing} rows have no key: {self.key[0]} is null",
                allowed="keys without nulls, where the key is plain text",
                instead="key_format='json', whose keys can be null, or where(col(...).is_not_null())",
            )
        return _as_list(keys)


def _as_list(values: pa.Array) -> list[bytes | None]:
    result: list[bytes | None] = values.to_pylist()
    return result


def _everywhere(messages: Iterator[Message], cti: Sequence[bool], partitions: int) -> Iterator[Message]:
    for message, is_cti in zip(messages, cti, strict=True):
        if is_cti:
            yield from ((message[0], None, partition) for partition in range(partitions))
        else:
            yield message
