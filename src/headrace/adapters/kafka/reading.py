"""Reading exact ranges of offsets with consumers that run ahead.

A *reader* is a consumer of one partition, without a group. It fetches in the background, up to a bounded amount, so the
next range usually continues with records that are here already. Ranges must end exactly, though Kafka has offsets
without records: markers of transactions, records of aborted ones, and holes that compaction has left. So a range is
complete when a record at or after its end was seen, or the end of the partition.

A process keeps one idle reader of each partition. A call of `read` takes it away and gives it back at its end; a second
call at the same time makes its own. A reader that is at another offset moves there, and loses what it had fetched.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition
from numpy.typing import NDArray

from headrace.adapters.kafka.clients import PATIENCE, Kept, Options, codes, common, failure, is_away
from headrace.adapters.kafka.columns import RecordColumns
from headrace.adapters.kafka.discovery import partition_name
from headrace.errors import HeadraceError, SourceError, Unavailable

__all__ = ["Lost", "Wanted", "close_readers", "commit", "read_range"]

#: Records of one block, and their bytes of values at most, roughly.
BLOCK_ROWS, BLOCK_BYTES = 100_000, 32 << 20
#: How long a call waits for records, in seconds: it returns at once when all that it wants are here.
_WAIT = 0.005
#: How long a reader may stay without any record, in seconds, before and after the broker was seen to be away.
_SILENT, _AWAY = 30.0, 3.0
#: A reader that was not used for so long is ended, in seconds.
_IDLE = 60.0
#: Records that one call takes. Messages are large objects: more of them leave the processor's cache.
_CHUNK = 1000
_TIME = itemgetter(1)
_OUT_OF_RANGE = codes("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")
_END = codes("_PARTITION_EOF")
_UNKNOWN = codes("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION")
#: What a consumer fetches ahead: enough for some blocks, bounded.
_DEFAULTS: dict[str, Any] = {
    "queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 64 << 10, "fetch.message.max.bytes": 4 << 20,
    "fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 5, "fetch.error.backoff.ms": 50,
}  # fmt: skip
#: What the adapter needs, whatever the options are.
_FIXED: dict[str, Any] = {
    "enable.auto.commit": False, "enable.auto.offset.store": False, "enable.partition.eof": True,
    "auto.offset.reset": "error", "allow.auto.create.topics": False,
}  # fmt: skip

Records = list[Message]


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


class Lost(Exception):
    """The records from `start` to before `end` of a range are no longer stored."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(start, end)
        self.start, self.end = start, end


@dataclass(frozen=True)
class Wanted:
    """Which parts of records are needed beside values, offsets and times."""

    keys: bool = False
    headers: bool = False


class _Block:
    """Records that are collected as arrays, some hundred at a time: fewer objects live at once, which is faster."""

    def __init__(self, topic: str, number: int, wanted: Wanted) -> None:
        self._partition = (topic, number)
        self._wanted = wanted
        self._clear()

    def _clear(self) -> None:
        self._values, self._keys = list[pa.Array](), list[pa.Array]()
        self._offsets, self._times = list[NDArray[np.int64]](), list[NDArray[np.int64]]()
        self._headers = list[Any]()
        self._rows = self._bytes = 0

    def add(self, records: Records) -> None:
        count = len(records)
        values = pa.array(list(map(Message.value, records)), pa.binary())
        self._values.append(values)
        self._offsets.append(np.fromiter(map(Message.offset, records), np.int64, count))
        self._times.append(np.fromiter(map(_TIME, map(Message.timestamp, records)), np.int64, count))
        if self._wanted.keys:
            self._keys.append(pa.array(list(map(Message.key, records)), pa.binary()))
            self._bytes += self._keys[-1].nbytes
        if self._wanted.headers:
            self._headers += map(Message.headers, records)
        self._rows += count
        self._bytes += values.nbytes

    @property
    def is_full(self) -> bool:
        return self._rows >= BLOCK_ROWS or self._bytes >= BLOCK_BYTES

    def finished(self) -> Iterator[RecordColumns]:
        """The block, if it has records; then it is empty."""
        if self._rows:
            keys = pa.concat_arrays(self._keys) if self._wanted.keys else None
            headers = self._headers if self._wanted.headers else None
            values, offsets = pa.concat_arrays(self._values), np.concatenate(self._offsets)
            block = RecordColumns(*self._partition, offsets, values, np.concatenate(self._times), keys, headers)
            self._clear()
            yield block


