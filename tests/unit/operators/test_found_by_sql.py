"""Mistakes that texts of the dialect found, each as the smallest stream that showed it."""

from __future__ import annotations

import pytest

import headrace as hr

POINTS = """
    kind   | le | re | at | price
    insert | 0  | 1  | 7  | 1
    insert | 10 | 11 | 0  | 2
    cti    | 11 |    |    |
"""


@pytest.mark.parametrize("batch_rows", [None, 1])
def test_windows_go_on_behind_the_last_tuple_although_its_value_is_in_none(batch_rows: int | None):
    points = hr.events(POINTS)
    by_value = points.window(hr.sliding(hr.by("at", 5), every="10 ticks")).aggregate(total=hr.sum("price"))
    wanted = [{"le": 0, "re": 10, "total": 1}, {"le": 0, "re": 20, "total": 1}]
    assert by_value.cht(batch_rows=batch_rows).to_pylist() == wanted
    assert hr.same_history(by_value.history(engine="duckdb").cht(), by_value.cht())


@pytest.mark.slow
@pytest.mark.parametrize("forever", ["set_duration", "extend", "cap_duration"])
def test_what_lasts_forever_does_so_in_histories(forever: str):
    stream = getattr(hr.events(POINTS), forever)(hr.INFINITY)
    assert hr.same_history(stream.history(engine="duckdb").cht(), stream.cht())
    assert stream.verify(seeds=1).cases


@pytest.mark.parametrize("forever", ["set_duration", "extend"])
def test_what_starts_before_time_0_lasts_forever_as_well(forever: str):
    early = getattr(hr.events("le | re | price\n-5 | -4 | 1"), forever)(hr.INFINITY)
    assert early.cht()["re"].to_pylist() == [hr.INFINITY]
    assert hr.same_history(early.history(engine="duckdb").cht(), early.cht())
