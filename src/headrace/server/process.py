"""The process of a server: the server and its ways in, started together and stopped in the other order."""

from __future__ import annotations

import logging
import signal
import ssl
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from headrace.server.core import HeadraceServer
from headrace.server.http import HttpServer, HttpSettings
from headrace.server.postgres import PostgresListener, listening

__all__ = ["ServerProcess", "run_until_stopped"]

_log = logging.getLogger("headrace.server")


class ServerProcess:
    """A server with its ways in. Ports of 0 take free ones.

    The limits of HTTP are the server's, and what it refuses is in the server's audit log.
    """

    def __init__(
        self, server: HeadraceServer, *, address: str = "127.0.0.1", port: int = 8080, postgres_port: int | None = 5433,
        certificate: Path | None = None, key: Path | None = None, settings: HttpSettings | None = None,
    ) -> None:  # fmt: skip
        self.server, self._address, self._port, self._postgres_port = server, address, port, postgres_port
        self._certificate, self._key, self._settings = certificate, key, settings or HttpSettings()
        self._running = ExitStack()
        self.http: HttpServer | None = None
        self.postgres: PostgresListener | None = None

    def start(self) -> None:
        """Start the server, then its ways in; if one cannot start, nothing runs."""
        with ExitStack() as running:
            running.enter_context(self.server)
            settings = replace(self._settings, limits=self.server.limits, audit=self.server.access.audit)
            self.http = HttpServer(
                self.server, host=self._address, port=self._port, settings=settings,
                certificate=self._certificate, key=self._key,
            )  # fmt: skip
            running.enter_context(self.http)
            if self._postgres_port is not None:
                tls = None
                if self._certificate is not None:
                    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                    tls.load_cert_chain(self._certificate, self._key)
                listens = listening(self.server, host=self._address, port=self._postgres_port, tls=tls)
                self.postgres = running.enter_context(listens)
            self._running = running.pop_all()

    def stop(self) -> None:
        """End connections, finish running batches, keep checkpoints."""
        self._running.close()

    def __str__(self) -> str:
        assert self.http is not None
        lines = [f"Headrace serves {self.server.data}", f"  dashboard   {self.http.url}/ui/"]
        lines.append(f"  HTTP        {self.http.url} (/docs lists the routes)")
        if self.postgres is not None:
            lines.append(f"  PostgreSQL  psql -h {self.postgres.host} -p {self.postgres.port} headrace")
        return "\n".join([*lines, f"  shell       headrace sql --server {self.http.url}"])


def run_until_stopped(process: ServerProcess) -> None:
    """Serve until SIGTERM or SIGINT; then stop gracefully."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    process.start()
    try:
        print(process, flush=True)  # noqa: T201 - for the person who started it
        process.server.computing.warm()
        while not stopped.wait(1.0):
            pass
        _log.info("stopping: running batches are finished")
    finally:
        process.stop()
