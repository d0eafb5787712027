"""What a cluster would do: costs at 1 to 16 buckets on this machine, and a small model that goes on from there.

Two queries run on Spark: the average per symbol, whose rows are combined before the shuffle, and an interval join with
an aggregate, whose rows are shuffled. For each number of buckets:

- small batches of a thousand events, where nearly all is fixed cost: seconds of a batch, and of the driver in it, that
  is planning, the commit and the reports, without the job;
- large batches: seconds of processor of all workers for an event, bytes between stages, bytes of state, of a commit.

A batch on `c` cores with `b` buckets is modelled as `fixed + driver · b + (task · b + events · cpu) / c`: small
batches and the driver in them are fitted by least squares as `fixed + slope · b`; the driver's slope is serial, and
what is left of a batch's is the work of tasks, which share the cores. Network is not measured here; bytes between
stages for an event say what it would carry. The model is a guess about other machines, made of measurements of this
one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import psutil
import pyarrow as pa

import headrace as hr
from benchmarks.measure import Row, Section, say
from benchmarks.throughput import write_trades
from headrace import col
from headrace.host.spark.session import get_session
from headrace.host.spark.worker import SparkExecutor
from headrace.io.sinks import Nowhere
from headrace.stages.message import Message
from headrace.stages.stage import StageRun
from headrace.store.log import Commit

__all__ = ["measure"]

BUCKETS = (1, 2, 4, 8, 16)
_SMALL, _LARGE, _ROWS = 25, 4, 1_000_000


def _average(folder: Path) -> hr.Stream:
    events = hr.read_parquet(str(folder), lifetime=hr.point("ts"), progress=hr.advance("5 s"))
    return events.group_by("symbol").window(hr.tumbling("10 s")).aggregate(price=hr.avg("price"))


def _join(folder: Path) -> hr.Stream:
    events = hr.read_parquet(str(folder), lifetime=hr.point("ts"), progress=hr.advance("5 s"))
    large = events.where(col("quantity") > 950).select("symbol", size=col("quantity")).set_duration("5 s")
    return events.join(large, on="symbol").group_by("symbol").window(hr.tumbling("10 s")).aggregate(n=hr.count())


QUERIES: dict[str, Callable[[Path], hr.Stream]] = {"average": _average, "join": _join}


@dataclass(frozen=True)
class Costs:
    """What one number of buckets costs."""

    buckets: int
    #: Seconds of a small batch, and of the driver in it.
    batch: float
    driver: float
    #: Seconds of processor, and bytes between stages, for an event of a large batch.
    cpu: float
    shuffled: float
    #: Bytes of the state, of a commit, and of the small blocks of state that are in it.
    state: float
    commit: float
    inline: float


def measure(root: Path, options: argparse.Namespace) -> Section:  # noqa: ARG001 - all are called alike
    """Costs by buckets, and what follows from them for 100 cores."""
    section = Section("What a cluster would do")
    small, large = write_trades(root / "small", _SMALL, 1000), write_trades(root / "large", _LARGE, _ROWS)
    get_session()
    for name, query in QUERIES.items():
        costs = [_costs(root, name, query, small, large, buckets) for buckets in BUCKETS]
        for cost in costs:
            shown = (
                f"{cost.batch * 1000:.0f} ms, driver {cost.driver * 1000:.0f} ms, {cost.cpu * 1e9:.0f} ns and "
                f"{cost.shuffled:.1f} B an event, state {cost.state / 1e6:.1f} MB, commit {cost.commit / 1e3:.0f} kB "
                f"and {cost.inline / 1e3:.0f} kB of small blocks"
            )
            section.rows.append(Row(f"{name}, {cost.buckets} buckets", "", shown))
            section.figures |= {f"{name} {cost.buckets} {key}": value for key, value in vars(cost).items()}
        _predict(section, name, costs)
    return section


def _costs(root: Path, name: str, query: Callable[[Path], hr.Stream], small: Path, large: Path, buckets: int) -> Costs:
    say.print(f"cluster: {name}, {buckets} buckets …")
    with _Watched() as watched:
        times = _run(query(small), root / f"small-{name}-{buckets}", buckets)[0]
    driver = statistics.median(b - r for b, r in zip(times[3:], watched.job_seconds[3:], strict=False))
    before = _busy()
    with _Watched() as watched:
        _, *sizes = _run(query(large), root / f"large-{name}-{buckets}", buckets)
    events = _LARGE * _ROWS
    return Costs(buckets, statistics.median(times[3:]), driver, (_busy() - before) / events,
                 _shuffled(query(large), buckets) / events, *sizes)  # fmt: skip


def _run(stream: hr.Stream, checkpoint: Path, buckets: int) -> tuple[list[float], float, float, float]:
    """Seconds of every batch; the bytes of the state, and of the last commit without and in its small blocks.

    Blocks of a task up to 64 kB are in the commit, and stay in the next ones until they are a megabyte together: what
    they add says nothing about how a commit grows with buckets.
    """
    query = stream.start(Nowhere(), checkpoint=str(checkpoint), files_per_batch=1, buckets=buckets)
    query.process_all_available()
    state = sum(operator["bytes"] for operator in query.progress()["operators"])
    times = list(query.batch_seconds)
    query.stop()
    last = max((checkpoint / "store" / "commits").iterdir())
    inline = sum(map(len, Commit.unpacked(last.name, pa.py_buffer(last.read_bytes())).inline.values()))
    return times, float(state), float(last.stat().st_size - inline), float(inline)


class _Watched:
    """Times the jobs of batches: what is left of a batch is the driver's."""

    def __enter__(self) -> Self:
        self.job_seconds: list[float] = []
        self._run = SparkExecutor.run

        def run(executor: Any, batch: Any) -> Any:
            started = time.monotonic()
            try:
                return self._run(executor, batch)
            finally:
                self.job_seconds.append(time.monotonic() - started)

        SparkExecutor.run = run  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        SparkExecutor.run = self._run  # type: ignore[method-assign]


