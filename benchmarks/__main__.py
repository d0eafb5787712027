"""`make bench`: Headrace beside Spark's own streaming, in one process, one session and one report.

The machine may be noisy: only ratios inside one run mean anything. Both run on the same files with RocksDB state and
the same session options; batch times are Spark's own (`triggerExecution`), the first batch of every run is left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

import headrace as hr
from headrace.host.spark.session import apply_query_options, get_session
from headrace.io.generator import Ticks, plain_ticks, write_files
from headrace.io.sinks import Nowhere

SYMBOLS = 10_000
say = Console()


def write_events(folder: Path, files: int, rows: int, seed: int = 1) -> Path:
    """Parquet files of trades, 20 s of stream time each; a tenth of the trades come up to two seconds late."""
    trades = Ticks(files * rows, seed=seed, symbols=SYMBOLS, rate_per_second=rows / 20, disorder=0.1, max_delay="2 s")
    write_files(plain_ticks(trades), str(folder), files)
    return folder


def query_of(folder: Path) -> hr.Stream:
    """The grouped tumbling average, speculative: answers early, corrected by retractions."""
    events = hr.read_parquet(str(folder), lifetime=hr.point("ts"), progress=hr.advance("5 s"))
    return events.group_by("symbol").window(hr.tumbling("10 s")).aggregate(price=hr.avg("price"))


def headrace_batches(folder: Path, files_per_batch: int) -> list[float]:
    """Seconds per batch of Headrace."""
    query = query_of(folder).start(Nowhere(), files_per_batch=files_per_batch)
    query.process_all_available()
    times = _seconds(query.stream)
    query.stop()
    return times


def spark_frame(spark: SparkSession, folder: Path, files_per_batch: int) -> Any:
    """The same files, read by Spark."""
    reader = spark.readStream.schema("symbol string, ts timestamp, price double, quantity int").option(
        "maxFilesPerTrigger", files_per_batch
    )
    return reader.parquet(str(folder))


def spark_batches(spark: SparkSession, folder: Path, files_per_batch: int, *, aggregate: bool = True) -> list[float]:
    """Seconds per batch of Spark's own windowed average, or of reading and dropping."""
    apply_query_options(spark, 2)
    frame = spark_frame(spark, folder, files_per_batch)
    if aggregate:
        frame = (
            frame.withWatermark("ts", "5 seconds").groupBy(F.window("ts", "10 seconds"), "symbol").agg(F.avg("price"))
        )
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").outputMode("update" if aggregate else "append")
        stream = writer.option("checkpointLocation", checkpoint).start()
        stream.processAllAvailable()
        times = _seconds(stream)
        stream.stop()
    return times


def _seconds(stream: Any) -> list[float]:
    done = [p for p in stream.recentProgress if p["numInputRows"]]
    return [p["durationMs"]["triggerExecution"] / 1000 for p in done]


class PeakMemory:
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


def cold_start(folder: Path) -> float:
    """Seconds from starting a process to its first answer."""
    code = (
        "import sys, time, headrace as hr; from headrace.io.sinks import Call\n"
        f"events = hr.read_parquet({str(folder)!r}, lifetime=hr.point('ts'), progress=hr.advance('5 s'))\n"
        "query = events.group_by('symbol').window(hr.tumbling('10 s')).aggregate(price=hr.avg('price'))\n"
        "def show(batch, changes, progress):\n"
        "    if len(changes): print('answer', flush=True)\n"
        "query.start(Call(function=show), files_per_batch=1).process_all_available()\n"
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


def alternate(rounds: int, **runs: Callable[[], list[float]]) -> dict[str, list[float]]:
    """Run each in turn, several times, so that a noisy minute hits all of them; first batches left out."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name, run in runs.items():
            found = run()
            times[name] += found[1:]
            say.print(f"  round {number + 1}: {name}: " + " ".join(f"{t:.2f}" for t in found) + " s", highlight=False)
    return times


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=12, help="files of the throughput run")
    parser.add_argument("--rows", type=int, default=1_000_000, help="events in a file; a batch has two files")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--small", type=int, default=40, help="batches of 1000 events in the latency run")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        figures = measure(root, options)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    report(figures)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


def measure(root: Path, options: argparse.Namespace) -> dict[str, float]:
    """All figures."""
    say.print(f"writing {options.files * options.rows:,} events …")
    large = write_events(root / "large", options.files, options.rows)
    small = write_events(root / "small", options.small, 1000)
    say.print("cold start …")
    cold = cold_start(small)
    spark = get_session()
    say.print("throughput, batches of two files …")
    with PeakMemory() as memory:
        times = alternate(
            options.rounds,
            ceiling=lambda: spark_batches(spark, large, 2, aggregate=False),
            spark=lambda: spark_batches(spark, large, 2),
            headrace=lambda: headrace_batches(large, 2),
        )
    say.print("latency, batches of 1000 events …")
    delays = alternate(
        options.rounds, spark=lambda: spark_batches(spark, small, 1), headrace=lambda: headrace_batches(small, 1)
    )
    per_batch = 2 * options.rows
    rate = {name: per_batch / statistics.median(found) for name, found in times.items()}
    return {
        "events": options.files * options.rows,
        "ceiling_events_per_second": rate["ceiling"],
        "spark_events_per_second": rate["spark"],
        "headrace_events_per_second": rate["headrace"],
        "throughput_ratio": rate["headrace"] / rate["spark"],
        "spark_p50_seconds": statistics.median(delays["spark"]),
        "headrace_p50_seconds": statistics.median(delays["headrace"]),
        "latency_ratio": statistics.median(delays["headrace"]) / statistics.median(delays["spark"]),
        "cold_start_seconds": cold,
        "peak_memory_gb": memory.peak / 1e9,
    }


def report(figures: dict[str, float]) -> None:
    """The figures as a table, beside their goals."""
    table = Table(title=f"Headrace and Spark's own streaming, {figures['events']:,.0f} events", title_justify="left")
    for column in ("what", "Spark", "Headrace", "ratio", "goal"):
        table.add_column(column, justify="left" if column == "what" else "right")
    million = 1e6
    table.add_row(
        "read and drop: the ceiling of Spark's row path, M events/s",
        f"{figures['ceiling_events_per_second'] / million:.2f}",
        "",
        "",
        "",
    )
    table.add_row(
        "tumbling average per symbol, M events/s", f"{figures['spark_events_per_second'] / million:.2f}",
        f"{figures['headrace_events_per_second'] / million:.2f}", f"{figures['throughput_ratio']:.2f}", "≥ 2.0",
    )  # fmt: skip
    table.add_row(
        "p50 of a batch of 1000 events, ms", f"{figures['spark_p50_seconds'] * 1000:.0f}",
        f"{figures['headrace_p50_seconds'] * 1000:.0f}", f"{figures['latency_ratio']:.2f}", "≤ 1.6",
    )  # fmt: skip
    table.add_row("cold start to first answer, s", "", f"{figures['cold_start_seconds']:.1f}", "", "< 12")
    table.add_row("peak memory of all processes, GB", "", f"{figures['peak_memory_gb']:.1f}", "", "")
    say.print(table)


if __name__ == "__main__":
    main()
