"""What `/metrics` shows: requests and rows of clients as they are counted here, and queries as their reports have them.

Prometheus' client counts; the state of queries is read from `Server.health()` and `Server.reports()` when it is asked
for.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from headrace.errors import without_secrets
from headrace.io.lateness import BOUNDS
from headrace.server.interface import Server
from headrace.server.query_log import query_of

__all__ = ["JsonLines", "Metrics", "log_to_stderr", "query_metrics"]

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
        found = CollectorRegistry()
        found.register(_ServerFigures(server, self._clock()))
        return generate_latest(self._registry) + generate_latest(found), CONTENT_TYPE_LATEST


class _ServerFigures:
    """What is read from the server when it is asked for; a collector of Prometheus' client."""

    def __init__(self, server: Server, now: datetime) -> None:
        self._server, self._now = server, now

    def collect(self) -> Iterator[Metric]:
        figures = self._server.figures()
        yield GaugeMetricFamily("headrace_subscribers", "Subscriptions, by any way in.", value=figures["subscribers"])
        logs = GaugeMetricFamily("headrace_log_bytes", "Bytes of a log on disk.", labels=["stream"])
        for name, size in figures["log_bytes"].items():
            logs.add_metric([name], size)
        yield logs
        yield from query_metrics(self._server.health(), self._server.reports(), self._now)


def query_metrics(health: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], now: datetime) -> Iterator[Metric]:
    """The metrics of all queries: state, rows by fate, how late they are, CTI and its lag, seconds of batches, state of
    operators.
    """
    up = GaugeMetricFamily("headrace_up", "Whether the server and all its queries are well.")
    up.add_metric([], 1.0 if health.get("ok") else 0.0)
    yield up
    states = GaugeMetricFamily("headrace_query_state", "The state of a query.", labels=["query", "state"])
    for name, state in health.get("queries", {}).items():
        states.add_metric([name, str(state)], 1.0)
    yield states
    reports = {name: entry["report"] for name, entry in found.items() if entry.get("report")}
    yield from _progress(reports, now)
    yield from _rows_and_state(reports)
    yield _lateness(reports)
    yield from _batches(found)


def _progress(reports: Mapping[str, Mapping[str, Any]], now: datetime) -> Iterator[Metric]:
    batches = GaugeMetricFamily("headrace_batch", "The number of the last batch.", labels=["query"])
    ctis = GaugeMetricFamily("headrace_cti", "The CTI, in seconds since 1970 or as a number.", labels=["query"])
    lags = GaugeMetricFamily(
        "headrace_cti_lag_seconds", "By how much the CTI of dates is behind the clock.", labels=["query"]
    )
    for name, report in reports.items():
        if isinstance(report.get("batch"), int):
            batches.add_metric([name], report["batch"])
        value, dated = _seconds(report.get("cti"))
        if value is not None:
            ctis.add_metric([name], value)
            if dated:
                lags.add_metric([name], now.timestamp() - value)
    yield from (batches, ctis, lags)


def _seconds(cti: object) -> tuple[float | None, bool]:
    """A time of a report, and whether it is a date; None for infinity."""
    if isinstance(cti, int):
        return (float(cti) if abs(cti) < 1 << 62 else None), False
    try:
        return datetime.fromisoformat(str(cti)).timestamp(), True
    except ValueError:
        return None, True


def _rows_and_state(reports: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    fates = CounterMetricFamily(
        "headrace_rows", "Rows of sources: all, accepted, late, diverted, …", labels=["query", "source", "fate"]
    )
    labels = ["query", "operator", "place"]
    rows = GaugeMetricFamily("headrace_state_rows", "Rows of state of an operator.", labels=labels)
    size = GaugeMetricFamily("headrace_state_bytes", "Bytes of state of an operator.", labels=labels)
    for name, report in reports.items():
        for source, counts in report.get("counts", {}).items():
            for fate, count in counts.items():
                fates.add_metric([name, source, fate], count)
        for place, operator in enumerate(report.get("operators", ())):
            which = [name, str(operator.get("operator")), str(place)]
            rows.add_metric(which, operator.get("rows", 0))
            size.add_metric(which, operator.get("bytes", 0))
    yield from (fates, rows, size)


def _lateness(reports: Mapping[str, Mapping[str, Any]]) -> Metric:
    """By how much rows are behind the CTI: rows on time are those in the bucket of 0 seconds."""
    found = HistogramMetricFamily(
        "headrace_lateness_seconds", "By how much rows of dates were behind the CTI; 0: on time.",
        labels=["query", "source"],
    )  # fmt: skip
    bounds = ["0.0", *(str(bound / 1_000_000) for bound in BOUNDS), "+Inf"]
    for name, report in reports.items():
        for source, (*late, ticks) in report.get("lateness", {}).items():
            counts = report["counts"][source]
            on_time = counts["rows"] - counts["malformed"] - sum(late)
            classes = zip(bounds, accumulate([on_time, *late]), strict=True)
            found.add_metric([name, source], [(bound, float(rows)) for bound, rows in classes], ticks / 1_000_000)
    return found


def _batches(queries: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    last = GaugeMetricFamily("headrace_batch_seconds", "The time of the last batch.", labels=["query"])
    slowest = GaugeMetricFamily("headrace_batch_seconds_max", "The longest of the last batches.", labels=["query"])
    for name, entry in queries.items():
        seconds: Sequence[float] = entry.get("batch_seconds") or ()
        if seconds:
            last.add_metric([name], seconds[-1])
            slowest.add_metric([name], max(seconds))
    yield from (last, slowest)


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
