"""Processes that run a pipeline, live after live, and writers that feed its source all the while.

What a writer has written is asked of the servers at the end: a server that is killed may have taken what it did not
confirm.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.services.broker import Broker
from tests.services.pipelines import WINDOW, Run, options_of

__all__ = ["EventWriter", "Life", "RowWriter", "records"]

_ROOT = Path(__file__).parents[2]
_SECONDS = 120.0
_KEYS = "abcde"


class Life:
    """One process that runs a pipeline. Its log is in its folder, after those of the lives before."""

    def __init__(self, run: Run) -> None:
        self.run, self.folder = run, Path(run.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        options = self.folder / "options.json"
        options.write_text(options_of(run))
        command = [sys.executable, "-m", "tests.services.pipelines", str(options)]
        path = os.pathsep.join([str(_ROOT), str(_ROOT / "src")])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, cwd=_ROOT,
                env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def _log(self) -> Path:
        return self.folder / "process.log"

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_until_started(self) -> None:
        """Wait until the query runs."""
        started = self.folder / f"started-{self._process.pid}"
        deadline = time.monotonic() + _SECONDS
        while not started.exists():
            assert self.alive, f"the query did not start:\n{self.log}"
            assert time.monotonic() < deadline, f"the query does not start:\n{self.log}"
            time.sleep(0.02)

    def pause(self) -> None:
        """Stop the process where it is, as a machine that hangs would; `resume` lets it go on."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def wait_for_commits(self, count: int = 2) -> None:
        """Wait until so many more batches are committed; the last of them is perhaps not delivered yet."""
        first, deadline = self._commits(), time.monotonic() + _SECONDS
        while self._commits() < first + count:
            assert self.alive, f"the query ended:\n{self.log}"
            assert time.monotonic() < deadline, f"the query does not move:\n{self.log}"
            time.sleep(0.02)

    def _commits(self) -> int:
        """The number of the last committed batch, -1 before the first."""
        return max((int(path.name) for path in self.folder.glob("state/store/commits/*")), default=-1)

    def wait_until_dead(self) -> None:
        """Wait until the process has died at its moment."""
        try:
            code = self._process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not come to the moment {self.run.death!r}:\n{self.log}") from None
        assert code == -signal.SIGKILL, f"the query failed, and should have died at {self.run.death!r}:\n{self.log}"

    def kill(self) -> None:
        """`kill -9` of the process and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def finish(self) -> dict[str, Any]:
        """Let it process everything and end; its last words."""
        (self.folder / "stop").touch()
        try:
            code = self._process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the query does not end:\n{self.log}") from None
        assert code == 0, self.log
        done: dict[str, Any] = json.loads((self.folder / "done.json").read_text())
        return done


class _Writer:
    """Writes in a thread until it is stopped; a failure is raised then."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def write(self) -> None:
        """Write a little."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what is left."""

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.02):
                self.write()
            self.close()
        except BaseException as error:  # noqa: BLE001 - raised where the test waits
            self._failure = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(_SECONDS)
        assert not self._thread.is_alive(), "the writer does not end"
        if self._failure is not None:
            raise self._failure

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(_SECONDS)


class EventWriter(_Writer):
    """Events out of order, in all partitions of a topic."""

    def __init__(self, broker: Broker, topic: str, seed: int, partitions: int = 3) -> None:
        super().__init__(seed)
        self._topic, self._partitions, self._now = topic, partitions, 100
        self._producer = Producer({
            "bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 2, "log_level": 0,
            "delivery.timeout.ms": 120_000, "reconnect.backoff.max.ms": 1000, "error_cb": lambda _: None,
        })  # fmt: skip

    def write(self) -> None:
        for partition in range(self._partitions):
            for _ in range(self.draw.randint(0, 4)):
                ts = self._now - self.draw.randint(0, 40)
                event = {"k": self.draw.choice(_KEYS), "slot": ts // WINDOW, "ts": ts, "v": self.draw.randint(0, 100)}
                self._producer.produce(self._topic, json.dumps(event).encode(), partition=partition)
        self._now += 1
        self._producer.poll(0)

    def close(self) -> None:
        assert self._producer.flush(_SECONDS) == 0


class RowWriter(_Writer):
    """Inserts, updates and deletions of a table's rows, several in a transaction."""

    def __init__(self, dsn: str, table: str, seed: int) -> None:
        super().__init__(seed)
        self._dsn, self._table = dsn, table

    def write(self) -> None:
        try:
            with psycopg.connect(self._dsn, connect_timeout=5) as connection:
                for _ in range(self.draw.randint(1, 6)):
                    self._change(connection)
        except psycopg.OperationalError:  # the server was killed: what it has taken is what it says later
            self._stop.wait(0.2)

    def _change(self, connection: psycopg.Connection[Any]) -> None:
        row = {"id": self.draw.randint(1, 60), "k": self.draw.choice(_KEYS), "v": self.draw.randint(0, 100)}
        if self.draw.random() < 0.35:
            connection.execute(f"DELETE FROM {self._table} WHERE id = %(id)s".encode(), row)
        else:
            upsert = "ON CONFLICT (id) DO UPDATE SET k = EXCLUDED.k, v = EXCLUDED.v"
            connection.execute(f"INSERT INTO {self._table} VALUES (%(id)s, %(k)s, %(v)s) {upsert}".encode(), row)


@contextmanager
def _consumer(broker: Broker) -> Iterator[Consumer]:
    client = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": "read_committed",
        "enable.auto.commit": False, "enable.partition.eof": True,
    })  # fmt: skip
    yield client
    client.close()


def records(broker: Broker, topic: str) -> list[list[tuple[bytes | None, bytes | None]]]:
    """The committed records of a topic, key and value, by partition and in order."""
    found: list[list[tuple[bytes | None, bytes | None]]] = [[] for _ in range(broker.topics()[topic])]
    with _consumer(broker) as client:
        client.assign([TopicPartition(topic, partition, 0) for partition in range(len(found))])
        unfinished = set(range(len(found)))
        while unfinished:
            message = client.poll(30)
            assert message is not None, f"nothing more comes from {topic}, and partitions {unfinished} have not ended"
            if message.error() is not None:
                unfinished.discard(message.partition())
            else:
                found[message.partition() or 0].append((message.key(), message.value()))
    return found
