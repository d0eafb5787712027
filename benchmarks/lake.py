"""Delta tables on this machine: rows a second of the sink and of the source, in this process.

**Sink.** `deliver`, a batch of a million rows after the other: final rows appended, then upserts of new keys and of
known ones, which rewrite the file that has them. The commit and its transaction identifier are part of the time.

**Source.** The rows that were appended, read as a snapshot and version by version; and the changes of a version that
updates a tenth of a table without a change data feed, by the difference of files.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

import headrace as hr
from benchmarks.measure import Row, Section, say
from headrace.adapters.delta import DeltaSource
from headrace.changes import Changes
from headrace.io.adapter import DeliveryId, SinkAdapter
from headrace.io.sinks import rows_of
from headrace.schema import Schema
from headrace.time import INFINITY

__all__ = ["measure"]

_COLUMNS = Schema.of("symbol STRING, price DOUBLE, n LONG")


def measure(root: Path, options: argparse.Namespace) -> Section:
    """All figures, as a section of the report."""
    rows, batches = options.rows, max(2, options.rounds + 1)
    figures: dict[str, float] = {}
    sink = hr.delta_lake(root / "final")
    figures["appended"] = _deliver(sink, rows, batches, lambda batch: batch * rows)
    merged = hr.delta_lake(root / "latest", encoding="upsert", key="symbol")
    figures["new"] = _deliver(merged, rows, 1, lambda _: 0)
    figures["updated"] = _deliver(merged, rows, batches, lambda _: 0, first=1)
    for start in ("snapshot", "earliest"):
        figures[f"read_{start}"] = _read(DeltaSource.of(str(root / "final"), start=start))
    DeltaTable(str(root / "latest")).update({"n": "n + 1"}, predicate="n % 10 = 0")
    figures["difference"] = _read(
        DeltaSource.of(str(root / "latest"), changes=True, start=DeltaTable(str(root / "latest")).version()), rows
    )
    figures["load"] = os.getloadavg()[0]
    return Section(f"Delta tables, {rows / 1e6:g} M rows a batch", _rows(figures), figures)


def _deliver(sink: SinkAdapter, size: int, batches: int, first_key: Callable[[int], int], first: int = 0) -> float:
    """Rows a second, the median of the batches."""
    sink.open("benchmark", 0, _COLUMNS, first - 1)
    seconds = []
    for batch in range(first, first + batches):
        keys = np.char.add("S", (first_key(batch) + np.arange(size)).astype(str))
        values = [pa.array(keys), pa.array(np.random.default_rng(batch).random(size)), pa.array(np.arange(size))]
        payload = pa.table(values, schema=_COLUMNS.arrow)
        starts = np.full(size, batch, np.int64)
        rows = rows_of(Changes(starts, np.full(size, INFINITY), np.ones(size, np.int64), payload), sink, batch)
        began = time.perf_counter()
        sink.deliver(DeliveryId("benchmark", 0, 0, batch), rows)
        seconds.append(time.perf_counter() - began)
    rate = size / statistics.median(seconds)
    say.print(f"  {sink.encoding}: {rate / 1e6:.2f} M rows/s; load {os.getloadavg()[0]:.1f}", highlight=False)
    return rate


def _read(source: DeltaSource, rows: int = 0) -> float:
    """Rows a second; those of the table if only some are read."""
    reach = source.offsets({})["versions"]
    begin = source.begin("versions", reach)
    began = time.perf_counter()
    found = sum(block.table.num_rows for block in source.read("versions", begin, reach.end, _COLUMNS.names))
    return (rows or found) / (time.perf_counter() - began)


def _rows(figures: dict[str, float]) -> list[Row]:
    shown = {
        "appended": ("final rows appended", "≥ 1"), "new": ("upserts of new keys", ""),
        "updated": ("upserts of known keys", ""), "read_snapshot": ("a snapshot read", ""),
        "read_earliest": ("versions read", ""), "difference": ("a version that updates a tenth, by its files", ""),
    }  # fmt: skip
    return [
        Row(f"Delta: {what}, M rows/s", "", f"{figures[name] / 1e6:.2f}", "", goal)
        for name, (what, goal) in shown.items()
    ]
