"""Plans hundreds of operators deep on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS = 400


@pytest.mark.slow
def test_chained_streams_run_on_spark(spark: SparkSession):  # noqa: ARG001 - the session that the run finds
    steps = [f"CREATE STREAM s{n + 1} AS SELECT v + 1 AS v FROM s{n}" for n in range(STREAMS)]
    text = ";\n".join([*steps, f"SELECT v FROM s{STREAMS}"])
    out = hr.sql(text, s0=hr.events([{"le": 1, "v": 1}])).cht(host="spark", buckets=1)
    assert out["v"].to_pylist() == [1 + STREAMS]
