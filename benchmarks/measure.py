"""What all benchmarks share: timing batches on both engines, taking turns, and the table of figures beside goals.

The machine may be noisy: only ratios inside one run mean anything, so the things to compare run in turns.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import headrace as hr
from headrace.host.local.run import run_local
from headrace.io.sinks import Nowhere
from headrace.plan.nodes import Output

__all__ = ["Row", "Section", "alternate", "headrace_batches", "local_batches", "rates", "say", "show", "spark_batches"]

BUCKETS = 2
#: Spark's own queries get its best: as many partitions as cores, state in RocksDB with change logs, no empty batches.
_STATE = "spark.sql.streaming.stateStore"
SPARKS_OWN = {
    "spark.sql.shuffle.partitions": str(BUCKETS),
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.checkpointFormatVersion": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
}
say = Console()


@dataclass(frozen=True)
class Row:
    """A line of the report: figures as they are shown, beside the goal."""

    what: str
    spark: str = ""
    headrace: str = ""
    ratio: str = ""
    goal: str = ""


@dataclass
class Section:
    """What one benchmark found: lines to show, and figures by name."""

    title: str
    rows: list[Row] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    #: What stands beside Headrace.
    beside: str = "Spark"


def headrace_batches(stream: hr.Stream, files_per_batch: int, most: int | None = None) -> list[float]:
    """Seconds per batch of a query on Spark whose answers are dropped; the first `most` of them, if that is given."""
    query = stream.start(Nowhere(), files_per_batch=files_per_batch, buckets=BUCKETS)
    if most is None:
        query.process_all_available()
    while most is not None and len(query.batch_seconds) < most:
        time.sleep(0.01)
    times = list(query.batch_seconds)
    query.stop()
    return times


def spark_batches(spark: SparkSession, frame: Callable[[], Any], mode: str) -> list[float]:
    """Seconds per batch of Spark's own query, RocksDB state and the same options, answers dropped."""
    for name, value in SPARKS_OWN.items():
        spark.conf.set(name, value)
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame().writeStream.format("noop").outputMode(mode)
        stream = writer.option("checkpointLocation", checkpoint).start()
        stream.processAllAvailable()
        times = _seconds(stream)
        stream.stop()
    return times


def _seconds(stream: Any) -> list[float]:
    done = [p for p in stream.recentProgress if p["numInputRows"]]
    return [p["durationMs"]["triggerExecution"] / 1000 for p in done]


def local_batches(stream: hr.Stream) -> list[float]:
    """CPU seconds per batch of a query in process, all threads, up to the last batch and without the end of input.

    The processor's time, not the wall's: other processes on the machine do not show in it.
    """
    stamps: list[float] = []

    def clock() -> int:
        stamps.append(time.process_time())  # the host asks for the time once for every batch of a source
        return 0

    run_local([Output(stream.node, "out")], clock=clock, finish=False, threads=1)
    stamps.append(time.process_time())
    return [after - before for before, after in pairwise(stamps)]


def alternate(rounds: int, **runs: Callable[[], list[float]]) -> dict[str, list[float]]:
    """Run each in turn, several times, so that a noisy minute hits all of them; first batches left out."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name, run in runs.items():
            found = run()
            times[name] += found[1:]
            shown = " ".join(f"{t:.2f}" for t in found[:12]) + (" …" if len(found) > 12 else "")
            say.print(f"  round {number + 1}: {name}: {shown} s", highlight=False)
    return times


def rates(times: dict[str, list[float]], events: float) -> dict[str, float]:
    """Events a second, by the median batch of so many events."""
    return {name: events / statistics.median(found) for name, found in times.items()}


def show(sections: Sequence[Section]) -> None:
    """One table a section."""
    for section in sections:
        table = Table(title=section.title, title_justify="left")
        for column in ("what", section.beside, "Headrace", "ratio", "goal"):
            table.add_column(column, justify="left" if column == "what" else "right")
        for row in section.rows:
            table.add_row(row.what, row.spark, row.headrace, row.ratio, row.goal)
        say.print(table)
