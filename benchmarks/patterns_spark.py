"""Patterns on Spark: the W query of the Flying Fixed-Point paper from files to answers, on two cores.

A W is `U D+ U+ D+ U+` with as many falls as rises behind the first, within 30 ticks of its symbol. Ticks come in order,
with a promise that is a second behind; answers are dropped where they are made.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks.measure import Row, Section, alternate, headrace_batches, rates, say
from headrace import col, count
from headrace.host.spark.session import get_session

__all__ = ["measure"]

_FILES, _ROWS, _PER_BATCH, _GOAL = 12, 500_000, 2, 400_000
_GROUPS = (1, 100, 10_000)
_TICK = 100  # a microsecond each


def measure(root: Path, options: argparse.Namespace) -> Section:
    """Events a second by the median batch, as a section of the report."""
    section = Section("The W query on Spark: events a second, from files to answers")
    get_session()
    for groups in _GROUPS:
        say.print(f"patterns on spark: {groups} groups, {_FILES * _ROWS:,} events …")
        folder = _written(root / str(groups), groups)
        times = alternate(options.rounds, headrace=lambda: headrace_batches(_query(folder, groups), _PER_BATCH))  # noqa: B023
        rate = rates(times, _PER_BATCH * _ROWS)["headrace"]
        what = f"{groups} groups"
        section.rows.append(Row(what, headrace=f"{rate:,.0f}", ratio=f"{rate / _GOAL:.2f}", goal=f"{_GOAL:,}"))
        section.figures[what] = rate
    return section


def _written(folder: Path, groups: int) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(_FILES):
        at = np.arange(number * _ROWS, (number + 1) * _ROWS) * _TICK
        table = pa.table({"at": at, "symbol": rng.integers(0, groups, _ROWS), "up": rng.random(_ROWS) < 0.5})
        pq.write_table(table, folder / f"{number:03d}.parquet")
    return folder


def _query(folder: Path, groups: int) -> hr.Stream:
    ticks = hr.read_parquet(str(folder), lifetime=hr.point("at"), progress=hr.advance("1 s"))
    up, back = col("up"), count("D") == count("U") - 1
    w = hr.pattern("U D+ U+ D+ U+", define={"U": up, "D": ~up}, where=back, within=30 * groups * _TICK)
    return ticks.group_by("symbol").match(w, n=count(), falls=count("D"))
