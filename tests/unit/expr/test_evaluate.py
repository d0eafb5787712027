from __future__ import annotations

import math
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headrace.errors import ExpressionError
from headrace.expr import (
    FUNCTIONS,
    Expr,
    coalesce,
    col,
    concat,
    evaluate,
    greatest,
    if_else,
    least,
    lit,
    predicate_mask,
    when,
)
from headrace.expr.arrow import KERNELS
from headrace.schema import Schema

NAN, INF = math.nan, math.inf
i, m, d, s, b, t = map(col, "imdsbt")
TABLE = pa.table(
    {
        "i": pa.array([1, -7, None, 2**31 - 1], pa.int32()),
        "m": pa.array([2**63 - 1, -(2**63), 5, None], pa.int64()),
        "d": pa.array([1.5, NAN, None, -0.0]),
        "s": pa.array(["12", " x ", None, "Ünï"]),
        "b": pa.array([True, False, None, True]),
        "t": pa.array([0, -1, None, 1_714_564_815_123_456], pa.timestamp("us", "UTC")),
    }
)
NAN_TEXT = "nan"


def values(expr: Expr, table: pa.Table = TABLE) -> list[object]:
    found = evaluate(expr, table)
    assert found.type == expr.type(Schema.of(table.schema)).arrow
    assert len(found) == table.num_rows
    return [NAN_TEXT if isinstance(v, float) and math.isnan(v) else v for v in found.to_pylist()]


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (i + 1, [2, -6, None, None]),
        (i * i, [1, 49, None, None]),
        (m - 1, [2**63 - 2, None, 4, None]),
        (m * -1, [-(2**63) + 1, None, -5, None]),
        (m % -1, [0, 0, 0, None]),
        (i % 3, [1, -1, None, 1]),
        (i % 0, [None] * 4),
        (i / 2, [0.5, -3.5, None, 1073741823.5]),
        (d / 0, [None] * 4),
        (d % 0.0, [None] * 4),
        (-m, [-(2**63) + 1, None, -5, None]),
        (m.abs(), [2**63 - 1, None, 5, None]),
        (d * 1e308 * 10, [INF, NAN_TEXT, None, 0.0]),
        ((i - 2).sqrt(), [None, None, None, math.sqrt(2**31 - 3)]),
        (d.ln(), [math.log(1.5), NAN_TEXT, None, None]),
        ((d + 1).round(), [3.0, NAN_TEXT, None, 1.0]),
        ((-d).round(), [-2.0, NAN_TEXT, None, 0.0]),
        (d.power(-1), [1 / 1.5, NAN_TEXT, None, None]),
        (i.power(0.5), [1.0, None, None, math.sqrt(2**31 - 1)]),
        (d.sign(), [1.0, NAN_TEXT, None, 0.0]),
    ],
)
def test_arithmetic_that_cannot_be_done_is_null(expr: Expr, expected: list[object]):
    assert values(expr) == expected


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (d == NAN, [False, True, None, False]),
        (d > INF, [False, True, None, False]),
        (d < NAN, [True, False, None, True]),
        (d == 0.0, [False, False, None, True]),
        (d.isin(0.0, NAN), [False, True, None, True]),
        (i.isin(1, None), [True, None, None, None]),
        (i.isin(), [False] * 4),
        (s.isin("12", s), [True, True, None, True]),
        (d.between(1, 2), [True, False, None, False]),
        (greatest(d, 1), [1.5, NAN_TEXT, 1.0, 1.0]),
        (least(d, 1), [1.0, 1.0, 1.0, 0.0]),
        (b & None, [None, False, None, None]),
        (b | None, [True, None, None, True]),
        (~b, [False, True, None, False]),
        (b.is_null(), [False, False, True, False]),
        (coalesce(i, m), [1, -7, 5, 2**31 - 1]),
        (i.nullif(1), [None, -7, None, 2**31 - 1]),
        (if_else(b, i, 0.5), [1.0, 0.5, 0.5, 2.0**31 - 1]),
        (when(i > 0).then(lit("p")).when(i < 0).then(lit("n")), ["p", "n", None, "p"]),
        (lit(None), [None] * 4),
        (lit(1) + 1, [2] * 4),
        (lit(2) > 1, [True] * 4),
    ],
)
def test_logic_is_three_valued_and_nan_is_greatest(expr: Expr, expected: list[object]):
    assert values(expr) == expected


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (s.upper(), ["12", " X ", None, "ÜNÏ"]),
        (s.trim().length(), [2, 1, None, 3]),
        (s.substring(2, 1), ["2", "x", None, "n"]),
        (concat(s, lit("!"), s), ["12!12", " x ! x ", None, "Ünï!Ünï"]),
        (s.replace("n", "m"), ["12", " x ", None, "Ümï"]),
        (s.like("_n_"), [False, False, None, True]),
        (s.rlike(r"^\d+$"), [True, False, None, False]),
        (s.starts_with(" "), [False, True, None, False]),
        (t.year(), [1970, 1969, None, 2024]),
        (t.day_of_week(), [4, 3, None, 3]),
        (t.second(), [0, 59, None, 15]),
    ],
)
def test_text_and_dates(expr: Expr, expected: list[object]):
    assert values(expr) == expected