class _Reader:
    """A consumer of one partition: `next` is the offset from which it gives records, `ahead` those already taken."""

    def __init__(self, options: Options, isolation: str, topic: str, number: int) -> None:
        self._name = partition_name(topic, number)
        self._partition = (topic, number)
        own = {"isolation.level": isolation, "error_cb": self._on_error, **_FIXED}
        self._consumer = Consumer({**_DEFAULTS, "group.id": "headrace", **common(options), **own})
        self.next = OFFSET_INVALID
        self.used = time.monotonic()
        self._ahead: Records = []
        self._errors: list[KafkaError] = []
        self._seen_end = OFFSET_INVALID
        self._away = ""

    def move(self, offset: int) -> None:
        """Continue at an offset."""
        if offset != self.next:
            self._ahead, self._errors, self._seen_end = [], [], OFFSET_INVALID
            self.next = OFFSET_INVALID  # until the assignment has succeeded
            self._consumer.assign([TopicPartition(*self._partition, offset)])
            self.next = offset

    def records(self, end: int, wanted: Wanted) -> Iterator[RecordColumns]:
        """The records before `end`, in blocks. It raises `Lost` after the records before what was lost."""
        block, heard = _Block(*self._partition, wanted), time.monotonic()
        while self.next < end:
            try:
                taken = self._take(end)
            except Lost:
                yield from block.finished()
                raise
            if taken:
                block.add(taken)
                if block.is_full:
                    yield from block.finished()
                heard = time.monotonic()
            elif self.next < end:
                self._check_alive(heard)
        yield from block.finished()

    def _take(self, end: int) -> Records:
        """Some records before `end`, without waiting long; later ones are kept."""
        found, self._ahead = self._ahead, []
        if not found:
            # Never more than the range can have, so that few are kept: only where offsets have no records.
            found = self._consumer.consume(min(end - self.next, _CHUNK), _WAIT)
            if any(map(Message.error, found)):
                self._note([message for message in found if message.error() is not None])
                found = [message for message in found if message.error() is None]
        if not found:
            if self._errors:
                raise self._problem(self._errors.pop(0))
            if self._seen_end >= end:
                self.next = end
            return found
        self._away = ""
        last = _offset(found[-1]) + 1
        if last <= end:
            self.next = end if self._seen_end >= end else last
            return found
        inside = next(place for place, message in enumerate(found) if _offset(message) >= end)
        self._ahead, self.next = found[inside:], end
        return found[:inside]

    def _note(self, messages: Records) -> None:
        """Take note of the end of the partition, and of errors, which are raised after the records before them."""
        for message in messages:
            error = message.error()
            assert error is not None
            if error.code() in _END:
                self._seen_end = max(self._seen_end, message.offset() or 0)
            elif is_away(error) and error.code() not in _OUT_OF_RANGE:
                self._away = f"{error.name()}: {error.str()}"
            else:
                self._errors.append(error)

    def _problem(self, error: KafkaError) -> Exception:
        if error.code() in _OUT_OF_RANGE:
            return self._out_of_range()
        if error.code() in _UNKNOWN:
            return Unavailable(f"partition {self._name} is away")
        return failure(error, f"partition {self._name} cannot be read")

    def _out_of_range(self) -> Exception:
        """Why the consumer's offset does not exist."""
        start, self.next = self.next, OFFSET_INVALID
        try:
            first, end = self._consumer.get_watermark_offsets(TopicPartition(*self._partition), timeout=PATIENCE)
        except KafkaException as error:
            return failure(error, f"the offsets of partition {self._name} cannot be listed")
        if start < first:
            return Lost(start, first)
        if start <= end:
            return Unavailable(f"partition {self._name} does not have offset {start} now, though it ends at {end}")
        return SourceError(
            f"partition {self._name} ends at offset {end}, and {start} was to be read: the topic was deleted and "
            "created again, or lost its last records",
            instead="a new checkpoint, which reads the topic from its beginning",
        )

    def _check_alive(self, heard: float) -> None:
        silent = time.monotonic() - heard
        if silent > (_AWAY if self._away else _SILENT):
            raise Unavailable(f"no records of partition {self._name} for {silent:.0f} s: {self._away or 'no answer'}")

    def _on_error(self, error: KafkaError) -> None:
        """Called by librdkafka, inside `consume`, for what concerns the whole client."""
        self._away = f"{error.name()}: {error.str()}"

    def close(self) -> None:
        self._consumer.close()


_idle: Kept[_Reader] = Kept()
_committers: Kept[Consumer] = Kept()


def read_range(
    options: Options, isolation: str, partition: tuple[str, int], offsets: tuple[int, int], wanted: Wanted
) -> Iterator[RecordColumns]:
    """The records of a range, in blocks of about `BLOCK_ROWS`; raises `Lost` if some are no longer stored."""
    key = (options, isolation, *partition)
    with _idle.lock:
        reader = _idle.pop(key, None)
    healthy = True
    try:
        reader = reader or _Reader(options, isolation, *partition)
        reader.move(offsets[0])
        yield from reader.records(offsets[1], wanted)
    except KafkaException as error:
        healthy = False
        raise failure(error, f"partition {partition_name(*partition)} cannot be read") from error
    except HeadraceError as error:
        healthy = isinstance(error, Unavailable)  # librdkafka connects again by itself
        raise
    finally:
        if reader is not None:
            _give_back(key, reader, healthy=healthy)


def _give_back(key: Any, reader: _Reader, *, healthy: bool) -> None:
    reader.used = now = time.monotonic()
    ended = []
    with _idle.lock:
        if healthy and key not in _idle:
            _idle[key] = reader
        else:
            ended.append(reader)
        ended += [_idle.pop(old) for old, idle in [*_idle.items()] if now - idle.used > _IDLE]
    for old in ended:
        old.close()


def commit(options: Options, group: str, positions: dict[tuple[str, int], int]) -> None:
    """Commit offsets to a group that nobody is a member of, so that Kafka's tools show its lag."""
    fixed = {**_FIXED, "group.id": group}
    consumer = _committers.once((options, group), lambda: Consumer({**common(options), **fixed}))
    try:
        consumer.commit(offsets=[TopicPartition(*p, at) for p, at in positions.items()], asynchronous=False)
    except KafkaException as error:
        raise failure(error, f"offsets of group {group!r} cannot be committed") from error


def close_readers(options: Options) -> None:
    """End the idle readers of these options, and what commits offsets."""
    for reader in _idle.take(lambda key: key[0] == options):
        reader.close()
    for consumer in _committers.take(lambda key: key[0] == options):
        consumer.close()
