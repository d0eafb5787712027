"""A query on Spark with its checkpoint and output on S3: its workers get what they need to reach it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import CheckpointError
from headrace.events import history, to_changes
from headrace.io.sinks import read_events_output
from headrace.store.objects import ObjectStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_a_query_goes_on_from_a_checkpoint_on_s3_on_either_host(tmp_path: Path, s3: str):
    stream = hr.read_parquet(str(tmp_path / "in"), "t LONG, k LONG, v LONG", lifetime=hr.point("t"))
    sums = stream.group_by("k").window(hr.tumbling(50)).aggregate(n=hr.count(), s=hr.sum("v"))
    (tmp_path / "in").mkdir()
    for number, host in enumerate(("spark", "local", "spark")):
        rows = range(4000 * number, 4000 * (number + 1))
        table = pa.table({"t": rows, "k": [row % 1999 for row in rows], "v": rows})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
        query = sums.start(hr.files(f"{s3}/out"), checkpoint=f"{s3}/state", host=host, buckets=2)
        query.process_all_available()
        if number == 2:
            query.finish()
        query.stop()
    found = history(to_changes(read_events_output(f"{s3}/out", sums.schema), sums.schema))
    assert not hr.history_diff(sums.cht(), found, names=("expected", "found"))


def _trades(spark: SparkSession, folder: Path, first: int) -> None:
    rows = [(t, "ab"[t % 2], t) for t in range(first, first + 20)]
    spark.createDataFrame(rows, "t long, k string, v long").coalesce(1).write.mode("append").parquet(str(folder))


def _sums(stream: hr.Stream) -> hr.Stream:
    return stream.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("v"))


def test_what_only_spark_can_read_keeps_its_log_in_a_directory(spark: SparkSession, tmp_path: Path, s3: str):
    _trades(spark, tmp_path / "in", 0)
    options: dict[str, Any] = {"lifetime": hr.point("t"), "progress": hr.advance(delay=5)}
    sums = _sums(hr.read_spark("parquet", "t LONG, k STRING, v LONG", path=str(tmp_path / "in"), **options))
    place: dict[str, Any] = {"spark": spark, "checkpoint": f"{s3}/state", "buckets": 2}
    with pytest.raises(CheckpointError, match="only Spark can read need a checkpoint in a directory") as caught:
        sums.start(hr.files(f"{s3}/out"), **place)
    assert "spark_checkpoint=" in caught.value.instead
    for wrong in ({"checkpoint": str(tmp_path / "state")}, {"spark_checkpoint": f"{s3}/log"}):
        with pytest.raises(CheckpointError, match="spark_checkpoint= is a directory, beside"):
            sums.start(hr.files(f"{s3}/out"), **place | {"spark_checkpoint": str(tmp_path / "log")} | wrong)

    place["spark_checkpoint"] = str(tmp_path / "log")
    for number in (1, 2):
        query = sums.start(hr.files(f"{s3}/out"), **place)
        query.process_all_available()
        _trades(spark, tmp_path / "in", 20 * number)
        if number == 2:
            query.finish()
        query.stop()
    found = history(to_changes(read_events_output(f"{s3}/out", sums.schema), sums.schema))
    expected = _sums(hr.read_parquet(str(tmp_path / "in" / "*.parquet"), "t LONG, k STRING, v LONG", **options))
    assert not hr.history_diff(expected.cht(), found, names=("expected", "found"))

    with pytest.raises(CheckpointError, match="belongs to another checkpoint"):
        sums.start(hr.files(f"{s3}/other"), **place | {"checkpoint": f"{s3}/other-state"})
    with pytest.raises(CheckpointError, match=r"Spark's log of what it read from .* is gone"):
        sums.start(hr.files(f"{s3}/out"), **place | {"spark_checkpoint": str(tmp_path / "other-log")})


def test_a_batch_frame_is_written_to_the_store(spark: SparkSession, tmp_path: Path, s3: str):
    _trades(spark, tmp_path / "in", 0)
    frame = spark.read.parquet(str(tmp_path / "in")).repartition(2, "k")
    sums = _sums(hr.read_spark(frame, name="trades", lifetime=hr.point("t"), progress=hr.advance(delay=100)))
    kept = hr.memory()
    query = sums.start(kept, spark=spark, checkpoint=f"{s3}/state", buckets=2)
    query.finish()
    query.stop()
    assert not hr.history_diff(sums.cht(), kept.cht())
    assert [key for key in ObjectStorage(f"{s3}/state").sizes("events") if key.endswith(".arrow")]
