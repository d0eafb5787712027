"""`point_at_end` and `cap_duration` equal their twins, and what is known of them holds (rules 3.5 and 4)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import sources

import headrace as hr
from headrace.errors import PlanError
from headrace.testing.checks import check_output
from headrace.testing.strategies import batch_sizes, buckets, physical_streams
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY

HALF = max(5, settings().max_examples // 2)


@st.composite
def streams(draw: st.DrawFn, *, retractions: bool = True) -> hr.Stream:
    events = draw(physical_streams(retractions=retractions))
    return sources(events, draw(batch_sizes(len(events))))


@st.composite
def cut_short(draw: st.DrawFn, stream: hr.Stream) -> hr.Stream:
    """One of the two, or one over the other."""
    length = draw(st.integers(1, 9))
    return draw(
        st.sampled_from(
            [
                stream.point_at_end(),
                stream.cap_duration(length),
                stream.cap_duration(length).point_at_end(),
                stream.point_at_end().extend(length - 1).cap_duration(3),
            ]
        )
    )


@given(st.data(), streams(), buckets())
def test_differential(data: st.DataObject, stream: hr.Stream, n: int):
    differential_reference(data.draw(cut_short(stream)).node, buckets=n)


@settings(max_examples=HALF)
@given(st.data(), streams(), buckets())
def test_differential_finality_and_windows_over_them(data: st.DataObject, stream: hr.Stream, n: int):
    short = data.draw(cut_short(stream))
    counted = short.group_by("k").window(hr.hopping(5, every=3)).aggregate(n=hr.count(), m=hr.max("i"))
    differential_reference(counted.node, buckets=n)
    differential_reference(short.final().node, buckets=n)


@settings(max_examples=HALF)
@given(st.data(), streams())
def test_a_settled_stream_never_changes_a_lifetime_and_an_insert_only_one_takes_nothing_back(
    data: st.DataObject, stream: hr.Stream
):
    short = data.draw(cut_short(stream))
    events = short.run().events()
    if short.node.properties.settled:
        moved = [e for e in events.to_pylist() if e["kind"] == "retract" and e["re_new"] != e["le"]]
        assert moved == []
    check_output(events, retractions=not short.node.properties.insert_only)


def test_what_ends_gives_a_point_where_it_ends():
    stream = hr.events("le | re | k \n 1 | 5 | a \n 2 | ∞ | b \n 4 | 5 | c")
    assert stream.point_at_end().cht().to_pylist() == [{"le": 5, "re": 6, "k": "a"}, {"le": 5, "re": 6, "k": "c"}]


def test_an_end_that_moves_takes_its_point_along():
    stream = hr.events("""
        kind    | le | re | re_new | k
        insert  | 1  | ∞  |        | a
        retract | 1  | ∞  | 7      | a
        retract | 1  | 7  | 9      | a
        cti     | 8  |    |        |
    """, batches=[1] * 4)  # fmt: skip
    events = [(e["kind"], e["le"], e["re"], e["re_new"]) for e in stream.point_at_end().run().events().to_pylist()]
    assert events[:3] == [("insert", 7, 8, None), ("retract", 7, 8, 7), ("insert", 9, 10, None)]


def test_only_what_lasts_too_long_is_cut():
    stream = hr.events("le | re | k \n 1 | 3 | a \n 1 | 4 | b \n 1 | 5 | c \n 1 | ∞ | d")
    ends = {row["k"]: row["re"] for row in stream.cap_duration(3).cht().to_pylist()}
    assert ends == {"a": 3, "b": 4, "c": 4, "d": 4}


def test_at_the_end_of_time_nothing_overflows():
    stream = hr.events([{"le": 2**59, "re": 2**60 - 1, "k": 1}, {"le": 2**59, "re": "inf", "k": 2}])
    assert [row["re"] for row in stream.cap_duration(INFINITY).cht().to_pylist()] == [2**60 - 1, INFINITY]
    assert [row["re"] for row in stream.shift(2**62).cap_duration(2**62).cht().to_pylist()] == [5 * 2**60 - 1, INFINITY]
    assert stream.shift(2**63 - 2**60 - 1).point_at_end().cht()["re"].to_pylist() == [INFINITY]


@pytest.mark.parametrize("length", [0, -1, "-3 s"])
def test_a_duration_that_is_not_positive_is_refused(length: object):
    with pytest.raises(PlanError, match="positive") as raised:
        hr.events("le | k \n 1 | a").cap_duration(length)
    assert raised.value.instead == "cap_duration('10 s')"
