"""Joins by `how=`, and keys that are expressions."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import headrace as hr
from headrace import col
from headrace.errors import PlanError

# flights   A: |--------|        1 to 9
#           B:   |----|          2 to 7
# gates     A:     |--|          3 to 5
#           A:      |--|         4 to 6
#           C:         |---|     8 to 12
FLIGHTS = hr.events("le | re | id | seats\n1 | 9 | A | 10\n2 | 7 | B | 20", schema="id STRING, seats INT")
GATES = hr.events("le | re | id | seats\n3 | 5 | A | 1\n4 | 6 | A | 2\n8 | 12 | C | 3", schema="id STRING, seats LONG")


def rows(stream: hr.Stream) -> list[tuple]:
    found = stream.cht()
    assert hr.same_history(found, stream.history("duckdb").cht())
    return [tuple(row.values()) for row in found.to_pylist()]


PAIRS = [(3, 5, "A", 10, 1), (4, 6, "A", 10, 2)]
LEFT_ALONE = [(1, 3, "A", 10, None), (2, 7, "B", 20, None), (6, 9, "A", 10, None)]
RIGHT_ALONE = [(8, 12, "C", None, 3)]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", PAIRS),
        ("left", sorted(PAIRS + LEFT_ALONE)),
        ("right", sorted(PAIRS + RIGHT_ALONE)),
        ("full", sorted(PAIRS + LEFT_ALONE + RIGHT_ALONE)),
        ("semi", [(3, 6, "A", 10)]),
        ("anti", [row[:4] for row in LEFT_ALONE]),
    ],
)
def test_kinds(how: str, expected: list[tuple]):
    joined = FLIGHTS.join(GATES, on="id", how=how)  # type: ignore[arg-type]
    assert rows(joined) == expected
    assert joined.schema.names == (("id", "seats") if how in ("semi", "anti") else ("id", "seats", "seats_right"))
    if how != "inner":
        assert getattr(FLIGHTS, f"{how}_join")(GATES, "id").node == joined.node


def test_conditions_use_the_names_of_the_join():
    more = col("seats") > col("seats_right") * 6
    assert rows(FLIGHTS.full_join(GATES, "id", more)) == sorted([
        (1, 3, "A", 10, None), (2, 7, "B", 20, None), (3, 5, "A", 10, 1), (4, 6, "A", None, 2), (5, 9, "A", 10, None),
        (8, 12, "C", None, 3),
    ])  # fmt: skip
    assert rows(FLIGHTS.semi_join(GATES, "id", more)) == [(3, 5, "A", 10)]


def test_a_full_join_by_keys_of_other_names_keeps_both():
    gates = GATES.rename({"id": "flight"})
    found = FLIGHTS.full_join(gates, {"id": "flight"})
    assert found.schema.names == ("id", "seats", "flight", "seats_right")
    assert (8, 12, None, None, "C", 3) in rows(found)


def test_a_key_is_as_wide_as_the_wider_one():
    numbers = hr.events("le | re | n\n1 | 4 | 1", schema="n INT")
    wide = hr.events("le | re | n\n2 | 9 | 5000000000", schema="n LONG")
    assert str(numbers.full_join(wide, "n").schema) == "n LONG"
    assert rows(numbers.full_join(wide, "n")) == [(1, 4, 1), (2, 9, 5_000_000_000)]
    assert rows(wide.right_join(numbers, "n")) == [(1, 4, 1)]


def test_equal_events_and_nulls_in_a_semi_join():
    left = hr.events("le | re | k | v\n1 | 9 | A |\n1 | 9 | A |\n3 | 8 |   | 1", schema="k STRING, v INT")
    assert rows(left.semi_join(GATES, {"k": "id"})) == [(3, 6, "A", None)] * 2
    assert (
        rows(left.semi_join(GATES, where=col("v").is_null()))
        == [(3, 6, "A", None), (3, 6, "A", None)] + [(8, 9, "A", None)] * 2
    )
    assert rows(left.semi_join(GATES)) == [
        (3, 6, "A", None), (3, 6, "A", None), (3, 6, None, 1), (8, 9, "A", None), (8, 9, "A", None)
    ]  # fmt: skip


def test_keys_may_be_expressions():
    by_ten = hr.events("le | re | n\n1 | 9 | 13\n1 | 9 | 23", schema="n INT")
    three = hr.events("le | re | n\n2 | 5 | 3", schema="n INT")
    assert rows(by_ten.join(three, on=col("n") % 10)) == [(2, 5, 13, 3), (2, 5, 23, 3)]
    assert rows(by_ten.join(three, on=[(col("n") - 10, "n")])) == [(2, 5, 13, 3)]
    assert rows(by_ten.join(three, on=[(col("n") - 20, col("n")), (col("n") // 10, 2)[:1] * 2])) == []
    assert rows(by_ten.anti_join(three, on=[(col("n") - 10, "n")])) == [(1, 2, 13), (1, 9, 23), (5, 9, 13)]
    assert rows(by_ten.full_join(three, on=[(col("n") - 11, "n")])) == [
        (1, 9, 13, None), (1, 9, 23, None), (2, 5, None, 3)
    ]  # fmt: skip
    assert rows(by_ten.clip(three, on=col("n") % 10)) == [(1, 2, 13), (1, 2, 23)]


def test_keys_of_a_stream_may_be_expressions_beside_a_table():
    names = pa.table({"code": pa.array([1, 2], pa.int32()), "name": ["one", "two"]})
    tens = hr.events("le | re | n\n1 | 9 | 13\n1 | 9 | 23", schema="n INT")
    found = tens.join_table(names, on=[(col("n") // 10, "code")])
    assert rows(found) == [(1, 9, 13, 1, "one"), (1, 9, 23, 2, "two")]
    with pytest.raises(PlanError, match="the key of a table is one of its columns"):
        tens.join_table(names, on=[("n", col("code") + 1)])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: FLIGHTS.join(GATES, "id", how="outer"), "inner, left, right, full, semi, anti"),
        (lambda: FLIGHTS.join(GATES, on=col("id") == col("seats")), r"on=\[\(col\('id'\), col\('seats'\)\)\]"),
        (lambda: FLIGHTS.join(GATES, on=[("id", "id", "id")]), "join keys are columns"),
        (lambda: FLIGHTS.join(GATES, on=5), "join keys are columns"),
        (lambda: FLIGHTS.join(GATES, on=[(col("seats") / 2, "id")]), r"seats / 2 is DOUBLE, id is STRING"),
        (lambda: FLIGHTS.point_at_start().semi_join(GATES.point_at_start(), "id"), "semi_join"),
    ],
)
def test_errors(wrong: Callable[[], object], text: str):
    with pytest.raises(PlanError, match=text):
        wrong()
