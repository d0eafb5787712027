"""Traces: what keeping every change costs beside the plain run, and how long a question takes.

The run has a million events through five operators. Questions are asked of a trace of 100,000 events in 20 batches, as
a click in the Debugger asks them; what became of an event runs the query again without it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import headrace as hr
from benchmarks.measure import Row, Section
from headrace import col

__all__ = ["measure"]

EVENTS, ASKED, BATCHES = 1_000_000, 100_000, 20


def measure(root: Path, options: argparse.Namespace) -> Section:
    """Plain and traced runs take turns; then the questions."""
    del root
    section = Section("Traces", beside="plain run")
    query = _query(EVENTS)
    plain, traced = [], []
    for _ in range(options.rounds):
        plain.append(_seconds(query.run))
        traced.append(_seconds(query.trace))
    one, two = min(plain), min(traced)
    section.rows.append(
        Row(
            "1,000,000 events, five operators",
            spark=f"{one:.1f} s",
            headrace=f"{two:.1f} s",
            ratio=f"{two / one:.2f}",
            goal="4",
        )
    )
    section.figures["traced / plain"] = two / one
    trace = _query(ASKED).trace(batch_rows=ASKED // BATCHES)
    row = trace.history().slice(50, 1).to_pylist()[0]
    asked: dict[str, Callable[[], object]] = {
        "why is it here": lambda: trace.why(k=row["k"], le=row["le"]),
        "why is it not there": lambda: trace.why_not(k=row["k"], n=-1, at=row["le"]),
        "what became of it": lambda: trace.forward(i=1),
    }
    for name, ask in asked.items():
        seconds = min(_seconds(ask) for _ in range(3))
        section.rows.append(Row(f"{name}, 100,000 events", headrace=f"{seconds * 1000:.0f} ms", goal="200 ms"))
        section.figures[name] = seconds
    return section


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _query(events: int) -> hr.Stream:
    """A filter, a projection, a window, a filter and a projection."""
    number = np.arange(events)
    table = pa.table({"k": number % 100, "i": number, "x": (number % 97).astype(float), "ts": number * 10})
    rows = hr.from_arrow(table, lifetime=hr.point("ts"))
    means = rows.where(col("x") > 3).with_columns(y=col("x") * 2).group_by("k").window(hr.tumbling(100_000))
    return means.aggregate(y=hr.avg("y"), n=hr.count()).where(col("n") > 0).with_columns(z=col("y") + 1)
