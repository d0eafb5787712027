"""Metrics of queries, and logs as lines of JSON."""

from __future__ import annotations

import json
import logging
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.server.core import HeadraceServer
from headrace.server.interface import Who
from headrace.server.metrics import JsonLines, Metrics

NOW = datetime(2024, 1, 1, 0, 1, tzinfo=UTC)


def test_logs_are_lines_of_json_without_secrets():
    failure = ValueError("s3://key:hidden@bucket")
    error = (ValueError, failure, None)
    record = logging.LogRecord("headrace.x", logging.ERROR, "f", 1, "at %s\nagain", ("s3://a:hidden@b",), error)
    record.fields = {"query": "q"}
    line = JsonLines().format(record)
    found = json.loads(line)
    assert (found["level"], found["logger"], found["query"]) == ("ERROR", "headrace.x", "q")
    assert found["message"] == "at s3://***@b\nagain"
    assert "ValueError" in found["error"]
    assert "hidden" not in line
    assert "\n" not in line


def test_prometheus_reads_what_a_server_shows(tmp_path: Path):
    """Its own parser finds every metric of the list, with the values of a query that had late rows."""
    with HeadraceServer(tmp_path, durable=False) as server:
        client = server.connect(Who("ann", "admin"))
        progress = "ORDER BY ts WITH PROGRESS ADVANCE 1 s LATE DIVERT"
        list(client.execute(f"CREATE STREAM s (item STRING, ts DATETIME) {progress}"))
        list(client.execute('QUERY "a ""b" AS SELECT item, count(*) AS n FROM s [TUMBLING 1 min] GROUP BY item'))
        times = ("12:10:00", "12:09:58.5", "12:09:59.5", "12:00:00", "11:00:00")
        client.insert("s", [{"item": "x", "ts": f"2024-05-01T{time}Z"} for time in times])
        query = server.objects['a "b'].query
        assert query is not None
        assert query.running is not None
        query.process_all_available()
        with closing(client.subscribe('a "b')):
            shown = parsed(Metrics(lambda: NOW), server)
        late = [value for (name, labels), value in shown.items() if name == "headrace_lateness_seconds_bucket"]
        assert late == [2, 2, 3, 3, 3, 4, 4, 5, 5, 5, 5]  # on time, 0.1 s, 1 s, 10 s, 1 min, 10 min, 1 h, 6 h, …
        query_label = frozenset({("query", 'a "b')})
        of_source = query_label | {("source", "clients of s")}
        assert shown["headrace_lateness_seconds_count", of_source] == 5
        assert shown["headrace_lateness_seconds_sum", of_source] == pytest.approx(0.5 + 599 + 4199)
        assert shown["headrace_rows_total", of_source | {("fate", "late")}] == 3
        assert shown["headrace_rows_total", of_source | {("fate", "diverted")}] == 3
        assert shown["headrace_cti_lag_seconds", query_label] == NOW.timestamp() - 1714565399
        assert shown["headrace_batch_seconds", query_label] > 0
        assert shown["headrace_query_state", query_label | {("state", "running")}] == 1
        assert shown["headrace_subscribers", frozenset()] == 1
        assert shown["headrace_log_bytes", frozenset({("stream", "s")})] > 0
        (state,) = [value for (name, _), value in shown.items() if name == "headrace_state_bytes"]
        assert state > 0
    with HeadraceServer(tmp_path, durable=False) as server:  # counters go on
        shown = parsed(Metrics(lambda: NOW), server)
        assert shown["headrace_lateness_seconds_count", of_source] == 5


def parsed(metrics: Metrics, server: HeadraceServer) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples by name and labels."""
    text = metrics.exposition(server)[0].decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples)  # none is there twice
    return found
