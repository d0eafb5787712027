"""Six queries in process, on one core and on two, beside DuckDB and Polars in batch mode.

The files and batches are those of the auction house (`nexmark.py`): a tenth of the events come up to two seconds late,
a file is a batch. Headrace answers after every batch and corrects itself; the two others see all files at once and
answer once, so their rates are a bound, not a rival's.

Before a speed is reported the answers are compared with DuckDB's, row by row. DuckDB has no patterns: the matches of
the W query are compared with the pattern written as a regular expression over each group's rises and falls.

*One core*: one thread; events by seconds of the processor, the least of several turns. *Two cores*: two threads, and as
many buckets as a run chooses; events by seconds of the clock.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks.measure import Row, Section, say
from headrace import col, count
from headrace.host.local.run import run_local
from headrace.io.generator import Auctions, auctions, bids, persons, write_files
from headrace.plan.nodes import Output

__all__ = ["measure"]

FILES, CORES = 12, 2
PERIOD = 10_000_000
#: Groups of the W query.
GROUPS = 1000


@dataclass(frozen=True)
class Query:
    """A query, the same in SQL and for Polars, and the speeds it should reach in millions of events a second."""

    name: str
    title: str
    reads: tuple[str, ...]
    headrace: Callable[[Path], hr.Stream]
    #: Columns in the order of the history: start, then the payload. Empty: DuckDB cannot say it.
    duckdb: str
    polars: Callable[[dict[str, pl.LazyFrame]], pl.LazyFrame] | None
    goals: tuple[float, float]


# --- Headrace --------------------------------------------------------------------------------------------------------


def _read(root: Path, name: str, lifetime: Any) -> hr.Stream:
    return hr.read_parquet(str(root / name), lifetime=lifetime, progress=hr.advance("5 s"))


def _max(root: Path) -> hr.Stream:
    return _read(root, "bids", hr.point("ts")).window(hr.tumbling("10 s")).aggregate(price=hr.max("price"))


def _average(root: Path) -> hr.Stream:
    grouped = _read(root, "bids", hr.point("ts")).group_by("auction")
    return grouped.window(hr.tumbling("10 s")).aggregate(price=hr.avg("price"))


def _hopping(root: Path) -> hr.Stream:
    grouped = _read(root, "bids", hr.point("ts")).group_by("auction")
    return grouped.window(hr.hopping("10 s", every="2 s")).aggregate(n=hr.count())


def _persons(root: Path) -> hr.Stream:
    period = hr.tumbling("10 s")
    new = _read(root, "persons", hr.point("ts")).group_by("id", "name").window(period).aggregate(registered=hr.count())
    selling = _read(root, "auctions", hr.point("ts")).group_by("seller").window(period).aggregate(opened=hr.count())
    return new.join(selling, on={"id": "seller"}).select("id", "name")


def _bids(root: Path) -> hr.Stream:
    period = hr.tumbling("10 s")
    on_sale = _read(root, "auctions", hr.interval("ts", "expires"))
    joined = _read(root, "bids", hr.point("ts")).join(on_sale, on={"auction": "id"})
    highest = joined.group_by("auction", "category").window(period).aggregate(price=hr.max("price"))
    return highest.group_by("category").window(period).aggregate(price=hr.avg("price"))


def _w(root: Path) -> hr.Stream:
    up, back = col("up"), count("D") == count("U") - 1
    w = hr.pattern("U D+ U+ D+ U+", define={"U": up, "D": ~up}, where=back, within=30 * GROUPS)
    ticks = hr.read_parquet(str(root / "steps"), lifetime=hr.point("at"), progress=hr.ordered())
    return ticks.group_by("symbol").match(w.skip("past last row"), n=count(), falls=count("D"))


# --- Polars ----------------------------------------------------------------------------------------------------------


def _start(frame: pl.LazyFrame, period: int = PERIOD) -> pl.LazyFrame:
    return frame.with_columns(le=pl.col("ts").dt.epoch("us") // period * period)


def _polars_hopping(frames: dict[str, pl.LazyFrame]) -> pl.LazyFrame:
    hop = PERIOD // 5
    panes = _start(frames["bids"], hop).group_by("auction", "le").agg(n=pl.len())
    windows = [panes.with_columns(le=pl.col("le") - hop * back) for back in range(5)]
    return pl.concat(windows).group_by("auction", "le").agg(n=pl.col("n").sum())


def _polars_persons(frames: dict[str, pl.LazyFrame]) -> pl.LazyFrame:
    new = _start(frames["persons"]).select("id", "name", "le").unique()
    selling = _start(frames["auctions"]).select("seller", "le").unique()
    return new.join(selling, left_on=["id", "le"], right_on=["seller", "le"])


def _polars_bids(frames: dict[str, pl.LazyFrame]) -> pl.LazyFrame:
    on_sale = frames["auctions"].select("id", "category", "expires", opened="ts")
    joined = frames["bids"].join(on_sale, left_on="auction", right_on="id")
    during = joined.filter((pl.col("ts") >= pl.col("opened")) & (pl.col("ts") < pl.col("expires")))
    highest = _start(during).group_by("auction", "category", "le").agg(pl.col("price").max())
    return highest.group_by("category", "le").agg(pl.col("price").mean())


QUERIES = (
    Query("max", "global maximum, 10 s", ("bids",), _max,
          "SELECT start(ts) AS le, max(price) AS price FROM bids GROUP BY 1",
          lambda f: _start(f["bids"]).group_by("le").agg(pl.col("price").max()), (20, 34)),
    Query("average", "tumbling average per auction, 10 s", ("bids",), _average,
          "SELECT start(ts) AS le, auction, avg(price) AS price FROM bids GROUP BY 1, 2",
          lambda f: _start(f["bids"]).group_by("auction", "le").agg(pl.col("price").mean()), (12, 20)),
    Query("hopping", "hopping count per auction, 10 s every 2 s", ("bids",), _hopping,
          "SELECT epoch_us(ts) // 2000000 * 2000000 - back AS le, auction, count(*) AS n "
          "FROM bids, (SELECT unnest([0, 2000000, 4000000, 6000000, 8000000]) AS back) GROUP BY 1, 2",
          _polars_hopping, (8, 13)),
    Query("persons", "window join: persons and their auctions", ("persons", "auctions"), _persons,
          "SELECT a.le, a.id, a.name FROM (SELECT DISTINCT id, name, start(ts) AS le FROM persons) a "
          "JOIN (SELECT DISTINCT seller, start(ts) AS le FROM auctions) b ON a.id = b.seller AND a.le = b.le",
          _polars_persons, (2.5, 4)),
    Query("bids", "interval join, two aggregates", ("bids", "auctions"), _bids,
          "SELECT le, category, avg(price) AS price FROM (SELECT start(b.ts) AS le, "
          "b.auction, a.category, max(b.price) AS price FROM bids b JOIN auctions a "
          "ON b.auction = a.id AND b.ts >= a.ts AND b.ts < a.expires GROUP BY 1, 2, 3) GROUP BY 1, 2",
          _polars_bids, (4, 6.5)),
    Query("w", "W pattern, 1,000 groups", ("steps",), _w, "", None, (1.5, 2.5)),
)  # fmt: skip

_EVENTS = {"persons": 960_000, "bids": 5_880_000, "w": 2_000_000}
#: The share of an auction house's events that each stream has.
_SHARES = {"persons": 1 / 50, "auctions": 3 / 50, "bids": 46 / 50}


# --- measuring -------------------------------------------------------------------------------------------------------


def measure(root: Path, options: argparse.Namespace) -> Section:
    """Each query with its answers checked, in turns with the others."""
    chosen = [query for query in QUERIES if not options.queries or query.name in options.queries]
    section = Section("Six queries in process: M events/s; DuckDB in batch mode in place of Spark")
    for query in chosen:
        folder = root / "-".join(query.reads)
        events = round(_EVENTS.get(query.name, 5_520_000) * options.share)
        if not folder.exists():
            say.print(f"{query.title}: writing {events:,} events …")
            _write(folder, query, events)
        _check(query, folder)
        _compare(section, query, folder, events, options.rounds)
    return section


def _write(folder: Path, query: Query, events: int) -> None:
    if query.name == "w":
        write_files(_steps(events), str(folder / "steps"), FILES)
        return
    share = sum(_SHARES[name] for name in query.reads)
    rows = round(events / share)
    house = Auctions(rows, seed=1, rate_per_second=rows / 300, disorder=0.1, max_delay="2 s", open_for="60 seconds")
    for name, stream in (("persons", persons), ("auctions", auctions), ("bids", bids)):
        if name in query.reads:
            write_files(stream(house), str(folder / name), FILES)


def _steps(events: int) -> pa.Table:
    rng = np.random.default_rng(0)
    symbols, up = rng.integers(0, GROUPS, events), rng.random(events) < 0.5
    return pa.table({"at": np.arange(events, dtype=np.int64), "symbol": symbols, "up": up})


def _run(stream: hr.Stream, cores: int) -> tuple[float, float]:
    """Seconds of the clock and of the processor, to the end of the input."""
    clock, busy = time.perf_counter(), time.process_time()
    run_local([Output(stream.node, "out")], threads=cores)
    return time.perf_counter() - clock, time.process_time() - busy


def _in_duckdb(query: Query, folder: Path, cores: int) -> tuple[pa.Table, float]:
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {cores}; SET preserve_insertion_order = false; SET TimeZone = 'UTC'")
        connection.execute(f"CREATE MACRO start(ts) AS epoch_us(ts) // {PERIOD} * {PERIOD}")
        for name in query.reads:
            connection.read_parquet(f"{folder / name}/*.parquet").create_view(name)
        clock = time.perf_counter()
        table = connection.sql(query.duckdb).to_arrow_table()
        return table, time.perf_counter() - clock


def _in_polars(query: Query, folder: Path) -> float:
    assert query.polars is not None
    frames = {name: pl.scan_parquet(f"{folder / name}/*.parquet") for name in query.reads}
    clock = time.perf_counter()
    query.polars(frames).collect(engine="streaming")
    return time.perf_counter() - clock


def _compare(section: Section, query: Query, folder: Path, events: int, rounds: int) -> None:
    stream = query.headrace(folder)
    seconds: dict[str, list[float]] = {"one": [], "two": [], "duckdb 1": [], "duckdb 2": [], "polars": []}
    for _ in range(rounds):
        seconds["one"].append(_run(stream, 1)[1])
        seconds["two"].append(_run(stream, CORES)[0])
        if query.duckdb:
            for cores in (1, CORES):
                seconds[f"duckdb {cores}"].append(_in_duckdb(query, folder, cores)[1])
        if query.polars is not None:
            seconds["polars"].append(_in_polars(query, folder))
    rate = {name: events / min(times) / 1e6 for name, times in seconds.items() if times}
    for cores, name, goal in ((1, "one", query.goals[0]), (CORES, "two", query.goals[1])):
        other = rate.get(f"duckdb {cores}")
        ratio = f"{rate[name] / other:.2f}" if other else ""
        title = f"{query.title}: {'one core' if cores == 1 else 'two cores'}"
        section.rows.append(Row(title, f"{other:.1f}" if other else "", f"{rate[name]:.2f}", ratio, f"≥ {goal:g}"))
    speedup = rate["two"] / rate["one"]
    polars = f"Polars, batch: {rate['polars']:.1f}" if "polars" in rate else ""
    section.rows.append(Row("  two cores ÷ one", polars, "", f"{speedup:.2f}", "≥ 1.7"))
    section.figures |= {f"{query.name} {name}": value for name, value in rate.items()} | {
        f"{query.name} speedup": speedup
    }
    say.print(f"  {query.title}: " + ", ".join(f"{name} {value:.2f}" for name, value in rate.items()), highlight=False)


# --- answers ---------------------------------------------------------------------------------------------------------


def _check(query: Query, folder: Path) -> None:
    """Stop if the answers on one core and on two are not equal, or differ from those computed otherwise."""
    runs = [run_local([Output(query.headrace(folder).node, "out")], buckets=n, threads=n) for n in (1, CORES)]
    expected = _matches(folder) if query.name == "w" else _in_duckdb(query, folder, CORES)[0]
    for cht in (run.results["out"].cht() for run in runs):
        ours = cht.select([name for name in cht.column_names if name in expected.column_names])
        if not _equal(ours, expected.select(ours.column_names).cast(ours.schema)):
            raise SystemExit(f"{query.title}: the answers differ from those computed otherwise")


def _equal(ours: pa.Table, others: pa.Table) -> bool:
    """Whether the rows are equal, but for the last digits: DuckDB's averages are rounded after each addition."""
    by = [(field.name, "ascending") for field in ours.schema if not pa.types.is_floating(field.type)]
    ours, others = ours.sort_by(by), others.sort_by(by)
    if len(ours) != len(others):
        return False
    return all(
        np.allclose(a.to_numpy(), b.to_numpy(), rtol=1e-9, atol=0) if pa.types.is_floating(a.type) else a.equals(b)
        for a, b in zip(ours.columns, others.columns, strict=True)
    )


