"""A long stream through five queries, live in process, with a checkpoint on disk: linear in events, flat in memory?

`make bench ARGS="--only scale"` takes 10 million events; by hand `--events 500_000_000` is a day of data, which has not
been run yet. A batch is a file of a million events. Times are the processor's, all threads counted, and the clock's;
memory is that of the process without pages of mapped files. Each is compared between the second tenth of the run and
the last: events that a query has seen must not show in what the next one costs.

Trades have 100,000 keys, 50,000 of them come in a second; a twentieth come up to two seconds late.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks.measure import Row, Section, say
from headrace import col, count
from headrace.io.sinks import Nowhere

__all__ = ["measure"]

_ROWS, _KEYS, _RATE = 1_000_000, 100_000, 50_000
_LATE = 2_000_000


def measure(root: Path, options: argparse.Namespace) -> Section:
    """Every query over the same files."""
    files = max(10, options.events // _ROWS)
    say.print(f"scale: writing {files * _ROWS:,} events …")
    _write(root / "trades", files)
    section = Section(f"{files * _ROWS:,} events, live in process, in batches of {_ROWS:,}")
    chosen = [name for name in QUERIES if not options.queries or name in options.queries]
    for name in chosen:
        _run(section, root, name, files)
    return section


def _write(folder: Path, files: int) -> None:
    """Files in the order of arrival, made one by one, so that any number of events fits in memory."""
    folder.mkdir(parents=True)
    oldest = time.time_ns() - files * 1_000_000
    for number in range(files):
        rng = np.random.default_rng(number)
        arrival = (number * _ROWS + np.arange(_ROWS)) * 1_000_000 // _RATE
        delay = np.where(rng.random(_ROWS) < 0.05, rng.integers(0, _LATE, _ROWS), 0)
        keys = np.minimum(rng.integers(0, _KEYS, _ROWS), rng.integers(0, _KEYS, _ROWS))  # low ones are more frequent
        price = 100 + keys % 400 + rng.integers(-100, 100, _ROWS) / 100
        table = pa.table(
            {
                "key": keys,
                "ts": pa.array(arrival - delay, pa.timestamp("us", "UTC")),
                "price": price,
                "up": price % 1 > 0.5,
            }
        )
        path = folder / f"{number:06d}.parquet"
        pq.write_table(table, path, compression="snappy")
        stamp = oldest + number * 1_000_000
        os.utime(path, ns=(stamp, stamp))


def _trades(root: Path) -> hr.Stream:
    return hr.read_parquet(str(root / "trades"), lifetime=hr.point("ts"), progress=hr.advance("2 s"))


def _average(root: Path) -> hr.Stream:
    return _trades(root).group_by("key").window(hr.tumbling("10 s")).aggregate(price=hr.avg("price"))


def _hopping(root: Path) -> hr.Stream:
    return _trades(root).group_by("key").window(hr.hopping("10 s", every="2 s")).aggregate(n=hr.count())


def _join(root: Path) -> hr.Stream:
    """Trades of the five seconds after a trade at an unusual price of the same key."""
    unusual = _trades(root).where(col("price") % 1 > 0.98).select("key", high=col("price")).set_duration("5 s")
    return _trades(root).join(unusual, on="key").window(hr.tumbling("10 s")).aggregate(n=hr.count())


def _sessions(root: Path) -> hr.Stream:
    return _trades(root).group_by("key").window(hr.session("2 s")).aggregate(n=hr.count(), high=hr.max("price"))


def _pattern(root: Path) -> hr.Stream:
    """Three rises and a fall within ten seconds."""
    shape = hr.pattern("U{3} D", define={"U": col("up"), "D": ~col("up")}, within="10 s").skip("past last row")
    return _trades(root).group_by("key").match(shape, n=count())


QUERIES: dict[str, Callable[[Path], hr.Stream]] = {
    "average": _average,
    "hopping": _hopping,
    "join": _join,
    "sessions": _sessions,
    "pattern": _pattern,
}


def _run(section: Section, root: Path, name: str, files: int) -> None:
    say.print(f"scale: {name} …")
    process, marks = psutil.Process(), list[tuple[float, float]]()
    started, busy = time.monotonic(), time.process_time()
    query = QUERIES[name](root).start(
        Nowhere(), host="local", checkpoint=str(root / f"state-{name}"), files_per_batch=1
    )
    state = 0
    while query.is_active and query.progress().get("batch", -1) < files - 1:
        query.await_termination(0.05)
        while len(marks) < len(query.batch_seconds):
            memory = process.memory_info()
            marks.append((time.process_time() - busy, float(memory.rss - memory.shared)))
            operators = query.progress().get("operators", [])
            state = max(state, sum(operator["bytes"] for operator in operators))
    seconds, taken = time.monotonic() - started, time.process_time() - busy
    query.stop()
    tenth = max(2, len(marks) // 10)
    early, late = ((part[-1][0] - part[0][0]) / (len(part) - 1) for part in (marks[tenth : 2 * tenth], marks[-tenth:]))
    before, after = (statistics.median(m for _, m in part) for part in (marks[tenth : 2 * tenth], marks[-tenth:]))
    rate = files * _ROWS / seconds
    shown = f"{seconds:,.0f} s, {rate / 1e6:.2f} M/s, {taken:,.0f} CPU s, state {state / 1e6:,.0f} MB"
    section.rows.append(Row(name, "", shown))
    section.rows.append(
        Row("  CPU of a batch, late ÷ early", "", f"{early:.2f} → {late:.2f} s", f"{late / early:.2f}", "≤ 1.1")
    )
    memory_shown = f"{before / 1e6:,.0f} → {after / 1e6:,.0f} MB"
    section.rows.append(Row("  memory, late ÷ early", "", memory_shown, f"{after / before:.2f}", "≤ 1.1"))
    section.figures |= {
        f"{name}_seconds": seconds, f"{name}_events_per_second": rate, f"{name}_growth": late / early,
        f"{name}_memory_growth": after / before, f"{name}_state_bytes": float(state),
    }  # fmt: skip
