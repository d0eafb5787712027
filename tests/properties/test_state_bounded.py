"""What is remembered: only what a legal later change can touch (rule 6.4), however long the stream is."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import aggregates, sources

import headrace as hr
from headrace.host.local.run import Runner, batches_of
from headrace.operators.aggregate.combine import LAST
from headrace.operators.aggregate.merge import MergeKernel
from headrace.operators.aggregate.overlapping import OverlappingKernel
from headrace.operators.aggregate.visible import WINDOW
from headrace.optimizer import optimize
from headrace.plan.nodes import Output
from headrace.stages.cut import cut
from headrace.testing.strategies import SCHEMA, batch_sizes, physical_streams
from headrace.time import INFINITY, NEG_INFINITY


def merges(runner: Runner) -> list[MergeKernel | OverlappingKernel]:
    kernels = [k for stage in runner.stages for run in stage for k in run.kernels.values()]
    return [k for k in kernels if isinstance(k, MergeKernel | OverlappingKernel)]


def column(table: pa.Table | None, name: str) -> list[int]:
    return [] if table is None else table.column(name).to_pylist()


def check_kernel(kernel: MergeKernel | OverlappingKernel) -> None:
    """Answers are kept for open windows only, runs and steps only past what has been seen, a total once a group."""
    cti, seen, grid = kernel.scalars["cti"], kernel.scalars["seen"], kernel.visible.window
    for number in column(kernel.traces["windows"].scan(), WINDOW):
        assert grid.origin + number * grid.hop + grid.size > cti
    if isinstance(kernel, OverlappingKernel):
        for number in column(kernel.traces["steps"].scan(), WINDOW):
            assert grid.origin + number * grid.hop + grid.size > seen
        groups = kernel.traces["totals"].scan()
        assert groups is None or groups.group_by(kernel.layout.keys).aggregate([]).num_rows == groups.num_rows
    else:
        for number in column(kernel.traces["runs"].scan(), LAST):
            assert grid.origin + number * grid.hop + grid.size > seen


@settings(max_examples=max(5, settings().max_examples // 3))
@given(st.data())
def test_closed_windows_are_forgotten(data: st.DataObject):
    events = data.draw(physical_streams())
    stream = data.draw(aggregates(sources(events, data.draw(batch_sizes(len(events))))))
    line = cut(optimize([Output(stream.node, "out")]))
    runner = Runner(line, 2, None)
    for blocks in batches_of(line.sources[0]):
        runner.round({line.sources[0].fingerprint: blocks})
        for kernel in merges(runner):
            check_kernel(kernel)
    runner.end()
    assert not any(trace.rows for k in merges(runner) for trace in k.traces.values())


ROUNDS, EACH = 200, 6


def long_stream() -> list[dict[str, Any]]:
    """Batches of equal size whose CTI advances: inserts, of which some never end until they are corrected later."""
    random.seed(11)
    rows: list[dict[str, Any]] = []
    open_: list[dict[str, Any]] = []
    for number in range(ROUNDS):
        now = 10 * number
        for _ in range(EACH - 2):
            payload = {"k": random.choice("abc"), "i": random.randint(0, 9), "x": random.random()}
            endless = random.random() < 0.2
            re = INFINITY if endless else now + random.randint(1, 25)
            times = {"le": now + random.randint(0, 9), "re": max(re, now + 10), "re_new": None}
            event = {"kind": "insert", **times, **payload}
            rows.append(event)
            if endless:
                open_.append(event)
        ended = open_.pop(0) if len(open_) > 4 else None
        nothing = {"k": None, "i": None, "x": None}
        if ended is not None:
            rows.append({**ended, "kind": "retract", "re_new": max(now, ended["le"] + 1)})
        else:
            rows.append({"kind": "cti", "le": now, "re": None, "re_new": None, **nothing})
        rows.append({"kind": "cti", "le": now, "re": None, "re_new": None, **nothing})
    return rows


@pytest.mark.parametrize(
    "query",
    [
        lambda s: s,
        lambda s: s.final(),
        lambda s: s.group_by("k").window(hr.hopping(20, every=5)).aggregate(m=hr.max("x"), f=hr.first("i")),
        lambda s: s.window(hr.tumbling(10)).aggregate(n=hr.count(), v=hr.var("x")).final(),
        lambda s: s.group_by("k").window(hr.tumbling(5)).aggregate(n=hr.count())
                   .window(hr.tumbling(50)).aggregate(m=hr.max("n")),
    ],
    ids=["source", "final", "hopping", "final windows", "nested"],
)  # fmt: skip
def test_state_and_segments_stay_bounded_over_many_batches(query: Callable[[hr.Stream], hr.Stream]):
    rows = long_stream()
    source = hr.events(rows, SCHEMA.arrow, batches=[EACH] * ROUNDS)
    run = query(source).run(buckets=1, finish=False)
    states = [[op for part in parts for op in part["operators"].values()] for parts in run.statistics]
    for field, limit in (("rows", 1.6), ("segments", 2.0), ("bytes", 1.6)):
        sizes = [sum(op[field] for op in ops) for ops in states]
        early, late = max(sizes[20:100]), max(sizes[100:])
        assert late <= limit * early + 8, f"{field}: {early} at first, {late} later"


def test_ctis_of_the_long_stream_never_go_back():
    rows = long_stream()
    ctis = [row["le"] for row in rows if row["kind"] == "cti"]
    assert all(a <= b for a, b in pairwise(ctis))
    assert ctis[0] > NEG_INFINITY
