"""Finality is a property of each answer (rule 3.5): after every batch, `final` has given exactly the answers of the
windows and matches that no legal input can reach any more, which the twins find from the history so far and the CTI.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.ordered import long_streams, ordered_windows
from tests.strategies.paced import paced_streams
from tests.strategies.patterns import measures, patterns

import headrace as hr
from headrace import col
from headrace.operators.reference import bag, rows_of
from headrace.testing.batches import check_same_batches
from headrace.testing.checks import check_output
from headrace.testing.verify.checks import live, restarted
from headrace.testing.verify.differential import differential_reference

SOME = settings(max_examples=max(5, settings().max_examples // 3))
FEW = settings(max_examples=max(5, settings().max_examples // 10))
BUCKETS = st.integers(1, 3)
STREAMS = st.one_of(long_streams(max_events=14), paced_streams(1).map(lambda found: found[0]))
WINDOWS = st.one_of(
    st.integers(1, 6).map(hr.session),
    st.builds(lambda n, by: hr.count_by_start(n) if by else hr.count_by_end(n), st.integers(1, 4), st.booleans()),
    st.builds(hr.hopping, st.integers(1, 8), st.integers(1, 8)),
    st.just(hr.snapshot()),
)
KEYS = st.sampled_from([None, "computed", "k", "k", "x"])
AGGREGATES = {"k": hr.max("k"), "i": hr.count(), "x": hr.sum("x")}


def grouped(stream: hr.Stream, key: str | None) -> Any:
    if key == "computed":
        return stream.group_by(positive=col("i") > 0)
    return stream.group_by(key) if key else stream


def check(query: hr.Stream, buckets: int) -> None:
    """What is given is what the twins say is final, nothing of it is taken back, and in the end it is all there is."""
    final = query.final()
    differential_reference(final.node, buckets=buckets)
    result = live(final.node, buckets)
    check_output(result.events(), retractions=False)
    assert bag(rows_of(result.cht())) == bag(rows_of(live(query.node, buckets).cht()))


class Lasting(hr.Operator):
    """Each event as it is seen, from its start in the window on: shows all that a time-sensitive module can see."""

    time_sensitive = True
    input = "x DOUBLE"
    output = "y DOUBLE, seen STRING"

    def compute(self, events: list[Any], window: Any) -> Any:
        for event in events:
            yield self.event(max(window.le, event.le), window.re + 3, event.x, f"{window.le} {window.re} {event.re}")


class Grown(hr.IncrementalAggregate):
    """A count, kept up."""

    input = "a LONG"
    output = "LONG"

    def initial(self) -> list[int]:
        return [0]

    def add(self, state: list[int], items: list[Any]) -> None:
        state[0] += len(items)

    def remove(self, state: list[int], items: list[Any]) -> None:
        state[0] -= len(items)

    def compute(self, state: list[int]) -> int:
        return state[0]


@SOME
@given(STREAMS, WINDOWS, KEYS, BUCKETS)
def test_aggregates_over_windows(stream: hr.Stream, window: Any, key: str | None, n: int):
    named = {name: call for name, call in AGGREGATES.items() if name != key}
    check(grouped(stream, key).window(window).aggregate(**named, top=hr.max("i")), n)


@SOME
@given(STREAMS, WINDOWS, KEYS, st.sampled_from(["none", "left", "right", "full"]), st.booleans(), BUCKETS)
def test_modules_that_see_times(
    stream: hr.Stream, window: Any, key: str | None, clipping: Any, own_times: bool, n: int
):
    timestamping: Any = "unchanged" if own_times else "align"
    whole = grouped(stream, key).window(window, clipping=clipping, timestamping=timestamping)
    check(whole.operate(Lasting(), "x"), n)


@FEW
@given(STREAMS, WINDOWS, KEYS, BUCKETS)
def test_modules_with_a_state_rankings_and_contents(stream: hr.Stream, window: Any, key: str | None, n: int):
    windows = grouped(stream, key).window(window)
    check(windows.aggregate(g=Grown().of("i")), n)
    check(windows.top(2, "x"), n)
    check(windows.contents(start="at"), n)


@SOME
@given(STREAMS, ordered_windows(), KEYS, BUCKETS)
def test_windows_of_tuples(stream: hr.Stream, window: Any, key: str | None, n: int):
    check(grouped(stream, key).window(window).aggregate(n=hr.count(), s=hr.sum("i"), high=hr.max("i")), n)


@FEW
@given(STREAMS, ordered_windows(), KEYS, BUCKETS)
def test_modules_over_windows_of_tuples(stream: hr.Stream, window: Any, key: str | None, n: int):
    check(grouped(stream, key).window(window, timestamping="unchanged").operate(Lasting(), "x"), n)


@SOME
@given(STREAMS, st.data(), KEYS, st.sampled_from(["one", "one", "all"]), BUCKETS)
def test_patterns(stream: hr.Stream, data: st.DataObject, key: str | None, rows: Any, n: int):
    pattern = data.draw(patterns())
    named = {f"m_{name}": expr for name, expr in data.draw(measures(pattern)).items()}
    check(grouped(stream, key).match(pattern, rows=rows, **named), n)


def _sessions(stream: hr.Stream) -> hr.Stream:
    return stream.group_by("k").window(hr.session(3)).aggregate(i=hr.count(), x=hr.sum("x"))


BEHIND: list[Callable[[hr.Stream, hr.Stream], hr.Stream]] = [
    lambda a, _: _sessions(a).where(col("i") > 1).select("k", n=col("i") * 2),
    lambda a, _: _sessions(a).shift(4).set_duration(2),
    lambda a, _: _sessions(a).extend(-1).point_at_end(),
    lambda a, b: _sessions(a).union(_sessions(b)).cap_duration(3),
    lambda a, b: _sessions(a).union(b.set_duration(2)).where(col("i") > 0),
    lambda a, b: a.union(b).extend(2),
    lambda a, _: _sessions(a).final().where(col("i") > 0),
    lambda a, _: a.final().set_duration(3),
    lambda a, b: _sessions(_sessions(a).union(b)),
    lambda a, b: _sessions(a).join(b, "k").select("k", "i"),
    lambda a, _: a.group_by(g=col("k")).apply(lambda g: _sessions(g).where(col("i") > 0)),
    lambda a, _: a.group_by(g=col("k")).apply(lambda g: _sessions(g).final()),
    lambda a, _: a.group_by(g=col("k")).apply(lambda g: g.extend(1)).set_duration(2),
    lambda a, _: a.group_by("k").over(rows=1).aggregate(s=hr.sum("i")),
    lambda a, _: a.group_by("k").over(range=4, slide=3).aggregate(s=hr.sum("i")),
]


@SOME
@given(paced_streams(2), st.sampled_from(BEHIND), BUCKETS)
def test_among_other_operators(
    streams: tuple[hr.Stream, hr.Stream], query: Callable[[hr.Stream, hr.Stream], hr.Stream], n: int
):
    check(query(*streams), n)


@FEW
@given(STREAMS, WINDOWS, KEYS, BUCKETS)
def test_restarts_do_not_show(stream: hr.Stream, window: Any, key: str | None, n: int):
    node = grouped(stream, key).window(window).aggregate(n=hr.count()).final().node
    check_same_batches(restarted(node, n), live(node, n), "restarted after every batch")
