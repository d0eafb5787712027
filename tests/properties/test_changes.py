"""Consolidation and pairing against twins over plain tuples (rules 2.2 to 2.4)."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.changes import Changes
from headrace.events import to_changes, to_physical
from headrace.operators.reference import identity
from headrace.schema import Schema

SCHEMA = Schema.of("k STRING, x DOUBLE")
changes_rows = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(3, 6),
        st.sampled_from([-2, -1, 1, 2]),
        st.sampled_from(["a", None]),
        st.sampled_from([0.0, -0.0, math.nan, None]),
    ),
    max_size=10,
)


def batch(rows: list[tuple]) -> Changes:
    le, re, weight, k, x = zip(*rows, strict=True) if rows else ([], [], [], [], [])
    times = [np.array(column, np.int64) for column in (le, re, weight)]
    payload = pa.table({"k": list(k), "x": list(x)}, schema=SCHEMA.arrow)
    return Changes(*times, payload)


def total(rows: list[tuple]) -> dict[tuple, int]:
    bag: Counter = Counter()
    for le, re, weight, k, x in rows:
        bag[le, re, k, identity(x)] += weight
    return {key: weight for key, weight in bag.items() if weight}


def as_rows(changes: Changes) -> list[tuple]:
    payload = [tuple(row.values()) for row in changes.payload.to_pylist()]
    times = zip(changes.le.tolist(), changes.re.tolist(), changes.weight.tolist(), strict=True)
    return [(*t, *p) for t, p in zip(times, payload, strict=True)]


@given(changes_rows)
def test_oracle_consolidation(rows: list[tuple]):
    got = as_rows(batch(rows).consolidate())
    assert total(got) == total(rows)
    assert len(got) == len(total(rows))


@given(changes_rows, changes_rows)
def test_consolidation_of_parts_is_that_of_the_whole(some: list[tuple], more: list[tuple]):
    parts = Changes.concat([batch(some).consolidate(), batch(more)])
    assert total(as_rows(parts.consolidate())) == total(some + more)


@given(changes_rows)
def test_oracle_pairing(rows: list[tuple]):
    consolidated = batch(rows).consolidate()
    physical = to_physical(consolidated)
    assert total(as_rows(to_changes(physical, SCHEMA).consolidate())) == total(rows)
    gone: Counter = Counter()
    added: Counter = Counter()
    for (le, _, k, x), weight in total(rows).items():
        (gone if weight < 0 else added)[le, k, x] += abs(weight)
    pairs = sum(min(gone[key], added[key]) for key in gone)
    kinds = Counter(_kind(row) for row in physical.to_pylist())
    removed, new = sum(gone.values()), sum(added.values())
    expected = {"retract": pairs, "delete": removed - pairs, "insert": new - pairs}
    assert kinds == Counter({kind: count for kind, count in expected.items() if count})


def _kind(row: dict) -> str:
    return "delete" if row["kind"] == "retract" and row["re_new"] == row["le"] else row["kind"]


@given(changes_rows)
def test_pairing_keeps_corrections_late(rows: list[tuple]):
    """The partners of one payload and start are ranked by their ends, so no other pairing has a later earliest sync."""
    consolidated = batch(rows).consolidate()
    pairing = consolidated.pair()
    for i, j in zip(pairing.retract_from, pairing.retract_to, strict=True):
        assert consolidated.le[i] == consolidated.le[j]
        assert consolidated.weight[i] < 0 < consolidated.weight[j]
