"""Random streams: the times of events as columns, against their twins and against batch SQL (rule 4.10)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import sources

import headrace as hr
from headrace import col
from headrace.plan.nodes import HeldEventTimes, walk
from headrace.testing.checks import check_output
from headrace.testing.strategies import batch_sizes, buckets, physical_streams
from headrace.testing.verify.differential import differential_reference

HALF = max(5, settings().max_examples // 2)

USES = {
    "select": lambda s: s.select("k", "i", a=hr.start(), b=hr.end(), c=hr.end() - hr.start()),
    "start alone": lambda s: s.select("k", a=hr.start() + col("i")),
    "where": lambda s: s.where(hr.start() % 3 != 0),
    "where ended": lambda s: s.where(hr.end().is_not_null() & (hr.end() - hr.start() > 2)),
    "after a shift": lambda s: s.shift(2).where(hr.start() > 4).shift(-1).select("k", "i", "x", a=hr.end()),
    "key": lambda s: s.group_by(hr.start()).window(hr.tumbling(4)).aggregate(n=hr.count()),
    "key by end": lambda s: s.group_by("k", at=hr.end() % 2).window(hr.snapshot()).aggregate(m=hr.max("x")),
    "argument": lambda s: s.group_by("k").window(hr.hopping(6, 3)).aggregate(a=hr.min(hr.start()), b=hr.max(hr.end())),
    "session": lambda s: s.window(hr.session(3)).aggregate(a=hr.window_start(), b=hr.window_end(), n=hr.count()),
    "snapshot": lambda s: (
        s.group_by("k").window(hr.snapshot()).aggregate(lasts=hr.window_end() - hr.window_start(), n=hr.sum("i"))
    ),
    "after a window": lambda s: (
        s.group_by("k").window(hr.tumbling(5)).aggregate(n=hr.count()).where(hr.window_start() % 2 == 0)
    ),
    "over": lambda s: s.group_by("k").over(rows=2).aggregate(first=hr.min(hr.start()), last=hr.max(hr.end())),
    "group": lambda s: s.group_by("k").apply(lambda g: g.where(hr.end() > 6).select("i", a=hr.start())),
    "final": lambda s: s.select("k", a=hr.start(), b=hr.end()).final(),
    "where final": lambda s: s.where(hr.end() > 5).final(),
    "windows of ends": lambda s: s.select(b=hr.end()).window(hr.tumbling(4)).aggregate(n=hr.count(), m=hr.max("b")),
    "join": lambda s: s.join(s.shift(2), "k", where=hr.start() < hr.start(of="right")),
    "anti join": lambda s: s.anti_join(s.shift(3), "k", where=hr.end() > hr.end(of="right")),
}  # fmt: skip


@st.composite
def streams(draw: st.DrawFn) -> hr.Stream:
    events = draw(physical_streams(retractions=draw(st.booleans())))
    return sources(events, draw(batch_sizes(len(events))))


@given(st.sampled_from(list(USES)), streams(), buckets())
def test_differential(name: str, stream: hr.Stream, n: int):
    differential_reference(USES[name](stream).node, buckets=n)


@settings(max_examples=HALF, deadline=None)
@given(st.sampled_from(list(USES)), streams())
def test_oracle_batch_sql_agrees_and_no_promise_is_broken(name: str, stream: hr.Stream):
    query = USES[name](stream)
    run = query.run()
    check_output(run.events())
    history = query.history(engine="duckdb").cht()
    assert hr.history_diff(run.cht(), history, names=("live", "history")) == ""


@settings(max_examples=HALF)
@given(streams(), streams())
def test_times_are_those_of_the_stream_they_are_read_from(one: hr.Stream, other: hr.Stream):
    rows = one.union(other).select(a=hr.start(), b=hr.end()).cht().to_pylist()
    assert all(row["a"] == row["le"] and (row["b"] or hr.INFINITY) == row["re"] for row in rows)


def test_only_ends_that_may_change_are_waited_for():
    points = hr.events("le | k \n 1 | a").point_at_start()
    windows = points.window(hr.tumbling(5)).aggregate(n=hr.count())
    revised = hr.events("le | re | k \n 1 | 9 | a")
    for stream, waits in ((points, False), (windows, False), (revised, True)):
        plan = stream.select(b=hr.end()).node
        assert any(isinstance(node, HeldEventTimes) for node in walk(plan)) == waits
    assert not any(isinstance(node, HeldEventTimes) for node in walk(revised.select(a=hr.start()).node))


def test_an_end_that_is_corrected_is_another_payload_from_the_start_on():
    stream = hr.events("""
        kind    | le | re | re_new | k
        insert  | 1  | ∞  |        | a
        cti     | 4  |    |        |
        retract | 1  | ∞  | 10     | a
        cti     | 11 |    |        |
    """, batches=[1] * 4)  # fmt: skip
    events = stream.select("k", b=hr.end()).run().events().to_pylist()
    shown = [(e["kind"], e["le"], e["re_new"], e["b"]) for e in events]
    assert shown == [
        ("insert", 1, None, None),
        ("cti", 1, None, None),  # and not 4: the end of a may still change
        ("retract", 1, 1, None),
        ("insert", 1, None, 10),
        ("cti", 11, None, None),
        ("cti", hr.INFINITY, None, None),
    ]


def test_a_filter_on_starts_does_not_move_below_what_moves_them():
    stream = hr.events("le | re | k \n 1 | 5 | a \n 4 | 6 | b")
    assert stream.shift(3).where(hr.start() < 5).cht()["k"].to_pylist() == ["a"]
    assert stream.where(hr.start() < 4).shift(3).cht()["k"].to_pylist() == ["a"]
    assert stream.shift(3).where(hr.start() < 4).cht().num_rows == 0