def _shuffled(stream: hr.Stream, buckets: int) -> int:
    """The bytes of rows between levels, in a run in process."""
    total, step = 0, StageRun.step

    def counted(self: Any, messages: Any, **options: Any) -> list[Message]:
        nonlocal total
        arrived = list(messages)
        total += sum(m.table.nbytes for m in arrived if m.edge >= 0 and m.table is not None)
        return step(self, arrived, **options)

    StageRun.step = counted  # type: ignore[method-assign]
    try:
        stream.run(buckets=buckets, threads=1)
    finally:
        StageRun.step = step  # type: ignore[method-assign]
    return total


def _busy() -> float:
    """Seconds of processor of this process and all its children."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(p.cpu_times()[:2]) for p in processes)


def _predict(section: Section, name: str, costs: list[Costs]) -> None:
    """A batch on 100 cores with a bucket for each, with events for one second of work of every core."""
    buckets = np.array([cost.buckets for cost in costs], float)
    fits = {
        part: np.polyfit(buckets, [getattr(cost, part) for cost in costs], 1) for part in ("batch", "driver", "commit")
    }
    cores, cpu = 100, statistics.median(cost.cpu for cost in costs)
    here, serial = psutil.cpu_count() or 1, max(float(fits["driver"][0]), 0.0)
    task = max(float(fits["batch"][0]) - serial, 0.0) * here
    fixed = {
        "batch": float(fits["batch"][1]) + serial * cores + task,
        "driver": float(fits["driver"][1]) + serial * cores,
        "commit": float(np.polyval(fits["commit"], cores)),
    }
    events = cores / cpu
    seconds = fixed["batch"] + events * cpu / cores
    shown = (
        f"{events / seconds / 1e6:.0f} M events/s in batches of {seconds:.1f} s, {fixed['batch']:.2f} s of them fixed "
        f"(driver {fixed['driver']:.2f} s, commit {fixed['commit'] / 1e6:.2f} MB), "
        f"{events * costs[-1].shuffled / seconds / 1e6:,.0f} MB/s between stages"
    )
    section.rows.append(Row(f"{name}, model of 100 cores and buckets", "", shown))
    section.figures |= {f"{name} 100 cores {part}": value for part, value in fixed.items()}
    section.figures[f"{name} 100 cores events_per_second"] = events / seconds
