"""Files with other columns than the declared ones: on Spark, and in histories there, as in process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.fixtures.drifting import CASES, expected, read, write

import headrace as hr
from headrace.errors import SchemaError
from headrace.io.drift import DRIFT_COUNTERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are diverted here on purpose


@pytest.mark.parametrize("policy", ["divert", "widen"])
def test_rows_and_counts_are_those_of_the_local_host(spark: SparkSession, tmp_path: Path, policy: str):
    outputs = {}
    for format in ("csv", "json", "parquet"):
        for case in CASES:
            if expected(case, policy) is not None and (format == "parquet" or not case.typed):
                place = write(tmp_path / f"{format}-{case.name}", format, case)
                outputs[f"{format}-{case.name}"] = read(place, format, on_drift=policy)
    local, done = hr.run(outputs), hr.run(outputs, host="spark", spark=spark, buckets=1, files_per_batch=None)
    assert done.counts == local.counts
    for name in outputs:
        assert done.cht(name).equals(local.cht(name)), name


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_histories_on_spark_have_the_same_rows(spark: SparkSession, tmp_path: Path, format: str):
    case = next(case for case in CASES if case.name == "renamed")
    place = write(tmp_path / "in", format, case)
    widened = read(place, format, on_drift="widen")
    assert hr.same_history(widened.history("spark").cht(), widened.cht())
    strict = read(place, format, on_drift="raise")
    for run in (strict.history("spark").cht, lambda: strict.run(host="spark", spark=spark)):
        with pytest.raises(SchemaError, match=r"rename=\{'cost': 'price'\}"):
            run()
    (counts,) = widened.run(host="spark", spark=spark).counts.values()
    assert [counts[name] for name in DRIFT_COUNTERS] == [1, 0, 1, 1, 0]
