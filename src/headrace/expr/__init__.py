"""Expressions: built in Python or SQL, computed on Arrow, printed as Spark SQL and DuckDB SQL, the same everywhere.

Printing is imported separately, from `headrace.expr.sql`: workers unpickle expressions and need no SQL library.
"""

from headrace.expr.aggregates import (
    AggregateCall,
    approx_distinct,
    avg,
    count,
    distinct_count,
    first,
    geometric_mean,
    has_aggregates,
    last,
    max,
    median,
    min,
    percentile_disc,
    quantile,
    split_aggregates,
    stddev,
    sum,
    top_frequent,
    var,
)
from headrace.expr.evaluate import evaluate, predicate_mask
from headrace.expr.functions import When, array, call, coalesce, concat, greatest, if_else, least, struct, when
from headrace.expr.in_order import collect
from headrace.expr.nodes import Alias, Call, Case, Cast, Column, Expr, Literal, Value, as_expr, col, lit
from headrace.expr.pushdown import conjuncts, split_pushdown, to_arrow_filter
from headrace.expr.python import Udf, UdfCall, udf
from headrace.expr.signatures import FUNCTIONS

__all__ = [
    "FUNCTIONS",
    "AggregateCall",
    "Alias",
    "Call",
    "Case",
    "Cast",
    "Column",
    "Expr",
    "Literal",
    "Udf",
    "UdfCall",
    "Value",
    "When",
    "approx_distinct",
    "array",
    "as_expr",
    "avg",
    "call",
    "coalesce",
    "col",
    "collect",
    "concat",
    "conjuncts",
    "count",
    "distinct_count",
    "evaluate",
    "first",
    "geometric_mean",
    "greatest",
    "has_aggregates",
    "if_else",
    "last",
    "least",
    "lit",
    "max",
    "median",
    "min",
    "percentile_disc",
    "predicate_mask",
    "quantile",
    "split_aggregates",
    "split_pushdown",
    "stddev",
    "struct",
    "sum",
    "to_arrow_filter",
    "top_frequent",
    "udf",
    "var",
    "when",
]
