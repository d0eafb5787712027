"""Windows of every kind equal their twins, batch by batch: history and promise (rules 5 and 6.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.operators.registry import runs_as
from headrace.plan.nodes import Top
from headrace.plan.windows import Session
from headrace.testing.strategies import SCHEMA, batch_sizes, buckets, physical_streams, tables
from headrace.testing.verify.differential import differential_reference

HALF = settings(max_examples=max(5, settings().max_examples // 2))


@st.composite
def streams(draw: st.DrawFn, max_events: int = 10) -> hr.Stream:
    events = draw(physical_streams(max_events=max_events))
    return hr.events(tables(events), SCHEMA, batches=draw(batch_sizes(len(events))))


def windows() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.just(hr.snapshot()),
        st.builds(hr.count_by_start, st.integers(1, 4)),
        st.builds(hr.count_by_end, st.integers(1, 4)),
        st.builds(hr.session, st.integers(1, 8), st.one_of(st.none(), st.integers(1, 12))),
    )


def grids() -> st.SearchStrategy[Any]:
    return st.builds(hr.hopping, st.integers(1, 9), st.integers(1, 9), st.integers(-3, 3))


AGGREGATES = {
    "n": hr.count(), "s": hr.sum("i"), "a": hr.avg("x"), "low": hr.min("x"), "high": hr.max("i"),
    "f": hr.first("x"), "l": hr.last("i"), "v": hr.var("x"),
}  # fmt: skip


COMPUTED = {
    "i + 1": {"key1": col("i") + 1},
    "k and i": {"key1": col("k"), "key2": col("k"), "key3": col("i") > 1},
    "i": {"key1": col("i")},
}


def grouped(stream: hr.Stream, key: str | None) -> Any:
    if key in COMPUTED:
        return stream.group_by(**COMPUTED[key])
    return stream.group_by(key) if key else stream


KEYS = st.sampled_from(["k", None, "x", "k", *COMPUTED])


@given(streams(), windows(), KEYS, st.sets(st.sampled_from(sorted(AGGREGATES)), min_size=1), buckets())
def test_differential_aggregates(stream: hr.Stream, window: Any, key: str | None, names: set[str], n: int):
    out = grouped(stream, key).window(window).aggregate(**{name: AGGREGATES[name] for name in sorted(names)})
    differential_reference(out.node, buckets=n)


SUMS = {"n": hr.count(), "s": hr.sum("i"), "a": hr.avg("x"), "v": hr.var("i"), "c": hr.count("x") + hr.sum("i")}


@given(streams(16), st.builds(hr.session, st.integers(1, 8)), KEYS, st.sets(st.sampled_from(sorted(SUMS)), min_size=1),
       buckets())  # fmt: skip
def test_differential_sums_of_sessions(stream: hr.Stream, window: Any, key: str | None, names: set[str], n: int):
    """Sessions that are rows of sums: they are extended, join, lose events and fall apart."""
    out = grouped(stream, key).window(window).aggregate(**{name: SUMS[name] for name in sorted(names)})
    assert "sums for each session" in runs_as(out.node)
    differential_reference(out.node, buckets=n)
    differential_reference(out.final().node, buckets=n)


@given(streams(), st.one_of(windows(), grids()), KEYS, st.integers(1, 3), st.sampled_from(["x", "i", ["k", "x"]]),
       st.booleans(), buckets())  # fmt: skip
def test_differential_top(stream: hr.Stream, window: Any, key: str | None, k: int, by: Any, down: bool, n: int):
    differential_reference(grouped(stream, key).window(window).top(k, by, descending=down).node, buckets=n)


@given(streams(), st.one_of(windows(), grids()), KEYS, st.integers(1, 2), buckets())
def test_differential_top_of_each_and_distinct(stream: hr.Stream, window: Any, key: str | None, k: int, n: int):
    whole = grouped(stream, key).window(window)
    differential_reference(whole.top(k, "x", each="i").node, buckets=n)
    differential_reference(whole.distinct("k", "i").node, buckets=n)
    top = whole.top(k, "x", each="i").node
    assert isinstance(top, Top)
    differential_reference(replace(top, distinct=(col("k"), col("i"))), buckets=n)


# --- modules --------------------------------------------------------------------------------------------------------


class Listed(hr.Aggregate):
    """All values as text: shows everything a time-insensitive module can see."""

    input = "a LONG, b DOUBLE"
    output = "STRING"

    def compute(self, rows: list[Any]) -> str:
        return str([(row.a, row.b) for row in rows])


class Timed(hr.Aggregate):
    """All events and the window as text: shows everything a time-sensitive module can see."""

    time_sensitive = True
    input = "b DOUBLE"
    output = "STRING"

    def compute(self, events: list[Any], window: Any) -> str:
        return f"{window.le} {window.re} {[tuple(event) for event in events]}"


class Halves(hr.Operator):
    """Two outputs for each value."""

    input = "a LONG"
    output = "a LONG, half DOUBLE"

    def compute(self, values: list[Any]) -> Any:
        for value in values:
            yield value, None if value is None else value / 2
            yield {"half": 0.0, "a": len(values)}


class Later(hr.Operator):
    """Each event from the window's start or its own, whichever is later, for three ticks; and one for the window."""

    time_sensitive = True
    input = "b DOUBLE"
    output = "b DOUBLE, n LONG"

    def compute(self, events: list[Any], window: Any) -> Any:
        for event in events:
            yield self.event(max(window.le, event.le), max(window.le, event.le) + 3, b=event.b, n=len(events))
        yield self.event(window.le, window.re, None, sum(min(event.re, 100) for event in events))


