"""Generated queries over generated streams on Spark: a slice of the default run, all in one query."""

from __future__ import annotations

from itertools import islice

import pytest

from headrace.testing.intents import KINDS
from headrace.testing.verify.campaign import default_cases
from headrace.testing.verify.on_spark import verify_on_spark


@pytest.mark.usefixtures("spark")
def test_the_default_run_on_spark_finds_nothing():
    report = verify_on_spark(case for _, case in islice(default_cases(seed=2), len(KINDS)))
    assert report.cases == len(KINDS)
    assert report.ok, str(report.failures[0])
