"""Two streams with equal histories are the same stream, and when they are not, the difference can be read."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given

import headrace as hr
from headrace.errors import EventError
from headrace.testing.checks import Violation
from headrace.testing.same import (
    DifferentHistory,
    aligned,
    assert_same_history,
    cell,
    history_differences,
    read_history,
)
from headrace.testing.strategies import SCHEMA, physical_streams, tables

SEED = """
kind    | le | re | re_new | p
insert  | 1  | ∞  |        | P1
retract | 1  | ∞  | 10     | P1
retract | 1  | 10 | 5      | P1
insert  | 4  | 9  |        | P2
cti     | 20 |    |        |
"""
LEFT = [{"le": 1, "re": 5, "p": "P1"}, {"le": 4, "re": 9, "p": "P2"}]


def differences(given: object, expected: object, **options: object) -> list[str]:
    with pytest.raises(Violation) as caught:
        assert_same_history(given, expected, **options)
    assert isinstance(caught.value, AssertionError)
    first, *rest = caught.value.message.splitlines()
    assert first in str(caught.value)
    return [first, *(" ".join(line.split()) for line in rest)]


@pytest.mark.parametrize("given", [
    SEED,
    LEFT,
    list(reversed(LEFT)),
    "le | re | p\n4 | 9 | P2\n1 | 5 | P1",
    "p | re | le\nP2 | 9 | 4\nP1 | 5 | 1",
    hr.events(SEED),
    hr.events(SEED).run(),
    hr.events(SEED).cht(),
    hr.events(SEED).run().events(),
    pd.DataFrame(LEFT),
])  # fmt: skip
def test_every_form_of_a_stream_is_the_same_stream(given: object):
    assert_same_history(given, SEED)
    assert_same_history(SEED, given)
    assert_same_history(hr.events(SEED), given)


def test_events_written_by_hand_take_the_types_of_the_other_side():
    query = hr.events("le | re | x\n1 | 5 | 1.0").where(hr.col("x") > 0)
    assert_same_history(query, "le | re | x\n1 | 5 | 1")
    assert_same_history(query, [{"le": 1, "re": 5, "x": 1}])
    assert_same_history("le | re | x\n1 | 5 | 1", query)
    assert_same_history(query.where(hr.col("x") > 5), [])
    assert_same_history(hr.events([{"le": 1, "re": 2, "l": [1, 2]}]), "le | re | l\n1 | 2 | [1, 2]")


def test_widths_of_numbers_do_not_matter():
    narrow = pa.table({"le": [1], "re": [5], "n": pa.array([1], pa.int8())})
    wide = pa.table({"n": pa.array([1.0]), "re": [5], "le": [1]})
    assert_same_history(narrow, wide)
    assert_same_history(wide, narrow)


def test_a_lifetime_that_differs_is_one_difference():
    assert differences("le | re | p\n1 | 7 | P1\n4 | 9 | P2", SEED) == [
        "the histories differ: 1 lifetime changed (2 rows given, 2 expected)",
        "| lifetime | p",
        "changed | [1, 5) became [1, 7) | P1",
    ]


def test_dates_are_shown_as_dates():
    early, late = (f"le | re | k \n 2024-01-0{day}T01:00 | 2024-12-01 | a" for day in (1, 2))
    before, after = (f"[2024-01-0{day}T01:00:00, 2024-12-01T00:00:00)" for day in (2, 1))
    for form in (early, hr.events(early), hr.events(early).cht(), hr.events(early).run()):
        assert differences(form, late)[-1] == f"changed | {before} became {after} | a"


def test_rows_missing_and_rows_too_many_stand_in_order_of_time():
    given = "le | re | p | n\n1 | 5 | A |\n1 | 5 | A |\n9 | ∞ | B | 2"
    expected = "le | re | p | n\n0 | 3 | C | 1\n1 | 5 | A |\n30 | 40 | B | 2"
    assert differences(given, expected) == [
        "the histories differ: 1 lifetime changed, 1 row missing, 1 row only given (3 rows given, 3 expected)",
        "| lifetime | p | n",
        "missing | [0, 3) | C | 1",
        "only given | [1, 5) | A |",
        "changed | [30, 40) became [9, ∞) | B | 2",
    ]


def test_lifetimes_that_never_meet_are_not_one_event():
    lines = differences([{"le": 1, "re": 2, "n": 1}], [{"le": 50, "re": 60, "n": 1}])
    assert lines[0].startswith("the histories differ: 1 row missing, 1 row only given")


def test_those_that_start_together_are_paired_first():
    given = [{"le": le, "re": re, "n": 1} for le, re in [(0, 9), (1, 10)]]
    expected = [{"le": le, "re": re, "n": 1} for le, re in [(1, 9), (0, 10)]]
    assert differences(given, expected)[2:] == [
        "changed | [0, 10) became [0, 9) | 1",
        "changed | [1, 9) became [1, 10) | 1",
    ]


def test_equal_rows_are_counted():
    one, three = [{"le": 1, "re": 2, "n": 1}], [{"le": 1, "re": 2, "n": 1}] * 3
    assert differences(one, three)[0] == "the histories differ: 2 rows missing (1 row given, 3 expected)"
    moved = [{"le": 1, "re": 4, "n": 1}] * 3
    assert differences(moved, three)[2:] == ["changed | [1, 2) became [1, 4) | 1"] * 3


def test_many_differences_are_cut_short():
    lines = differences([{"le": t, "re": t + 1, "n": t} for t in range(100)], [])
    assert len(lines) == 33
    assert lines[-1] == "… and 70 more"


def test_comparison_up_to_a_time():
    given = "le | re | p\n1 | 5 | A\n8 | 20 | B"
    expected = "le | re | p\n1 | 5 | A\n8 | 30 | B\n12 | 13 | C"
    assert_same_history(given, expected, until=10)
    assert differences(given, expected, until=13)[2:] == ["missing | [12, 13) | C"]


def test_floats_may_be_compared_to_some_digits():
    given, expected = [{"le": 1, "re": 2, "x": 2 / 3}], [{"le": 1, "re": 2, "x": 0.66667}]
    assert_same_history(given, expected, digits=4)
    assert differences(given, expected, digits=6)[0].startswith("the histories differ")


def test_other_columns_are_told_by_name():
    lines = differences([{"le": 1, "re": 2, "a": 1, "b": 2}], "le | re | a | c\n1 | 2 | 1 | x")
    assert lines == ["the histories have different columns:", "only given: b LONG", "only expected: c STRING"]


def test_other_types_are_told_by_column():
    lines = differences(hr.events([{"le": 1, "re": 2, "a": 1}]), "le | re | a\n1 | 2 | x")
    assert lines == ["the histories have columns of different types:", "a is LONG in given, STRING in expected"]


def test_what_is_no_history_is_an_error_of_its_own():
    with pytest.raises(EventError, match="never inserted"):
        assert_same_history([{"kind": "retract", "le": 1, "re": 2, "re_new": 5, "n": 1}], [])
    with pytest.raises(EventError, match="reversed"):
        assert_same_history([{"le": 5, "re": 2, "n": 1}], [])
    with pytest.raises(EventError, match="not events"):
        assert_same_history(7, [])


@given(physical_streams(), physical_streams())
def test_what_is_paired_and_what_is_left_make_up_the_difference(left: list, right: list):
    a, b = (read_history(tables(events)) for events in (left, right))
    lines = history_differences(a, b)
    assert bool(lines) == (not hr.same_history(a, b))
    assert history_differences(a, a) == []
    if lines and "more" not in lines[-1]:
        kinds = [line.split("|")[0].strip() for line in lines[2:]]
        assert kinds.count("only given") - kinds.count("missing") == a.num_rows - b.num_rows


def test_cells_and_tables_of_text():
    values = [None, "", "a", "a b", " a", "a|b", [1, None], 1.5, True]
    assert list(map(cell, values)) == ["", '""', "a", "a b", '" a"', '"a|b"', "[1, ]", "1.5", "True"]
    assert aligned([["a", "bb"], ["ccc", "d"]]) == ["a   | bb", "ccc | d"]
    assert SCHEMA.names == ("k", "i", "x")


@pytest.mark.parametrize("other", [1.9, True, "1"])
def test_values_of_another_kind_are_not_the_same(other: object):
    """Arrow would make 1 of each of them."""
    stream = hr.events("le | re | n\n0 | 5 | 1")
    with pytest.raises(DifferentHistory):
        assert_same_history(stream, [{"le": 0, "re": 5, "n": other}])


def test_numbers_and_text_are_not_compared_and_a_history_may_be_given():
    numbers = hr.events([{"le": 0, "re": 5, "n": 1}])
    assert_same_history(numbers, numbers.history(engine="duckdb"))
    for other in ([{"le": 0, "re": 5, "n": "1"}], [{"le": 0, "re": 5, "n": True}]):
        with pytest.raises(DifferentHistory, match="different types"):
            assert_same_history(numbers, hr.events(other))
