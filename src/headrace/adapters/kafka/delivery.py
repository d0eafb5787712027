"""Exactly once: a part of a batch is one transaction, which also records the number of the batch.

**The record.** The transaction commits `batch + 1` as the offset of a group that belongs to the part, on partition 0 of
the output topic. Kafka commits it with the rows or not at all. The group has no members; nobody reads the topic by it.

**Taking over.** The name of the producer's transactions belongs to the part too. The first step of a producer,
`init_transactions`, ends an open transaction of this name, by commit if that was decided and by abort if not, and locks
older producers out (*fences* them). After it, the record cannot change any more, so it is read then. A process keeps
its producers and remembers what it has delivered.

**Who is fenced.** Spark may run a part in one worker process now and in another one later. So a kept producer that
finds itself fenced is replaced, once, and reads the record again. If the new one is fenced too, while it delivers,
another process delivers the same part at the same time: the error is `Superseded`.

**Failures.** An error that Kafka says can be aborted leads to an abort and a new transaction. After any other error the
state of the transaction is unknown; the producer is dropped, and the next one finds out, as after a crash.

Kafka forgets offsets of a group, after `offsets.retention.minutes` without a commit, 7 days by default. A query that is
started again after a longer pause may deliver the last batch of a part twice, if it was killed between Kafka's commit
and the note of it.

**A defect of Kafka** (seen in 4.3.1). A process that is broker and the only controller at once, killed by force in the
milliseconds after a commit, may forget to finish that transaction when it starts again: "these partitions are likely
deleted already and hence can be skipped" in its log. Then nobody who reads committed records gets beyond it, and the
record stays unreadable: `deliver` raises `Unavailable`, rather than deliver twice. `kafka-transactions.sh find-hanging`
shows such a transaction. Controllers in processes of their own should prevent it; that was not tried.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.adapters.kafka.clients import PATIENCE, Kept, Options, codes, common, failure, is_away
from headrace.adapters.kafka.messages import Message
from headrace.errors import SinkError, Superseded, Unavailable
from headrace.io.adapter import DeliveryId

__all__ = ["close_producers", "deliver_once", "deliver_simply", "interrupt", "transaction_name"]

#: How long a step of a transaction may take, in seconds, and how often one that can be aborted is tried.
_STEP, _ATTEMPTS = 15.0, 3
#: How long a call waits before it looks whether the query is being stopped, in seconds.
_SLICE = 1.0
#: How long the record may take to become part of a transaction, in seconds: one small request.
_RECORD = 5.0
_DEFAULTS: dict[str, Any] = {
    "linger.ms": 5, "batch.size": 1_000_000, "batch.num.messages": 100_000, "partitioner": "murmur2_random",
    "queue.buffering.max.messages": 500_000, "queue.buffering.max.kbytes": 128 << 10, "transaction.timeout.ms": 120_000,
    # A transaction that follows another at once waits until Kafka has finished that one: 100 ms by default.
    "retry.backoff.ms": 5,
}  # fmt: skip
_ALL_DOWN = codes("_ALL_BROKERS_DOWN")
_FENCED = codes(
    "_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_PRODUCER_ID"
)  # fmt: skip


Place = tuple[Options, str]
#: Topics whose deliveries from this process should not wait for Kafka.
_interrupted: set[Place] = set()


def interrupt(options: Options, topic: str) -> None:
    """Let deliveries to a topic that wait for Kafka end, until its producers are closed."""
    _interrupted.add((options, topic))


def _go_on(place: Place) -> None:
    """Raise if the query is being stopped."""
    if place in _interrupted:
        raise Unavailable(
            f"topic {place[1]!r} cannot be written: Kafka does not answer, and the query is being stopped"
        )


class _Fenced(Exception):
    """Another producer of the same name has begun."""


def transaction_name(delivery: DeliveryId) -> str:
    """The name of a part: of its transactions and of the group that records its batches."""
    return f"headrace-{delivery.query}-{delivery.output}-{delivery.part}"


class _Part:
    """The transactional producer of a part, and the number of the next batch that it has not delivered."""

    def __init__(self, options: Options, name: str, topic: str) -> None:
        self.lock = threading.Lock()
        self._options, self._name, self._topic = options, name, topic
        self._place = (options, topic)
        self._producer: Producer | None = None
        self._group: Any = None
        self._next = 0
        #: Whether Kafka was away since the producer began.
        self._shaken = False

    def deliver(self, batch: int, messages: Callable[[], Iterable[Message]]) -> None:
        """Deliver a batch, unless it is recorded."""
        with self.lock:
            kept = self._producer is not None
            try:
                try:
                    self._deliver(batch, messages)
                except _Fenced:
                    if not kept:
                        raise
                    self._deliver(batch, messages)
            except _Fenced as error:
                raise Superseded(
                    f"another process delivers to topic {self._topic!r} for the same part of the query",
                    given=self._name,
                    instead="run a query in one place at a time",
                ) from error

    def _deliver(self, batch: int, messages: Callable[[], Iterable[Message]]) -> None:
        try:
            self._renew()
            producer = self._producer or self._begin()
            if batch >= self._next:
                self._transact(producer, batch, messages)
        except KafkaException as error:
            self.drop()
            if error.args[0].code() in _FENCED:
                raise _Fenced from error
            raise failure(error, f"topic {self._topic!r} cannot be written", SinkError) from error
        except BaseException:
            self.drop()
            raise

    def _renew(self) -> None:
        """Drop a producer whose broker was away: its next transaction would hang (`_record`)."""
        if self._producer is not None:
            self._producer.poll(0)  # calls `_on_error`
            if self._shaken:
                self.drop()

    def _on_error(self, error: KafkaError) -> None:
        """Called by librdkafka, inside of `poll`, for what concerns the whole client; calls raise their own errors."""
        self._shaken = self._shaken or error.code() in _ALL_DOWN

    def _begin(self) -> Producer:
        """A producer that has ended the transactions of those before it; then read what they have recorded."""
        fixed = {"transactional.id": self._name, "enable.idempotence": True, "error_cb": self._on_error}
        self._shaken = False
        producer = Producer({**_DEFAULTS, **common(self._options), **fixed})
        _until(producer.init_transactions, _STEP, self._place)
        # Not the admin client's `list_consumer_group_offsets`: in 2.16.1 it ends the process (a segmentation fault) if
        # the broker's coordinator of groups is not ready. `read_committed` waits for offsets of open transactions.
        member = Consumer({**common(self._options), "group.id": self._name, "isolation.level": "read_committed"})
        try:
            self._next = _recorded(member, self._place)
            self._group = member.consumer_group_metadata()
        finally:
            member.close()
        self._producer = producer
        return producer

    def _transact(self, producer: Producer, batch: int, messages: Callable[[], Iterable[Message]]) -> None:
        record = [TopicPartition(self._topic, 0, batch + 1)]
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                producer.begin_transaction()
                produce(producer, self._place, messages())
                _send_all(producer, self._place)
                self._record(producer, record)
                _until(producer.commit_transaction, _STEP, self._place)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort() or attempt == _ATTEMPTS:
                    raise
                _until(producer.abort_transaction, _STEP, self._place)
                time.sleep(0.1 * attempt)
            else:
                self._next = batch + 1
                return

    def _record(self, producer: Producer, record: list[TopicPartition]) -> None:
        """Add the record to the transaction.

        librdkafka waits without end while Kafka is away (its issue 5456), so the call runs in a thread that can be
        left behind. What it still does is of no effect: nobody commits its transaction, and the next producer ends it.
        """
        answer: Future[None] = Future()

        def call() -> None:
            send = producer.send_offsets_to_transaction
            try:
                _until(lambda left: send(record, self._group, left), _RECORD / 2, self._place)
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
                answer.set_exception(error)
            else:
                answer.set_result(None)

        threading.Thread(target=call, name="headrace-kafka", daemon=True).start()
        deadline = time.monotonic() + _RECORD
        while not answer.done():
            if time.monotonic() > deadline or self._place in _interrupted:
                self._producer = None  # the thread still uses it
                raise Unavailable(f"topic {self._topic!r} cannot be written: Kafka does not answer")
            wait([answer], _SLICE)
        answer.result()

    def drop(self) -> None:
        """Forget the producer and what it still has to send, without waiting for Kafka."""
        producer, self._producer = self._producer, None
        if producer is not None:
            _discard(producer)


class _Simple:
    """A producer without transactions, which one call uses at a time."""

    def __init__(self, options: Options) -> None:
        self.lock = threading.Lock()
        self._options = options
        self._producer: Producer | None = None

    def deliver(self, topic: str, messages: Iterable[Message]) -> None:
        failed: list[KafkaError] = []
        with self.lock:
            self._producer = producer = self._producer or self._begin()
            try:
                produce(producer, (self._options, topic), messages, lambda error, _: failed.append(error))
                _send_all(producer, (self._options, topic))
                if failed:
                    raise KafkaException(next((error for error in failed if not is_away(error)), failed[0]))  # noqa: TRY301
            except KafkaException as error:
                self.drop()
                raise failure(error, f"topic {topic!r} cannot be written", SinkError) from error
            except BaseException:
                self.drop()
                raise

    def _begin(self) -> Producer:
        fixed = {"enable.idempotence": True, "delivery.report.only.error": True, "error_cb": _ignore}
        defaults = {name: value for name, value in _DEFAULTS.items() if not name.startswith("transaction")}
        return Producer({**defaults, **common(self._options), **fixed})

    def drop(self) -> None:
        """Forget the producer and what it still has to send."""
        producer, self._producer = self._producer, None
        if producer is not None:
            _discard(producer)


def produce(producer: Producer, place: Place, messages: Iterable[Message], on_delivery: Any = None) -> None:
    """Hand over messages; while the queue is full, wait until some are sent."""
    send, rest, topic = producer.produce, iter(messages), place[1]
    message: Message | None = next(rest, None)
    while message is not None:
        try:
            send(topic, *message, on_delivery)
            for message in rest:  # the one that did not fit is sent again
                send(topic, *message, on_delivery)
            message = None
        except BufferError:
            _wait_for_room(producer, place)
    producer.poll(0)


def _wait_for_room(producer: Producer, place: Place) -> None:
    """Return when Kafka has taken some of the messages that wait, or all."""
    waiting, deadline = len(producer), time.monotonic() + _STEP
    while len(producer) >= max(waiting, 1):
        if time.monotonic() > deadline:
            raise Unavailable(f"{waiting} messages wait for topic {place[1]!r}, and Kafka takes none")
        _go_on(place)
        producer.flush(0.02)


def _send_all(producer: Producer, place: Place) -> None:
    while len(producer):
        _wait_for_room(producer, place)


def _recorded(member: Consumer, place: Place) -> int:
    """The number after the last recorded batch, 0 if there is none."""
    deadline, topic = time.monotonic() + _STEP, place[1]
    while True:
        try:
            (found,) = member.committed([TopicPartition(topic, 0)], timeout=PATIENCE)
        except KafkaException as error:
            problem = error.args[0]
        else:
            problem = found.error
        if problem is None:
            return max(found.offset, 0)
        if not is_away(problem):
            raise KafkaException(problem)
        if time.monotonic() > deadline:
            raise Unavailable(
                f"Kafka does not say which batch topic {topic!r} has got last: {problem.str()}",
                instead="if this stays so, look for a transaction that never ends: kafka-transactions.sh find-hanging",
            )
        _go_on(place)
        time.sleep(0.05)


def _until(call: Callable[[float], object], seconds: float, place: Place) -> None:
    """A step of a transaction, repeated while Kafka says that it may be; one that timed out continues."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            call(min(max(deadline - time.monotonic(), 0.1), _SLICE))
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() >= deadline:
                raise
            _go_on(place)
            time.sleep(0.02)
        else:
            return


