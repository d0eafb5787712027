"""Functions of texts, times and angles: what they give on drawn values, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headrace.errors import ExpressionError
from headrace.expr import Expr, call, col, evaluate
from headrace.schema import Schema, Type

s, t, t2, n, d = map(col, ("s", "t", "t2", "n", "d"))
DAY = 86_400_000_000
TIME = Type.DATETIME.arrow
TABLE = pa.table(
    {
        "s": pa.array(["abcabc", "日本語 😀", "", None]),
        "t": pa.array([0, -1, 1_709_208_000_500_000, None], pa.int64()).cast(TIME),
        "t2": pa.array([1_000_000, -1, 0, 0], pa.int64()).cast(TIME),
        "n": pa.array([1, -(2**63), 2**63 - 1, 0], pa.int64()),
        "d": pa.array([0.5, 1.5, math.nan, None]),
    }
)
SCHEMA = Schema.of(TABLE.schema)


def values(expr: Expr) -> list[object]:
    found = evaluate(expr, TABLE)
    assert found.type == expr.type(SCHEMA).arrow
    return (found.cast(pa.int64()) if pa.types.is_timestamp(found.type) else found).to_pylist()


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (s.position("bc"), [2, 0, 0, None]),
        (s.position("😀"), [0, 5, 0, None]),
        (s.split_part("b", 1), ["a", "日本語 😀", "", None]),
        (s.split_part("b", 3), ["c", "", "", None]),
        (s.split_part("bc", 4), ["", "", "", None]),
        (s.split_part("本", 2), ["", "語 😀", "", None]),
        (s.reverse(), ["cbacba", "😀 語本日", "", None]),
        (s.code(), [97, 26085, None, None]),
        (s.reverse().code(), [99, 128512, None, None]),
        (s.repeat(2), ["abcabcabcabc", "日本語 😀日本語 😀", "", None]),
        (s.repeat(0), ["", "", "", None]),
        (s.left(2), ["ab", "日本", "", None]),
        (s.right(2), ["bc", " 😀", "", None]),
        (s.right(0), ["", "", "", None]),
        (s.right(99), ["abcabc", "日本語 😀", "", None]),
        (s.lpad(6, "·"), ["abcabc", "·日本語 😀", "······", None]),
        (s.rpad(6, "·"), ["abcabc", "日本語 😀·", "······", None]),
        (s.lpad(2), ["ab", "日本", "  ", None]),
    ],
)
def test_texts(expr: Expr, expected: list[object]):
    assert values(expr) == expected


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (t.day_of_year(), [1, 365, 60, None]),
        (t.epoch(), [0, -1, 1_709_208_000, None]),
        (call("time_diff", t, t2), [-1_000_000, 0, 1_709_208_000_500_000, None]),
        (call("time_diff", t, datetime(1970, 1, 2, tzinfo=UTC)), [-DAY, -DAY - 1, 1_709_208_000_500_000 - DAY, None]),
        (call("shift_time", t, DAY), [DAY, DAY - 1, 1_709_208_000_500_000 + DAY, None]),
        # What falls out of the years that have a text is no time any more.
        (call("shift_time", t2, n), [1_000_001, None, None, 0]),
        (call("shift_time", datetime(1970, 1, 1, tzinfo=UTC), n), [1, None, None, 0]),
        (call("shift_time", t, None), [None] * 4),
    ],
)
def test_times(expr: Expr, expected: list[object]):
    assert values(expr) == expected


def test_angles():
    asin, acos = values(d.asin()), values(d.acos())
    assert asin[0] == pytest.approx(math.pi / 6)
    assert acos[0] == pytest.approx(math.pi / 3)
    assert asin[1] is acos[1] is None  # beyond one
    assert math.isnan(asin[2])
    assert values(d.atan())[1] == pytest.approx(math.atan(1.5))
    assert values(d.degrees())[0] == pytest.approx(math.degrees(0.5))
    assert values(d.radians())[0] == pytest.approx(math.radians(0.5))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: s.position(""), "must not be empty"),
        (lambda: call("position", s, s), "the same for every row"),
        (lambda: s.lpad(5, "ab"), "one character"),
        (lambda: s.rpad(5, ""), "one character"),
        (lambda: s.repeat(-1), "whole number"),
        (lambda: s.repeat(10**9), "whole number"),
        (lambda: s.left(2.5), "whole number"),
        (lambda: d.reverse().type(SCHEMA), "STRING or CHAR"),
        (lambda: call("shift_time", t, 0.5).type(SCHEMA), "ticks"),
        (lambda: call("shift_time", n, 1).type(SCHEMA), "DATETIME"),
        (lambda: call("time_diff", t, n).type(SCHEMA), "DATETIME"),
        (lambda: s.epoch().type(SCHEMA), "DATETIME"),
    ],
)
def test_what_they_refuse(wrong: Callable[[], object], words: str):
    with pytest.raises(ExpressionError, match=words):
        wrong()
