"""Streams that once went wrong under overlapping windows, and what must not cost anything."""

from __future__ import annotations

import pyarrow as pa
import pytest

import headrace as hr
from headrace.api.running import outputs_of
from headrace.host.local.run import Runner, batches_of
from headrace.io.origins import Events
from headrace.operators.aggregate import choice
from headrace.operators.aggregate.overlapping import OverlappingKernel
from headrace.operators.aggregate.snapshots import SnapshotKernel
from headrace.operators.registry import kernel_of
from headrace.optimizer import optimize
from headrace.plan.nodes import Aggregate, Merge, Source, walk
from headrace.schema import Schema
from headrace.stages.cut import cut
from headrace.testing.verify.differential import differential_reference


def inserts(points: list[tuple[int, str, float]], batches: list[int]) -> hr.Stream:
    """Points that are never taken back."""
    schema = Schema.of("t LONG, k STRING, x DOUBLE")
    rows = pa.Table.from_pylist([dict(zip("tkx", point, strict=True)) for point in points], schema=schema.arrow)
    return hr.Stream(Source(Events(rows, tuple(batches)), schema, hr.point("t"), hr.advance(3)))


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


@pytest.mark.parametrize("batches", [[1, 1, 1], [3]])
def test_an_end_that_was_taken_back_does_not_carry_endless_events(batches: list[int]):
    rows = "insert | 24 | inf | | 1 \n insert | 17 | 57 | | 1 \n retract | 17 | 57 | 18 | 1"
    windows = counted(f"kind | le | re | re_new | k \n {rows}", batches, 6, 4).cht().to_pylist()
    assert [(row["le"], row["n"]) for row in windows] == [(12, 1), (16, 1), (20, 1), (24, 1)]


def test_nothing_is_left_at_the_end():
    rows = "kind | le | re | re_new | k \n insert | 3 | 20 | | 1 \n retract | 3 | 20 | 3 | 1"
    stream = hr.events(rows, progress=hr.advance(20), batches=[1, 1])
    assert stream.window(hr.hopping(6, every=4)).aggregate(n=hr.count()).cht().num_rows == 0


def test_sums_take_the_quick_ways_and_others_do_not():
    stream = hr.events("le | re | k | x \n 1 | 4 | a | 2.0")
    slid = stream.group_by("k").window(hr.hopping(6, 2))
    grouped = inserts([(1, "a", 2.0)], [1]).group_by("k")
    points = grouped.window(hr.hopping(66, 2))
    for windows, aggregates, kind in (
        (slid, {"s": hr.sum("x"), "n": hr.count()}, True),
        (slid, {"high": hr.max("x")}, False),  # events may be taken back
        (points, {"low": hr.min("k"), "high": hr.max("x"), "s": hr.sum("x")}, True),
        (points, {"m": hr.max("x"), "f": hr.first("x")}, False),
        (grouped.window(hr.hopping(64, 2)), {"m": hr.max("x")}, False),  # so few windows are merged one by one
    ):
        plan = walk(*optimize(outputs_of({"out": windows.aggregate(**aggregates).node})))
        (merge,) = [node for node in plan if isinstance(node, Merge)]
        assert isinstance(kernel_of(merge), OverlappingKernel) is kind
    for aggregates, kind in (({"s": hr.avg("x")}, True), ({"m": hr.median("x")}, False)):
        node = stream.group_by("k").window(hr.snapshot()).aggregate(**aggregates).node
        assert isinstance(node, Aggregate)
        assert isinstance(kernel_of(node), SnapshotKernel) is kind


def extremes(rows: int, fall: int = 1) -> hr.Stream:
    """The extremes of points that fall all the time, or stay, in batches of ten."""
    points = [(t, "ab"[t % 2], float(-fall * t)) for t in range(rows)]
    windows = inserts(points, [10] * (rows // 10)).group_by("k").window(hr.hopping(80, every=2))
    return windows.aggregate(high=hr.max("x"), low=hr.min("x"))


@pytest.mark.parametrize(("fall", "most"), [(0, 4), (1, 2 * 2 * 40)])
def test_of_the_rows_of_a_window_only_a_staircase_is_kept(fall: int, most: int):
    """Two groups of 40 runs: of equal values the last one is enough, of falling ones all matter."""
    runner = Runner(cut(optimize(outputs_of({"out": extremes(300, fall).node}))), 1, None)
    feeds = {source.fingerprint: list(batches_of(source)) for source in runner.line.sources}
    for number in range(30):
        runner.round({f: blocks[number] for f, blocks in feeds.items()})
        kernels = [kernel for level in runner.stages for stage in level for kernel in stage.kernels.values()]
        (kernel,) = [kernel for kernel in kernels if isinstance(kernel, OverlappingKernel)]
        assert kernel.traces["extremes"].rows <= most


def test_state_saved_when_extremes_were_merged_window_by_window_still_opens():
    line = cut(optimize(outputs_of({"out": extremes(60).node})))
    feeds = {source.fingerprint: list(batches_of(source)) for source in line.sources}

    def run(old: int) -> list[dict[str, object]]:
        """The history if the first batches are run by the earlier kernel."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(choice, "can_slide", lambda _: False)
            runner = Runner(line, 2, None)
        for number in range(6):
            if number == old:
                runner = Runner.restored(line, 2, None, runner.save())
            runner.round({f: blocks[number] for f, blocks in feeds.items()})
        runner.end()
        return runner.done.results["out"].cht().to_pylist()

    whole = extremes(60).cht().to_pylist()
    for old in range(1, 6):
        assert run(old) == whole


def test_explain_says_that_extremes_slide():
    assert "keeps what may still be an extreme of x" in extremes(10).explain()


@pytest.mark.parametrize("name", ["cpu.max", "cpu.min"])
def test_a_key_may_be_named_like_a_column_of_the_state(name: str):
    rows = [{"kind": "insert", "le": t, "re": t + 1, name: t % 2} for t in range(6)]
    stream = hr.events(rows, pa.schema([(name, pa.int64())]))
    differential_reference(stream.group_by(name).window(hr.hopping(4, every=2)).aggregate(n=hr.count()).node)
