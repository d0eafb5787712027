"""Streams that once went wrong under overlapping windows, and what must not cost anything."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.api.running import outputs_of
from headrace.operators.aggregate.overlapping import OverlappingKernel
from headrace.operators.aggregate.snapshots import SnapshotKernel
from headrace.operators.registry import kernel_of
from headrace.optimizer import optimize
from headrace.plan.nodes import Aggregate, Merge, walk


def counted(table: str, batches: list[int], size: int, hop: int) -> hr.Stream:
    stream = hr.events(table, progress=hr.advance(20), batches=batches)
    return stream.group_by("k").window(hr.hopping(size, every=hop)).aggregate(n=hr.count())


@pytest.mark.parametrize("batches", [[1, 1], [2]])
def test_an_event_that_ends_at_the_last_window_given(batches: list[int]):
    windows = counted("kind | le | re | k \n insert | 14 | 15 | 1 \n insert | 5 | 6 | 1", batches, 10, 2).cht()
    assert windows["le"].to_pylist() == list(range(-4, 15, 2))
    assert windows["n"].to_pylist() == [1] * 10


@pytest.mark.parametrize("batches", [[1, 1, 4], [6]])
def test_late_points_in_windows_that_were_given(batches: list[int]):
    rows = "\n".join(f"insert | {t} | {t + 1} | 1" for t in (0, 6, 0, 0, 0, 0))
    windows = counted(f"kind | le | re | k \n {rows}", batches, 6, 4).cht().to_pylist()
    assert [(row["le"], row["n"]) for row in windows] == [(-4, 5), (0, 5), (4, 1)]


def test_sums_take_the_quick_ways_and_others_do_not():
    stream = hr.events("le | re | k | x \n 1 | 4 | a | 2.0")
    slid = stream.group_by("k").window(hr.hopping(6, 2))
    for aggregates, kind in (({"s": hr.sum("x"), "n": hr.count()}, True), ({"m": hr.max("x")}, False)):
        plan = walk(*optimize(outputs_of({"out": slid.aggregate(**aggregates).node})))
        (merge,) = [node for node in plan if isinstance(node, Merge)]
        assert isinstance(kernel_of(merge), OverlappingKernel) is kind
    for aggregates, kind in (({"s": hr.avg("x")}, True), ({"m": hr.median("x")}, False)):
        node = stream.group_by("k").window(hr.snapshot()).aggregate(**aggregates).node
        assert isinstance(node, Aggregate)
        assert isinstance(kernel_of(node), SnapshotKernel) is kind
