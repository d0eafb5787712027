"""The live host in process, with a checkpoint on disk: latency of small batches, cold start, throughput, memory."""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import psutil

from benchmarks.measure import Row, Section, alternate, rates, say
from benchmarks.throughput import average_of, cold_start, write_trades
from headrace.io.sinks import FileSink, Nowhere, Sink

__all__ = ["measure"]

BATCHES = 200


def measure(root: Path, options: argparse.Namespace) -> Section:
    """All figures, as a section of the report."""
    lasting = _lasting(root, options.lasting)  # first: what others have needed would show in it
    say.print("live: writing events …")
    small = write_trades(root / "small", BATCHES, 1000)
    large = write_trades(root / "large", max(4, options.files // 2), options.rows)
    say.print("cold start …")
    cold = min(cold_start(small, ", host='local'") for _ in range(3))
    say.print("latency, batches of 1000 events; throughput, batches of one file …")
    runs = _Runs(root)
    times = alternate(
        options.rounds,
        small=lambda: runs.run(small, Nowhere(), 1),
        files=lambda: runs.run(small, FileSink(path=str(root / f"out-{runs.count}")), 1),
        one=lambda: runs.run(large, Nowhere(), 1),
        two=lambda: runs.run(large, Nowhere(), 2),
        small_two=lambda: runs.run(small, Nowhere(), 2),
    )
    rate = rates({name: times[name] for name in ("one", "two")}, options.rows)
    figures = {
        "p50_seconds": statistics.median(times["small"]),
        "p99_seconds": _percentile(times["small"], 99),
        "files_p50_seconds": statistics.median(times["files"]),
        "files_p99_seconds": _percentile(times["files"], 99),
        "two_buckets_p50_seconds": statistics.median(times["small_two"]),
        "cold_start_seconds": cold,
        "events_per_second": rate["one"],
        "two_buckets_events_per_second": rate["two"],
        **lasting,
    }
    return Section("In process, live, with a checkpoint on disk", _rows(figures), figures)


class _Runs:
    """Runs of the tumbling average, each with a checkpoint of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.count = root, 0

    def run(self, folder: Path, sink: Sink, buckets: int) -> list[float]:
        """Seconds per batch of one file."""
        self.count += 1
        query = average_of(folder).start(
            sink, host="local", checkpoint=str(self.root / f"state-{self.count}"), files_per_batch=1, buckets=buckets
        )
        query.process_all_available()
        times = list(query.batch_seconds)
        query.stop()
        return times


def _percentile(times: list[float], percent: int) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[percent - 1]


def _lasting(root: Path, batches: int) -> dict[str, float]:
    """Memory after a quarter of many small batches and after all of them, and the most files the store had."""
    say.print(f"memory and files over {batches:,} batches of 100 events …")
    folder, state = write_trades(root / "lasting", batches, 100), root / "state-lasting"
    query = average_of(folder).start(Nowhere(), host="local", checkpoint=str(state), files_per_batch=1)
    early, files = 0, 0
    while query.is_active and query.progress().get("batch", -1) < batches - 1:
        files = max(files, sum(1 for path in (state / "store").glob("[!.]*/*")))
        if not early and query.progress().get("batch", -1) >= batches // 4:
            early = psutil.Process().memory_info().rss
        query.await_termination(0.05)
    late = psutil.Process().memory_info().rss
    query.stop()
    return {"memory_growth": late / early, "memory_gb": late / 1e9, "most_files": float(files)}


def _rows(figures: dict[str, float]) -> list[Row]:
    def ms(name: str) -> str:
        return f"{figures[name] * 1000:.1f}"

    return [
        Row("p50 of a batch of 1000 events, ms", "", ms("p50_seconds"), "", "≤ 10"),
        Row("p99 of a batch of 1000 events, ms", "", ms("p99_seconds"), "", "≤ 40"),
        Row("p50 of the same in two buckets, ms", "", ms("two_buckets_p50_seconds")),
        Row("p50 of the same into JSON files, ms", "", ms("files_p50_seconds")),
        Row("p99 of the same into JSON files, ms", "", ms("files_p99_seconds")),
        Row("cold start to first answer, s", "", f"{figures['cold_start_seconds']:.2f}", "", "≤ 1.5"),
        Row("tumbling average per symbol, M events/s", "", f"{figures['events_per_second'] / 1e6:.2f}"),
        Row("the same in two buckets, M events/s", "", f"{figures['two_buckets_events_per_second'] / 1e6:.2f}"),
        Row("memory after many batches ÷ after a quarter of them", "", "", f"{figures['memory_growth']:.2f}", "≤ 1.1"),
        Row("files of the store at most", "", f"{figures['most_files']:.0f}"),
    ]
