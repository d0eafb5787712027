"""Cost grows as it should: ratios of processor time between runs of the local host that differ in one thing.

- The size of hopping windows, with the same hop and groups that have events in every window: sums, counts, and the
  least and greatest values do not depend on it.
- How long a join has been running, while CTIs advance: a change costs what it matches.
- The content of a window, for a user's aggregate that looks at all of it each time: in proportion.
- The number of groups, for equal events.
- All operators, by everything that may grow: the table of `benchmarks/growth_table.py`.

Only the steady state counts: batches before the windows are full are left out, and so is the end of input.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

import headrace as hr
from benchmarks.growth_table import measured_lines, note
from benchmarks.measure import Row, Section, local_batches, say
from headrace import col
from headrace.expr import Expr
from headrace.io.generator import Ticks, plain_ticks, write_files

__all__ = ["measure"]

Run = Callable[[], float]


def measure(root: Path, options: argparse.Namespace) -> Section:
    """All ratios, as a section of the report."""
    section = Section("How cost grows in process: CPU seconds of a batch, small and large")
    _windows(section, root, options.rounds)
    _join(section, root, options.rounds)
    _module(section, root, options.rounds)
    _groups(section, root, options.rounds)
    _all_operators(section, options.share)
    return section


def _all_operators(section: Section, share: float) -> None:
    say.print("all operators …")
    for growth in measured_lines([], share, rounds=1):
        name = f"{growth.line}, {growth.dimension}"
        section.rows.append(Row(name, "", growth.shown, f"{growth.ratio:.2f}", note(growth)))
        section.figures[name] = growth.ratio


def _trades(root: Path, files: int, rows: int, symbols: int, seconds: float, disorder: float = 0.0) -> hr.Stream:
    """Trades in so many files, each of so many seconds of stream time."""
    folder = root / f"{files}-{rows}-{symbols}-{seconds}"
    if not folder.exists():
        config = Ticks(
            files * rows, seed=1, symbols=symbols, rate_per_second=rows / seconds, disorder=disorder, max_delay="1 s"
        )
        write_files(plain_ticks(config), str(folder), files)
    return hr.read_parquet(str(folder), lifetime=hr.point("ts"), progress=hr.advance("2 s"))


def _typical(stream: hr.Stream, skip: int) -> float:
    """CPU seconds of the median batch after the first ones."""
    return statistics.median(local_batches(stream)[skip:])


def _turns(rounds: int, small: Run, large: Run) -> tuple[float, float]:
    """The least time of each, of several turns: noise only ever adds."""
    pairs = [(small(), large()) for _ in range(rounds)]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def _add(section: Section, name: str, what: str, times: tuple[float, float], goal: str, per: float = 1.0) -> None:
    ratio = times[1] / times[0] / per
    shown = f"{times[0] * 1000:.1f} → {times[1] * 1000:.1f} ms"
    say.print(f"  {what}: {shown}, ratio {ratio:.2f}", highlight=False)
    section.rows.append(Row(what, "", shown, f"{ratio:.2f}", goal))
    section.figures[f"{name}_ratio"] = ratio


def _windows(section: Section, root: Path, rounds: int) -> None:
    say.print("windows 100 times larger …")
    trades = _trades(root, files=30, rows=50_000, symbols=50, seconds=50)

    def run(size: str, **outputs: Expr) -> float:
        windows = trades.group_by("symbol").window(hr.hopping(size, every="1 s"))
        return _typical(windows.aggregate(**outputs), 15)  # 750 s have passed: all windows are full

    sums = {"n": hr.count(), "total": hr.sum("quantity"), "price": hr.avg("price")}
    times = _turns(rounds, lambda: run("5 s", **sums), lambda: run("500 s", **sums))
    _add(section, "window_sums", "hopping window 5 s → 500 s every 1 s: count, sum, avg", times, "< 1.3")
    ends = {"low": hr.min("price"), "high": hr.max("price")}
    times = _turns(rounds, lambda: run("5 s", **ends), lambda: run("500 s", **ends))
    _add(section, "window_extremes", "the same: min, max", times, "< 1.5")


def _join(section: Section, root: Path, rounds: int) -> None:
    say.print("a join that has been running …")
    trades = _trades(root, files=48, rows=20_000, symbols=1000, seconds=20, disorder=0.1)
    lasting = trades.set_duration("5 s")
    large = lasting.where(col("quantity") > 900).select("symbol", size=col("quantity"))
    joined = lasting.join(large, on="symbol")
    early, late = [], []
    for _ in range(rounds):
        batches = local_batches(joined)[4:]  # until the first events have ended
        quarter = len(batches) // 4
        early.append(statistics.median(batches[:quarter]))
        late.append(statistics.median(batches[-quarter:]))
    what = "join: a batch in the first and the last quarter of a run"
    _add(section, "join_history", what, (min(early), min(late)), "about 1, < 1.3")


class _Middle(hr.Aggregate):
    """The middle one of the values in order."""

    input = "price DOUBLE"
    output = "DOUBLE"

    def compute(self, prices: list[float]) -> float:
        return sorted(prices)[len(prices) // 2]


def _module(section: Section, root: Path, rounds: int) -> None:
    say.print("a user's aggregate over more content …")
    trades = _trades(root, files=20, rows=5_000, symbols=10, seconds=50)

    def run(size: str) -> float:
        windows = trades.group_by("symbol").window(hr.hopping(size, every="10 s"))
        return _typical(windows.aggregate(middle=_Middle().of("price")), 10)

    times = _turns(rounds, lambda: run("40 s"), lambda: run("400 s"))
    what = "a user's aggregate, ten times the content: time by content"
    _add(section, "module_content", what, times, "about 1, < 1.3", per=10.0)


def _groups(section: Section, root: Path, rounds: int) -> None:
    say.print("10 groups and 100 000 …")
    few = _trades(root, files=6, rows=1_000_000, symbols=10, seconds=20)
    many = _trades(root, files=6, rows=1_000_000, symbols=100_000, seconds=20)

    def run(trades: hr.Stream) -> float:
        average = trades.group_by("symbol").window(hr.tumbling("10 s")).aggregate(price=hr.avg("price"))
        return _typical(average, 1)

    what = "tumbling average, 10 → 100 000 groups, equal events"
    _add(section, "groups", what, _turns(rounds, lambda: run(few), lambda: run(many)), "< 2")
    folders = [root / f"6-1000000-{symbols}-20" for symbols in (10, 100_000)]
    times = _turns(rounds, *(lambda folder=folder: _in_duckdb(folder) for folder in folders))
    _add(section, "groups_duckdb", "the same in DuckDB, all files at once", times, "to compare with")


def _in_duckdb(folder: Path) -> float:
    """CPU seconds of the tumbling average in DuckDB, by one thread."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; SET preserve_insertion_order = false; SET TimeZone = 'UTC'")
        connection.read_parquet(f"{folder}/*.parquet").create_view("trades")
        query = "SELECT epoch_us(ts) // 10000000 AS le, symbol, avg(price) AS price FROM trades GROUP BY 1, 2"
        start = time.process_time()
        connection.sql(query).to_arrow_table()
        return time.process_time() - start
