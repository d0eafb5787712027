from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import ExpressionError
from headrace.expr import (
    AggregateCall,
    Expr,
    approx_distinct,
    avg,
    col,
    collect,
    count,
    distinct_count,
    evaluate,
    first,
    geometric_mean,
    has_aggregates,
    last,
    median,
    quantile,
    split_aggregates,
    stddev,
    top_frequent,
    var,
)
from headrace.expr import max as greatest_of
from headrace.expr import min as least_of
from headrace.expr import sum as total
from headrace.expr.in_order import concat
from headrace.schema import Schema, Type

SCHEMA = Schema.of("p DOUBLE, q INT, f FLOAT, s STRING, t DATETIME, c CHAR, ps ARRAY<DOUBLE>")


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
        (count("ps"), Type.LONG),
        (median("q"), Type.DOUBLE),
        (quantile("f", 0.25), Type.DOUBLE),
        (geometric_mean("q"), Type.DOUBLE),
        (distinct_count("s"), Type.LONG),
        (approx_distinct("t"), Type.LONG),
        (collect("q"), Type.INT.array),
        (collect("c"), Type.CHAR.array),
        (top_frequent("t", 3), Type.DATETIME.array),
        (concat("c"), Type.STRING),
    ],
)
def test_the_type_of_an_aggregate(expr: Expr, type: Type):
    assert expr.type(SCHEMA) == type


@pytest.mark.parametrize("build", [total, avg, var, stddev, median, geometric_mean, lambda name: quantile(name, 0.5)])
def test_numbers_only(build: object):
    with pytest.raises(ExpressionError, match="STRING"):
        build("s").type(SCHEMA)  # type: ignore[operator]


@pytest.mark.parametrize("build", [least_of, first, collect, distinct_count, approx_distinct, total, concat])
def test_no_lists(build: object):
    with pytest.raises(ExpressionError, match="cannot take ARRAY<DOUBLE>"):
        build("ps").type(SCHEMA)  # type: ignore[operator]


def test_only_texts_are_joined():
    with pytest.raises(ExpressionError, match=r"concat\(q, ', '\) cannot take INT"):
        concat("q", ", ").type(SCHEMA)


@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan"), True, None, "0.5"])
def test_a_quantile_lies_between_0_and_1(q: object):
    with pytest.raises(ExpressionError, match="allowed: 0 to 1"):
        quantile("p", q)  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [0, -1, 1.0, True, None])
def test_a_number_of_values_is_at_least_one(k: object):
    with pytest.raises(ExpressionError, match="a number of values"):
        top_frequent("p", k)  # type: ignore[arg-type]


def test_parameters_are_part_of_the_text():
    assert str(quantile("p", np.float64(0.25))) == "quantile(p, 0.25)"
    assert str(quantile("p", 1)) == "quantile(p, 1.0)"
    assert str(top_frequent(col("q") + 1, np.int64(2))) == "top_frequent(q + 1, 2)"
    assert str(concat("s", "'")) == "concat(s, '''')"
    calls, _ = split_aggregates({"a": quantile("p", 0.1), "b": quantile("p", 0.9), "c": quantile("p", 0.1) + 1})
    assert [str(call) for call in calls.values()] == ["quantile(p, 0.1)", "quantile(p, 0.9)"]
    moved = quantile("p", 0.1).transform(lambda expr: col("q") if str(expr) == "p" else expr)
    assert str(moved) == "quantile(q, 0.1)"
    with pytest.raises(ExpressionError, match="1 parameters"):
        AggregateCall("quantile", col("p"))


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
