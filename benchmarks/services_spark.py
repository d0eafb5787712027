"""Spark's own Kafka source and sink, for the comparison: its jars, its windowed average, its rows in Python workers."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.services.kafka_jars import run_maven

from benchmarks.measure import SPARKS_OWN
from benchmarks.services_load import COLUMNS
from headrace.adapters.kafka.columns import RecordColumns, RecordDecoder
from headrace.cache import cache_folder
from headrace.host.spark.session import get_session
from headrace.io.values import ValueFormat
from headrace.schema import Schema

__all__ = ["decode_by_headrace", "decode_by_spark", "session_with_kafka", "sparks_average"]

#: Those that were seen to work with Spark 4.3.0.
_JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2", "org.apache.commons:commons-pool2:2.13.1",
)  # fmt: skip
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


def session_with_kafka() -> SparkSession:
    """A session whose JVM has Spark's Kafka source: it must be the first of the process."""
    active = SparkSession.getActiveSession()
    if active is not None and not active.conf.get("spark.jars", ""):
        raise SystemExit("Spark's Kafka source needs a session with its jars: run this benchmark first, or alone")
    return active or get_session(options={"spark.jars": ",".join(str(jar) for jar in sorted(_jars().glob("*.jar")))})


def _jars() -> Path:
    cache = cache_folder("tests")
    if cache is None:
        raise RuntimeError("no cache folder for the jars: point HEADRACE_CACHE at a folder that can be written")
    folder = cache / "spark-kafka-4.2.0"
    folder.mkdir(exist_ok=True)
    with (cache / "spark-kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for jar in _JARS:
            _, name, version = jar.split(":")
            if not (folder / f"{name}-{version}.jar").exists():
                run_maven(_COPY, f"-Dartifact={jar}", f"-DoutputDirectory={folder}")
    return folder


def sparks_average(spark: SparkSession, bootstrap: str, topics: tuple[str, str], per_batch: int) -> None:
    """Read a topic to its end by Spark's Structured Streaming: windowed averages by key, into another topic.

    Its sink writes at least once: after a failure there may be answers twice.
    """
    for name, value in SPARKS_OWN.items():
        spark.conf.set(name, value)
    records = (
        spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topics[0])
        .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", per_batch).load()
    )  # fmt: skip
    schema = "symbol string, ts bigint, price double, note string"
    rows = records.select(F.from_json(F.col("value").cast("string"), schema).alias("v")).select("v.*")
    timed = rows.withColumn("time", F.timestamp_micros("ts")).withWatermark("time", "1 second")
    answers = timed.groupBy(F.window("time", "1 second"), "symbol").agg(
        F.avg("price").alias("p"), F.count("*").alias("n")
    )
    out = answers.select(F.to_json(F.struct("window.start", "window.end", "symbol", "p", "n")).alias("value"))
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = out.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topics[1])
        query = writer.option("checkpointLocation", checkpoint).outputMode("append").start()
        query.processAllAvailable()
        query.stop()


def decode_by_spark(spark: SparkSession, bootstrap: str, topic: str) -> int:
    """Records that Spark's source reads, sent to Python workers as Arrow batches, and decoded there."""
    records = (
        spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
        .option("startingOffsets", "earliest").load().select("value", "offset")
    )  # fmt: skip
    found: Any = records.mapInArrow(_decoded, "n bigint").agg(F.sum("n")).first()
    return int(found[0])


def _decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    decoder = _decoder()
    for batch in batches:
        values, offsets = batch.column(0), batch.column(1).to_numpy()
        block = decoder.decode(RecordColumns("", 0, offsets, values, np.zeros(len(values), np.int64)))
        yield pa.RecordBatch.from_pydict({"n": pa.array([block.table.num_rows], pa.int64())})


def decode_by_headrace(spark: SparkSession, bootstrap: str, topic: str, ends: dict[str, int]) -> int:
    """The same records, which Python workers read themselves: a task for each partition."""
    # Imported when it is used: it needs an extra.
    from headrace.adapters.kafka import KafkaSource

    source = KafkaSource(bootstrap, (topic,), Schema.of(COLUMNS))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                name = f"{topic}/{number}"
                rows = sum(b.table.num_rows for b in source.read(name, 0, ends[name], ["symbol", "ts", "price"]))
                yield pa.RecordBatch.from_pydict({"n": pa.array([rows], pa.int64())})

    found: Any = spark.range(0, len(ends), 1, len(ends)).mapInArrow(read, "n bigint").agg(F.sum("n")).first()
    return int(found[0])


def _decoder() -> RecordDecoder:
    return RecordDecoder(["symbol", "ts", "price", "note"], (ValueFormat("json"), Schema.of(COLUMNS)))
