"""Where the causes that a trace names are not enough: without all other events the answer is another one.

The events that keep rows away, which arise when those events are gone, are not among the causes yet. The cases are the
smallest of those that `python -m tests.verification.causes` has found.
"""

from __future__ import annotations

import pytest
from tests.verification.causes import check_causes

import headrace as hr
from headrace.operators.reference.lineage import rows_of_changes

pytestmark = pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="events that keep other rows away are no causes yet"
)


def check(stream: hr.Stream, **wanted: int) -> None:
    """Check the causes of the one answer with these values."""
    trace = stream.trace()
    times = {"le": 0, "re": 1}
    rows = rows_of_changes(trace.record.changes_until(trace.record.output))
    (row,) = {
        (row[0], row[1], tuple(row[2].items())): row
        for row in rows
        if all((row[times[name]] if name in times else row[2][name]) == value for name, value in wanted.items())
    }.values()
    check_causes(trace, row)


def test_a_window_that_has_the_same_count_without_the_others() -> None:
    events = hr.events("le | k\n11 | 1\n25 | 2")
    counts = events.window(hr.hopping(20, every=10)).aggregate(n=hr.count())
    check(counts.group_by("n").window(hr.tumbling(10)).aggregate(m=hr.count()), le=10, n=1)


def test_an_event_that_is_coalesced_with_another() -> None:
    events = hr.events("le | re | k\n1 | 2 | 7\n2 | 5 | 7")
    check(events.coalesce().union(events), le=1, re=2)


def test_an_event_that_is_clipped_by_another() -> None:
    events = hr.events("le | re | k\n1 | 9 | 7\n5 | 12 | 7")
    check(events.clip(events).union(events), le=1, re=9)
