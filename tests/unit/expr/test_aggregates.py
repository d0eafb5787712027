from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import ExpressionError
from headrace.expr import (
    AggregateCall,
    Expr,
    avg,
    col,
    count,
    evaluate,
    first,
    has_aggregates,
    last,
    split_aggregates,
    stddev,
    var,
)
from headrace.expr import max as greatest_of
from headrace.expr import min as least_of
from headrace.expr import sum as total
from headrace.schema import Schema, Type

SCHEMA = Schema.of("p DOUBLE, q INT, f FLOAT, s STRING, t DATETIME")


@pytest.mark.parametrize(
    ("expr", "type"),
    [
        (count(), Type.LONG),
        (count("s"), Type.LONG),
        (total("q"), Type.LONG),
        (total("f"), Type.DOUBLE),
        (total(col("p") * col("q")), Type.DOUBLE),
        (avg("q"), Type.DOUBLE),
        (var("q"), Type.DOUBLE),
        (stddev("f"), Type.DOUBLE),
        (least_of("f"), Type.FLOAT),
        (greatest_of("s"), Type.STRING),
        (first("t"), Type.DATETIME),
        (last("q"), Type.INT),
        (total(col("p") * col("q")) / total("q"), Type.DOUBLE),
        (count() > 5, Type.BOOLEAN),
    ],
)
def test_the_type_of_an_aggregate(expr: Expr, type: Type):
    assert expr.type(SCHEMA) == type


@pytest.mark.parametrize("build", [total, avg, var, stddev])
def test_numbers_only(build: object):
    with pytest.raises(ExpressionError, match="STRING"):
        build("s").type(SCHEMA)  # type: ignore[operator]


def test_aggregates_do_not_nest():
    with pytest.raises(ExpressionError, match="inside another"):
        total(count() + 1)


def test_an_unknown_aggregate_names_the_nearest():
    with pytest.raises(ExpressionError, match="instead: stddev"):
        AggregateCall("stdev", col("p"))
    with pytest.raises(ExpressionError, match="needs an argument"):
        AggregateCall("sum")


def test_an_aggregate_has_no_value_in_a_row():
    with pytest.raises(ExpressionError, match="no value in a single row"):
        evaluate(total("q") + 1, pa.table({"q": [1]}))


def test_splitting_takes_each_call_once_over_all_expressions():
    calls, rest = split_aggregates(
        {
            "vwap": total(col("p") * col("q")) / total("q"),
            "mean": total("q") / count(),
            "key": col("s"),
            "n": count().alias("n"),
        }
    )
    assert {name: str(call) for name, call in calls.items()} == {
        "__agg0": "sum(p * q)",
        "__agg1": "sum(q)",
        "__agg2": "count(*)",
    }
    assert {name: str(expr) for name, expr in rest.items()} == {
        "vwap": "__agg0 / __agg1",
        "mean": "__agg1 / __agg2",
        "key": "s",
        "n": "__agg2 AS n",
    }
    assert not any(map(has_aggregates, rest.values()))