def _ignore(_error: KafkaError) -> None:
    """Errors of the whole client: each call raises what concerns it."""


def _discard(producer: Producer) -> None:
    with suppress(KafkaException):  # it has failed; that is why it is discarded
        producer.purge()
        producer.poll(0)


_parts: Kept[_Part] = Kept()
_simple: Kept[_Simple] = Kept()


def deliver_once(options: Options, topic: str, delivery: DeliveryId, messages: Callable[[], Iterable[Message]]) -> None:
    """Write a part of a batch and record it, in one transaction; nothing if it is recorded."""
    name = transaction_name(delivery)
    part = _parts.once((options, name, topic), lambda: _Part(options, name, topic))
    part.deliver(delivery.batch, messages)


def deliver_simply(options: Options, topic: str, messages: Iterable[Message]) -> None:
    """Write messages and wait until Kafka has them."""
    _simple.once(options, lambda: _Simple(options)).deliver(topic, messages)


def close_producers(options: Options, topic: str) -> None:
    """End the producers of a topic. None of them has anything left to send."""
    _interrupted.discard((options, topic))
    parts: list[_Part | _Simple] = [*_parts.take(lambda key: key[0] == options and key[2] == topic)]
    for kept in (*parts, *_simple.take(lambda key: key == options)):
        with kept.lock:
            kept.drop()
