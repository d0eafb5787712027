"""Events that keep others away are causes: without them other rows would arise, and the answer would be another one.

The cases are the smallest of those that `python -m tests.verification.causes` has found.
"""

from __future__ import annotations

from tests.verification.causes import check_causes

import headrace as hr
from headrace.operators.reference.lineage import rows_of_changes
from headrace.tracing.why import Why


def check(stream: hr.Stream, **wanted: int) -> Why:
    """Check the causes of the one answer with these values."""
    trace = stream.trace()
    times = {"le": 0, "re": 1}
    rows = rows_of_changes(trace.record.changes_until(trace.record.output))
    (row,) = {
        (row[0], row[1], tuple(row[2].items())): row
        for row in rows
        if all((row[times[name]] if name in times else row[2][name]) == value for name, value in wanted.items())
    }.values()
    return check_causes(trace, row)


def test_a_window_that_has_the_same_count_without_the_others() -> None:
    events = hr.events("le | k\n11 | 1\n25 | 2")
    counts = events.window(hr.hopping(20, every=10)).aggregate(n=hr.count())
    check(counts.group_by("n").window(hr.tumbling(10)).aggregate(m=hr.count()), le=10, n=1)


def test_an_event_that_is_coalesced_with_another() -> None:
    events = hr.events("le | re | k\n1 | 2 | 7\n2 | 5 | 7")
    check(events.coalesce().union(events), le=1, re=2)


def test_an_event_that_is_clipped_by_another() -> None:
    events = hr.events("le | re | k\n1 | 9 | 7\n5 | 12 | 7")
    why = check(events.clip(events).union(events), le=1, re=9)
    assert [role for role, _ in why.root.causes] == ["event", "keeps others away"]


def test_a_window_with_a_sum_that_another_one_would_have() -> None:
    events = hr.events(
        """
        kind    | le | re | re_new | k | i
        insert  | 16 | 19 |        | a | 1
        retract | 16 | 19 | 29     | a | 1
        insert  | 5  | 45 |        | a | 9
        """
    )
    sums = events.group_by("k").window(hr.hopping(12, every=2, origin=-7)).aggregate(i=hr.sum("i"), x=hr.avg("i"))
    check(sums.group_by("i", "k").window(hr.hopping(2, every=2, origin=4)).aggregate(x=hr.sum("x")), le=14, i=9)
