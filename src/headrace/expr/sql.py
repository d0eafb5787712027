"""Print an expression as SQL for the two engines that compute histories.

The schema is needed because types decide what is printed: BYTE + BYTE is INT here and TINYINT in Spark. Both engines
are expected to run in UTC, which is how Headrace opens them.
"""

from __future__ import annotations

from headrace.expr.nodes import Expr
from headrace.expr.print_duckdb import DuckDBPrinter
from headrace.expr.print_spark import SparkPrinter
from headrace.schema import Schema

__all__ = ["to_duckdb", "to_spark"]

_SPARK, _DUCKDB = SparkPrinter(), DuckDBPrinter()


def to_spark(expr: Expr, schema: Schema) -> str:
    """`expr` over columns of `schema` as Spark SQL.

    >>> from headrace.expr import col
    >>> to_spark(col("quantity") + 1, Schema.of("quantity INT"))
    'TRY_ADD(`quantity`, 1)'
    """
    return _SPARK.sql(expr.bind(schema))


def to_duckdb(expr: Expr, schema: Schema) -> str:
    """`expr` over columns of `schema` as DuckDB SQL.

    >>> from headrace.expr import col
    >>> to_duckdb(col("quantity") + 1, Schema.of("quantity INT"))
    'TRY(("quantity" + 1))'
    """
    return _DUCKDB.sql(expr.bind(schema))
