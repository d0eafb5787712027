from __future__ import annotations

import pytest

from headrace.errors import ExpressionError
from headrace.expr import FUNCTIONS, Expr, col, lit
from headrace.expr import sum as total
from headrace.expr.print_duckdb import DuckDBPrinter
from headrace.expr.print_spark import SparkPrinter
from headrace.expr.signatures import REGISTERED
from headrace.expr.sql import to_duckdb, to_spark
from headrace.schema import Schema

SCHEMA = Schema.of("i INT, b BYTE, d DOUBLE, s STRING")


@pytest.mark.parametrize(
    ("expr", "spark", "duckdb"),
    [
        (col("i") + 1, "TRY_ADD(`i`, 1)", 'TRY(("i" + 1))'),
        (col("b") + col("b"), "TRY_ADD(CAST(`b` AS INT), CAST(`b` AS INT))", None),
        (col("d") / 2, "TRY_DIVIDE(`d`, CAST('2.0' AS DOUBLE))", "(\"d\" / NULLIF(CAST('2.0' AS DOUBLE), 0))"),
        ((col("i") > 1) & col("s").is_null(), "((`i` > 1) AND (`s` IS NULL))", '(("i" > 1) AND ("s" IS NULL))'),
        (
            col("s") == "'; DROP TABLE x; --\\",
            r"(`s` = '\'; DROP TABLE x; --\\')",
            "(\"s\" = '''; DROP TABLE x; --\\')",
        ),
        (lit(None), "CAST(NULL AS STRING)", "CAST(NULL AS TEXT)"),
    ],
)
def test_what_is_printed(expr: Expr, spark: str | None, duckdb: str | None):
    assert spark is None or to_spark(expr, SCHEMA) == spark
    assert duckdb is None or to_duckdb(expr, SCHEMA) == duckdb


def test_names_are_quoted():
    schema = Schema.of("x INT")
    odd = Schema((schema.fields[0].__class__('a`b"c.d', schema.fields[0].type),))
    assert to_spark(col('a`b"c.d'), odd) == '`a``b"c.d`'
    assert to_duckdb(col('a`b"c.d'), odd) == '"a`b""c.d"'


def test_every_function_is_printed_by_both():
    assert set(SparkPrinter.functions) == set(DuckDBPrinter.functions) == set(FUNCTIONS) - REGISTERED


def test_what_engines_compute_in_other_ways_is_not_printed():
    with pytest.raises(ExpressionError, match="other engines"):
        to_spark(col("s").json_get("a"), SCHEMA)


def test_aggregates_are_not_printed():
    with pytest.raises(ExpressionError, match="sum"):
        to_spark(total("i"), SCHEMA)
