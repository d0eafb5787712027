"""The HTTP server for the metrics of queries of this process: `start(..., metrics_port=9108)`.

Queries of one process may have the same port: they share one server, and each has its own label `query`. The server
ends with the last of them. Each request reads the figures anew, in a thread of its own; the loop of a query does not
wait for it.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headrace.errors import HostError, PlanError
from headrace.metrics.families import CONTENT_TYPE, Family, exposition
from headrace.metrics.queries import QueryFigures, process_families, query_families, state_family

__all__ = ["MetricsEndpoint", "MetricsPlace", "metrics_address"]

_log = logging.getLogger("headrace")
LOOPBACK = "127.0.0.1"
#: How long the server waits for the rest of a request, in seconds.
_PATIENCE = 10.0
_HIGHEST_PORT = 65_535


def metrics_address(given: int | str) -> tuple[str, int]:
    """The host and the port of `metrics_port=`: a port of this machine, or `"host:port"`.

    >>> metrics_address(9108), metrics_address("0.0.0.0:9108"), metrics_address("[::1]:0")
    (('127.0.0.1', 9108), ('0.0.0.0', 9108), ('::1', 0))
    """
    host, _, port = str(given).rpartition(":")
    digits = not isinstance(given, bool) and port.isascii() and port.isdigit()
    valid = digits and len(port) <= len(str(_HIGHEST_PORT)) and int(port) <= _HIGHEST_PORT
    if not valid or (":" in host and not host.startswith("[")):
        raise PlanError(
            "metrics are shown at a port",
            given=given,
            allowed=f"a port from 0 to {_HIGHEST_PORT}, or 'host:port'; 0 chooses a free port",
            instead="metrics_port=9108",
        )
    return host.strip("[]") or LOOPBACK, int(port)


class _Server(ThreadingHTTPServer):
    """Answers `GET /metrics`."""

    daemon_threads = True
    #: Requests that run at the end are not waited for: a client may hold its connection.
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], text: Callable[[], bytes]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)
        self.text = text

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no event for the log."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] not in ("/metrics", "/"):
            self._reply(404, b"there is only /metrics here\n", "text/plain; charset=utf-8")
            return
        try:
            status, body, kind = 200, self.server.text(), CONTENT_TYPE
        except Exception:  # noqa: BLE001 - whatever a request meets ends neither the server nor a query
            _log.exception("the metrics at %s cannot be shown", self.server.server_address)
            status, body, kind = 500, b"the metrics cannot be shown: the log says why\n", "text/plain; charset=utf-8"
        self._reply(status, body, kind)

    do_HEAD = do_GET  # noqa: N815 - the name is that of the standard library

    def _reply(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: there is one every few seconds."""


class MetricsEndpoint:
    """A server at a port, and the queries whose metrics it shows."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._given = address
        self.queries: dict[str, MetricsPlace] = {}
        self._lock = threading.Lock()
        try:
            self._server = _Server(address, self._text)
        except (OSError, TypeError, UnicodeError) as error:  # the latter: a text that is no name of a host
            raise HostError(
                f"no server for metrics can be opened: {getattr(error, 'strerror', None) or error}",
                given=f"metrics_port='{_shown(*address)}'",
                instead="another port, or metrics_port=0 for a free one",
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="headrace-metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where its metrics are."""
        host, port = self._server.server_address[:2]
        return f"http://{_shown(str(host), int(port))}/metrics"

    def add(self, place: MetricsPlace) -> None:
        """Show the metrics of one more query."""
        with self._lock:
            before = self.queries.get(place.name)
            if before is not None and before.is_used:
                raise PlanError(
                    "another query of this name shows its metrics at this port: their labels would be the same",
                    given=f"name={place.name!r}, {self.url}",
                    instead="start(..., name='another')",
                )
            self.queries[place.name] = place

    def remove(self, place: MetricsPlace) -> bool:
        """Show the metrics of a query no more; whether there is none left."""
        with self._lock:
            if self.queries.get(place.name) is place:
                del self.queries[place.name]
            return not self.queries

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _text(self) -> bytes:
        with self._lock:
            places = list(self.queries.values())
        return exposition(_families([one for place in places if (one := place.figures()) is not None]))


def _families(figures: list[QueryFigures]) -> Iterator[Family]:
    yield from process_families()
    yield state_family({one.query: one.state for one in figures})
    yield from query_families(figures, time.time())


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


#: The servers of this process by address as it was given; a free port that was chosen is never shared.
_endpoints: dict[tuple[str, int], MetricsEndpoint] = {}
_lock = threading.Lock()


class MetricsPlace:
    """The place of one query at a server of this process. It is taken before the query exists, so that a port that is
    in use refuses the start before anything is created.
    """

    def __init__(self, given: int | str, name: str) -> None:
        self.name = name
        self._address = metrics_address(given)
        self._figures: Callable[[], QueryFigures] | None = None
        self._runs: Callable[[], bool] = lambda: True
        with _lock:
            shared = _endpoints.get(self._address)
            self._endpoint = shared or MetricsEndpoint(self._address)
            self._endpoint.add(self)
            if self._address[1]:
                _endpoints[self._address] = self._endpoint

    @property
    def url(self) -> str:
        return self._endpoint.url

    def show(self, figures: Callable[[], QueryFigures], runs: Callable[[], bool]) -> None:
        """Show these figures from now on; `runs`: whether their query still runs."""
        self._figures, self._runs = figures, runs

    @property
    def is_used(self) -> bool:
        """Whether its query runs, or is about to; one that has ended leaves its name to another."""
        return self._runs()

    def figures(self) -> QueryFigures | None:
        """The figures of the query; None before it exists."""
        return None if self._figures is None else self._figures()

    def close(self) -> None:
        """Leave; the last one ends the server."""
        with _lock:
            if self._endpoint.remove(self) and _endpoints.get(self._address, self._endpoint) is self._endpoint:
                _endpoints.pop(self._address, None)
                self._endpoint.close()
