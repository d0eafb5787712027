"""Random streams: lifetimes by expression, and lifetimes cut at a grid, against twins and batch SQL (rule 4.11)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import sources

import headrace as hr
from headrace import col
from headrace.expr import greatest
from headrace.expr.arrow.dates import FIRST_DAY, LAST_TICK
from headrace.testing.checks import check_output
from headrace.testing.strategies import SCHEMA, batch_sizes, buckets, physical_streams
from headrace.testing.verify.differential import differential_reference

HALF = max(5, settings().max_examples // 2)

ALTERED = {
    "duration": lambda s: s.set_duration(col("i") + 2),
    "endless": lambda s: s.set_duration(hr.when(col("i") > 0).then(col("i"))),
    "end": lambda s: s.alter_lifetime(end=hr.start() + col("i")),
    "own end": lambda s: s.alter_lifetime(end=hr.end() - 1),
    "longer by its length": lambda s: s.alter_lifetime(duration=(hr.end() - hr.start()) * 2),
    "later": lambda s: s.alter_lifetime(start=hr.start() + 2),
    "earlier": lambda s: s.alter_lifetime(start=hr.start() - 3),
    "from its end": lambda s: s.alter_lifetime(start=hr.end(), duration=3),
    "not before": lambda s: s.alter_lifetime(start=greatest(hr.start() - 2, col("i")), duration=4),
    "bounded": lambda s: s.alter_lifetime(start=hr.start() + col("i") % 4, earliest=4),
    "bounded to the end": lambda s: s.alter_lifetime(start=hr.start() + col("i") % 3, end=hr.end(), earliest=3),
    "null starts": lambda s: s.alter_lifetime(start=hr.when(col("i") > 0).then(hr.start())),
    "chopped": lambda s: s.cap_duration(9).chop(4),
    "chopped elsewhere": lambda s: s.cap_duration(12).chop(5, origin=-3),
    "chopped twice": lambda s: s.cap_duration(7).chop(3).chop(2, origin=1),
}
#: Times near ±2**60 ticks, too far for windows above.
FAR = {
    "near the limit": lambda s: s.alter_lifetime(start=hr.start() - 2**60 + 5, duration=col("i") + 2**60),
    "late ends": lambda s: s.set_duration(col("i") + 2**60 - 6),
    "before all starts": lambda s: s.alter_lifetime(end=hr.end() - 2**61),
}


@st.composite
def streams(draw: st.DrawFn) -> hr.Stream:
    events = draw(physical_streams(retractions=draw(st.booleans())))
    return sources(events, draw(batch_sizes(len(events))))


ABOVE = {
    "nothing": lambda s: s,
    "windows": lambda s: s.group_by("k").window(hr.hopping(5, 3)).aggregate(n=hr.count(), m=hr.max("i")),
    "snapshots": lambda s: s.window(hr.snapshot()).aggregate(n=hr.count(), m=hr.sum("i")),
    "final": lambda s: s.final(),
    "join": lambda s: s.join(s.shift(1), "k"),
    "over": lambda s: s.group_by("k").over(rows=2).aggregate(n=hr.sum("i")),
    "times": lambda s: s.select("k", a=hr.start(), b=hr.end()),
}


@given(st.sampled_from(list(ALTERED)), st.sampled_from(list(ABOVE)), streams(), buckets())
def test_differential(name: str, above: str, stream: hr.Stream, n: int):
    differential_reference(ABOVE[above](ALTERED[name](stream)).node, buckets=n)


@given(st.sampled_from(list(ALTERED | FAR)), streams(), buckets())
def test_differential_in_groups(name: str, stream: hr.Stream, n: int):
    differential_reference(stream.group_by("k").apply((ALTERED | FAR)[name]).node, buckets=n)


@settings(max_examples=HALF, deadline=None)
@given(st.sampled_from(list(ALTERED | FAR)), streams())
def test_oracle_batch_sql_agrees_and_no_promise_is_broken(name: str, stream: hr.Stream):
    query = (ALTERED | FAR)[name](stream)
    run = query.run()
    check_output(run.events())
    history = query.history(engine="duckdb").cht()
    assert hr.history_diff(run.cht(), history, names=("live", "history")) == ""


DATED = {
    "own end": lambda s: s.alter_lifetime(end=hr.end() - "1 us"),
    "earlier": lambda s: s.alter_lifetime(start=hr.start() - "3 us"),
    "from its end": lambda s: s.alter_lifetime(start=hr.end(), duration=3),
    "not before": lambda s: s.alter_lifetime(start=greatest(hr.start() - "2 us", hr.lit("9999-12-31")), duration=4),
    "some": lambda s: s.alter_lifetime(start=hr.when(hr.end() > "9999-12-31").then(hr.start() + "1 us")),
    "times": lambda s: s.select("k", a=hr.start(), b=hr.end()),
}


@settings(max_examples=HALF, deadline=None)
@given(st.sampled_from(list(DATED)), streams(), st.sampled_from([FIRST_DAY, LAST_TICK]), buckets())
def test_differential_at_the_ends_of_the_calendar(name: str, stream: hr.Stream, at: int, n: int):
    dates = hr.events("le | k | i | x \n 2024-01-01 | a | 1 | 1", SCHEMA).where(hr.lit(value=False))
    query = DATED[name](stream.union(dates).shift(at - 6))
    differential_reference(query.node, buckets=n)
    run = query.run()
    check_output(run.events())
    assert hr.history_diff(run.cht(), query.history(engine="duckdb").cht(), names=("live", "history")) == ""


@settings(max_examples=HALF)
@given(streams(), st.integers(1, 6), st.integers(-5, 5))
def test_pieces_meet_and_coalesce_to_what_was_chopped(stream: hr.Stream, every: int, origin: int):
    short = stream.cap_duration(9)
    pieces = short.chop(every, origin)
    assert all((row["re"] - 1 - origin) // every == (row["le"] - origin) // every for row in pieces.cht().to_pylist())
    assert hr.history_diff(pieces.coalesce().cht(), short.coalesce().cht(), names=("pieces", "whole")) == ""


@settings(max_examples=HALF)
@given(streams(), st.integers(1, 9))
def test_a_constant_is_the_operator_of_constants(stream: hr.Stream, ticks: int):
    by_expression = stream.set_duration(col("i") * 0 + ticks).where(col("i").is_not_null())
    plain = stream.set_duration(ticks).where(col("i").is_not_null())
    assert hr.history_diff(by_expression.cht(), plain.cht(), names=("expression", "constant")) == ""
