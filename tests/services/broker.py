"""A real Kafka broker on this machine: one process that is broker and controller (KRaft), for tests that kill it.

A broker owns a folder and a port. It can be stopped, killed and started again, and keeps both: clients see the same
address, and the topics are still there. It listens on 127.0.0.1 only, and creates no topics by itself, so that a test
with a wrong name fails. Times that would make tests wait (rebalancing, abandoned transactions, cleaning, the session of
a killed broker) are short.
"""

from __future__ import annotations

import base64
import logging
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.fixtures.ports import free_ports
from tests.services.kafka_jars import java_home, kafka_jars

__all__ = ["LOGIN", "Broker"]

#: The password of the user `reader`.
LOGIN = "correct"

_SECONDS = 120
_SILENT = logging.getLogger("tests.services.broker")
_SILENT.disabled = True
_LOG_LINES = 60
_LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n
"""


class Broker:
    """A broker with its data in a folder, which is made. `with Broker(folder) as broker:` starts and ends it."""

    def __init__(self, folder: Path, *, heap: str = "512m") -> None:
        self.folder = folder
        self._port, self._login_port, self._controller, self.before_proxy, self.proxy = free_ports(5)
        self._heap = heap
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: AdminClient | None = None

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`; the same for the broker's whole life."""
        return f"127.0.0.1:{self._port}"

    @property
    def bootstrap_by_proxy(self) -> str:
        """The address for clients behind a proxy on the port `proxy`, which passes on to the port `before_proxy`."""
        return f"127.0.0.1:{self.proxy}"

    @property
    def bootstrap_with_login(self) -> str:
        """The address for clients that log in: SASL_PLAINTEXT, mechanism PLAIN, user `reader` with `LOGIN`."""
        return f"127.0.0.1:{self._login_port}"

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the running process."""
        if self._process is None:
            raise RuntimeError("the broker is not running: start() it")
        return self._process.pid

    @property
    def admin(self) -> AdminClient:
        """A client for what this class has no method for."""
        if self._admin is None:
            # No log: a client that says on the terminal that the broker is down repeats what the test does.
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "logger": _SILENT})
        return self._admin

    def start(self) -> None:
        """Start the broker and wait until it answers, with a leader for every partition."""
        if self._process is not None:
            raise RuntimeError("the broker is running: stop() or kill() it first")
        if not (self.folder / "data" / "meta.properties").exists():
            self._format()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._properties)), stdout=log, stderr=log, cwd=self.folder
            )
        try:
            self._wait_until_up()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the broker as an operator would: it closes its files first."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise RuntimeError(f"the broker did not stop in {_SECONDS} s:\n{self._tail()}") from None

    def kill(self) -> None:
        """`kill -9`: as a crash of the process would end it."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self, *, kill: bool = False) -> None:
        """Stop or kill the broker, and start it again on the same port with the same data."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until all its partitions can be written."""
        self._done(self.admin.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))]))
        self._wait_for_partitions(name, partitions)

    def add_partitions(self, name: str, total: int) -> None:
        """Let a topic have more partitions: `total` of them."""
        self._done(self.admin.create_partitions([NewPartitions(name, total)]))
        self._wait_for_partitions(name, total)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the broker no longer shows it."""
        self._done(self.admin.delete_topics([name]))
        self._wait(lambda: name not in self.topics(), f"topic {name} is still there")

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """Let records expire: in each partition of `before`, those below the offset."""
        self._done(self.admin.delete_records([TopicPartition(name, p, offset) for p, offset in before.items()]))

    def topics(self) -> dict[str, int]:
        """The topics, with the number of their partitions."""
        found = self.admin.list_topics(timeout=_SECONDS).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _java(self, main: str, *arguments: str) -> list[str]:
        java = [str(java_home() / "bin" / "java"), f"-Xmx{self._heap}"]
        logs = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        return [*java, logs, "-cp", f"{kafka_jars()}{os.sep}*", main, *arguments]

    def _format(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j2.properties").write_text(_LOG4J)
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        cluster = (
            base64.urlsafe_b64encode(b"h" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        )  # never begins with a dash
        command = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties))
        with self._log.open("ab") as log:
            run = subprocess.run(command, stdout=log, stderr=log, check=False)
        if run.returncode != 0:
            raise RuntimeError(f"Kafka's folder could not be formatted:\n{self._tail()}")

    def _settings(self) -> dict[str, object]:
        login = f"SASL_PLAINTEXT://{self.bootstrap_with_login}"
        inside = f"127.0.0.1:{self._controller}"
        behind = f"PROXIED://127.0.0.1:{self.before_proxy}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{inside}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},{login},{behind},CONTROLLER://{inside}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},{login},PROXIED://{self.bootstrap_by_proxy}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'org.apache.kafka.common.security.plain.PlainLoginModule required user_reader="{LOGIN}";'
            ),
            "log.dirs": self.folder / "data",
            "auto.create.topics.enable": "false",
            "default.replication.factor": 1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            # A killed broker is let in again when its session has ended; the default is 9 s.
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            "group.initial.rebalance.delay.ms": 0,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
            "log.cleaner.backoff.ms": 1000,
            "log.retention.ms": -1,  # records of tests are old; a topic may be configured otherwise
            "log.retention.check.interval.ms": 1000,
        }

    def _done(self, answers: Mapping[Any, Future[Any]]) -> None:
        """Wait for what the admin client was asked for; its errors are raised."""
        for answer in answers.values():
            answer.result(_SECONDS)

    def _wait_until_up(self) -> None:
        def up() -> bool:
            if self._process is not None and self._process.poll() is not None:
                raise RuntimeError(f"the broker ended with {self._process.returncode}:\n{self._tail()}")
            try:
                found = self.admin.list_topics(timeout=1)
            except KafkaException:
                return False
            partitions = [p for topic in found.topics.values() for p in topic.partitions.values()]
            return bool(found.brokers) and all(p.leader == 1 for p in partitions)

        self._wait(up, "the broker does not answer")

    def _wait_for_partitions(self, name: str, count: int) -> None:
        def ready() -> bool:
            topic = self.admin.list_topics(name, timeout=_SECONDS).topics[name]
            return len(topic.partitions) == count and all(p.leader == 1 for p in topic.partitions.values())

        self._wait(ready, f"topic {name} does not have {count} partitions with a leader")

    def _wait(self, until: Callable[[], bool], problem: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not until():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{problem} after {_SECONDS} s:\n{self._tail()}")
            time.sleep(0.05)

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
