"""The grouped tumbling average: throughput, latency of small batches, cold start, memory."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headrace as hr
from benchmarks.measure import Row, Section, alternate, headrace_batches, rates, say, spark_batches
from headrace.host.spark.session import get_session
from headrace.io.generator import Ticks, plain_ticks, write_files

__all__ = ["average_of", "cold_start", "measure", "write_trades"]

SYMBOLS = 10_000


def measure(root: Path, options: argparse.Namespace) -> Section:
    """All figures, as a section of the report."""
    say.print(f"throughput: writing {options.files * options.rows:,} events …")
    large = write_trades(root / "large", options.files, options.rows)
    small = write_trades(root / "small", options.small, 1000)
    say.print("cold start …")
    cold_start(small)  # which may have to write Java's archive of classes first
    cold = min(cold_start(small) for _ in range(2))
    spark = get_session()
    say.print("throughput, batches of two files …")
    with _PeakMemory() as memory:
        times = alternate(
            options.rounds,
            ceiling=lambda: _spark(spark, large, 2, aggregate=False),
            spark=lambda: _spark(spark, large, 2),
            headrace=lambda: headrace_batches(average_of(large), 2),
        )
    say.print("latency, batches of 1000 events …")
    delays = alternate(
        options.rounds,
        spark=lambda: _spark(spark, small, 1),
        headrace=lambda: headrace_batches(average_of(small), 1),
        three=lambda: headrace_batches(_three_stages(small), 1),
    )
    first = _first_batch(small)
    rate = rates(times, 2 * options.rows)
    delay = {name: statistics.median(found) for name, found in delays.items()}
    figures = {
        "events": float(options.files * options.rows),
        "ceiling_events_per_second": rate["ceiling"],
        "spark_events_per_second": rate["spark"],
        "headrace_events_per_second": rate["headrace"],
        "throughput_ratio": rate["headrace"] / rate["spark"],
        "spark_p50_seconds": delay["spark"],
        "headrace_p50_seconds": delay["headrace"],
        "latency_ratio": delay["headrace"] / delay["spark"],
        "three_stages_p50_seconds": delay["three"],
        "three_stages_latency_ratio": delay["three"] / delay["spark"],
        "first_batch_seconds": first,
        "cold_start_seconds": cold,
        "peak_memory_gb": memory.peak / 1e9,
    }
    return Section(f"Headrace and Spark's own streaming, {figures['events']:,.0f} trades", _rows(figures), figures)


def write_trades(folder: Path, files: int, rows: int, seed: int = 1) -> Path:
    """Parquet files of trades, 20 s of stream time each; a tenth of the trades come up to two seconds late."""
    trades = Ticks(files * rows, seed=seed, symbols=SYMBOLS, rate_per_second=rows / 20, disorder=0.1, max_delay="2 s")
    write_files(plain_ticks(trades), str(folder), files)
    return folder


def average_of(folder: Path) -> hr.Stream:
    """The grouped tumbling average, speculative: answers early, corrected by retractions."""
    events = hr.read_parquet(str(folder), lifetime=hr.point("ts"), progress=hr.advance("5 s"))
    return events.group_by("symbol").window(hr.tumbling("10 s")).aggregate(price=hr.avg("price"))


def _three_stages(folder: Path) -> hr.Stream:
    """Groups of groups of groups, each brought together anew."""
    events = hr.read_parquet(str(folder), lifetime=hr.point("ts"), progress=hr.advance("5 s"))
    symbols = events.group_by("symbol").window(hr.tumbling("10 s")).aggregate(high=hr.max("price"), n=hr.count())
    sizes = symbols.group_by("n").window(hr.tumbling("10 s")).aggregate(high=hr.max("high"), symbols=hr.count())
    return sizes.group_by("symbols").window(hr.tumbling("10 s")).aggregate(high=hr.max("high"))


def _first_batch(folder: Path) -> float:
    """Seconds of the first batch of a query in a session that others have run in."""
    return statistics.median(headrace_batches(average_of(folder), 1, most=1)[0] for _ in range(5))


def _spark(spark: SparkSession, folder: Path, files_per_batch: int, *, aggregate: bool = True) -> list[float]:
    """Seconds per batch of Spark's own windowed average, or of reading and dropping."""

    def frame() -> Any:
        reader = spark.readStream.schema("symbol string, ts timestamp, price double, quantity int")
        rows = reader.option("maxFilesPerTrigger", files_per_batch).parquet(str(folder))
        if not aggregate:
            return rows
        windows = rows.withWatermark("ts", "5 seconds").groupBy(F.window("ts", "10 seconds"), "symbol")
        return windows.agg(F.avg("price"))

    return spark_batches(spark, frame, "update" if aggregate else "append")


class _PeakMemory:
    """The largest resident memory of this process and all its children while it runs."""

    def __enter__(self) -> Self:
        self.peak, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.2):
            total = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    total += process.memory_info().rss
                except psutil.Error:
                    continue
            self.peak = max(self.peak, total)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def cold_start(folder: Path, options: str = "") -> float:
    """Seconds from starting a process to its first answer; `options` are more of those that start a query."""
    code = (
        "import sys, time, headrace as hr; from headrace.io.sinks import FunctionSink\n"
        f"events = hr.read_parquet({str(folder)!r}, lifetime=hr.point('ts'), progress=hr.advance('5 s'))\n"
        "query = events.group_by('symbol').window(hr.tumbling('10 s')).aggregate(price=hr.avg('price'))\n"
        "def show(batch, changes, progress):\n"
        "    if len(changes): print('answer', flush=True)\n"
        f"query.start(FunctionSink(function=show), files_per_batch=1{options}).process_all_available()\n"
    )
    started = time.monotonic()
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout is not None
    line = child.stdout.readline()
    seconds = time.monotonic() - started
    child.communicate()
    if "answer" not in line:
        raise SystemExit("the cold start gave no answer")
    return seconds


def _rows(figures: dict[str, float]) -> list[Row]:
    million = 1e6
    return [
        Row("read and drop: the ceiling of Spark's row path, M events/s",
            f"{figures['ceiling_events_per_second'] / million:.2f}"),
        Row("tumbling average per symbol, M events/s", f"{figures['spark_events_per_second'] / million:.2f}",
            f"{figures['headrace_events_per_second'] / million:.2f}", f"{figures['throughput_ratio']:.2f}", "≥ 3"),
        Row("p50 of a batch of 1000 events, ms", f"{figures['spark_p50_seconds'] * 1000:.0f}",
            f"{figures['headrace_p50_seconds'] * 1000:.0f}", f"{figures['latency_ratio']:.2f}", "≤ 0.7"),
        Row("  the same with three stages, beside Spark's smallest, ms", "",
            f"{figures['three_stages_p50_seconds'] * 1000:.0f}", f"{figures['three_stages_latency_ratio']:.2f}",
            "≤ 1.2"),
        Row("first batch of a query in a warm session, ms", "", f"{figures['first_batch_seconds'] * 1000:.0f}", "",
            "≤ 500"),
        Row("cold start to first answer, s", "", f"{figures['cold_start_seconds']:.1f}", "", "≤ 9"),
        Row("peak memory of all processes, GB", "", f"{figures['peak_memory_gb']:.1f}"),
    ]  # fmt: skip
