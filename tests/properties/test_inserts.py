"""Streams that take nothing back: rows of all column types, aggregated the cheap way, equal the twins."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.changes import Changes
from headrace.events import history
from headrace.host.local.run import run_local
from headrace.io.origins import Events
from headrace.operators.aggregate import overlapping
from headrace.operators.reference import bag, reference_stream, rows_of
from headrace.optimizer import RULES
from headrace.optimizer.combine_before_shuffle import combine_before_shuffle
from headrace.plan.nodes import Output, Source
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.testing import check_output
from headrace.testing.strategies import batch_sizes, buckets
from headrace.time import INFINITY, NEG_INFINITY

SCHEMA = Schema.of("t LONG, u LONG, k STRING, n INT, f FLOAT, x DOUBLE, b BOOLEAN, d DATETIME, y BYTE")
VALUES: dict[str, list[Any]] = {
    "k": ["a", "b", "é", "", None],
    "n": [1, -5, 2**31 - 1, None],
    "f": [0.5, -0.0, math.nan, math.inf, None],
    "x": [0.1, 0.2, -1e300, math.nan, None],
    "b": [True, False, None],
    "d": [datetime(2024, 5, 1, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC), None],
    "y": [1, 127, -128, None],
}
FUNCTIONS = [
    hr.count, hr.min, hr.max, hr.first, hr.last, hr.collect, hr.distinct_count, hr.approx_distinct,
    lambda name: hr.top_frequent(name, 2),
]  # fmt: skip
NUMERIC = [hr.sum, hr.avg, hr.var, hr.stddev, hr.median, hr.geometric_mean, lambda name: hr.quantile(name, 0.7)]
events = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from([1, 1, 3, 10, None]),
        st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()}),
    ),
    max_size=10,
)
DELAY = 40


def rows_with_lifetimes(drawn: list[tuple]) -> list[dict[str, Any]]:
    return [{"t": t, "u": INFINITY if d is None else t + d, **payload} for t, d, payload in drawn]


def source_of(rows: list[dict[str, Any]], sizes: tuple[int, ...], delay: int = DELAY) -> hr.Stream:
    table = pa.Table.from_pylist(rows, schema=SCHEMA.arrow)
    return hr.Stream(Source(Events(table, sizes), SCHEMA, hr.interval("t", "u"), hr.advance(delay)))


def seen_after(rows: list[dict[str, Any]], delay: int = DELAY) -> tuple[list, Progress]:
    high = max((row["t"] for row in rows), default=NEG_INFINITY)
    return [(row["t"], row["u"], row) for row in rows], Progress(high - delay if rows else high, high)


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    named = {}
    for i in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(sorted(VALUES)))
        named[f"c{i}"] = draw(st.sampled_from(FUNCTIONS + (NUMERIC if name in "nfxy" else [])))(name)
    return named


@settings(max_examples=max(5, settings().max_examples // 2))
@given(events, events, calls(), st.data())
def test_differential_insert_only_aggregates(
    some: list[tuple], more: list[tuple], named: dict[str, Any], data: st.DataObject
):
    left, right = rows_with_lifetimes(some), rows_with_lifetimes(more)
    assume(left != right)  # sources of equal rows are one source
    sizes, other_sizes = data.draw(batch_sizes(len(left))), data.draw(batch_sizes(len(right)))
    a, b = source_of(left, sizes), source_of(right, other_sizes)
    stream = data.draw(
        st.sampled_from([a, a.where(col("n") > 0).union(b), a.union(b.where(col("x") > 0.0)), a.union(a)])
    )
    keys = data.draw(st.sampled_from([(), ("k",), ("b",), ("f", "k"), ("d",), ("n",)]))
    hopping = st.builds(hr.hopping, st.integers(1, 9), st.integers(1, 9), st.integers(-4, 4))
    window = data.draw(st.one_of(hopping, hopping, st.builds(hr.session, st.integers(1, 9))))
    node = stream.group_by(*keys).window(window).aggregate(**named).node
    rules = data.draw(st.sampled_from([RULES, (combine_before_shuffle,)]))
    result = run_local([Output(node, "out")], buckets=data.draw(buckets()), rules=rules).results["out"]
    check_output(result.events())
    whole = [Changes.empty(node.schema)]
    for number, (changes, progress) in enumerate(result.batches):
        whole.append(changes)
        ended = number == len(result.batches) - 1
        seen = {
            s.node.fingerprint: seen_after(rows[: sum(cut[: number + 1])])
            for s, rows, cut in ((a, left, sizes), (b, right, other_sizes))
        }
        expected, promise = reference_stream(node, seen, ended=ended)
        assert bag(rows_of(history(Changes.concat(whole)))) == bag(expected)
        assert progress.cti == promise.cti


@st.composite
def punctual_rows(draw: st.DrawFn, delay: int) -> list[dict[str, Any]]:
    """Rows that go on and on, out of order within the delay."""
    drawn, now = [], 0
    for step, back, duration, payload in draw(
        st.lists(
            st.tuples(
                st.integers(0, 9),
                st.integers(0, delay),
                st.sampled_from([1, 1, 1, 3, 30, None]),
                st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()}),
            ),
            max_size=24,
        )
    ):
        now += step
        drawn.append((now - back, duration, payload))
    return rows_with_lifetimes(drawn)


@given(st.integers(0, 12).flatmap(lambda delay: st.tuples(st.just(delay), punctual_rows(delay))), st.data())
def test_differential_sliding_extremes(drawn: tuple[int, list[dict[str, Any]]], data: st.DataObject):
    """Least and greatest values of overlapping windows, while windows close; each with sums beside it or alone."""
    delay, rows = drawn
    sizes = data.draw(batch_sizes(len(rows)))
    stream = source_of(rows, sizes, delay)
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=2))
    functions = st.sampled_from([hr.min, hr.max, hr.min, hr.max, hr.count])
    named = {f"c{i}": data.draw(functions)(name) for i, name in enumerate(names)}
    named |= {"s": hr.sum("n")} if data.draw(st.booleans()) else {}
    hop = data.draw(st.integers(1, 4))
    window = hr.hopping(hop + data.draw(st.integers(1, 40)), hop, data.draw(st.integers(-4, 4)))
    node = stream.group_by(*data.draw(st.sampled_from([(), ("k",), ("f", "b")]))).window(window).aggregate(**named).node
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlapping, "_FEW_WINDOWS", 1)
        result = run_local([Output(node, "out")], buckets=data.draw(buckets())).results["out"]
    check_output(result.events())
    whole = [Changes.empty(node.schema)]
    for number, (changes, progress) in enumerate(result.batches):
        whole.append(changes)
        ended = number == len(result.batches) - 1
        seen = {stream.node.fingerprint: seen_after(rows[: sum(sizes[: number + 1])], delay)}
        expected, promise = reference_stream(node, seen, ended=ended)
        assert bag(rows_of(history(Changes.concat(whole)))) == bag(expected)
        assert progress.cti == promise.cti
