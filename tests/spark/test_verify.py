"""Generated queries over generated streams on Spark: a slice of the default run, all in one query."""

from __future__ import annotations

from itertools import islice
from typing import Any

from headrace.testing.intents import KINDS
from headrace.testing.verify.campaign import default_cases
from headrace.testing.verify.on_spark import verify_on_spark


def test_the_default_run_on_spark_finds_nothing(spark: Any):
    report = verify_on_spark(case for _, case in islice(default_cases(seed=2), len(KINDS)))
    assert report.cases == len(KINDS)
    assert report.ok, str(report.failures[0])
