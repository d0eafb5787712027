"""Arithmetic with dates and durations, and texts beside them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import ExpressionError, HeadraceError
from headrace.expr import coalesce, col, evaluate, greatest, least, lit, when
from headrace.expr.nodes import Expr
from headrace.expr.sql import to_duckdb, to_spark
from headrace.schema import Schema, Type

SCHEMA = Schema.of("dep DATETIME, arr DATETIME, n INT, m LONG, x DOUBLE, s STRING")
NOON, ONE = datetime(2024, 5, 1, 12, tzinfo=UTC), datetime(2024, 5, 1, 13, 30, tzinfo=UTC)
TABLE = pa.table(
    [[NOON, NOON, None], [ONE, None, ONE], [2, -1, 3], [1, 2, 3], [0.5] * 3, ["a"] * 3], schema=SCHEMA.arrow
)
MINUTE = 60_000_000
dep, arr, n, m = col("dep"), col("arr"), col("n"), col("m")


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (arr - dep, [90 * MINUTE, None, None]),
        ((arr - dep) / timedelta(hours=1), [1.5, None, None]),
        ((arr - dep) // timedelta(hours=1), [1, None, None]),
        (arr - dep > timedelta(hours=1), [True, None, None]),
        (arr - dep > "1 h 30 min", [False, None, None]),
        ((arr - dep - "30 min").isin("1 h", "2 h"), [True, None, None]),
        (dep + timedelta(minutes=90), [ONE, ONE, None]),
        (timedelta(minutes=90) + dep, [ONE, ONE, None]),
        (dep + "90 min" == arr, [True, None, None]),
        ("90 min" + dep == arr, [True, None, None]),
        (arr - timedelta(minutes=90), [NOON, None, NOON]),
        (arr - "90 min", [NOON, None, NOON]),
        (dep + (arr - dep), [ONE, None, None]),
        (arr - (arr - dep) * 2, [datetime(2024, 5, 1, 10, 30, tzinfo=UTC), None, None]),
        (dep + n * timedelta(minutes=45), [ONE, datetime(2024, 5, 1, 11, 15, tzinfo=UTC), None]),
        (dep - "2024-05-01", [12 * 60 * MINUTE] * 2 + [None]),
        (datetime(2024, 5, 1, 12, 1) - dep, [MINUTE, MINUTE, None]),  # noqa: DTZ001 - naive times are UTC
        (dep >= "2024-05-01", [True, True, None]),
        (dep < "2024-05-01T12:00:00+02:00", [False, False, None]),
        (dep == NOON, [True, True, None]),
        (dep > date(2024, 5, 1), [True, True, None]),
        (dep > np.datetime64("2024-05-01T11:00:00.000000000"), [True, True, None]),
        (dep.between("2024-05-01", "2024-05-02"), [True, True, None]),
        (dep.isin("2024-05-01 12:00"), [True, True, None]),
        (coalesce(arr, lit("2024-05-01 12:00")), [ONE, NOON, ONE]),
        (least("dep", "arr", lit("2024-05-01 13:00")).hour(), [12, 12, 13]),
        (greatest(arr - dep, lit("2 h")), [120 * MINUTE] * 3),
        (when(n > 0).then("dep").otherwise(lit("2024-05-01T13:30:00Z")), [NOON, ONE, None]),
        (-(arr - dep), [-90 * MINUTE, None, None]),
        (lit(timedelta(seconds=1)) + m, [1_000_001, 1_000_002, 1_000_003]),
    ],
)
def test_values(expr: Expr, expected: list):
    assert evaluate(expr, TABLE, SCHEMA).to_pylist() == expected
    assert to_duckdb(expr, SCHEMA)
    assert to_spark(expr, SCHEMA)


def test_a_duration_is_a_long_number_of_ticks():
    assert (arr - dep).type(SCHEMA) is Type.LONG
    assert str(arr - dep > timedelta(minutes=10)) == "(arr - dep) > 10 min"
    assert lit(timedelta(days=1)).type(SCHEMA) is Type.LONG


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: dep + 5, r"a number beside a DATETIME has no unit"),
        (lambda: dep - n, r"col\('n'\) \* timedelta\(seconds=1\)"),
        (lambda: dep + arr, "cannot take DATETIME, DATETIME"),
        (lambda: timedelta(1) - dep, "cannot take|no unit"),
        (lambda: dep * 2, "dates are moved by timedelta"),
        (lambda: dep > "tomorrow", "this text beside a DATETIME is not one"),
        (lambda: dep > "2024-02-31", "not a time"),
        (lambda: dep + "ten minutes", "not a duration"),
        (lambda: arr - dep > "soon", "not a duration"),
        (lambda: dep > col("s"), "cannot take DATETIME, STRING"),
        (lambda: dep + (arr - dep) * 0.5, "whole number of ticks"),
    ],
)
def test_errors(wrong: Callable[[], Expr], text: str):
    with pytest.raises(HeadraceError, match=text):
        wrong().type(SCHEMA)


@pytest.mark.parametrize(
    ("expr", "type", "expected"),
    [
        (n // 2, Type.INT, [1, -1, 1]),
        (7 // n, Type.INT, [3, -7, 2]),
        (m // -2, Type.LONG, [-1, -1, -2]),
        (n // 0, Type.INT, [None] * 3),
        (n // 0.4, Type.DOUBLE, [5.0, -3.0, 7.0]),
        (lit(-(2**63)) // -n, Type.LONG, [2**62, -(2**63), 3074457345618258602]),
        (lit(-(2**63)) // n, Type.LONG, [-(2**62), None, -3074457345618258603]),
    ],
)
def test_floor_division(expr: Expr, type: Type, expected: list):
    assert expr.type(SCHEMA) is type
    assert evaluate(expr, TABLE, SCHEMA).to_pylist() == expected


def test_a_duration_is_not_a_value_of_numpy():
    with pytest.raises(ExpressionError, match="timedelta"):
        lit(np.timedelta64(1, "s"))  # type: ignore[arg-type]
