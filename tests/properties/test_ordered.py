"""Windows of tuples in their order equal their twins, batch by batch: history and promise (rules 8.2 and 8.3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.ordered import frames, long_streams, ordered_windows

import headrace as hr
from headrace import col, lit
from headrace.host.local.run import Runner, batches_of
from headrace.operators.ordered.fold import FoldKernel
from headrace.operators.ordered.kernel import OrderedKernel
from headrace.optimizer import optimize
from headrace.plan.nodes import Final, Output
from headrace.plan.ordered import By, Delta, Fixed, Slides, Time, Tuples
from headrace.stages.cut import cut
from headrace.testing.batches import check_same_batches
from headrace.testing.checks import check_output
from headrace.testing.strategies import SCHEMA
from headrace.testing.verify.checks import live, restarted
from headrace.testing.verify.differential import differential_reference

SOME = settings(max_examples=max(5, settings().max_examples // 3))
FEW = settings(max_examples=max(5, settings().max_examples // 10))
BUCKETS = st.integers(1, 3)


WINDOWS = ordered_windows()
AGGREGATES = {
    "n": hr.count(), "s": hr.sum("i"), "a": hr.avg("x"), "high": hr.max("i"), "l": hr.last("i"), "v": hr.var("x"),
    "all": hr.collect("x"),
}  # fmt: skip
NAMES = st.sets(st.sampled_from(sorted(AGGREGATES)), min_size=1)
FRAMES = frames()
KEYS = st.sampled_from([None, "computed", "k", None, "x"])


def grouped(stream: hr.Stream, key: str | None) -> Any:
    if key == "computed":
        return stream.group_by(positive=col("i") > 0)
    return stream.group_by(key) if key else stream


@SOME
@given(long_streams(), WINDOWS, KEYS, NAMES, BUCKETS)
def test_differential_aggregates(stream: hr.Stream, window: Any, key: str | None, names: set[str], n: int):
    out = grouped(stream, key).window(window).aggregate(**{name: AGGREGATES[name] for name in sorted(names)})
    differential_reference(out.node, buckets=n)


def test_windows_by_infinite_values():
    """An infinite value is the highest from then on, and no finite one is near it."""
    drawn = hr.events("""
        kind   | le | re | k | i | x
        insert | 0  | 1  | a | 0 | 0.0
        insert | 0  | 1  | a | 0 | inf
        cti    | 1  |    |   |   |
        insert | 1  | 2  | a | 0 | 0.0
    """, SCHEMA, batches=(1, 1, 1, 1))  # fmt: skip
    out = drawn.window(Slides(By("x", 0.5), Tuples(1), "tuple")).aggregate(a=hr.avg("x"))
    differential_reference(out.node, buckets=1)


# --- rankings and modules ---------------------------------------------------------------------------------------------


class Listed(hr.Aggregate):
    """All values as text: shows everything a time-insensitive module can see."""

    input = "a LONG, b DOUBLE"
    output = "STRING"

    def compute(self, rows: list[Any]) -> str:
        return str([(row.a, row.b) for row in rows])


class Grown(hr.IncrementalAggregate):
    """The values as text, added one by one."""

    input = "a LONG"
    output = "STRING"

    def initial(self) -> list[Any]:
        return []

    def add(self, state: list[Any], items: list[Any]) -> list[Any]:
        return state + items

    def compute(self, state: list[Any]) -> str:
        return str(state)


class Timed(hr.Operator):
    """Each event and the window as they are seen: shows everything a time-sensitive module can see."""

    time_sensitive = True
    input = "b DOUBLE"
    output = "b DOUBLE, seen STRING"

    def compute(self, events: list[Any], window: Any) -> Any:
        for event in events:
            yield self.event(max(window.le, event.le), window.re + 1, event.b, f"{window.le} {window.re} {event.re}")


@FEW
@given(long_streams(), WINDOWS, KEYS, BUCKETS)
def test_differential_modules(stream: hr.Stream, window: Any, key: str | None, n: int):
    out = grouped(stream, key).window(window).aggregate(t=Listed().of("i", "x"), g=Grown().of("i"), n=hr.count())
    differential_reference(out.node, buckets=n)


@SOME
@given(
    long_streams(),
    WINDOWS,
    KEYS,
    st.sampled_from(["none", "left"]),
    st.sampled_from(["align", "unchanged", "clip"]),
    BUCKETS,
)
def test_differential_sensitive_operators(
    stream: hr.Stream, window: Any, key: str | None, clipping: Any, timestamping: Any, n: int
):
    whole = grouped(stream, key).window(window, clipping=clipping, timestamping=timestamping)
    differential_reference(whole.operate(Timed(), "x").node, buckets=n)


@FEW
@given(long_streams(), WINDOWS, KEYS, st.integers(1, 3), BUCKETS)
def test_differential_top_and_contents(stream: hr.Stream, window: Any, key: str | None, k: int, n: int):
    differential_reference(grouped(stream, key).window(window).top(k, "x").node, buckets=n)
    differential_reference(grouped(stream, key).window(window).contents(start="at").node, buckets=n)
    differential_reference(grouped(stream, key).window(window).top(k, "x", each="i").node, buckets=n)


# --- among others -----------------------------------------------------------------------------------------------------


@FEW
@given(long_streams(max_events=9), WINDOWS, WINDOWS, BUCKETS)
def test_differential_nested(stream: hr.Stream, first: Any, second: Any, n: int):
    """Corrections of one are corrections to the next, inside groups and behind them."""
    counted = stream.group_by("k").window(first).aggregate(i=hr.count(), x=hr.avg("x"))
    differential_reference(counted.window(second).aggregate(s=hr.sum("i")).node, buckets=n)
    applied = stream.group_by(g=col("k")).apply(
        lambda group: group.window(first).aggregate(i=hr.count(), x=hr.max("x")).over(rows=1).aggregate(s=hr.sum("i"))
    )
    differential_reference(applied.node, buckets=n)


@FEW
@given(long_streams(), WINDOWS, FRAMES, KEYS)
def test_what_is_final_is_never_taken_back(stream: hr.Stream, window: Any, frame: Any, key: str | None):
    windowed = grouped(stream, key).window(window).aggregate(n=hr.count(), s=hr.sum("i"))
    points = grouped(stream.point_at_start(), key).over(**frame).aggregate(n=hr.count())
    for out in (windowed, grouped(stream, key).over(**frame).aggregate(n=hr.count()), points):
        result = live(Final(out.node), 2)
        check_output(result.events(), retractions=False)
        assert hr.same_history(result.cht(), out.cht())


@FEW
@given(long_streams(), WINDOWS, FRAMES, KEYS, BUCKETS)
def test_a_restored_run_continues_as_if_nothing_had_happened(
    stream: hr.Stream, window: Any, frame: Any, key: str | None, n: int
):
    windowed = grouped(stream, key).window(window).aggregate(n=hr.count(), l=hr.last("i"))
    over = grouped(stream, key).over(**frame).aggregate(n=hr.count(), l=hr.last("i"))
    for out in (windowed, over):
        check_same_batches(restarted(out.node, n), live(out.node, n), "restarted after every batch")


@FEW
@given(long_streams(), WINDOWS, FRAMES)
def test_nothing_is_left_when_the_input_has_ended(stream: hr.Stream, window: Any, frame: Any):
    grouping = stream.group_by("k")
    for out in (grouping.window(window).aggregate(n=hr.count()), grouping.over(**frame).aggregate(n=hr.count())):
        line = cut(optimize([Output(out.node, "out")]))
        runner = Runner(line, 2, None)
        for blocks in batches_of(line.sources[0]):
            runner.round({line.sources[0].fingerprint: blocks})
        runner.end()
        kernels = [k for stage in runner.stages for run in stage for k in run.kernels.values()]
        mine = [kernel for kernel in kernels if isinstance(kernel, (FoldKernel, OrderedKernel))]
        assert mine
        assert not any(trace.rows for kernel in mine for trace in kernel.traces.values())


# --- what is remembered -----------------------------------------------------------------------------------------------

ROUNDS = 30
LONG = [
    Slides(Tuples(5), Tuples(2)), Slides(Tuples(3), Tuples(7), "time"), Slides(Time(40), Tuples(2)),
    Slides(Tuples(4), Time(10)), Slides(Tuples(4), Time(30), "time"), Slides(Time(30), Time(10), "time"),
    Slides(Time(30), Time(10), starting="first"), Slides(By("x", 9.0), Tuples(2)),
    Slides(By("x", 3.0), Time(10), "batch"),
    Delta(col("x") - col("first.x"), lit(2.0)), Fixed(20, 60),
]  # fmt: skip


OVER: list[dict[str, Any]] = [
    {"rows": 3}, {"range": 20}, {}, {"rows": 3, "slide": 2}, {"rows": 1, "slide": 5}, {"range": 20, "slide": 30},
    {"range": 30, "slide": 20}, {"slide": 3}, {"slide": "30 ticks"},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(LONG) + len(OVER)))
def test_state_stays_bounded(number: int):
    rows: list[dict[str, Any]] = []
    for t in range(0, 10 * ROUNDS, 10):
        rows += [
            {"kind": "insert", "le": t + d, "re": t + d + 5, "re_new": None, "k": "ab"[d % 2], "i": d, "x": (t + d) / 5}
            for d in (7, 0, 3, 8)
        ]
        rows.append({"kind": "cti", "le": t + 5, "re": None, "re_new": None, "k": None, "i": None, "x": None})
    # What comes after the CTI of the batch before: all of a batch is at or after it.
    stream = hr.events(rows, SCHEMA.arrow, batches=[5] * ROUNDS).group_by("k")
    if number < len(LONG):
        out = stream.window(LONG[number]).aggregate(n=hr.count(), m=hr.max("x"))
    else:
        out = stream.over(**OVER[number - len(LONG)]).aggregate(m=hr.avg("x"))
    run = out.run(buckets=1, finish=False)
    sizes = [
        max(
            op["rows"]
            for part in batch
            for op in part["operators"].values()
            if op["operator"].startswith(("Agg", "Over"))
        )
        for batch in run.statistics
    ]
    assert max(sizes[ROUNDS // 2 :]) <= max(sizes[: ROUNDS // 2]) + 4, sizes


# --- what precedes --------------------------------------------------------------------------------------------------


@SOME
@given(long_streams(), FRAMES, KEYS, NAMES, BUCKETS)
def test_differential_over(stream: hr.Stream, frame: Any, key: str | None, names: set[str], n: int):
    out = grouped(stream, key).over(**frame).aggregate(**{name: AGGREGATES[name] for name in sorted(names)})
    differential_reference(out.node, buckets=n)
