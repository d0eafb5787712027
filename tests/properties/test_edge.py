"""Signals made of samples equal their twin, batch by batch (rule 1.2)."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.changes import Changes
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
from headrace.time import NEG_INFINITY

SCHEMA = Schema.of("t LONG, k STRING, n LONG")
samples = st.lists(
    st.tuples(st.integers(0, 20), st.sampled_from(["a", "b", None]), st.sampled_from([0, 1, 2, None])), max_size=12
)


def accepted(rows: list[tuple], policy: Advance) -> tuple[list, Progress]:
    """The samples that are on time, as points, and the progress after them."""
    kept, high = [], NEG_INFINITY
    for t, k, n in rows:
        if t >= policy.cti(high):
            kept.append((t, t + 1, {"t": t, "k": k, "n": n}))
        high = max(high, t)
    return kept, Progress(policy.cti(high), high)


@settings(max_examples=max(5, settings().max_examples // 2))
@given(samples, st.integers(0, 8), st.sampled_from([(), ("k",), ("k", "n")]), st.booleans(), buckets(), st.data())
def test_differential_edges(
    rows: list[tuple], delay: int, key: tuple[str, ...], closing: bool, n: int, data: st.DataObject
):
    policy = hr.advance(delay, late="drop")
    closes = col("n") == 0 if closing else None
    table = pa.table([[row[i] for row in rows] for i in range(3)], schema=SCHEMA.arrow)
    sizes = data.draw(batch_sizes(len(rows)))
    source = Source(Events(table, sizes), SCHEMA, hr.edge("t", key, closes), policy)
    node = EdgeLifetimes(source, key, closes)
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
