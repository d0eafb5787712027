"""What the clients of a run share: the server, the ledger, when to stop, and what they count."""

from __future__ import annotations

import random
import threading
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import httpx
import psycopg
from tests.services.server.soak.rows import Ledger
from tests.services.server.soak.serving import Served

from headrace.errors import Unavailable

__all__ = ["LOST", "Shared", "SoakClient"]

#: What a client gets when the server dies, or is not there yet.
LOST = (httpx.TransportError, Unavailable, psycopg.OperationalError, ConnectionError)


class Shared:
    """The run, as its clients see it."""

    def __init__(self, server: Served, seed: int, psql: Path) -> None:
        self.server, self.seed, self.psql = server, seed, psql
        self.ledger = Ledger()
        #: Set when clients insert no more, and when all clients end.
        self.stopping, self.ended = threading.Event(), threading.Event()
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self._lock = threading.Lock()

    def count(self, what: str, number: int = 1) -> None:
        """Count for the report."""
        with self._lock:
            self.counts[what] += number

    def check(self) -> None:
        """Fail if a client has failed."""
        if self.failures:
            raise AssertionError("\n\n".join(self.failures))


class SoakClient(threading.Thread, ABC):
    """A client in a thread of its own; what it raises fails the run."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self.shared, self.chance = shared, random.Random(f"{shared.seed} {name}")
        #: Its connections, which are closed when the run has ended.
        self.connections = ExitStack()

    def run(self) -> None:
        try:
            self.work()
        except BaseException:  # noqa: BLE001 - of any kind: the run shows it
            if not self.shared.ended.is_set():
                self.shared.failures.append(f"{self.name}: {traceback.format_exc()}")

    @abstractmethod
    def work(self) -> None:
        """Work until the run ends."""

    def lost(self) -> None:
        """Wait a little, after the connection broke."""
        self.shared.count("reconnects")
        self.shared.ended.wait(0.2 + self.chance.random())

    def pause(self, seconds: float) -> None:
        """Wait a little between inserts; less when the run is to end."""
        self.shared.stopping.wait(seconds * (0.5 + self.chance.random()))
