"""Metrics of queries, and logs as lines of JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.server.metrics import JsonLines, query_metrics
from headrace.time import INFINITY, NEG_INFINITY

NOW = datetime(2024, 1, 1, 0, 1, tzinfo=UTC)


def values(report: dict[str, Any] | None, name: str) -> list[float]:
    found = query_metrics({"ok": True, "queries": {"q": "running"}}, {"q": {"report": report}}, NOW)
    return [sample.value for metric in found for sample in metric.samples if sample.name == name]


@pytest.mark.parametrize(
    ("cti", "shown", "lag"),
    [
        ("2024-01-01T00:00:00Z", [1704067200.0], [60.0]),
        ("∞", [], []),
        ("-∞", [], []),
        (17, [17.0], []),
        (INFINITY, [], []),
        (NEG_INFINITY, [], []),
    ],
)
def test_a_cti_is_a_date_or_a_number(cti: object, shown: list[float], lag: list[float]):
    report = {"batch": 1, "cti": cti}
    assert values(report, "headrace_cti") == shown
    assert values(report, "headrace_cti_lag_seconds") == lag


def test_a_query_without_a_batch_has_a_state():
    assert values(None, "headrace_query_state") == [1.0]
    assert values({}, "headrace_batch") == []


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