class Onwards(hr.Operator):
    """Each event from its own start for two ticks: depends on nothing later, as `time_bound` asks."""

    time_sensitive = True
    input = "b DOUBLE"
    output = "b DOUBLE"

    def compute(self, events: list[Any], window: Any) -> Any:
        return [self.event(event.le, event.le + 2, event.b) for event in events if event.le >= window.le]


CLIPPINGS = st.sampled_from(["none", "left", "right", "full"])


@HALF
@given(streams(), st.one_of(windows(), grids()), KEYS, buckets())
def test_differential_insensitive_modules(stream: hr.Stream, window: Any, key: str | None, n: int):
    whole = grouped(stream, key).window(window)
    differential_reference(whole.aggregate(t=Listed().of("i", "x"), n=hr.count()).node, buckets=n)
    differential_reference(whole.operate(Halves(), "i").node, buckets=n)


@given(streams(), st.one_of(windows(), grids()), KEYS, CLIPPINGS, buckets())
def test_differential_sensitive_aggregates(stream: hr.Stream, window: Any, key: str | None, clipping: Any, n: int):
    whole = grouped(stream, key).window(window, clipping=clipping)
    out = whole.aggregate(t=Timed().of("x"), l=Listed().of("i", "x"), s=hr.sum("i"))
    differential_reference(out.node, buckets=n)


@given(
    streams(),
    st.one_of(windows(), grids()),
    KEYS,
    CLIPPINGS,
    st.sampled_from(["align", "unchanged", "clip"]),
    buckets(),
)
def test_differential_sensitive_operators(
    stream: hr.Stream, window: Any, key: str | None, clipping: Any, timestamping: Any, n: int
):
    out = grouped(stream, key).window(window, clipping=clipping, timestamping=timestamping).operate(Later(), "x")
    differential_reference(out.node, buckets=n)


# A count window of several times is complete only when the last of them is there: too late for its first events.
BOUND = st.one_of(st.just(hr.snapshot()), st.just(hr.count_by_start(1)), st.builds(hr.session, st.integers(1, 8)))


