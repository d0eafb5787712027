"""Windows of tuples, and aggregates over what precedes, as batch SQL: the answer of the live query (rule 10.1)."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.ordered import frames, long_streams, ordered_windows

import headrace as hr
from headrace import col
from headrace.events import history_diff
from headrace.history.dialect import SparkDialect
from headrace.history.duckdb import DuckDBHistory
from headrace.history.translate import translate

SOME = settings(max_examples=max(5, settings().max_examples // 5))
ORACLE = DuckDBHistory()
KEYS = st.sampled_from([None, "computed", "k", None, "x"])
AGGREGATES = {
    "n": hr.count(), "s": hr.sum("i"), "a": hr.avg("x"), "high": hr.max("i"), "l": hr.last("i"), "all": hr.collect("x")
}  # fmt: skip


def grouped(stream: hr.Stream, key: str | None) -> Any:
    if key == "computed":
        return stream.group_by(positive=col("i") > 0)
    return stream.group_by(key) if key else stream


def same(out: hr.Stream, buckets: int) -> None:
    difference = history_diff(out.cht(buckets=buckets), ORACLE.cht(out.node), names=("live", "history"))
    assert not difference, difference


@SOME
@given(long_streams(), ordered_windows(), KEYS, st.integers(1, 3))
def test_windows_are_those_of_sql(stream: hr.Stream, window: Any, key: str | None, n: int):
    whole = grouped(stream, key).window(window)
    same(whole.aggregate(**AGGREGATES), n)
    same(whole.top(2, "x"), n)
    same(whole.top(1, "x", each="i"), n)
    same(whole.distinct("i", "x"), n)


@SOME
@given(long_streams(), frames(), KEYS, st.integers(1, 3))
def test_what_precedes_is_that_of_sql(stream: hr.Stream, frame: Any, key: str | None, n: int):
    same(grouped(stream, key).over(**frame).aggregate(**AGGREGATES), n)


class Joined(hr.Aggregate):
    """What a module sees, as text."""

    time_sensitive = True
    input = "b DOUBLE"
    output = "STRING"

    def compute(self, events: list[Any], window: Any) -> str:
        return f"{window.le} {window.re} {[tuple(event) for event in events]}"


@settings(max_examples=5)
@given(long_streams(), ordered_windows(), frames())
def test_modules_see_the_same(stream: hr.Stream, window: Any, frame: Any):
    same(stream.window(window).aggregate(t=Joined().of("x")), 1)
    same(stream.over(**frame).aggregate(t=Joined().of("x")), 1)


@settings(max_examples=max(5, settings().max_examples // 5))
@given(long_streams(), ordered_windows(), frames(), KEYS)
def test_there_is_a_translation_for_spark(stream: hr.Stream, window: Any, frame: Any, key: str | None):
    for divided in (grouped(stream, key).window(window), grouped(stream, key).over(**frame)):
        node = divided.aggregate(**AGGREGATES).node
        assert "row_number()" in translate(node, SparkDialect()).text()
