"""How evenly rows are divided among buckets, as Spark reports it: the same numbers as in process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_hot_key_is_reported_as_in_process(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.stages.load._ENOUGH", 100)
    rows = "".join(f"{t},{'hot' if t % 2 else f'k{t % 40}'}\n" for t in range(400))
    (tmp_path / "rows.csv").write_text(f"t,k\n{rows}")
    stream = hr.read_csv(str(tmp_path / "rows.csv"), "t LONG, k STRING", lifetime=hr.point("t"))
    counts = stream.group_by("k").window(hr.session(5)).aggregate(n=hr.count())
    run = counts.run(host="spark", spark=spark, buckets=3)
    (load,) = run.progress()["stages"]
    assert load["rows"] == 400
    assert load["fullest_rows"] >= 200
    assert load["fullest_by_mean"] >= 1.5
    assert run.progress()["stages"] == counts.run(buckets=3).progress()["stages"]
    assert "stage 1: 400 rows by k in 3 buckets; the fullest has " in str(run.progress())
    text = counts.explain(analyze=True, host="spark", buckets=3)
    assert "measured: 400 rows by k in 3 buckets; the fullest has " in text
    assert "advice: the stage waits for bucket" in text
