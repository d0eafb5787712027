"""Expressions: built in Python or SQL, computed on Arrow, printed as Spark SQL and DuckDB SQL, the same everywhere.

Printing is imported apart, from `headrace.expr.sql`: a worker unpickles expressions and need not load a SQL library.
"""

from headrace.expr.aggregates import (
    AggregateCall,
    avg,
    count,
    first,
    has_aggregates,
    last,
    max,
    min,
    split_aggregates,
    stddev,
    sum,
    var,
)
from headrace.expr.evaluate import evaluate, predicate_mask
from headrace.expr.functions import CaseBuilder, call, case, coalesce, concat, greatest, if_else, least
from headrace.expr.nodes import Alias, Call, Case, Cast, Column, Expr, Literal, Value, as_expr, col, lit
from headrace.expr.pushdown import conjuncts, split_pushdown, to_arrow_filter
from headrace.expr.signatures import FUNCTIONS

__all__ = [
    "FUNCTIONS",
    "AggregateCall",
    "Alias",
    "Call",
    "Case",
    "CaseBuilder",
    "Cast",
    "Column",
    "Expr",
    "Literal",
    "Value",
    "as_expr",
    "avg",
    "call",
    "case",
    "coalesce",
    "col",
    "concat",
    "conjuncts",
    "count",
    "evaluate",
    "first",
    "greatest",
    "has_aggregates",
    "if_else",
    "last",
    "least",
    "lit",
    "max",
    "min",
    "predicate_mask",
    "split_aggregates",
    "split_pushdown",
    "stddev",
    "sum",
    "to_arrow_filter",
    "var",
]
