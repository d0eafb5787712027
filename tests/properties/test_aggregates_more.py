"""Lists, quantiles and sketches: aggregates that keep values equal the twins, and lists survive every operator."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.plans import grids, sources

import headrace as hr
from headrace import col
from headrace.events import physical_schema
from headrace.operators.aggregate.accumulators import Argument
from headrace.schema import Schema
from headrace.testing.strategies import batch_sizes, buckets, physical_streams, shuffled, without_ids
from headrace.testing.verify.differential import differential_reference

ANY = [hr.collect, hr.distinct_count, hr.approx_distinct, hr.first, hr.max, hr.count]
NUMERIC = [hr.median, hr.geometric_mean, hr.sum, hr.var]
LISTS = Schema.of("k STRING, i LONG, xs ARRAY<DOUBLE>, ks ARRAY<STRING>")


@st.composite
def calls(draw: st.DrawFn, names: str) -> Any:
    name = draw(st.sampled_from(names))
    kind = draw(st.sampled_from(["any", "numeric", "quantile", "top", "concat"]))
    if kind == "top":
        return hr.top_frequent(name, draw(st.integers(1, 3)))
    if name == "k" and kind != "any":
        return hr.concat(name, draw(st.sampled_from(["", ",", "é"])))
    if kind == "quantile":
        return hr.quantile(name, draw(st.one_of(st.sampled_from([0, 1, 0.5]), st.floats(0, 1))))
    return draw(st.sampled_from(NUMERIC if kind == "numeric" else ANY))(name)


@given(st.data())
def test_differential_kept_values(data: st.DataObject):
    events = data.draw(physical_streams(max_events=14))
    stream = sources(events, data.draw(batch_sizes(len(events))))
    keys = data.draw(st.sampled_from([(), ("k",), ("i",), ("k", "x")]))
    names = data.draw(st.sampled_from(["kix", "k", "i", "x"]))  # several of one column share what is kept of it
    named = {f"c{n}": data.draw(calls(names)) for n in range(data.draw(st.integers(1, 4)))}
    differential_reference(
        stream.group_by(*keys).window(data.draw(grids())).aggregate(**named).node, buckets=data.draw(buckets())
    )


def with_lists(event: dict[str, Any]) -> dict[str, Any]:
    """The same event with lists in place of its float, equal for equal payloads."""
    x, k, i = event.pop("x"), event["k"], event["i"]
    event["xs"] = None if i == 0 else [x, None, 1.0][: (i or 0) % 4]
    event["ks"] = None if k is None else [k] * ((i or 0) % 3)
    return event


@st.composite
def list_streams(draw: st.DrawFn) -> hr.Stream:
    events = [with_lists(event) for event in without_ids(draw(physical_streams()))]
    table = pa.Table.from_pylist(events, schema=physical_schema(LISTS))
    return hr.events(table, LISTS, batches=draw(batch_sizes(len(events))))


@given(list_streams(), st.data())
def test_differential_lists_pass_through(stream: hr.Stream, data: st.DataObject):
    for _ in range(data.draw(st.integers(0, 3))):
        kind = data.draw(st.sampled_from(["where", "select", "shift", "union", "final", "extend"]))
        if kind == "where":
            stream = stream.where(col("xs").is_not_null() | (col("i") > 0))
        elif kind == "select":
            stream = stream.select("k", "i", "xs", ks=col("ks"))
        elif kind == "union":
            stream = stream.union(stream)
        else:
            stream = {"shift": stream.shift(3), "extend": stream.extend(-1), "final": stream.final()}[kind]
    differential_reference(stream.node, buckets=data.draw(buckets()))


@given(list_streams(), st.integers(1, 9), buckets())
def test_differential_lists_joined_and_counted(stream: hr.Stream, size: int, n: int):
    paired = stream.join(stream.select("k", "xs"), on="k")
    counted = paired.group_by("k").window(hr.tumbling(size)).aggregate(n=hr.count("xs"), m=hr.count("xs_right"))
    differential_reference(counted.node, buckets=n)


@pytest.mark.parametrize("size", [2, 3, 5])
@given(data=st.data())
def test_a_sketch_does_not_depend_on_arrival(size: int, data: st.DataObject):
    events = data.draw(physical_streams(max_events=30, retractions=False, ctis=False))
    rows = [{"t": e["le"], "k": e["k"], "x": e["x"], "i": e["i"]} for e in without_ids(events)]
    again = [{"t": e["le"], "k": e["k"], "x": e["x"], "i": e["i"]} for e in data.draw(shuffled(events))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Argument, "sketch_size", size)
        one, many = (_sketched(some).cht(**how) for some, how in ((rows, {}), (again, {"batch_rows": 2, "buckets": 3})))
    assert one.equals(many)


def _sketched(rows: list[dict[str, Any]]) -> hr.Stream:
    from headrace.io.origins import Events
    from headrace.plan.nodes import Source

    schema = Schema.of("t LONG, k STRING, x DOUBLE, i LONG")
    table = pa.Table.from_pylist(rows, schema=schema.arrow)
    stream = hr.Stream(Source(Events(table), schema, hr.point("t"), hr.explicit()))
    named = {name: hr.approx_distinct(name) for name in "xi"}
    return stream.group_by("k").window(hr.hopping(9, every=4)).aggregate(**named)
