"""Spans of batches that run on Spark: in the process of the driver, as in every process that starts a query."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from tests.fixtures.spans import Spans, without_provider

import headrace as hr
from headrace.host.driving.past import PHASES


def test_a_batch_on_spark_has_a_span_with_its_phases(spark: SparkSession, monkeypatch: pytest.MonkeyPatch):
    without_provider(monkeypatch)
    spans = Spans()
    spans.collect()
    events = hr.events("""
        le | k
        1  | a
        12 | b
    """)
    query = events.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count()).start(hr.memory(), spark=spark)
    query.finish()
    query.stop()
    batches = query.past.batches
    assert [(one.attributes or {})["headrace.batch"] for one in spans.outer] == [batch.number for batch in batches]
    assert sum(int((one.attributes or {})["headrace.rows.accepted"]) for one in spans.outer) == 2
    assert not any("headrace.checkpoint" in (one.attributes or {}) for one in spans.outer)  # a temporary one
    for span in spans.outer:
        assert [phase.name for phase in spans.inside(span)] == list(PHASES)
