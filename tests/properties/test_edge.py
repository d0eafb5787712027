"""Signals made of samples equal their twin, batch by batch (rule 1.2)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.changes import Changes
from headrace.errors import PlanError
from headrace.events import history
from headrace.host.local.run import run_local
from headrace.io.origins import Events
from headrace.operators.reference import bag, reference_stream, rows_of
from headrace.plan.nodes import EdgeLifetimes, Output, Source
from headrace.plan.policies import Advance
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.testing import check_output
from headrace.testing.strategies import batch_sizes, buckets
from headrace.time import INFINITY, NEG_INFINITY

SCHEMA = Schema.of("t LONG, k STRING, n LONG, p LONG")
samples = st.lists(
    st.tuples(
        st.integers(0, 20), st.sampled_from(["a", "b", None]), st.sampled_from([0, 1, 2, None]), st.integers(0, 3)
    ),
    max_size=12,
)
orders = st.sampled_from([(), ("p",), ("n", "p")])


def accepted(rows: list[tuple], policy: Advance) -> tuple[list, Progress]:
    """The samples that are on time, as points, and the progress after them."""
    kept, high = [], NEG_INFINITY
    for t, k, n, p in rows:
        if t >= policy.cti(high):
            kept.append((t, t + 1, {"t": t, "k": k, "n": n, "p": p}))
        high = max(high, t)
    return kept, Progress(policy.cti(high), high)


@settings(max_examples=max(5, settings().max_examples // 2))
@given(
    samples,
    st.integers(0, 8),
    st.sampled_from([(), ("k",), ("k", "n")]),
    orders,
    st.sampled_from([(), ("p",), ("p", "t")]),
    st.booleans(),
    buckets(),
    st.data(),
)
def test_differential_edges(
    rows: list[tuple],
    delay: int,
    key: tuple[str, ...],
    order: tuple[str, ...],
    hides: tuple[str, ...],
    closing: bool,
    n: int,
    data: st.DataObject,
):
    policy = hr.advance(delay, late="drop")
    closes = col("n") == 0 if closing else None
    table = pa.table([[row[i] for row in rows] for i in range(4)], schema=SCHEMA.arrow)
    sizes = data.draw(batch_sizes(len(rows)))
    source = Source(Events(table, sizes), SCHEMA, hr.edge("t", key, closes), policy)
    node = EdgeLifetimes(source, key, closes, order=order, hides=hides)
    windows = hr.Stream(node).group_by(*key).window(hr.hopping(5, every=3))
    aggregate = windows.aggregate(m=hr.max("n"), c=hr.count()).node
    done = run_local([Output(node, "signal"), Output(aggregate, "windows")], buckets=n)
    for name, plan in (("signal", node), ("windows", aggregate)):
        result, start = done.results[name], 0
        check_output(result.events())
        for number, (_, progress) in enumerate(result.batches):
            ended = number == len(result.batches) - 1
            start += sizes[number] if number < len(sizes) else 0
            seen = {source.fingerprint: accepted(rows[:start], policy)}
            right, expected = reference_stream(plan, seen, ended=ended)
            given_ = Changes.concat([Changes.empty(plan.schema), *(c for c, _ in result.batches[: number + 1])])
            assert bag(rows_of(history(given_))) == bag(right), f"batch {number + 1}"
            assert progress.cti == expected.cti


def test_of_samples_at_one_time_the_last_by_the_order_counts():
    """Also if it closes the signal, and if the others came in earlier batches, or after it."""
    rows = [(1, "a", 1, 0), (5, "a", 2, 1), (5, "a", 0, 2), (5, "b", 0, 4), (5, "b", 3, 5), (5, "b", 4, 3)]
    rows += [(9, "c", 6, 0), (12, "a", 5, 0)]  # now the CTI has passed what closes a
    table = pa.table([[row[i] for row in rows] for i in range(4)], schema=SCHEMA.arrow)
    closes = col("n") == 0
    for sizes in ((), (1, 1, 1, 1, 1, 1, 1, 1), (2, 4, 1, 1), (7, 1)):
        source = Source(Events(table, sizes), SCHEMA, hr.edge("t", "k", closes), hr.advance(0))
        stream = hr.Stream(EdgeLifetimes(source, ("k",), closes, order=("p",)))
        expected = [(1, 5, "a", 1), (5, INFINITY, "b", 3), (9, INFINITY, "c", 6), (12, INFINITY, "a", 5)]
        assert [(r["le"], r["re"], r["k"], r["n"]) for r in stream.cht().to_pylist()] == expected
        batch = stream.history("duckdb").cht()
        assert sorted((r["le"], r["re"], r["k"], r["n"]) for r in batch.to_pylist()) == expected


def test_only_whole_numbers_order_samples():
    source = Source(Events(SCHEMA.arrow.empty_table()), SCHEMA, hr.edge("t", "k"), hr.advance(0))
    with pytest.raises(PlanError, match="whole numbers"):
        EdgeLifetimes(source, ("k",), order=("k",))
    assert EdgeLifetimes(source, ("k",), order=("p",)).describe() == "EdgeLifetimes by k, at one time the last by p"
    assert EdgeLifetimes(source, ("k",)).describe() == "EdgeLifetimes by k"


def test_columns_that_are_hidden_are_not_passed_on():
    source = Source(Events(SCHEMA.arrow.empty_table()), SCHEMA, hr.edge("t", "k"), hr.advance(0))
    node = EdgeLifetimes(source, ("k",), order=("p",), hides=("p", "t"))
    assert node.schema.names == ("k", "n")
    assert node.describe() == "EdgeLifetimes by k, at one time the last by p, without p, t"
    with pytest.raises(PlanError, match="the key of samples is passed on"):
        EdgeLifetimes(source, ("k",), hides=("k",))
