"""Loops on Spark: they come to rest inside a stage, in any number of buckets, with the state that a stage has."""

from __future__ import annotations

import random

import pytest
from tests.unit.recurse.loops import closure, reached
from tests.unit.recurse.test_closure import Told, searched
from tests.unit.recurse.test_random_rounds import cheapest

import headrace as hr
from headrace import col
from headrace.testing import check_output

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.parametrize("buckets", [1, 3])
def test_differential_loops_on_spark(buckets: int):
    rng = random.Random(buckets)
    starts, edges, spread = Told(rng, ("node",)), Told(rng, ("src", "dst")), Told(rng, ("t", "src", "dst"))
    for _ in range(40):
        rng.choice([starts, edges, edges, spread]).tell()
    links, keyed = edges.stream(), spread.stream()
    queries = {
        "reached": reached(starts.stream(), links),
        "closure": closure(links),
        "all": closure(links.where(col("src") < col("dst")), distinct=False),
        "cheapest": cheapest(starts.stream(), links.select("src", "dst", cost=col("dst") + 1)),
        "keyed": hr.recurse(
            keyed, lambda f: f.join(keyed, on={"t": "t", "dst": "src"}).select("t", "src", dst=col("dst_right"))
        ),
    }
    assert queries["keyed"].node.need(0) == ("t",)
    here, there = hr.run(queries), hr.run(queries, host="spark", buckets=buckets)
    for name in queries:
        assert hr.history_diff(here.cht(name), there.cht(name), names=("local", "spark")) == ""
        check_output(there.events(name))
    found = {(row["le"], row["re"], (row["node"],)) for row in there.cht("reached").to_pylist()}
    assert found == searched(edges.alive, starts.alive)
    loops = [op for batch in there.statistics for part in batch for op in part["operators"].values() if "loop" in op]
    assert max(op["most_rounds"] for op in loops) > 1
