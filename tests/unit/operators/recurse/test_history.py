"""The history of a loop, by SQL that goes round over the whole of it, is the live query's (rule 10.1)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from tests.unit.operators.recurse.loops import FEW, closure, edges, reached, seeds
from tests.unit.operators.recurse.test_random_rounds import cheapest, costly

import headrace as hr
from headrace import col
from headrace.events import history_diff
from headrace.history.duckdb import DuckDBHistory

DUCK = DuckDBHistory()


def agree(stream: hr.Stream) -> None:
    assert history_diff(stream.cht(), DUCK.cht(stream.node), names=("live", "batch")) == ""


@pytest.mark.slow
@settings(max_examples=FEW)
@given(seeds(3), edges(9))
def test_differential_histories_of_loops(seed: hr.Stream, links: hr.Stream):
    agree(reached(seed, links))
    agree(closure(links))
    agree(closure(links.where(col("src") < col("dst")), distinct=False))


@pytest.mark.slow
@settings(max_examples=FEW)
@given(seeds(3), costly(6))
def test_differential_histories_of_loops_that_take_back(seed: hr.Stream, links: hr.Stream):
    agree(cheapest(seed, links))


@pytest.mark.slow
@settings(max_examples=FEW)
@given(seeds(3), edges(6))
def test_differential_histories_of_loops_beside_and_inside_each_other(seed: hr.Stream, links: hr.Stream):
    """Loops with equal bodies over other seeds, one behind the other, and relations made from each other."""
    twice = reached(reached(seed, links).where(col("node") > 0), links.select(src=col("dst"), dst=col("src")))
    agree(twice.union(reached(seed.select(node=col("node") + 1), links)))
    agree(hr.recurse(seed, lambda found: reached(found, links).where(col("node") < 3)))

    def body(a: hr.Stream, b: hr.Stream) -> dict[str, hr.Stream]:
        turned = a.join(b, on={"node": "dst"}).select(src=col("node"), dst=col("src"))
        return {"a": b.select(node=col("src")), "b": turned}

    both = hr.recurse({"a": seed, "b": links}, body)
    agree(both["a"])


def test_the_statements_of_a_loop_can_be_read():
    seed, links = hr.events("le | re | node\n1 | 5 | 1"), hr.events("le | re | src | dst\n1 | 5 | 1 | 2")
    history = reached(seed, links).history(engine="duckdb")
    text = history.sql()
    assert "-- again and again, until n2 stays the same:" in text
    assert text.index("FROM n2 l JOIN n1 r") < text.index("-- n2 is now n6")
    (loop,) = (statement for statement in history.statements if statement.again)
    assert [inner.says for inner in loop.again] == ["Join on node = src", "Select node = dst", "Union", "Coalesce"]
