"""Aggregates over the same windows are computed once, and no history changes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.plans import sources

import headrace as hr
from headrace import col
from headrace.api.running import outputs_of
from headrace.host.local import run_local
from headrace.optimizer import RULES, optimize
from headrace.optimizer.share_windows import share_windows
from headrace.plan.nodes import Aggregate, walk
from headrace.testing.strategies import batch_sizes, buckets, physical_streams

OUTPUTS: list[dict[str, Any]] = [
    {"n": hr.count()},
    {"n": hr.sum("i"), "m": hr.max("x")},
    {"m": hr.median("x"), "n": hr.count() + 1},
    {"f": hr.first("k"), "n": hr.count(where=col("i") > 0)},
]
WINDOWS = [hr.tumbling(4), hr.hopping(6, every=2), hr.snapshot(), hr.session(3), hr.count_by_start(2)]


def shared(**streams: hr.Stream) -> int:
    nodes = walk(*share_windows(tuple(outputs_of({name: stream.node for name, stream in streams.items()}))))
    return sum(isinstance(node, Aggregate) for node in nodes)


@given(st.data(), buckets())
def test_differential_shared_or_not(data: st.DataObject, n: int):
    events = data.draw(physical_streams())
    stream = sources(events, data.draw(batch_sizes(len(events))))
    window, keys = data.draw(st.sampled_from(WINDOWS)), data.draw(st.sampled_from([("k",), (), ("k", "i")]))
    named = {
        f"s{number}": stream.group_by(*keys).window(window).aggregate(**data.draw(st.sampled_from(OUTPUTS))).node
        for number in range(3)
    }
    outputs = outputs_of(named)
    rules = [rule for rule in RULES if rule is not share_windows]
    together, apart = run_local(outputs, buckets=n), run_local(outputs, buckets=n, rules=rules)
    for name in named:
        assert hr.same_history(together.results[name].cht(), apart.results[name].cht()), name


def test_what_is_shared():
    stream = hr.events("le | re | k | x \n 1 | 5 | a | 1 \n 2 | 7 | b | 2")
    by = stream.group_by("k").window(hr.tumbling(10))
    one, other = by.aggregate(n=hr.sum("x")), stream.group_by(key="k").window(hr.tumbling(10)).aggregate(n=hr.max("x"))
    assert shared(one=one, other=other) == 1
    assert shared(one=one, other=stream.window(hr.tumbling(10)).aggregate(n=hr.sum("x"))) == 2
    assert shared(one=one, other=stream.group_by("k").window(hr.tumbling(5)).aggregate(n=hr.sum("x"))) == 2
    above = [made.window(hr.tumbling(20)).aggregate(n=hr.max("n")) for made in (one, by.aggregate(n=hr.sum("x")))]
    assert shared(one=above[0], other=above[1].where(col("n") > 0)) == 2


def test_a_script_shares_and_explain_shows_it():
    stream = hr.events("le | re | k | x \n 1 | 5 | a | 1 \n 2 | 7 | b | 2")
    script = hr.script("""
        QUERY totals AS SELECT k, sum(x) AS t FROM s [TUMBLING 10 ticks] GROUP BY k;
        QUERY ends AS SELECT k, max(x) AS m, sum(x) AS t FROM s [TUMBLING 10 ticks] GROUP BY k;
    """, s=stream)  # fmt: skip
    plan = optimize(outputs_of({name: query.node for name, query in script.queries.items()}))
    (merged,) = [node for node in walk(*plan) if type(node).__name__ == "Merge"]
    assert "t = sum(x), m = max(x)" in merged.describe()
    run = script.run()
    assert [row["t"] for row in run.cht("totals").to_pylist()] == [1, 2]
    assert [row["m"] for row in run.cht("ends").to_pylist()] == [1, 2]