@HALF
@given(streams(), st.one_of(BOUND, grids()), KEYS, CLIPPINGS, buckets())
def test_differential_time_bound(stream: hr.Stream, window: Any, key: str | None, clipping: Any, n: int):
    out = grouped(stream, key).window(window, clipping=clipping, timestamping="time_bound").operate(Onwards(), "x")
    differential_reference(out.node, buckets=n)


# --- incremental modules --------------------------------------------------------------------------------------------


class Bag(hr.IncrementalAggregate):
    """The values as text, kept sorted: shows every item that was added and not removed."""

    input = "a LONG"
    output = "STRING"

    def initial(self) -> list[Any]:
        return []

    def add(self, state: list[Any], items: list[Any]) -> list[Any]:
        return state + items

    def remove(self, state: list[Any], items: list[Any]) -> None:
        for item in items:
            state.remove(item)

    def compute(self, state: list[Any]) -> str:
        return str(sorted(state, key=lambda v: (v is None, v or 0)))


class Growing(Bag):
    """The same, but nothing can be taken back."""

    remove = hr.IncrementalAggregate.remove


class Ordered(hr.IncrementalOperator):
    """Depends on the order items come in, and on the window."""

    order_sensitive = True
    time_sensitive = True
    input = "b DOUBLE"
    output = "text STRING"

    def initial(self) -> str:
        return ""

    def add(self, state: str, items: list[Any]) -> str:
        return state + "".join(f"{item.le}-{item.re}:{item.b};" for item in items)

    def compute(self, state: str, window: Any) -> Any:
        yield self.event(window.le, window.re, state)


@given(streams(), st.one_of(windows(), grids()), KEYS, st.sampled_from([Bag, Growing]), buckets())
def test_differential_incremental_aggregates(stream: hr.Stream, window: Any, key: str | None, kind: Any, n: int):
    out = grouped(stream, key).window(window).aggregate(t=kind().of("i"), n=hr.count("x"))
    differential_reference(out.node, buckets=n)


@HALF
@given(streams(), st.one_of(windows(), grids()), KEYS, CLIPPINGS, buckets())
def test_differential_incremental_operators(stream: hr.Stream, window: Any, key: str | None, clipping: Any, n: int):
    out = grouped(stream, key).window(window, clipping=clipping).operate(Ordered(), "x")
    differential_reference(out.node, buckets=n)


@given(streams(14), st.one_of(st.just(hr.snapshot()), grids()), KEYS, st.sampled_from([Bag, Growing]), buckets())
def test_differential_states_beside_sums(stream: hr.Stream, window: Any, key: str | None, kind: Any, n: int):
    sums = {name: AGGREGATES[name] for name in ("n", "s", "a", "v", "low", "high")}
    differential_reference(grouped(stream, key).window(window).aggregate(t=kind().of("i"), **sums).node, buckets=n)


@given(streams(14), KEYS, buckets())
def test_differential_extremes_at_instants(stream: hr.Stream, key: str | None, n: int):
    extremes = {"low": hr.min("x"), "high": hr.max("x"), "first": hr.min("k"), "n": hr.count("i")}
    differential_reference(grouped(stream, key).window(hr.snapshot()).aggregate(**extremes).node, buckets=n)


def lone_windows() -> st.SearchStrategy[Any]:
    """Windows of which every event starts in one."""
    return st.one_of(
        windows().filter(lambda window: isinstance(window, Session)), st.builds(hr.tumbling, st.integers(1, 9))
    )


@given(streams(), lone_windows(), KEYS, buckets())
def test_differential_events_with_columns_of_their_windows(stream: hr.Stream, window: Any, key: str | None, n: int):
    out = grouped(stream, key).window(window).with_columns(many=hr.count(), s=hr.sum("i"), begin=hr.window_start())
    differential_reference(out.node, buckets=n)
    found = out.cht()
    assert hr.same_history(found, out.history("duckdb").cht())
    # Every event is there once, as it was.
    own = stream.select(**{name: col(name) for name in ("k", "i", "x")}).cht()
    assert hr.same_history(found.select(own.column_names), own)
