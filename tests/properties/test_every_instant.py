"""Relations at every instant: groups and aggregates of streams that last equal a slow computation (rule 8.4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import sources

import headrace as hr
from headrace import col
from headrace.operators.per_window import snapshot
from headrace.testing.strategies import batch_sizes, buckets, physical_streams
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY

Row = dict[str, Any]
HALF = max(5, settings().max_examples // 2)


@st.composite
def relations(draw: st.DrawFn, max_events: int = 12) -> hr.Stream:
    events = draw(physical_streams(max_events=max_events))
    return sources(events, draw(batch_sizes(len(events))))


def at_every_instant(
    rows: list[Row], answer: Callable[[list[Row]], Iterable[tuple[Any, ...]]], starts: list[int]
) -> list[tuple[Any, ...]]:
    """The answers between each two times at which anything changes, from the first start; equal neighbours are one."""
    times = sorted({row[end] for row in rows for end in ("le", "re")} | set(starts) | {INFINITY})
    spans: dict[tuple[Any, ...], list[list[int]]] = defaultdict(list)
    for start, end in pairwise(times):
        alive = [row for row in rows if row["le"] <= start < row["re"]]
        for one in answer(alive) if starts and start >= min(starts) else ():
            known = spans[one]
            if known and known[-1][1] == start:
                known[-1][1] = end
            else:
                known.append([start, end])
    return sorted(((le, re, *one) for one, known in spans.items() for le, re in known), key=repr)


def found(stream: hr.Stream, **options: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in stream.cht(**options).to_pylist()), key=repr)


def total(rows: list[Row]) -> tuple[int, int | None, int | None, int]:
    values = [row["i"] for row in rows if row["i"] is not None]
    whole = sum(values) if values else None  # NULL where it does not fit in 64 bits
    fits = whole is not None and -(2**63) <= whole < 2**63
    return len(rows), whole if fits else None, max(values, default=None), len(set(values))


@given(relations(), buckets())
def test_oracle_global_aggregates(stream: hr.Stream, n: int):
    made = stream.aggregate(n=hr.count(), s=hr.sum("i"), m=hr.max("i"), d=hr.distinct_count("i"))
    rows = stream.cht().to_pylist()
    expected = at_every_instant(rows, lambda alive: [total(alive)], [row["le"] for row in rows])
    assert found(made, buckets=n) == expected


@given(relations(), st.integers(-2, 2), buckets())
def test_oracle_global_aggregates_of_some_rows_in_sql(stream: hr.Stream, least: int, n: int):
    """The answer begins with the stream, not with the first row that WHERE keeps; HAVING holds for every row."""
    listed = "count(*) AS n, sum(i) AS s, max(i) AS m, count(DISTINCT i) AS d"
    text = f"SELECT {listed} FROM t WHERE i > {least} HAVING count(*) < 2"
    made = hr.sql(text.replace("> -", "> 0 - "), t=stream)
    rows = stream.cht().to_pylist()

    def answer(alive: list[Row]) -> Iterable[tuple[Any, ...]]:
        kept = [row for row in alive if row["i"] is not None and row["i"] > least]
        return [total(kept)] if len(kept) < 2 else []

    assert found(made, buckets=n) == at_every_instant(rows, answer, [row["le"] for row in rows])


@given(relations(), buckets())
def test_oracle_groups(stream: hr.Stream, n: int):
    made = stream.group_by("k").aggregate(n=hr.count(), s=hr.sum("i"), m=hr.max("i"), d=hr.distinct_count("i"))
    rows = stream.cht().to_pylist()

    def answer(alive: list[Row]) -> Iterable[tuple[Any, ...]]:
        return [(k, *total([row for row in alive if row["k"] == k])) for k in {row["k"] for row in alive}]

    assert found(made, buckets=n) == at_every_instant(rows, answer, [row["le"] for row in rows])


@settings(max_examples=HALF)
@given(relations(8), relations(8), buckets())
def test_oracle_a_join_counted(left: hr.Stream, right: hr.Stream, n: int):
    made = hr.sql("SELECT count(*) AS n FROM a JOIN b ON a.k = b.k", a=left, b=right)
    sides = left.cht().to_pylist(), right.cht().to_pylist()
    rows = [row | {"side": side} for side, part in enumerate(sides) for row in part]

    def answer(alive: list[Row]) -> Iterable[tuple[Any, ...]]:
        keys = [[row["k"] for row in alive if row["side"] == side and row["k"] is not None] for side in (0, 1)]
        return [(sum(keys[1].count(key) for key in keys[0]),)]

    assert found(made, buckets=n) == at_every_instant(rows, answer, [row["le"] for row in rows])


@settings(max_examples=HALF)
@given(relations(8), buckets())
def test_differential_an_answer_of_every_group(stream: hr.Stream, n: int):
    """A global aggregate inside groups: an empty group has an answer from its own first event on."""
    made = stream.group_by("k").apply(lambda group: group.where(col("i") > 0).aggregate(n=hr.count()))
    differential_reference(made.node, buckets=n)
    differential_reference(stream.aggregate(n=hr.count()).final().node, buckets=n)


@settings(max_examples=HALF)
@given(relations(), st.sampled_from([(), ("k",)]), buckets())
def test_differential_many_changes_of_a_batch_a_few_at_a_time(stream: hr.Stream, keys: tuple[str, ...], n: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "_MOST", 2)
        windows = stream.group_by(*keys).window(hr.snapshot())
        differential_reference(windows.aggregate(least=hr.min("i"), most=hr.max("x")).node, buckets=n)
        differential_reference(windows.top(2, by="i").node, buckets=n)
        differential_reference(stream.group_by(*keys).top(2, by="i").node, buckets=n)


# --- ranks, and aggregates beside each event ------------------------------------------------------------------------

PLACES = {"n": hr.row_number(), "r": hr.rank(), "d": hr.dense_rank()}


@given(relations(9), st.sampled_from(["i", "x"]), st.booleans(), st.sampled_from([(), ("k",)]), buckets())
def test_differential_places(stream: hr.Stream, by: str, down: bool, keys: tuple[str, ...], n: int):
    ranked = stream.select("k", by).group_by(*keys).over(by=by, descending=down).aggregate(**PLACES)
    differential_reference(ranked.node, buckets=n)


@settings(max_examples=HALF)
@given(relations(9), st.integers(-1, 3), buckets())
def test_differential_the_first_few(stream: hr.Stream, most: int, n: int):
    """A filter of places bounds the ranking, which changes no answer."""
    ranked = stream.select("k", "i").group_by("k").over(by="i").aggregate(n=hr.row_number(), r=hr.rank())
    differential_reference(ranked.select("k", "i", m=col("n"), r="r").where(col("m") <= most).node, buckets=n)


@given(relations(9), buckets())
def test_oracle_aggregates_beside_each_event(stream: hr.Stream, n: int):
    made = (
        stream.select("k", "i")
        .group_by("k")
        .with_columns(n=hr.count(), s=hr.sum("i"), m=hr.max("i"), d=hr.distinct_count("i"))
    )
    rows = stream.cht().to_pylist()
    expected: list[tuple[Any, ...]] = []
    for k, i in {(row["k"], row["i"]) for row in rows}:

        def answer(alive: list[Row], k: Any = k, i: Any = i) -> Iterable[tuple[Any, ...]]:
            group = [row for row in alive if row["k"] == k]
            copies = sum(row["i"] == i for row in group)
            return [(k, i, *total(group), number) for number in range(copies)]

        # Copies are counted apart, and the numbers of copies are not part of the answer.
        expected += [one[:-1] for one in at_every_instant(rows, answer, [row["le"] for row in rows])]
    answers = found(made, buckets=n)
    times = sorted({time for row in (*answers, *expected) for time in row[:2]})
    assert _cut(answers, times) == _cut(expected, times)


def _cut(rows: list[tuple[Any, ...]], times: list[int]) -> list[tuple[Any, ...]]:
    """Rows cut at these times: histories that hold the same at every instant are then equal."""
    parts = [(a, b, *row[2:]) for row in rows for a, b in pairwise(times) if row[0] <= a and b <= row[1]]
    return sorted(parts, key=repr)
