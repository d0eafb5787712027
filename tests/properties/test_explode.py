"""`explode` equals its twin, over random batches, corrections and buckets (rule 4.12)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.plans import sources

import headrace as hr
from headrace import col
from headrace.errors import PlanError
from headrace.testing.strategies import batch_sizes, buckets, physical_streams
from headrace.testing.verify.differential import differential_reference


@st.composite
def exploded(draw: st.DrawFn) -> hr.Stream:
    """Elements of lists of several lengths, none of them included."""
    events = draw(physical_streams())
    stream = sources(events, draw(batch_sizes(len(events))))
    position, outer = draw(st.sampled_from([None, "n"])), draw(st.booleans())
    if draw(st.booleans()):
        collected = stream.group_by("k").window(hr.tumbling(4)).aggregate(a=hr.collect("i"), m=hr.max("i"))
        return collected.explode("a", position=position, outer=outer)
    return stream.select("k", a=hr.array("i", 3, None)).explode("a", into="y", position=position, outer=outer)


@given(exploded(), buckets(), st.booleans())
def test_differential(stream: hr.Stream, n: int, final: bool):
    differential_reference((stream.final() if final else stream).node, buckets=n)


@given(exploded())
def test_differential_inside_apply(stream: hr.Stream):
    inside = stream.group_by("k").apply(lambda group: group.select(b=hr.array(hr.lit(1), 2)).explode("b"))
    differential_reference(inside.node)


def test_lists_without_elements():
    stream = hr.events("""
        kind    | le | re | re_new | k | i
        insert  | 1  | 9  |        | a | 1
        retract | 1  | 9  | 4      | a | 1
        cti     | 9  |    |        |   |
    """)  # fmt: skip
    lists = stream.select("k", a=hr.array("i", 2))
    shown = lists.explode("a", position="n").cht().to_pylist()
    assert [(row["re"], row["a"], row["n"]) for row in shown] == [(4, 1, 1), (4, 2, 2)]
    none = lists.group_by("k").window(hr.tumbling(9)).aggregate(a=hr.collect("k", where=col("k") == "z"))
    assert none.explode("a").cht().num_rows == 0
    assert none.explode("a", outer=True).cht().to_pylist() == [{"le": 0, "re": 9, "k": "a", "a": None}]


def test_only_lists_have_elements():
    with pytest.raises(PlanError, match="only a list has elements"):
        hr.events("le | k \n 1 | a").explode("k")
