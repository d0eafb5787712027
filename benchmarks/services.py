"""Kafka and PostgreSQL, real servers on this machine: throughput, latency, and the cost of a record.

**Throughput.** A topic of 4 partitions with JSON values of 100 bytes; an average per key and second; final answers into
another topic, exactly once. A run reads the whole topic from a new checkpoint. Spark's own runs the same, but its sink
writes at least once. The broker needs the same cores. Rates are by the clock, which other processes on the machine
slow down; the CPU time of a record does not depend on them as much, and gives the ratio.

**Latency.** A producer in another process sends records at a pace; the time of a record is that of its sending. A
reader of committed messages, in that process too, notes when it has the answer. *Records* pass a filter and leave as
physical events. *Windows* are averages per key over a tenth of a second, final answers: the time counts from the end of
the window, so it has the wait for the first record after it. Ten seconds of warming up do not count. Without a query,
the same producer and reader of one topic show what the machine and the broker take.

**PostgreSQL.** The sink's `deliver`, a batch after the other, keys all new or all known, in this process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from tests.services.broker import Broker
from tests.services.database import Database

import headrace as hr
from benchmarks.measure import Row, Section, say
from benchmarks.services_load import COLUMNS, PARTITIONS, CpuTime, latencies, produce_all
from benchmarks.services_spark import decode_by_headrace, decode_by_spark, session_with_kafka, sparks_average
from headrace.changes import Changes
from headrace.io.adapter import DeliveryId
from headrace.io.upserts import upserts
from headrace.schema import Schema
from headrace.time import INFINITY

__all__ = ["measure"]

RATE, WINDOW = 5000, 100_000
Host = Literal["spark", "local"]


def measure(root: Path, options: argparse.Namespace) -> Section:
    """All figures, as a section of the report."""
    figures: dict[str, float] = {}
    with Broker(root / "broker", heap="1g") as broker:
        runs = _Runs(root, broker, options.records)
        say.print(f"services: writing {options.records:,} records …")
        broker.create_topic("ticks", PARTITIONS, {})
        produce_all(broker.bootstrap, "ticks", options.records)
        figures |= _throughput(runs, options.rounds)
        figures |= _sources(runs, options.rounds)
        figures |= _floor(runs, options.seconds)
        for host in ("local", "spark"):
            for window in (0, WINDOW):
                figures |= _latency(runs, host, options.seconds, window)
    with Database() as database:
        figures |= _upserts(database.dsn, options.upserts)
    figures["load"] = os.getloadavg()[0]
    return Section("Kafka and PostgreSQL on this machine", _rows(figures), figures)


@dataclass
class _Runs:
    """Runs over one topic, each with a checkpoint and an output topic of its own."""

    root: Path
    broker: Broker
    records: int
    count: int = field(default=0)

    def new(self, name: str) -> str:
        self.count += 1
        return f"{name}-{self.count}"

    def new_topic(self, name: str) -> str:
        topic = self.new(name)
        self.broker.create_topic(topic, PARTITIONS, {})
        return topic

    def timed(self, name: str, run: Callable[[], object]) -> dict[str, float]:
        """Seconds by the clock, CPU seconds of the query and of the broker."""
        own, broker, began = CpuTime(os.getpid()), CpuTime(self.broker.pid), time.monotonic()
        run()
        found = {"wall": time.monotonic() - began, "cpu": own.seconds(self.broker.pid), "broker": broker.seconds()}
        per = {part: seconds / self.records * 1e6 for part, seconds in found.items()}
        say.print(
            f"  {name}: {found['wall']:.1f} s, {1e3 / per['wall']:,.0f} k records/s; CPU of a record"
            f" {per['cpu']:.2f} µs and {per['broker']:.2f} of the broker; load {os.getloadavg()[0]:.1f}",
            highlight=False,
        )
        return per

    def average(self, host: Host) -> None:
        """The average per key and second, exactly once."""
        answers = (
            _ticks("ticks", self.broker.bootstrap, "1 s").group_by("symbol").window(hr.tumbling("1 s"))
            .aggregate(p=hr.avg("price"), n=hr.count())
        )  # fmt: skip
        sink = hr.kafka(self.new_topic("answers"), bootstrap=self.broker.bootstrap, encoding="final")
        query = answers.start(sink, host=host, checkpoint=str(self.root / self.new("state")))
        query.process_all_available()
        query.stop()


def _ticks(topic: str, bootstrap: str, delay: str) -> hr.Stream:
    progress = hr.advance(delay=delay)
    return hr.read_kafka(topic, COLUMNS, bootstrap=bootstrap, lifetime=hr.point("ts"), progress=progress)


def _medians(runs: _Runs, rounds: int, **systems: Callable[[], object]) -> dict[str, float]:
    """Microseconds a record, the median of the rounds; the first round warms up."""
    found: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for name, run in systems.items():
            per = runs.timed(f"round {number}: {name}", run)
            for part, value in per.items() if number else ():
                found.setdefault(f"{name}_{part}_us", []).append(value)
    return {name: statistics.median(values) for name, values in found.items()}


def _throughput(runs: _Runs, rounds: int) -> dict[str, float]:
    say.print("average per key, Kafka to Kafka …")
    spark = session_with_kafka()
    return _medians(
        runs,
        rounds,
        spark=lambda: sparks_average(
            spark, runs.broker.bootstrap, ("ticks", runs.new_topic("sparks")), runs.records // 3
        ),
        on_spark=lambda: runs.average("spark"),
        in_process=lambda: runs.average("local"),
    )


def _sources(runs: _Runs, rounds: int) -> dict[str, float]:
    """Both ways to read records on Spark, up to decoded columns in Python."""
    say.print("reading and decoding in Python workers: Spark's source, and the workers themselves …")
    spark, bootstrap = session_with_kafka(), runs.broker.bootstrap
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    parts = [TopicPartition("ticks", number) for number in range(PARTITIONS)]
    ends = {f"ticks/{p.partition}": consumer.get_watermark_offsets(p, timeout=10)[1] for p in parts}
    consumer.close()
    return _medians(
        runs,
        rounds,
        read_by_spark=lambda: decode_by_spark(spark, bootstrap, "ticks"),
        read_by_workers=lambda: decode_by_headrace(spark, bootstrap, "ticks", ends),
    )


def _floor(runs: _Runs, seconds: float) -> dict[str, float]:
    """The latency without a query: from the producer to a reader of the same topic."""
    say.print(f"latency at {RATE:,} records/s …")
    topic = runs.new_topic("paced")
    return _percentiles("without_a_query", latencies(runs.broker.bootstrap, (topic, topic), RATE, seconds))


def _latency(runs: _Runs, host: Host, seconds: float, window: int) -> dict[str, float]:
    what = f"{'windows' if window else 'records'}_{'on_spark' if host == 'spark' else 'in_process'}"
    source, target, bootstrap = runs.new_topic("paced"), runs.new_topic("answers"), runs.broker.bootstrap
    ticks = _ticks(source, bootstrap, "0 s")
    if window:
        grouped = ticks.group_by("symbol").window(hr.tumbling(window))
        answers, encoding = grouped.aggregate(p=hr.avg("price")), "final"
    else:
        answers, encoding = ticks.where(hr.col("price") > 0), "events"
    sink = hr.kafka(target, bootstrap=bootstrap, encoding=encoding)  # type: ignore[arg-type] # one of two
    query = answers.start(sink, host=host, checkpoint=str(runs.root / runs.new("state")))
    try:
        times = latencies(bootstrap, (source, target), RATE, seconds, window)
    finally:
        query.stop()
    return _percentiles(what, times)


def _percentiles(what: str, times: list[float]) -> dict[str, float]:
    percents = statistics.quantiles(times, n=100, method="inclusive")
    p50, p99 = percents[49], percents[98]
    say.print(f"  {what}: p50 {p50:.0f} ms, p99 {p99:.0f} ms; load {os.getloadavg()[0]:.1f}", highlight=False)
    return {f"{what}_p50_ms": p50, f"{what}_p99_ms": p99}


def _upserts(dsn: str, count: int) -> dict[str, float]:
    """Rows a second of the upsert sink: batches of new keys, then the same keys again."""
    sink = hr.postgres(dsn, "answers", encoding="upsert", key="symbol", create=True)
    schema, batch = Schema.of("symbol STRING, price DOUBLE, n LONG"), 100_000
    sink.open("benchmark", 0, schema, -1)
    number, figures = 0, {}
    for what in ("new", "updated"):
        seconds = []
        for start in range(0, count, batch):
            keys = [f"S{key:07d}" for key in range(start, min(start + batch, count))]
            size = len(keys)
            payload = pa.table(
                [pa.array(keys), pa.array(np.random.default_rng(number).random(size)), pa.array(np.arange(size))],
                schema=schema.arrow,
            )
            ends = np.full(size, INFINITY)
            changes = Changes(np.full(size, number), ends, np.ones(size, np.int64), payload)
            rows = upserts(changes, ["symbol"], number)
            began = time.monotonic()
            sink.deliver(DeliveryId("benchmark", 0, 0, number), rows)
            seconds.append((time.monotonic() - began) / size)
            number += 1
        figures[f"{what}_rows_per_second"] = 1 / statistics.median(seconds)
        say.print(f"  {what}: {figures[f'{what}_rows_per_second'] / 1e3:.0f} k rows/s; load {os.getloadavg()[0]:.1f}")
    sink.close()
    return figures


def _rows(figures: dict[str, float]) -> list[Row]:
    def rate(name: str) -> str:
        return f"{1e3 / figures[f'{name}_wall_us']:.0f}"

    def cpu(name: str) -> str:
        return f"{figures[f'{name}_cpu_us']:.2f}"

    def ratio(name: str, part: str) -> str:
        return f"{figures[f'spark_{part}_us'] / figures[f'{name}_{part}_us']:.1f}"

    rows = []
    for name, shown in (("on_spark", "on Spark"), ("in_process", "in process")):
        rows += [
            Row(
                f"Kafka → average → Kafka {shown}, k records/s",
                rate("spark"),
                rate(name),
                ratio(name, "wall"),
                "≥ 300; ≥ 2",
            ),
            Row("  CPU of a record without the broker, µs", cpu("spark"), cpu(name), ratio(name, "cpu")),
        ]
    by_spark, by_workers = figures["read_by_spark_cpu_us"], figures["read_by_workers_cpu_us"]
    rows.append(
        Row(
            "decoded in workers: CPU of a record, µs",
            f"{by_spark:.2f}",
            f"{by_workers:.2f}",
            f"{by_spark / by_workers:.1f}",
        )
    )
    floor = f"{figures['without_a_query_p50_ms']:.0f} / {figures['without_a_query_p99_ms']:.0f}"
    rows.append(Row("without a query, p50 / p99 at 5,000 records/s, ms", "", floor))
    for name, shown, goal in (("in_process", "in process", "≤ 30 / 100"), ("on_spark", "on Spark", "≤ 400 / 1000")):
        for what in ("records", "windows"):
            p50, p99 = (figures[f"{what}_{name}_{p}_ms"] for p in ("p50", "p99"))
            rows.append(
                Row(f"{what} {shown}, p50 / p99 at 5,000 records/s, ms", "", f"{p50:.0f} / {p99:.0f}", "", goal)
            )
    for what in ("new", "updated"):
        rows.append(
            Row(f"PostgreSQL, {what} rows, k rows/s", "", f"{figures[f'{what}_rows_per_second'] / 1e3:.0f}", "", "≥ 50")
        )
    return rows
