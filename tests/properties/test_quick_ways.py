"""Quick ways that only pay for large blocks give the same answers on small ones, where twins can follow."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import columnar
from headrace.io import ingress
from headrace.io.origins import Events
from headrace.plan.nodes import Source
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.testing.strategies import SCHEMA, batch_sizes, buckets, physical_streams, tables
from headrace.testing.verify.differential import differential_reference
from headrace.time import NEG_INFINITY


@pytest.fixture(autouse=True, scope="module")
def from_the_second_row_on() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar, "_SPARSE", 0)
        patch.setattr(columnar, "_FEW", 0)
        yield


@given(st.data(), st.sampled_from([(), ("k",), ("k", "i")]), buckets())
def test_differential_groups_by_hash_tables(data: st.DataObject, keys: tuple[str, ...], n: int):
    events = data.draw(physical_streams())
    stream = hr.events(tables(events), SCHEMA, batches=data.draw(batch_sizes(len(events))))
    window = data.draw(st.sampled_from([hr.tumbling(4), hr.hopping(6, every=4), hr.hopping(2, every=5)]))
    outputs = {"n": hr.count(), "s": hr.sum("x"), "a": hr.avg("i"), "v": hr.var("x")}
    differential_reference(stream.group_by(*keys).window(window).aggregate(**outputs).node, buckets=n)


@given(st.lists(st.integers(-30, 30), max_size=12), st.integers(0, 20), st.integers(1, 7), st.data())
def test_differential_lateness_of_blocks(times: list[int], delay: int, every: int, data: st.DataObject):
    policy = hr.advance(delay, every=every)
    schema = Schema.of("t LONG")
    source = Source(Events(pa.table({"t": pa.array([], pa.int64())})), schema, hr.point("t"), policy)
    channel = ingress.Channel(source, Progress())
    kept, start = [], 0
    for size in data.draw(batch_sizes(len(times))):
        accepted, _ = channel.take(pa.table({"t": pa.array(times[start : start + size], pa.int64())}))
        kept += accepted.le.tolist()
        start += size
    high, expected = NEG_INFINITY, []
    for time in times:
        if time >= policy.cti(high):
            expected.append(time)
        high = max(high, time)
    assert kept == expected
    assert channel.report.high == high
    assert channel.report.counts["late"] == len(times) - len(expected)
