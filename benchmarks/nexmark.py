"""An auction house after NEXMark: the same files for Headrace and for Spark's own streaming, and for the local host.

Both engines get the same Parquet files in the same batches, keep checkpoints (Spark in RocksDB) and drop their answers.
A tenth of the events come up to two seconds late; both wait five seconds for them (Headrace answers before that and
corrects itself). What each query is on both sides:

- *pass*: every bid, as it comes (Q0).
- *hopping*: bids per auction in windows of ten seconds, one every two seconds. Spark: update mode.
- *persons*: who opened an auction in the ten seconds in which they registered (Q8). Both sides of the join are grouped
  by person and window; Spark: append mode, the only one in which it joins streams.
- *bids*: bids made while their auction was open, the highest of each auction in ten seconds, and the average of these
  for each category. Spark chains stateful operators in append mode only, and forgets auctions only if a bound on the
  bid's time follows from the condition: so the query says that auctions last a minute.

Events are those that a query reads: bids, persons and auctions, or bids and auctions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headrace as hr
from benchmarks.measure import Row, Section, alternate, headrace_batches, local_batches, rates, say, spark_batches
from headrace.host.spark.session import get_session
from headrace.io.generator import Auctions, auctions, bids, persons, write_files

__all__ = ["measure"]

FILES, FILES_PER_BATCH = 12, 2
BATCHES = FILES // FILES_PER_BATCH
OPEN_FOR, WAIT, PERIOD = "60 seconds", "5 seconds", "10 seconds"
#: Of 50 events of the house one is a person, three are auctions, the others bids.
PERSONS, AUCTIONS, BIDS = 1 / 50, 3 / 50, 46 / 50


@dataclass(frozen=True)
class Comparison:
    """A query in both languages."""

    name: str
    title: str
    #: The share of the house's events that it reads.
    share: float
    #: How many events a batch has.
    events: int
    goal: str
    headrace: Callable[[Path], hr.Stream]
    spark: Callable[[SparkSession, Path], Any]
    mode: str
    #: Events a second that the local host should reach.
    local_goal: str = ""


# --- Headrace --------------------------------------------------------------------------------------------------------


def _read(root: Path, name: str, lifetime: Any) -> hr.Stream:
    return hr.read_parquet(str(root / name), lifetime=lifetime, progress=hr.advance(WAIT))


def _pass(root: Path) -> hr.Stream:
    return _read(root, "bids", hr.point("ts"))


def _hopping(root: Path) -> hr.Stream:
    all_bids = _read(root, "bids", hr.point("ts"))
    return all_bids.group_by("auction").window(hr.hopping(PERIOD, every="2 s")).aggregate(n=hr.count())


def _tumbling(root: Path) -> hr.Stream:
    all_bids = _read(root, "bids", hr.point("ts"))
    return all_bids.group_by("auction").window(hr.tumbling(PERIOD)).aggregate(price=hr.avg("price"))


def _persons(root: Path) -> hr.Stream:
    period = hr.tumbling(PERIOD)
    new = _read(root, "persons", hr.point("ts")).group_by("id", "name").window(period).aggregate(registered=hr.count())
    selling = _read(root, "auctions", hr.point("ts")).group_by("seller").window(period).aggregate(opened=hr.count())
    return new.join(selling, on={"id": "seller"}).select("id", "name")


def _bids(root: Path) -> hr.Stream:
    period = hr.tumbling(PERIOD)
    all_bids = _read(root, "bids", hr.point("ts")).join(
        _read(root, "auctions", hr.interval("ts", "expires")), on={"auction": "id"}
    )
    highest = all_bids.group_by("auction", "category").window(period).aggregate(price=hr.max("price"))
    return highest.group_by("category").window(period).aggregate(price=hr.avg("price"))


# --- Spark -----------------------------------------------------------------------------------------------------------

_SCHEMAS = {
    "persons": "id long, name string, city string, ts timestamp",
    "auctions": "id long, seller long, category int, initial long, reserve long, ts timestamp, expires timestamp",
    "bids": "auction long, bidder long, price double, ts timestamp",
}


def _frame(spark: SparkSession, root: Path, name: str) -> Any:
    reader = spark.readStream.schema(_SCHEMAS[name]).option("maxFilesPerTrigger", FILES_PER_BATCH)
    return reader.parquet(str(root / name)).withWatermark("ts", WAIT)


def _spark_pass(spark: SparkSession, root: Path) -> Any:
    return _frame(spark, root, "bids")


def _spark_hopping(spark: SparkSession, root: Path) -> Any:
    return _frame(spark, root, "bids").groupBy(F.window("ts", PERIOD, "2 seconds"), "auction").count()


def _spark_persons(spark: SparkSession, root: Path) -> Any:
    period = F.window("ts", PERIOD)
    new = _frame(spark, root, "persons").groupBy(period, "id", "name").agg(F.count("*").alias("registered"))
    selling = _frame(spark, root, "auctions").groupBy(period, "seller").agg(F.count("*").alias("opened"))
    a, b = new.alias("a"), selling.alias("b")
    same = (F.col("a.id") == F.col("b.seller")) & (F.col("a.window") == F.col("b.window"))
    return a.join(b, same).select("a.id", "a.name", "a.window")


def _spark_bids(spark: SparkSession, root: Path) -> Any:
    all_bids = _frame(spark, root, "bids").select("auction", "price", "ts")
    on_sale = _frame(spark, root, "auctions").select("id", "category", "expires", F.col("ts").alias("opened"))
    ends = F.col("opened") + F.expr(f"interval {OPEN_FOR}")
    during = (F.col("ts") >= F.col("opened")) & (F.col("ts") < F.col("expires")) & (F.col("ts") <= ends)
    joined = all_bids.join(on_sale, (F.col("auction") == F.col("id")) & during)
    highest = joined.groupBy(F.window("ts", PERIOD), "auction", "category").agg(F.max("price").alias("price"))
    return highest.groupBy("window", "category").agg(F.avg("price").alias("price"))


QUERIES = (
    Comparison("pass", "every bid", BIDS, 920_000, "≥ 1.2", _pass, _spark_pass, "append"),
    Comparison("hopping", "bids per auction, 10 s every 2 s", BIDS, 920_000, "≥ 9", _hopping, _spark_hopping,
               "update", "≥ 3"),
    Comparison("persons", "persons and their auctions in 10 s windows", PERSONS + AUCTIONS, 80_000, "≥ 8",
               _persons, _spark_persons, "append"),
    Comparison("bids", "bids on open auctions, two aggregates on top", BIDS + AUCTIONS, 980_000, "≥ 30",
               _bids, _spark_bids, "append"),
)  # fmt: skip


# --- measuring -------------------------------------------------------------------------------------------------------


def measure(root: Path, options: argparse.Namespace) -> Section:
    """Each query on Spark, in turns with Spark's own, and in process."""
    chosen = [query for query in QUERIES if not options.queries or query.name in options.queries]
    section = Section(f"An auction house, {BATCHES} batches for each query: M events/s, median batch")
    spark = get_session()
    for query in chosen:
        folder = root / query.name
        events = round(query.events * BATCHES * options.share)
        say.print(f"{query.title}: writing {events:,} events …")
        _write(folder, query, events)
        _compare(section, query, folder, spark, events, options.rounds)
        _in_process(section, query, query.headrace(folder), events, query.local_goal)
        if query.name == "hopping":
            _in_process(section, query, _tumbling(folder), events, "≥ 3", "average per auction, tumbling 10 s")
    return section


