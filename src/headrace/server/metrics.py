"""What `/metrics` shows: requests and rows of clients as they are counted here, and queries, by `headrace.metrics`.

Prometheus' client counts; the state of queries is read from `Server.health()` and `Server.query_figures()` when it is
asked for.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest

from headrace.errors import without_secrets
from headrace.metrics.families import CONTENT_TYPE, Family, exposition
from headrace.metrics.queries import process_families, query_families, state_family
from headrace.server.interface import Server
from headrace.server.query_log import query_of

__all__ = ["JsonLines", "Metrics", "log_to_stderr"]

_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)


class Metrics:
    """The counters of a server."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._registry = CollectorRegistry()
        requests = ("method", "route", "status")
        self._requests = Counter("headrace_requests", "Requests.", requests, registry=self._registry)
        self._seconds = Histogram(
            "headrace_request_seconds", "Time of requests, of subscriptions until they begin.", ("method", "route"),
            buckets=_SECONDS, registry=self._registry,
        )  # fmt: skip
        self._inserted = Counter("headrace_inserted_rows", "Rows that clients inserted.", registry=self._registry)
        self._sent = Counter("headrace_sent_rows", "Rows that subscribers were sent.", registry=self._registry)

    def requested(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def inserted(self, rows: int) -> None:
        """Count rows that a client inserted."""
        self._inserted.inc(rows)

    def sent(self, rows: int) -> None:
        """Count rows that a subscriber was sent."""
        self._sent.inc(rows)

    def exposition(self, server: Server) -> tuple[bytes, str]:
        """The text for Prometheus, and its content type."""
        return generate_latest(self._registry) + exposition(_families(server, self._clock())), CONTENT_TYPE


def _families(server: Server, now: datetime) -> Iterator[Family]:
    """What is read from the server when it is asked for."""
    figures, health = server.figures(), server.health()
    subscribers = Family("headrace_subscribers", "gauge", "Subscriptions, by any way in.")
    subscribers.add((), figures["subscribers"])
    logs = Family("headrace_log_bytes", "gauge", "Bytes of a log on disk.", ("stream",))
    for name, size in figures["log_bytes"].items():
        logs.add((name,), size)
    up = Family("headrace_up", "gauge", "Whether the server and all its queries are well.")
    up.add((), 1 if health.get("ok") else 0)
    yield from (subscribers, logs, up)
    yield from process_families()
    yield state_family({name: str(state) for name, state in health.get("queries", {}).items()})
    yield from query_families(server.query_figures(), now.timestamp())


def log_to_stderr(*, as_json: bool) -> None:
    """Write what Headrace and its HTTP server log to stderr, for a process that serves."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if as_json else text)
    for name, level in (("headrace", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)


class JsonLines(logging.Formatter):
    """Logs as lines of JSON: `at`, `level`, `logger`, `message`, and what a call passes as `extra={"fields": {…}}`."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat()
        message = without_secrets(record.getMessage())
        found: dict[str, Any] = {"at": at, "level": record.levelname, "logger": record.name, "message": message}
        query = query_of(record)
        found |= ({} if query is None else {"query": query}) | getattr(record, "fields", {})
        if record.exc_info:
            found["error"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(found, default=str, ensure_ascii=False)
