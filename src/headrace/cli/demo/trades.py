"""The demo's query, twice: as a live query of Headrace, and as one batch statement of plain Spark SQL.

The two share nothing but the files they read. The batch statement knows the whole history: it takes every physical
event that arrived, leaves out those the live query diverted as late, cancels retracted trades, and puts the rest into
windows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import headrace as hr
from headrace import col
from headrace.io.commit import BatchDirectory
from headrace.io.encode import rows_to_jsonl
from headrace.io.generator import Ticks, ticks
from headrace.time import duration

__all__ = ["DemoFolder", "batch_answer", "trades", "vwap"]

TRADES = "symbol STRING, price DOUBLE, quantity INT"
SIZE, EVERY, DELAY = "20 s", "5 s", "5 s"
_PHYSICAL = f"kind STRING, le BIGINT, re BIGINT, re_new BIGINT, {TRADES}"
_SPAN = 95.0  # seconds of application time, for any number of trades


def vwap(folder: str) -> hr.Stream:
    """The live query: volume-weighted average price per symbol, over the last 20 seconds, every 5 seconds."""
    # fmt: off
    ticks = hr.read_events(folder, TRADES, format="json",
                           progress=hr.advance(delay=DELAY, late="divert"))
    return (ticks.where(col("quantity") > 0)
                 .group_by("symbol")
                 .window(hr.hopping(SIZE, every=EVERY))
                 .aggregate(vwap=hr.sum(col("price") * col("quantity")) / hr.sum("quantity"),
                            n=hr.count()))
    # fmt: on


_BATCH = """
WITH accepted AS (
    SELECT * FROM arrived LEFT ANTI JOIN diverted USING (kind, le, symbol, price, quantity)
), history AS (
    SELECT le, symbol, price, quantity FROM accepted
    GROUP BY le, symbol, price, quantity HAVING sum(IF(kind = 'insert', 1, -1)) > 0
), placed AS (
    SELECT *, explode(sequence((le - :size) DIV :every * :every + :every, le DIV :every * :every, :every)) AS start
    FROM history WHERE quantity > 0
)
SELECT start AS le, start + :size AS re, symbol, sum(price * quantity) / sum(quantity) AS vwap, count(*) AS n
FROM placed GROUP BY start, symbol
"""


def batch_answer(spark: Any, place: DemoFolder) -> pa.Table:
    """The answer of plain Spark SQL over all rows that arrived and were not diverted."""
    _json(spark, [str(f) for f in sorted(place.input.glob("*.jsonl"))], _PHYSICAL).createOrReplaceTempView("arrived")
    rows = _json(spark, place.diverted(), "row STRING")
    rows.selectExpr(f"inline(array(from_json(row, '{_PHYSICAL}')))").createOrReplaceTempView("diverted")
    return spark.sql(_BATCH, {"size": duration(SIZE), "every": duration(EVERY)}).toArrow()


def _json(spark: Any, files: list[str], schema: str) -> Any:
    return spark.read.schema(schema).json(files) if files else spark.createDataFrame([], schema)


def trades(events: int, seed: int) -> pa.Table:
    """Physical events in arrival order.

    Three in ten trades are delayed, one in twenty is priced wrong at first and corrected, and a few arrive later
    than the query waits.
    """
    config = Ticks(
        events, seed, symbols=3, rate_per_second=events / _SPAN, disorder=0.3, max_delay=DELAY, revisions=0.05,
        late=min(0.05, 20 / events), lulls=0.1, volatility=0.02 * events**-0.5,
    )  # fmt: skip
    return ticks(config)


@dataclass(frozen=True)
class DemoFolder:
    """The demo's directory."""

    root: Path

    @property
    def input(self) -> Path:
        return self.root / "trades"

    @property
    def output(self) -> Path:
        return self.root / "answers"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    def diverted(self) -> list[str]:
        """The files of rows that the query has diverted."""
        folders = sorted((self.checkpoint / "diverted").iterdir())
        return [file for folder in folders for file in BatchDirectory(str(folder)).files()]

    @property
    def batch(self) -> Path:
        return self.root / "batch.parquet"

    @property
    def log(self) -> Path:
        return self.root / "spark.log"

    def deliver(self, number: int, table: pa.Table) -> None:
        """Add one file to the input, atomically."""
        hidden = self.input / f".{number:03d}.jsonl"
        hidden.write_bytes(rows_to_jsonl(table))
        os.utime(hidden)
        hidden.rename(self.input / f"{number:03d}.jsonl")

    def batches(self, log: str) -> set[int]:
        """The batches that the query has begun (`plans`) or done (`commits`)."""
        folder = self.checkpoint / "store" / log
        return {int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()} if folder.exists() else set()

    @property
    def running_batch(self) -> int | None:
        """The batch that the query has begun and not done."""
        return max(self.batches("plans") - self.batches("commits"), default=None)
