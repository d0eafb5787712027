"""Random windows of tuples for property tests, over streams with the columns of `strategies.SCHEMA`.

Like `strategies` it needs hypothesis.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from headrace.api.inputs import events
from headrace.api.stream import Stream
from headrace.expr import col, lit
from headrace.plan.ordered import By, Delta, Fixed, Landmark, Ordered, Slides, Time, Trigger, Tuples
from headrace.testing.strategies import SCHEMA, batch_sizes, physical_streams, tables

__all__ = ["frames", "long_streams", "ordered_windows", "slides"]

_COUNTS = st.sampled_from([1, 2, 3, 4, 6])
_SPANS = st.sampled_from([1, 2, 3, 5, 9])
_TRIGGERS = st.one_of(st.builds(Tuples, _COUNTS), st.builds(Time, _SPANS))
_NEAR = st.sampled_from([By("i", 1), By("i", 4), By("x", 0.5), By("x", 3.0)])
_SIZES = st.one_of(st.builds(Tuples, _COUNTS), st.builds(Time, _SPANS), _NEAR)


@st.composite
def long_streams(draw: st.DrawFn, max_events: int = 16) -> Stream:
    """Streams in batches of any size, long enough for several CTIs with tuples between them."""
    least = min(8, max_events - 3)
    drawn = draw(physical_streams(min_events=least, max_events=max_events, odd=draw(st.booleans())))
    return events(tables(drawn), SCHEMA, batches=draw(batch_sizes(len(drawn))))


@st.composite
def slides(draw: st.DrawFn) -> Slides:
    """Every pair of a size and a slide, under every tick."""
    every = draw(_TRIGGERS)
    tick = draw(st.sampled_from(["tuple", "time", "batch"]))
    batch = draw(st.sampled_from([None, "k", "x"])) if tick == "batch" else None
    starting = draw(st.sampled_from([None, "first", 2, -3])) if isinstance(every, Time) else None
    return Slides(draw(_SIZES), every, tick, batch, starting)  # type: ignore[arg-type]


def _deltas() -> st.SearchStrategy[Delta]:
    square = (col("x") - col("first.x")) * (col("x") - col("first.x"))
    return st.sampled_from(
        [Delta(col("i") - col("first.i"), lit(1)), Delta(square, lit(2.0)), Delta(col("i"), col("first.i") + 2)]
    )


@st.composite
def _fixed(draw: st.DrawFn) -> Fixed:
    start = draw(st.integers(0, 20))
    return Fixed(start, start + draw(st.integers(1, 15)))


def ordered_windows() -> st.SearchStrategy[Ordered]:
    """Windows of tuples of every kind, more than half of them slides."""
    landmarks = st.builds(Landmark, st.integers(0, 15), _TRIGGERS)
    kinds: list[st.SearchStrategy[Any]] = [_deltas(), landmarks, _fixed(), *[slides()] * 5]
    return st.sampled_from(kinds).flatmap(lambda kind: kind)


@st.composite
def frames(draw: st.DrawFn) -> dict[str, Any]:
    """What `over` may be called with; half of them slide."""
    kind = draw(st.sampled_from(["rows", "range", "all"]))
    frame: dict[str, Any] = {
        "rows": {"rows": draw(st.integers(0, 4))},
        "range": {"range": draw(st.integers(0, 8))},
    }.get(kind, {})
    slides: dict[str, list[Trigger]] = {"rows": [Tuples(1), Tuples(2), Tuples(3), Tuples(5)],
                                        "range": [Time(1), Time(2), Time(3), Time(7)]}  # fmt: skip
    slides["all"] = [*slides["rows"], *slides["range"]]
    return frame | ({"slide": draw(st.sampled_from(slides[kind]))} if draw(st.booleans()) else {})