def _write(folder: Path, query: Comparison, events: int) -> None:
    """The streams that the query reads, 50 s of the house's time in a batch for any share."""
    house = Auctions(
        round(events / query.share), seed=1, rate_per_second=events / query.share / BATCHES / 50, disorder=0.1,
        max_delay="2 s", open_for=OPEN_FOR,
    )  # fmt: skip
    streams = {"persons": persons, "auctions": auctions, "bids": bids}
    reads = {"pass": ("bids",), "hopping": ("bids",), "persons": ("persons", "auctions"), "bids": ("bids", "auctions")}[
        query.name
    ]
    for name in reads:
        write_files(streams[name](house), str(folder / name), FILES)


def _compare(section: Section, query: Comparison, folder: Path, spark: SparkSession, events: int, rounds: int) -> None:
    times = alternate(
        rounds,
        spark=lambda: spark_batches(spark, lambda: query.spark(spark, folder), query.mode),
        headrace=lambda: headrace_batches(query.headrace(folder), FILES_PER_BATCH),
    )
    rate = rates(times, events / BATCHES)
    ratio = rate["headrace"] / rate["spark"]
    shown = {name: f"{found / 1e6:.3f}" for name, found in rate.items()}
    title = f"{query.title}, batches of {events // BATCHES:,}"
    section.rows.append(Row(title, shown["spark"], shown["headrace"], f"{ratio:.1f}", query.goal))
    section.figures |= {f"{query.name}_{name}_events_per_second": found for name, found in rate.items()}
    section.figures[f"{query.name}_ratio"] = ratio


def _in_process(
    section: Section, query: Comparison, stream: hr.Stream, events: int, goal: str, title: str | None = None
) -> None:
    say.print(f"  in process: {title or query.title} …")
    started = time.monotonic()
    local_batches(stream)
    wall = time.monotonic() - started
    busy = sum(local_batches(stream))
    name = f"{query.name}_local" if title is None else f"{query.name}_local_tumbling"
    section.rows.append(
        Row(f"  in process: {title or query.title}, per CPU second", "", f"{events / busy / 1e6:.2f}", "", goal)
    )
    section.figures[f"{name}_events_per_cpu_second"] = events / busy
    section.figures[f"{name}_events_per_second"] = events / wall
