"""The input of a soak: files at a steady rate, with bursts, late rows and keys that come and go.

Every file is written to an archive, from which the expected answers are computed, and linked into the directory that
the query reads. Rows that are late are an hour late, so no batch boundary decides about them. Keys change: each is
used for some seconds and never again, as session and order numbers are. With a topic of Kafka, as many rows are sent
there; these are archived as well.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from confluent_kafka import Producer

__all__ = ["DELAY", "Feed"]

#: Seconds by which rows are out of order at most; the query waits for so long.
DELAY = 2
_HOUR = 3600 * 1_000_000
#: Seconds between two files; between the beginnings of two bursts; how long a burst lasts, and how much more it has.
_FILE, _BURST_EVERY, _BURST, _BURST_TIMES = 0.5, 30.0, 3.0, 4
#: Seconds for which a key is used, the number of keys at a time, and every how many rows one is late.
_KEY_SECONDS, _KEYS, _LATE_EVERY = 20, 200, 100


@dataclass
class Feed:
    """Writes the files; `rate` is the number of rows per second between bursts."""

    folder: Path
    rate: int
    seed: int = 0
    files: int = 0
    rows: int = 0
    late: int = 0
    #: Set when the query has made a promise, so that late rows are late.
    promised: bool = False
    written: list[Path] = field(default_factory=list)
    #: The address of a broker and a topic.
    kafka: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        self.archive, self.inbox = self.folder / "archive", self.folder / "in"
        for place in (self.archive, self.inbox):
            place.mkdir(parents=True, exist_ok=True)
        self._random, self._began = np.random.default_rng(self.seed), time.time()
        self._next = self._began
        self._producer = None if self.kafka is None else Producer({"bootstrap.servers": self.kafka[0], "linger.ms": 5})

    def step(self) -> None:
        """Write the next file when it is time for it."""
        time.sleep(max(0.0, self._next - time.time()))
        self._write(self._next)
        self._next += _FILE

    def _write(self, now: float) -> None:
        path = self.archive / f"{self.files:08d}.csv"
        path.write_text(f"t,k,v\n{self._lines(now, may_be_late=self.promised)}")
        os.link(path, self.inbox / path.name)
        self.written.append(self.inbox / path.name)
        self.files += 1
        if self._producer is not None and self.kafka is not None:
            self._send(self._producer, self.kafka[1], now)

    def _send(self, producer: Producer, topic: str, now: float) -> None:
        """Send rows to a topic, and archive them."""
        lines = self._lines(now, may_be_late=False)
        (self.archive / f"kafka-{self.files:08d}.csv").write_text(f"t,k,v\n{lines}")
        for line in lines.splitlines():
            producer.produce(topic, '{{"t": {}, "k": {}, "v": {}}}'.format(*line.split(",")))
        producer.flush()

    def _lines(self, now: float, *, may_be_late: bool) -> str:
        burst = (now - self._began) % _BURST_EVERY > _BURST_EVERY - _BURST
        count = int(self.rate * _FILE * (_BURST_TIMES if burst else 1))
        times = (now * 1e6 - self._random.integers(0, DELAY * 900_000, count)).astype(np.int64)
        keys = int(now / _KEY_SECONDS) * _KEYS + self._random.integers(0, _KEYS, count)
        values = self._random.integers(-1000, 1000, count)
        late = np.zeros(count, bool)
        if may_be_late:
            late[::_LATE_EVERY] = True
        times = np.where(late, times - _HOUR, times)
        self.rows, self.late = self.rows + count, self.late + int(late.sum())
        return "".join(f"{t},{k},{v}\n" for t, k, v in zip(times, keys, values, strict=True))

    def remove_read(self, newest: int, kept: int = 120) -> None:
        """Remove input files that the query has read, as users do who archive them; so many stay."""
        gone = self.files - len(self.written)
        done = self.written[: max(0, newest - kept - gone)]
        for path in done:
            path.unlink(missing_ok=True)
        self.written = self.written[len(done) :]

    @property
    def earliest(self) -> int:
        """The time before which rows are late."""
        return int(self._began * 1e6) - _HOUR // 2
