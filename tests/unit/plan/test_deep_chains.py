"""Plans thousands of operators deep: built, explained, run and said as SQL without the depth of Python's calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import headrace as hr
from headrace import col

DEPTH, STREAMS = 1200, 400
START = hr.events([{"le": 1, "v": 1}, {"le": 3, "v": 2}])


def chained(step: Callable[[hr.Stream], hr.Stream]) -> hr.Stream:
    stream = START
    for _ in range(DEPTH):
        stream = step(stream)
    return stream


def created() -> hr.Stream:
    steps = [f"CREATE STREAM s{n + 1} AS SELECT v + 1 AS v FROM s{n}" for n in range(STREAMS)]
    return hr.sql(";\n".join([*steps, f"SELECT v FROM s{STREAMS}"]), s0=START)


CHAINS: dict[str, Callable[[], hr.Stream]] = {
    "CREATE STREAM": created,
    "select": lambda: chained(lambda s: s.select(v=col("v") + 1)),
    "where": lambda: chained(lambda s: s.where(col("v") > 0)),
    "shift": lambda: chained(lambda s: s.shift(1)),
    "union": lambda: chained(lambda s: s.union(START.where(col("v") > 5))),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_deep_plan_is_built_and_explained(chain: str):
    stream = CHAINS[chain]()
    assert stream.schema.names == ("v",)
    assert len(stream.explain(liveliness=True).splitlines()) > STREAMS
    assert stream.window(hr.sliding(2)).aggregate(n=hr.count()).schema.names == ("n",)
    assert stream.window(hr.tumbling(5)).distinct("v").schema.names == ("v",)
    assert stream.group_by("v").apply(lambda group: group.shift(1)).schema.names == ("v",)


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS)
def test_a_deep_plan_runs_as_its_history(chain: str):
    stream = CHAINS[chain]()
    added = {"CREATE STREAM": STREAMS, "select": DEPTH}.get(chain, 0)
    found = stream.cht(buckets=2)
    assert sorted(found["v"].to_pylist()) == [1 + added, 2 + added]
    if chain in ("CREATE STREAM", "shift"):  # DuckDB's time for a view of views grows with their number
        assert not hr.history_diff(found, stream.history(engine="duckdb").cht())
