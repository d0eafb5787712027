"""The process that listens: an application in a thread, on one address, with TLS or without."""

from __future__ import annotations

import ipaddress
import socket
import time
from pathlib import Path
from threading import Thread
from typing import Self

import uvicorn
from starlette.applications import Starlette

from headrace.errors import ServerError
from headrace.server.http.app import make_app
from headrace.server.http.ways import HttpSettings, Ways
from headrace.server.interface import Server
from headrace.server.metrics import Metrics

__all__ = ["AppServer", "HttpServer"]

_PATIENCE = 10.0


class AppServer:
    """An application in a thread of its own. Port 0 takes a free one, which `port` has after the start."""

    def __init__(
        self,
        app: Starlette,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
    ) -> None:
        self.host, self.tls = host, certificate is not None
        self._socket = _listening(host, port)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            app, http="httptools", loop="uvloop", ws="none", lifespan="off", access_log=False, log_config=None,
            proxy_headers=False, server_header=False, date_header=False, timeout_graceful_shutdown=5,
            ssl_certfile=certificate, ssl_keyfile=key,
        )  # fmt: skip
        self._uvicorn = uvicorn.Server(config)
        self._thread = Thread(target=self._run, name="headrace-http", daemon=True)

    @property
    def url(self) -> str:
        """Where clients of this machine reach it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    def start(self) -> None:
        """Listen; returns when requests are taken."""
        self._thread.start()
        deadline = time.monotonic() + _PATIENCE
        while not self._uvicorn.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise ServerError("the HTTP server does not start; its log says why", given=self.url)
            time.sleep(0.005)

    def stop(self) -> None:
        """Take no more requests, and let those that run end."""
        self._uvicorn.should_exit = True
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)
        self._socket.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        self._uvicorn.run(sockets=[self._socket])


class HttpServer(AppServer):
    """HTTP for a server."""

    def __init__(
        self,
        server: Server,
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
        settings: HttpSettings | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        settings = settings or HttpSettings()
        _check_address(host, certificate is not None, settings)
        app = make_app(server, settings, bound=host, metrics=metrics)
        self._ways = _ways(app.state.ways)
        super().__init__(app, host=host, port=port, certificate=certificate, key=key)

    def stop(self) -> None:
        """Take no more requests, let those that run end, and end subscriptions, whose clients continue later."""
        self._ways.stop()
        super().stop()


def _ways(found: Ways) -> Ways:
    return found


def _check_address(host: str, tls: bool, settings: HttpSettings) -> None:
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not (loopback or tls or settings.plain):
        raise ServerError(
            "clients of other machines need TLS, and tokens", given=host, allowed="127.0.0.1, localhost, ::1",
            instead="--certificate and --key, or --plain-http behind a proxy that has TLS",
        )  # fmt: skip


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ServerError("there is no such port", given=port, allowed="0 to 65535; 0 takes a free one")
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise ServerError(f"cannot listen on {host}, port {port}: {error.strerror}", given=port) from error
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found