@pytest.mark.parametrize(
    ("given", "type", "expected"),
    [
        (["1", " +2 ", "-0", "1.5", "", "x", "9" * 30, None], "INT", [1, 2, 0, None, None, None, None, None]),
        (["127", "128", "-128", "-129"], "BYTE", [127, None, -128, None]),
        (["1.5", ".5", "1e3", "nan", "1e400"], "DOUBLE", [1.5, 0.5, 1000.0, None, INF]),
        (["TRUE", "false", "1", "t", "Off", "maybe"], "BOOLEAN", [True, False, True, True, False, None]),
        ([1.9, -1.9, NAN, INF, 2.0**63, -(2.0**63)], "LONG", [1, -1, None, None, None, -(2**63)]),
        ([0.0, NAN, -0.0, 2.0], "BOOLEAN", [False, True, False, True]),
        ([1e300, -1e300, 0.5], "FLOAT", [INF, -INF, 0.5]),
        ([300, -129, 5], "BYTE", [None, None, 5]),
        ([True, False, None], "INT", [1, 0, None]),
        ([True, False, None], "STRING", ["true", "false", None]),
        ([2**63 - 1, 0, None], "DATETIME", [None, datetime(1970, 1, 1, tzinfo=UTC), None]),
        (
            ["2024-02-29", "2023-02-29", "2024-05-01T12:30:15.5+02:00", "noon"],
            "DATETIME",
            [datetime(2024, 2, 29, tzinfo=UTC), None, datetime(2024, 5, 1, 10, 30, 15, 500_000, tzinfo=UTC), None],
        ),
    ],
)
def test_casts_that_cannot_be_done_are_null(given: list[object], type: str, expected: list[object]):
    assert values(col("x").cast(type), pa.table({"x": given})) == expected


def test_a_datetime_as_text_is_iso():
    assert values(t.cast("STRING"))[1] == "1969-12-31T23:59:59.999999Z"
    assert values(t.cast("LONG"))[1] == -1


def test_chunks_dictionaries_and_large_text_are_read():
    chunks = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["c"]).dictionary_encode()])
    assert values(col("x").upper(), pa.table({"x": chunks})) == ["A", "B", "C"]
    assert values(col("x").length(), pa.table({"x": pa.array(["ab"], pa.large_string())})) == [2]
    assert values(col("x") + 1, pa.table({"x": pa.array([255], pa.uint8())})) == [256]


def test_a_mask_counts_null_as_false():
    assert predicate_mask(d > 1, TABLE).to_pylist() == [True, True, False, False]
    with pytest.raises(ExpressionError, match="not a condition"):
        predicate_mask(d, TABLE)


def test_every_function_has_a_kernel():
    assert set(KERNELS) == set(FUNCTIONS)
