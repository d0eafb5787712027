"""Patterns in process, on one core: the W query of the Flying Fixed-Point paper, by the operator alone, and as a whole
query from events in memory and from Parquet files.

A W is `U D+ U+ D+ U+` with as many falls as rises behind the first, within 30 ticks of its group. Batches of 100 000
ticks come in order, each with the CTI of its last tick. The paper's own operator did 150 000 events a second.

The re-entrant form, whose transitions are a stream, is a plan of many operators: there it is the whole query that is
timed, beside the same query with the native operator. The paper's did 30 000 events a second.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks.measure import Row, Section
from headrace import col, count
from headrace.changes import Changes
from headrace.operators.registry import kernel_of
from headrace.patterns import Pattern
from headrace.plan.nodes import Match, walk
from headrace.progress import Progress

__all__ = ["measure"]

_EVENTS, _BATCH, _GOAL = 1_000_000, 100_000, 1_000_000
_SKIPS = ("to next row", "past last row")
#: Of the re-entrant form: how many events, and how many a second there should be.
_FEWER, _REENTRANT_GOAL = 500_000, 30_000
#: Of whole queries: how many groups, and how many events a second there should be, on one core and on two.
_GROUPS, _WHOLE_GOAL, _CORES_GOAL = 1_000, 1_500_000, 2_500_000


def measure(root: Path, options: argparse.Namespace) -> Section:
    """Events in a second of processor time, as a section of the report."""
    section = Section("The W query in process: events in a second of processor time")
    for groups in (1, 100, 10_000):
        for skip in _SKIPS:
            node = _query(groups, skip)
            _run(node, groups)  # what is compiled first is kept on disk, and loaded here
            rate = max(_run(node, groups) for _ in range(options.rounds))
            what = f"{groups} groups, {skip}"
            goal = f"{_GOAL:,}" if groups <= 100 else ""
            section.rows.append(Row(what, headrace=f"{rate:,.0f}", ratio=f"{rate / _GOAL:.2f}", goal=goal))
            section.figures[what] = rate
    _measure_whole(section, root, options.rounds)
    for groups in (1, 100, 10_000):
        _measure_reentrant(section, groups, options.rounds)
    return section


def _measure_whole(section: Section, root: Path, rounds: int) -> None:
    """Whole queries, over events in memory and over files."""
    for what, ticks in (("events in memory", _ticks(_GROUPS, _EVENTS)), ("Parquet files", _files(root))):
        query = ticks.group_by("symbol").match(_w(_GROUPS), n=count(), falls=count("D"))
        rate = max(_whole(query, _EVENTS) for _ in range(rounds + 1))
        name = f"{_GROUPS} groups, whole query over {what}"
        section.rows.append(Row(name, headrace=f"{rate:,.0f}", goal=f"{_WHOLE_GOAL:,}"))
        section.figures[name] = rate
        start = time.perf_counter()
        query.run(buckets=2)
        rate = _EVENTS / (time.perf_counter() - start)
        section.rows.append(Row(f"{name}, by the clock, all cores", headrace=f"{rate:,.0f}", goal=f"{_CORES_GOAL:,}"))
        section.figures[f"{name}, by the clock"] = rate


def _files(root: Path) -> hr.Stream:
    """The ticks of `_ticks` as files, one for each batch."""
    table = _rows(_GROUPS, _EVENTS)
    for i, start in enumerate(range(0, _EVENTS, _BATCH)):
        pq.write_table(table.slice(start, _BATCH), root / f"{i:03}.parquet")
    return hr.read_parquet(str(root), lifetime=hr.point("le"), progress=hr.advance(1))


def _measure_reentrant(section: Section, groups: int, rounds: int) -> None:
    pattern, stream = _w(groups).all_matches(), _ticks(groups, _FEWER)
    by_symbol = stream.group_by("symbol")
    native = by_symbol.match(pattern, n=count(), falls=count("D"))
    looped = by_symbol.match(pattern, transitions=hr.events(pattern.transitions()), n=count(), falls=count("D"))
    turns = [(_whole(native, _FEWER), _whole(looped, _FEWER)) for _ in range(rounds)]
    fixed, rate = (max(rates) for rates in zip(*turns, strict=True))
    what = f"{groups} groups, re-entrant, whole query"
    section.rows.append(
        Row(what, headrace=f"{rate:,.0f}", ratio=f"{rate / fixed:.2f} of native", goal=f"{_REENTRANT_GOAL:,}")
    )
    section.figures |= {what: rate, f"{groups} groups, native, whole query": fixed}


def _whole(query: hr.Stream, events: int) -> float:
    """Events in a second of processor time, from events to answers, in one thread."""
    start = time.process_time()
    query.run(threads=1)
    return events / (time.process_time() - start)


def _rows(groups: int, events: int) -> pa.Table:
    """A tick at each instant."""
    rng = np.random.default_rng(0)
    le = np.arange(events, dtype=np.int64)
    return pa.table({"le": le, "symbol": rng.integers(0, groups, events), "up": rng.random(events) < 0.5})


def _ticks(groups: int, events: int) -> hr.Stream:
    """Ticks of so many symbols as physical events in batches; the CTI of each batch is its last tick."""
    table = _rows(groups, events)
    le = table["le"].to_numpy()
    table = table.append_column("re", pa.array(le + 1)).append_column("kind", pa.array(["insert"] * events))
    ends = le[_BATCH - 1 :: _BATCH]
    ctis = pa.table({"kind": ["cti"] * len(ends), "le": ends})
    parts = [t for i in range(len(ends)) for t in (table.slice(i * _BATCH, _BATCH), ctis.slice(i, 1))]
    rows = pa.concat_tables(parts, promote_options="default")
    return hr.events(rows, "symbol LONG, up BOOLEAN", batches=[_BATCH + 1] * len(ends))


def _w(groups: int) -> Pattern:
    up, back = col("up"), count("D") == count("U") - 1
    return hr.pattern("U D+ U+ D+ U+", define={"U": up, "D": ~up}, where=back, within=30 * groups)


def _query(groups: int, skip: str) -> Match:
    w = _w(groups).skip(skip)
    ticks = hr.events([{"le": 0, "re": 1, "symbol": 0, "up": True}], "symbol LONG, up BOOLEAN")
    found = ticks.group_by("symbol").match(w, n=count(), falls=count("D"))
    return next(node for node in walk(found.node) if isinstance(node, Match))


def _run(node: Match, groups: int) -> float:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {"symbol": rng.integers(0, groups, _EVENTS), "up": rng.random(_EVENTS) < 0.5}
    columns |= {"__arrival": np.zeros(_EVENTS, np.int64), "__position": np.arange(_EVENTS)}
    table = pa.table({name: columns[name] for name in node.input.schema.names}).cast(node.input.schema.arrow)
    le = np.arange(_EVENTS, dtype=np.int64)
    batches = [
        Changes.inserts(le[a : a + _BATCH], le[a : a + _BATCH] + 1, table.slice(a, _BATCH))
        for a in range(0, _EVENTS, _BATCH)
    ]
    kernel = kernel_of(node)
    start = time.process_time()
    for batch in batches:
        last = int(batch.le[-1])
        kernel.step([batch], [Progress(last, last)])
    return _EVENTS / (time.process_time() - start)
