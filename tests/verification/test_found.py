"""Faults that verification has found, each by its smallest stream."""

from __future__ import annotations

import headrace as hr
from headrace.events import history_diff
from headrace.history.duckdb import DuckDBHistory


def test_an_event_in_no_window_still_says_how_far_its_group_reaches():
    """Under jumping windows [3, 4) belongs to none, yet [2, 3) is not beyond the last finite end (rule 5.3)."""
    stream = hr.events(
        """
        kind   | le | re | k
        insert | 0  | ∞  | a
        insert | 3  | 4  | a
        """
    )
    query = stream.group_by("k").window(hr.hopping(1, every=2)).aggregate(n=hr.count())
    live = query.cht()
    assert sorted(zip(live["le"].to_pylist(), live["re"].to_pylist(), strict=True)) == [(0, 1), (2, 3)]
    assert history_diff(live, DuckDBHistory().cht(query.node)) == ""
