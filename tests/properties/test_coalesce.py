"""Coalescing equals its twin, batch by batch, remembers what it may and continues after a restart (rule 4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import sources

import headrace as hr
from headrace import col
from headrace.host.local.run import Runner, batches_of
from headrace.operators.coalesce import CoalesceKernel
from headrace.optimizer import optimize
from headrace.plan.nodes import Output
from headrace.stages.cut import Line, cut
from headrace.stages.stage import segment_names
from headrace.testing.strategies import batch_sizes, buckets, physical_streams
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY

#: Few payloads, so that events meet; floats among them, where NaN is NaN and -0.0 is 0.0.
COLUMNS = (("one",), ("one",), ("one",), ("k",), ("x",), ("k", "i"))
HALF = max(5, settings().max_examples // 2)


@st.composite
def streams(draw: st.DrawFn, max_events: int = 20) -> hr.Stream:
    events = draw(physical_streams(max_events=max_events))
    stream = sources(events, draw(batch_sizes(len(events))))
    names = draw(st.sampled_from(COLUMNS))
    return stream.select(one=1) if names == ("one",) else stream.select(*names)


@given(streams(), buckets())
def test_differential_coalesce(stream: hr.Stream, n: int):
    differential_reference(stream.coalesce().node, buckets=n)


@settings(max_examples=HALF)
@given(st.data(), buckets())
def test_differential_distinct(data: st.DataObject, n: int):
    events = data.draw(physical_streams())
    stream = sources(events, data.draw(batch_sizes(len(events))))
    columns = data.draw(st.sampled_from([(), ("k",), ("k", (col("i") > 0).alias("positive"))]))
    differential_reference(stream.distinct(*columns).node, buckets=n)


@settings(max_examples=HALF)
@given(streams(max_events=9), st.integers(-4, 6), buckets())
def test_differential_coalesce_among_others(stream: hr.Stream, by: int, n: int):
    """Its corrections are read by others, and it reads theirs: spans that grow by what meets them."""
    spans = stream.union(stream.extend(by)).coalesce()
    again = spans.union(stream.shift(abs(by))).cap_duration(7).coalesce()
    counted = again.window(hr.hopping(6, every=4)).aggregate(n=hr.count())
    differential_reference(counted.node, buckets=n)
    differential_reference(again.final().node, buckets=n)


# --- drawn ----------------------------------------------------------------------------------------------------------


def test_what_meets_or_overlaps_becomes_one_and_what_does_not_stays_apart():
    stream = hr.events("""
        le | re | k
        1  | 5  | a
        5  | 8  | a
        7  | 9  | a
        7  | 9  | a
        10 | ∞  | a
        12 | 14 | a
        5  | 8  | b
    """)
    assert stream.coalesce().cht().to_pylist() == [
        {"le": 1, "re": 9, "k": "a"},
        {"le": 5, "re": 8, "k": "b"},
        {"le": 10, "re": INFINITY, "k": "a"},
    ]


def test_an_event_that_starts_at_the_cti_meets_one_that_ends_there_however_old_its_span_is():
    stream = hr.events("""
        kind    | le | re | re_new | k
        insert  | 1  | 4  |        | a
        insert  | 4  | 8  |        | a
        cti     | 8  |    |        |
        insert  | 8  | 9  |        | a
        cti     | 9  |    |        |
        retract | 8  | 9  | 12     | a
    """, batches=[1] * 6)  # fmt: skip
    events = [(e["kind"], e["le"], e["re"], e["re_new"]) for e in stream.coalesce().run().events().to_pylist()]
    assert [e for e in events if e[0] != "cti"] == [
        ("insert", 1, 4, None),
        ("retract", 1, 4, 8),
        ("retract", 1, 8, 9),
        ("retract", 1, 9, 12),
    ]


def test_an_old_event_that_is_shortened_is_known_again_though_its_span_began_before_it():
    stream = hr.events("""
        kind    | le | re | re_new | k
        insert  | 1  | 4  |        | a
        insert  | 4  | 20 |        | a
        cti     | 8  |    |        |
        retract | 4  | 20 | 9      | a
        insert  | 11 | 12 |        | a
    """, batches=[3, 2])  # fmt: skip
    spans = [(row["le"], row["re"]) for row in stream.coalesce().cht().to_pylist()]
    assert spans == [(1, 9), (11, 12)]


def test_a_deleted_bridge_splits_and_a_duplicate_does_not():
    rows = """
        kind    | le | re | re_new | k
        insert  | 1  | 4  |        | a
        insert  | 4  | 8  |        | a
        insert  | 4  | 8  |        | a
        insert  | 8  | 9  |        | a
        retract | 4  | 8  | 4      | a
        retract | 4  | 8  | 4      | a
    """
    batches = hr.events(rows, batches=[4, 1, 1]).coalesce().run().results["out"].batches
    given = [[(row["__le"], row["__re"], row["__weight"]) for row in c.to_table().to_pylist()] for c, _ in batches]
    assert given[:2] == [[(1, 9, 1)], []]
    assert sorted(given[2]) == [(1, 4, 1), (1, 9, -1), (8, 9, 1)]


# --- what is remembered ---------------------------------------------------------------------------------------------


def kernels(runner: Runner) -> list[CoalesceKernel]:
    found = [k for stage in runner.stages for run in stage for k in run.kernels.values()]
    return [k for k in found if isinstance(k, CoalesceKernel)]


def remembered(kernel: CoalesceKernel, trace: str) -> list[dict[str, Any]]:
    rows = kernel.traces[trace].scan()
    return [] if rows is None else rows.to_pylist()


@settings(max_examples=HALF)
@given(streams())
def test_only_what_can_still_change_is_remembered(stream: hr.Stream):
    line = cut(optimize([Output(stream.coalesce().node, "out")]))
    runner = Runner(line, 2, None)
    for blocks in batches_of(line.sources[0]):
        runner.round({line.sources[0].fingerprint: blocks})
        for kernel in kernels(runner):
            cti = kernel.scalars["cti"]
            assert all(row["__re"] >= cti > row["__le"] for row in remembered(kernel, "open"))
            assert all(row["__le"] >= cti for row in remembered(kernel, "later"))
    runner.end()
    assert not any(trace.rows for kernel in kernels(runner) for trace in kernel.traces.values())


@pytest.mark.parametrize("lasts", [1, 3])
def test_an_endless_chain_of_meeting_events_is_one_span_and_takes_no_room(lasts: int):
    length = 200
    rows: list[dict[str, Any]] = []
    for t in range(length):
        rows += [{"kind": "insert", "le": t, "re": t + lasts, "k": k} for k in "ab"]
        rows.append({"kind": "cti", "le": t, "re": None, "k": None})
    run = hr.events(rows, batches=[3] * length).coalesce().run(finish=False, buckets=1)
    states = [
        op
        for batch in run.statistics
        for part in batch
        for op in part["operators"].values()
        if op["operator"].startswith("Coalesce")
    ]
    assert len(states) == length
    assert max(op["rows"] for op in states) <= 2 * (lasts + 2)
    assert max(op["segments"] for op in states) <= 8
    spans = run.cht().select(["le", "re", "k"]).to_pylist()
    assert spans == [{"le": 0, "re": length - 1 + lasts, "k": k} for k in "ab"]


# --- recovery -------------------------------------------------------------------------------------------------------


def run_with_restarts(line: Line, n: int, restarts: set[int]) -> list[Any]:
    runner = Runner(line, n, None)
    for number, blocks in enumerate(batches_of(line.sources[0])):
        if number in restarts:
            runner = restored(runner)
        runner.round({line.sources[0].fingerprint: blocks})
    runner.end()
    return [(sorted(map(repr, c.to_table().to_pylist())), p) for c, p in runner.done.results["out"].batches]


def restored(runner: Runner) -> Runner:
    """A fresh runner that knows nothing but what the old one wrote down."""
    saved = runner.save()
    for stage in saved.stages:
        for state, segments in stage:
            assert set(segment_names(state["operators"].values())) == set(segments)
    return Runner.restored(runner.line, runner.buckets, None, saved)


@settings(max_examples=HALF)
@given(streams(), buckets())
def test_a_restored_run_continues_as_if_nothing_had_happened(stream: hr.Stream, n: int):
    line = cut(optimize([Output(stream.coalesce().node, "out")]))
    whole = run_with_restarts(line, n, set())
    for number in range(len(whole)):
        assert run_with_restarts(line, n, {number}) == whole
    assert run_with_restarts(line, n, set(range(len(whole)))) == whole
