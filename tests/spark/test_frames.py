"""Data frames of Spark's as inputs, batch and streaming, and sources that have no end."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import headrace as hr
from headrace import col
from headrace.errors import CheckpointError, HistoryError, PlanError, SchemaError, UnknownColumn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = [(1, "a", 2.0), (3, "b", 1.0), (12, "a", None), (14, "a", 5.0)]
SCHEMA = "t long, `k.k` string, v double"
LIFETIME: dict[str, Any] = {"lifetime": hr.point("t"), "progress": hr.advance(delay=100)}


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, SCHEMA).repartition(2, "t")


def sums(stream: hr.Stream) -> hr.Stream:
    return stream.where(col("t") > 1).group_by("k.k").window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("v"))


def test_a_batch_frame_is_bounded_and_answers_alike_everywhere(spark: SparkSession, frame: DataFrame, tmp_path: Path):
    stream = hr.read_spark(frame, **LIFETIME)
    assert str(stream.schema) == "t LONG, k.k STRING, v DOUBLE"
    answers, picked = sums(stream), hr.read_spark(frame, "t LONG, v DOUBLE", name="picked", **LIFETIME).select("v")
    local = hr.run({"sums": answers, "picked": picked})
    assert local.cht("sums")["n"].to_pylist() == [1, 2]
    done = hr.run({"sums": answers, "picked": picked}, host="spark", spark=spark, buckets=2)
    for name in ("sums", "picked"):
        assert not hr.history_diff(local.cht(name), done.cht(name))
    assert done.counts == local.counts
    for engine in ("duckdb", "spark"):
        assert not hr.history_diff(local.cht("sums"), answers.history(engine=engine, late="include").cht())

    # A checkpoint knows it by its name and columns, and goes on with the rows of the first start.
    again: dict[str, Any] = {"spark": spark, "checkpoint": str(tmp_path / "state")}
    with pytest.raises(PlanError, match="without a name"):
        answers.start(hr.memory(), **again)
    named = sums(hr.read_spark(frame, name="trades", **LIFETIME))
    out = hr.files(str(tmp_path / "out"))
    named.run(host="spark", finish=False, **again)
    other = sums(hr.read_spark(spark.createDataFrame(ROWS[:1], SCHEMA), name="trades", **LIFETIME))
    rest = other.run(host="spark", finish=False, **again)
    assert next(iter(rest.counts.values()))["accepted"] == 4
    with pytest.raises(CheckpointError):
        sums(hr.read_spark(frame, name="others", **LIFETIME)).start(out, **again)


def test_a_streaming_frame_runs_until_stopped(spark: SparkSession, tmp_path: Path):
    folder = tmp_path / "in"
    spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.parquet(str(folder))
    frame = spark.readStream.schema(SCHEMA).parquet(str(folder))
    stream = hr.read_spark(frame, name="arriving", **LIFETIME)
    pickle.loads(pickle.dumps(stream.node))  # noqa: S301 - as it travels to workers
    for host in ("local", "spark"):
        with pytest.raises(PlanError, match="a source without an end") as caught:
            stream.run(host=host)
        assert "start(hr.memory())" in caught.value.instead
    with pytest.raises(HistoryError, match="has no history"):
        stream.history(engine="duckdb", late="include").cht()
    kept = hr.memory()
    query = sums(stream).start(kept, spark=spark, checkpoint=str(tmp_path / "state"), buckets=2, record="1 h")
    try:
        query.process_all_available()
        spark.createDataFrame([(27, "b", 1.0)], SCHEMA).write.mode("append").parquet(str(folder))
        query.finish()
        batch = hr.read_spark(spark.read.schema(SCHEMA).parquet(str(folder)), **LIFETIME)
        assert not hr.history_diff(sums(batch).cht(), kept.cht())
    finally:
        query.stop()
    recorded = hr.trace_checkpoint(tmp_path / "state", sums(stream))  # Spark's files of these rows are gone
    assert not hr.history_diff(recorded.history(), kept.cht())


@pytest.mark.parametrize("source", ["rate", "kafka", "socket", "something.of.mine"])
@pytest.mark.parametrize("host", ["local", "spark"])
def test_a_run_over_what_has_no_end_is_refused(source: str, host: Any):
    stream = hr.read_spark(source, "timestamp DATETIME, value LONG", lifetime=hr.point("timestamp"))
    with pytest.raises(PlanError, match="a source without an end") as caught:
        stream.run(host=host)
    assert "start(" in caught.value.instead


def test_frames_that_cannot_be_read(frame: DataFrame):
    twice = [hr.read_spark(f, name="x", **LIFETIME) for f in (frame, frame.limit(1))]
    for action in (hr.Stream.run, lambda s: s.start(hr.memory()), lambda s: s.history(engine="duckdb")):
        with pytest.raises(PlanError, match="same name"):
            action(twice[0].union(twice[1]))
    odd = frame.selectExpr("t", "map(t, v) d")
    with pytest.raises(SchemaError, match="'d' of the data frame has another type") as caught:
        hr.read_spark(odd, **LIFETIME)
    assert "cast" in caught.value.instead
    with pytest.raises(SchemaError, match="'v' of the data frame"):
        hr.read_spark(frame, "t LONG, v INT", **LIFETIME)
    with pytest.raises(UnknownColumn, match="'x'"):
        hr.read_spark(frame, "t LONG, x INT", **LIFETIME)
    with pytest.raises(PlanError, match="do not apply to a data frame"):
        hr.read_spark(frame, path="somewhere", **LIFETIME)


def test_what_spark_does_not_read():
    with pytest.raises(PlanError, match="nothing that Spark reads"):
        hr.read_spark([1, 2], "t LONG, v INT", **LIFETIME)
    with pytest.raises(PlanError, match="only data frames have names"):
        hr.read_spark("kafka", "t LONG, v INT", name="x", **LIFETIME)
    with pytest.raises(PlanError, match="needs a schema"):
        hr.read_spark("kafka", **LIFETIME)


def test_frames_in_memory_and_functions_on_spark(spark: SparkSession, tmp_path: Path):
    """A pandas frame with epochs in, frames of Spark out: the changes of all batches are the history."""
    rows = pd.DataFrame({"t": [1, 12, 3, 27], "k": ["a", "a", "b", None], "v": [2.0, None, 1.0, 4.0]})
    stream = hr.from_pandas(rows, lifetime=hr.point("t", unit="ms"), progress=hr.advance(delay="20 ms"))
    answers = stream.group_by("k").window(hr.tumbling("10 ms")).aggregate(n=hr.count(), s=hr.sum("v"))
    expected = answers.cht()
    assert not hr.history_diff(answers.cht(host="spark", spark=spark, buckets=2), expected)
    assert not hr.history_diff(answers.history(engine="spark").cht(), expected)
    calls: list[tuple[int, DataFrame]] = []
    sink = hr.foreach_batch(lambda frame, batch: calls.append((batch, frame)), frame="spark")
    query = answers.start(sink, spark=spark, checkpoint=str(tmp_path / "state"), buckets=2)
    try:
        query.finish()
    finally:
        query.stop()
    assert len({batch for batch, _ in calls}) == len(calls) > 0
    left = Counter[tuple[Any, ...]]()
    for _, frame in calls:
        assert frame.columns == ["_change_type", "le", "re", "k", "n", "s"]
        for row in frame.select("_change_type", "k", "n", "s").collect():
            left[tuple(row[1:])] += 1 if row[0] == "insert" else -1
    assert +left == Counter(tuple(row.values()) for row in expected.drop_columns(["le", "re"]).to_pylist())


def test_a_json_field_that_no_row_has_is_an_error_on_spark(spark: SparkSession, tmp_path: Path):
    (tmp_path / "a.json").write_text('{"t": 1, "v": 2}\n')
    path = str(tmp_path / "a.json")
    stream = hr.read_json(path, "t LONG, w LONG", lifetime=hr.point("t"))
    for call in (lambda: stream.cht(host="spark", spark=spark), stream.history(engine="spark").cht):
        with pytest.raises(SchemaError, match="has the field 'w'"):
            call()
    sparse = hr.read_json(path, "t LONG, w LONG", lifetime=hr.point("t"), sparse="w")
    assert sparse.cht(host="spark", spark=spark)["w"].to_pylist() == [None]
