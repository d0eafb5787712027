"""What stands at both ends of a query on Kafka: records to read, a producer that keeps a pace, a reader of answers.

The producer and the reader of the latency run in a process of their own (`python -m benchmarks.services_load`), as they
do in use: in the process of the query they would wait for Python's lock, and the query for them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

__all__ = ["COLUMNS", "CpuTime", "latencies", "produce_all"]

COLUMNS = "symbol STRING, ts DATETIME, price DOUBLE, note STRING"
PARTITIONS, SYMBOLS, VALUE_BYTES = 4, 500, 100
#: Event time of the first record, and between two records, in microseconds.
START, STEP = 1_700_000_000_000_000, 50
#: How often the producer that keeps a pace sends, in seconds.
_TICK = 0.002
#: Seconds at the beginning that do not count: clients connect, code is compiled.
_WARM = 10.0


def _value(number: int, ts: int) -> bytes:
    """A JSON value of 100 bytes."""
    value = b'{"symbol":"S%03d","ts":%d,"price":%d.25,"note":"' % (number * 7919 % SYMBOLS, ts, 10 + number % 90)
    return value + b"x" * (VALUE_BYTES - len(value) - 2) + b'"}'


def produce_all(bootstrap: str, topic: str, records: int) -> None:
    """Fill a topic, its partitions in turn."""
    producer = Producer({
        "bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1_000_000, "acks": 1,
        "queue.buffering.max.messages": 1_000_000,
    })  # fmt: skip
    for number in range(records):
        value = _value(number, START + number * STEP)
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
            except BufferError:
                producer.poll(0.05)
            else:
                break
    producer.flush()


@dataclass
class CpuTime:
    """CPU seconds of a process and its children since `begin`; those that have ended meanwhile do not count."""

    pid: int

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._before = self._now()

    def _now(self) -> dict[int, float]:
        first, found = psutil.Process(self.pid), {}
        for process in [first, *(first.children(recursive=True) if self.pid == os.getpid() else [])]:
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            found[process.pid] = times.user + times.system
        return found

    def seconds(self, without: int = 0) -> float:
        """The seconds of all but one process, such as a server that this process has started."""
        return sum(t - self._before.get(pid, 0.0) for pid, t in self._now().items() if pid != without)


def latencies(bootstrap: str, topics: tuple[str, str], rate: int, seconds: float, window: int = 0) -> list[float]:
    """Milliseconds from the sending of each record to the moment at which a reader of committed answers has it.

    With `window`, its size in microseconds, the answers are those of windows, and the time is that from the end of a
    window to its answer. The query must be running.
    """
    command = [sys.executable, "-m", "benchmarks.services_load", bootstrap, *topics, str(rate), str(seconds)]
    done = subprocess.run([*command, str(window)], stdout=subprocess.PIPE, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def _run(bootstrap: str, source: str, target: str, rate: int, seconds: float, window: int) -> list[float]:
    reader = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "answers", "isolation.level": "read_committed",
        "auto.offset.reset": "latest", "fetch.wait.max.ms": 5, "enable.auto.commit": False,
    })  # fmt: skip
    partitions = [TopicPartition(target, number) for number in range(PARTITIONS)]
    reader.assign(
        [TopicPartition(p.topic, p.partition, reader.get_watermark_offsets(p, timeout=10)[1]) for p in partitions]
    )
    times: list[tuple[float, float]] = []
    began = time.time()
    end = began + _WARM + seconds
    sending = threading.Thread(target=_send, args=(bootstrap, source, rate, end))
    sending.start()
    while time.time() < end + 3:
        messages = reader.consume(1000, 0.001)
        now = time.time()
        for message in messages:
            sent = None if message.error() else _sent(message.value() or b"", window)
            if sent is not None and sent / 1e6 >= began + _WARM:
                times.append((sent / 1e6, (now - sent / 1e6) * 1000))
    sending.join()
    reader.close()
    expected = 0.95 * (seconds * 1e6 / window if window else rate * seconds)
    if len(times) < expected:
        raise SystemExit(f"{len(times)} answers arrived, and at least {expected:.0f} were expected")
    return [latency for _, latency in times]


def _sent(value: bytes, window: int) -> int | None:
    """When the record of an answer was sent, or the end of its window, in microseconds."""
    row: dict[str, Any] = json.loads(value)
    if window:
        return int(row["re"])
    # The time of an event is that of its sending. Records that no query has read have it, too.
    return int(row.get("le", row.get("ts"))) if row.get("kind") != "cti" else None


def _send(bootstrap: str, topic: str, rate: int, end: float) -> None:
    """Send records at a pace: those of the last milliseconds, every few milliseconds."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
    began, sent = time.time(), 0
    while (now := time.time()) < end:
        for _ in range(int((now - began) * rate) - sent):
            producer.produce(topic, _value(sent, int(time.time() * 1e6)), partition=sent % PARTITIONS)
            sent += 1
        producer.poll(0)
        time.sleep(_TICK)
    producer.flush()


if __name__ == "__main__":
    _bootstrap, _source, _target, _rate, _seconds, _window = sys.argv[1:]
    print(json.dumps(_run(_bootstrap, _source, _target, int(_rate), float(_seconds), int(_window))))
