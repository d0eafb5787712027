"""A checkpoint on an object store beside one on disk: the live host in process, and an S3 server on this machine.

Two queries: an average per symbol, whose state is small, and sums per order, whose state grows by all that comes in.
The server needs the same cores and the same disk as the query: what it takes is in the figure.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.fixtures.s3_server import BUCKET, serve

import headrace as hr
from benchmarks.measure import Row, Section, alternate, rates, say
from benchmarks.throughput import average_of, write_trades
from headrace.io.sinks import Nowhere

__all__ = ["measure"]


def measure(root: Path, options: argparse.Namespace) -> Section:
    """Throughput at batches of one file."""
    say.print("object store: writing events …")
    files = max(4, options.files // 2)
    trades = write_trades(root / "trades", files, options.rows)
    orders = _write_orders(root / "orders", files, options.rows)
    (root / "server").mkdir()
    with serve(root / "server") as server:
        os.environ.update(server.environment)
        runs = _Runs()
        say.print("throughput, batches of one file, on disk and on S3 …")
        times = alternate(
            options.rounds,
            disk=lambda: runs.run(lambda: average_of(trades), str(root / "state")),
            s3=lambda: runs.run(lambda: average_of(trades), f"s3://{BUCKET}/state"),
            growing_disk=lambda: runs.run(lambda: _sums_of(orders), str(root / "state")),
            growing_s3=lambda: runs.run(lambda: _sums_of(orders), f"s3://{BUCKET}/state"),
        )
    rate = rates(times, options.rows)
    figures = {
        "s3_by_disk": rate["s3"] / rate["disk"],
        "growing_s3_by_disk": rate["growing_s3"] / rate["growing_disk"],
        **{f"{name}_events_per_second": value for name, value in rate.items()},
    }
    return Section("Checkpoint on S3, a server on this machine", _rows(figures), figures)


class _Runs:
    """Runs with a checkpoint of their own each."""

    def __init__(self) -> None:
        self.count = 0

    def run(self, stream: Callable[[], hr.Stream], place: str) -> list[float]:
        """Seconds per batch of one file."""
        self.count += 1
        query = stream().start(Nowhere(), host="local", checkpoint=f"{place}-{self.count}", files_per_batch=1)
        query.process_all_available()
        times = list(query.batch_seconds)
        query.stop()
        return times


def _write_orders(folder: Path, files: int, rows: int) -> Path:
    folder.mkdir()
    for number in range(files):
        draw = np.random.default_rng(number)
        times = draw.integers(number * 1000, number * 1000 + 1000, rows)
        table = pa.table({"t": times, "number": draw.integers(0, rows, rows), "v": draw.integers(0, 100, rows)})
        pq.write_table(table, folder / f"{number:03d}.parquet")
        os.utime(folder / f"{number:03d}.parquet", (number + 1, number + 1))
    return folder


def _sums_of(folder: Path) -> hr.Stream:
    """Nothing is ever final before the end: all groups of all windows are remembered."""
    rows = hr.read_parquet(str(folder), lifetime=hr.point("t"), progress=hr.advance(delay=10**9))
    return rows.group_by("number").window(hr.tumbling(10_000)).aggregate(s=hr.sum("v"), n=hr.count())


def _rows(figures: dict[str, float]) -> list[Row]:
    def rate(name: str) -> str:
        return f"{figures[f'{name}_events_per_second'] / 1e6:.2f}"

    return [
        Row("average per symbol, on disk, M events/s", "", rate("disk")),
        Row("the same on S3, M events/s, and ÷ on disk", "", rate("s3"), f"{figures['s3_by_disk']:.2f}", "≥ 0.8"),
        Row("sums per order, state that grows, on disk, M events/s", "", rate("growing_disk")),
        Row(
            "the same on S3, M events/s, and ÷ on disk",
            "",
            rate("growing_s3"),
            f"{figures['growing_s3_by_disk']:.2f}",
            "≥ 0.8",
        ),
    ]