def _matches(folder: Path) -> pa.Table:
    """The matches of the W query by a regular expression over the letters of each group, `within` and `where` after."""
    steps = pa.concat_tables([pq.read_table(path) for path in sorted((folder / "steps").glob("*.parquet"))])
    at, symbol, up = (steps.column(name).to_numpy(zero_copy_only=False) for name in ("at", "symbol", "up"))
    return _search(at, symbol, up)


def _search(at: Any, symbol: Any, up: Any) -> pa.Table:
    found: list[tuple[int, int, int]] = []
    shape = re.compile("U(D+)(U+)(D+)(U+)")
    for group in range(GROUPS):
        rows = np.flatnonzero(symbol == group)
        text, times = "".join("U" if u else "D" for u in up[rows]), at[rows]
        start = 0
        while start < len(text):
            match = _first(shape, text, times, start)
            if match is None:
                start += 1
                continue
            end, falls = match
            found.append((group, end - start, falls))
            start = end
    symbols, lengths, falls_ = zip(*found, strict=True)
    return pa.table({"symbol": symbols, "n": lengths, "falls": falls_})


def _first(shape: re.Pattern[str], text: str, times: Any, start: int) -> tuple[int, int] | None:
    """The greedy match at `start`: its end and its falls; longer runs are preferred, and shortened from the last."""
    runs = shape.match(text, start)
    if runs is None or not text.startswith("U", start):
        return None
    falls, rises = len(runs[1]) + len(runs[3]), len(runs[2])
    # Only the last run can be shorter: the others are bounded by a letter of the other kind.
    last = falls - rises
    if not 1 <= last <= len(runs[4]):
        return None
    end = start + 1 + falls + rises + last
    return (end, falls) if times[end - 1] - times[start] <= 30 * GROUPS else None
