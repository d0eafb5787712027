"""Retractions of events that are not there: one row a batch, admission equals a twin that goes row by row."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import EventError
from headrace.operators.reference import bag, history_of, rows_of
from headrace.testing.strategies import batch_sizes, buckets

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose

rows = st.lists(
    st.builds(
        lambda kind, le, d, e, k: {"kind": kind, "le": le, "re": le + d, "re_new": le + e, "k": k},
        st.sampled_from(["insert", "retract", "retract"]),
        st.integers(0, 2),
        st.integers(1, 3),
        st.integers(0, 3),
        st.sampled_from(["a", "b", None]),
    ).filter(lambda row: row["re"] != row["re_new"]),
    max_size=12,
)


def admitted(some: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that make sense when they come, one after the other."""
    kept: list[dict[str, Any]] = []
    for row in some:
        try:
            history_of([*kept, row])
        except EventError:
            continue
        kept.append(row)
    return kept


@settings(max_examples=max(5, settings().max_examples // 2))
@given(rows, buckets())
def test_differential_admission_row_by_row(some: list[dict[str, Any]], n: int):
    if not some:
        return
    stream = hr.events(some, "k STRING", bad_rows="divert", batches=[1] * len(some))
    query = stream.group_by("k").window(hr.tumbling(2)).aggregate(n=hr.count())
    run = hr.run({"out": stream, "windows": query}, buckets=n)
    kept = admitted(some)
    assert bag(rows_of(run.cht("out"))) == bag(history_of(kept))
    same = hr.events(kept, "k STRING").group_by("k").window(hr.tumbling(2)).aggregate(n=hr.count())
    assert not hr.history_diff(run.cht("windows"), same.cht())
    (counts,) = run.counts.values()
    assert counts["diverted"] == run.diverted().num_rows == len(some) - len(kept)
    assert counts["rows"] == counts["accepted"] + counts["diverted"]


@settings(max_examples=max(5, settings().max_examples // 2))
@given(rows, st.data())
def test_no_history_is_ever_negative(some: list[dict[str, Any]], data: st.DataObject):
    """However the rows are cut: `cht` raises if more is taken back than was given."""
    if some:
        stream = hr.events(some, "k STRING", bad_rows="divert", batches=data.draw(batch_sizes(len(some))))
        run = stream.run(buckets=data.draw(buckets()))
        (counts,) = run.counts.values()
        inserts = sum(row["kind"] == "insert" for row in some)
        assert run.cht().num_rows <= inserts
        assert counts["rows"] == counts["accepted"] + counts["diverted"]
