"""The steps that kernels of groups share, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace import col
from headrace.changes import Changes
from headrace.operators.groups import AT, HOLD, REASON, SILENT, Groups, difference, number_rows, positions_among
from headrace.operators.kernel import cancelled_rows
from headrace.plan.nodes import PerWindow
from headrace.time import INFINITY
from headrace.trace import Trace


def groups_of(*traces: str) -> Groups:
    stream = hr.events([{"le": 0, "re": 1, "k": "a", "x": 1.0}], "k STRING, x DOUBLE")
    node = stream.group_by("k").window(hr.session(5)).top(1, by="x").node
    assert isinstance(node, PerWindow)
    return Groups(node, [("in.k", col("k")), ("in.x", col("x"))], {name: Trace(cancelled_rows) for name in traces})


def changes(*rows: tuple[int, str, float]) -> Changes:
    """Changes of weight, key and value, at time 0."""
    weight, k, x = zip(*rows, strict=True) if rows else ((), (), ())
    zero = np.zeros(len(rows), np.int64)
    payload = pa.table({"k": pa.array(k, pa.string()), "x": pa.array(x, pa.float64())})
    return Changes(zero, zero + 9, np.array(weight, np.int64), payload)


def rows_of(found: Changes | None, *names: str) -> list[tuple[Any, ...]]:
    assert found is not None
    columns = [found.payload.column(name).to_pylist() for name in names]
    return sorted(zip(found.weight.tolist(), *columns, strict=True))


def test_the_input_is_projected_to_keys_and_what_is_needed():
    groups = groups_of()
    delta = groups.project(changes((1, "a", -0.0), (-1, "a", 0.0)), np.array([1, 1]))
    assert delta.payload.column_names == ["key0", "in.k", "in.x"]
    assert len(delta.cancelled()) == 0, "minus zero is zero, and ends are those that were handed in"


def test_without_keys_all_events_are_one_group():
    stream = hr.events([{"le": 0, "re": 1, "x": 1.0}], "x DOUBLE")
    node = stream.window(hr.session(5)).top(1, by="x").node
    assert isinstance(node, PerWindow)
    groups = Groups(node, [("in.x", col("x"))], {})
    table = pa.table({"x": [1.0, 2.0]})
    delta = groups.project(Changes.inserts(np.zeros(2, np.int64), np.ones(2, np.int64), table), np.ones(2, np.int64))
    assert groups.keys == ["key0"]
    assert len(groups.touched(delta)) == 1
    assert groups.key_columns(delta.payload.select(groups.keys), np.array([0, 1, 1])).num_rows == 3


def test_touched_are_groups_that_change_and_groups_that_are_due():
    groups = groups_of("forget", "show")
    keys = groups.project(changes((1, "a", 1.0), (1, "b", 1.0), (1, "c", 1.0)), np.full(3, 9)).payload.select(["key0"])
    touched, never = groups.hashes(keys), np.full(3, INFINITY)
    groups.set_alarms("forget", touched, keys, np.array([5, 10, INFINITY]))
    groups.set_alarms("show", touched, keys, np.array([INFINITY, INFINITY, 7]), never)
    delta = groups.project(changes((1, "b", 2.0)), np.array([9]))

    def found(**until: int) -> list[str]:
        hashes = groups.touched(delta, **until)
        return [k for k, h in zip("abc", touched, strict=True) if h in hashes]

    assert found() == ["b"]
    assert found(forget=4, show=7) == ["b", "c"]
    assert found(forget=5, show=6) == ["a", "b"]
    assert len(groups.due(forget=4, show=6)) == 0


def test_alarms_take_the_place_of_earlier_ones():
    groups = groups_of("forget")
    keys = pa.table({"key0": ["a", "b"]})
    touched = groups.hashes(keys)
    groups.set_alarms("forget", touched, keys, np.array([5, 6]), np.array([3, 2]))
    assert groups.least("forget", HOLD) == 2
    groups.set_alarms("forget", touched, keys, np.array([8, INFINITY]), np.array([4, INFINITY]))
    assert rows_of(groups.known("forget", touched), "key0", AT, HOLD) == [(1, "a", 8, 4)]
    assert groups.least("forget", HOLD) == 4
    groups.set_alarms("forget", touched, keys, np.full(2, INFINITY))
    assert groups.least("forget", HOLD) == INFINITY


def test_an_exchange_cancels_what_is_equal_and_remembers_the_difference():
    groups = groups_of("given")
    table = pa.table({"key0": ["a", "a"], "out.x": [1.0, 2.0]})
    le = np.zeros(2, np.int64)
    first = groups.exchange("given", None, Changes.inserts(le, le + 1, table))
    assert rows_of(first, "out.x") == [(1, 1.0), (1, 2.0)]
    touched = groups.hashes(table)
    new = Changes.inserts(le, le + 1, pa.table({"key0": ["a", "a"], "out.x": [2.0, 3.0]}))
    moved = groups.exchange("given", groups.known("given", touched), new)
    assert rows_of(moved, "out.x") == [(-1, 1.0), (1, 3.0)]
    assert rows_of(groups.known("given", touched), "out.x") == [(1, 2.0), (1, 3.0)]


def test_rows_are_forgotten_when_their_column_says_so():
    groups = groups_of("given")
    table = pa.table({"key0": ["a", "a"], "until": [5, 6]})
    le = np.zeros(2, np.int64)
    groups.exchange("given", None, Changes.inserts(le, le + 1, table), "until")
    groups.traces["given"].drop(5)
    assert rows_of(groups.known("given", groups.hashes(table)), "until") == [(1, 6)]


def test_what_failed_is_diverted_and_what_is_silent_stays():
    groups = groups_of()
    columns = {"key0": ["a", "a", "b"], "in.k": ["a", "a", "b"], "in.x": [1.0, 2.0, 3.0]}
    table = pa.table(columns | {REASON: [None, "broken", None], SILENT: [False, False, True]})
    le = np.arange(3)
    moved = Changes.inserts(le, le + 1, table)
    assert rows_of(groups.leaving(moved), "k", "x") == [(1, "a", 1.0)]
    diverted = groups.diverted(moved, lambda failures: [f"at {time}" for time in failures.le])
    assert rows_of(diverted, "reason", "row") == [(1, "broken", "at 1, k = 'a'")]


def test_equal_rows_have_equal_numbers_in_all_tables():
    (one, two), rows = number_rows(pa.table({"k": ["a", "b", "a"]}), pa.table({"k": ["c", "b"]}))
    assert rows.column("k").take(pa.array(np.r_[one, two])).to_pylist() == ["a", "b", "a", "c", "b"]
    assert rows.num_rows == 3


@pytest.mark.parametrize(("known", "places"), [(["a", "b"], [1, -1, 0]), ([], [-1, -1, -1])])
def test_where_rows_are_among_known_ones(known: list[str], places: list[int]):
    rows = pa.table({"k": ["b", "c", "a"]})
    assert positions_among(pa.table({"k": pa.array(known, pa.string())}), rows).tolist() == places


def test_without_anything_old_the_difference_is_the_new():
    new = changes((1, "a", 1.0))
    assert difference(new, None) is new
    assert len(difference(new, new)) == 0
    assert rows_of(new.negated(), "k") == [(-1, "a")]
