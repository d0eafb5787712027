"""Full order, the order of corrections, and the same order every time."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings

import headrace as hr
from headrace.errors import PlanError
from headrace.events import events_table
from headrace.testing.checks import Violation, check_output
from headrace.testing.order import check_deterministic, check_order, deterministic, order_violations
from headrace.testing.strategies import physical_streams, streams, tables

ORDERED = """
kind    | le | re  | re_new | x
insert  | 1  | ∞   |        | nan
insert  | 2  | 4   |        | 1
cti     | 3  |     |        |
retract | 2  | 4   | 9      | 1
insert  | 5  | 8   |        |
retract | 5  | 8   | 5      |
retract | 1  | ∞   | 7      | nan
"""


def violations(text: str, order: str) -> list[int]:
    return [row for row, _ in order_violations(events_table(text), order)]


def test_a_stream_in_order_breaks_nothing():
    assert violations(ORDERED, "full") == violations(ORDERED, "corrections") == []
    check_order(events_table(ORDERED), "full")


def test_sync_times_must_not_fall():
    text = "kind | le | re | re_new | n\ninsert | 5 | 9 | | 1\ninsert | 4 | 9 | | 1\nretract | 5 | 9 | 6 | 1\n"
    assert violations(text, "full") == [1]
    assert violations(text, "corrections") == []
    with pytest.raises(Violation, match="row 2 is out of order: its sync time 4 is before 5"):
        check_order(events_table(text), "full")


def test_a_retraction_is_placed_by_the_earlier_of_its_ends():
    text = "kind | le | re | re_new | n\ninsert | 1 | 9 | | 1\ninsert | 5 | 6 | | 1\nretract | 1 | 9 | {} | 1\n"
    assert violations(text.format(5), "full") == []
    assert violations(text.format(4), "full") == [2]
    assert violations(text.format(20), "full") == []


def test_nothing_comes_before_a_promise():
    text = "kind | le | re | n\ncti | 5 | |\ninsert | 4 | 6 | 1\n"
    assert violations(text, "full") == [1]
    assert violations(text, "corrections") == []


@pytest.mark.parametrize("rows", [
    "retract | 1 | 9 | 5 | 1\ninsert | 1 | 9 | | 1",  # before its insert
    "insert | 1 | 9 | | 1\nretract | 1 | 8 | 5 | 1",  # another lifetime
    "insert | 1 | 9 | | 2\nretract | 1 | 9 | 5 | 1",  # another payload
    "insert | 2 | 9 | | 1\nretract | 1 | 9 | 5 | 1",  # another start
    "insert | 1 | 9 | | 1\nretract | 1 | 9 | 5 | 1\nretract | 1 | 9 | 5 | 1",  # twice
    "insert | 1 | 9 | | 1\nretract | 1 | 9 | 1 | 1\nretract | 1 | 9 | 5 | 1",  # deleted by then
])  # fmt: skip
def test_a_correction_needs_what_it_corrects(rows: str):
    assert len(violations("kind | le | re | re_new | n\n" + rows, "corrections")) == 1


def test_orders_have_names():
    with pytest.raises(PlanError, match="unknown order"):
        list(order_violations(events_table(ORDERED), "some"))


@given(physical_streams())
def test_drawn_streams_and_what_leaves_a_query_have_corrections_behind_inserts(events: list):
    assert not list(order_violations(tables(events), "corrections"))
    left = hr.events(tables(events)).group_by("k").window(hr.snapshot()).aggregate(n=hr.count()).run().events()
    check_order(left, "corrections")


@settings(max_examples=max(5, settings().max_examples // 10))
@given(streams("k STRING, x DOUBLE", max_events=8))
@pytest.mark.slow
def test_queries_are_deterministic(stream: hr.Stream):
    query = stream.group_by("k").window(hr.snapshot()).aggregate(n=hr.count(), x=hr.max("x"))
    assert deterministic(query)
    assert deterministic(query, runs=3, buckets=3)


def test_a_function_that_is_not_deterministic_is_found_out():
    numbers = itertools.count()

    @hr.udf(returns="LONG")
    def next_number(_: int) -> int:
        return next(numbers)

    stream = hr.events("le | n\n1 | 1\n2 | 2").select(n=next_number(hr.col("n")))
    assert not deterministic(stream)
    with pytest.raises(Violation, match=r"row 1 of run 1 is .*'n': 4.*, of run 2 .*'n': 6"):
        check_deterministic(stream)


def test_one_run_tells_nothing():
    with pytest.raises(PlanError, match="one run"):
        deterministic(hr.events("le | n\n1 | 1"), runs=1)


def test_a_point_may_go_but_not_last():
    kept = hr.events("kind | le | re | re_new | p\ninsert | 1 | 2 | | a\nretract | 1 | 2 | 1 | a").run().events()
    check_output(kept, "point")
    longer = hr.events("kind | le | re | re_new | p\ninsert | 1 | 2 | | a\nretract | 1 | 2 | 9 | a", batches=[1, 1])
    with pytest.raises(Violation, match="not a point"):
        check_output(longer.run().events(), "point")
    with pytest.raises(hr.HeadraceError, match="unknown shape"):
        check_output(kept, "pint")  # type: ignore[arg-type]
