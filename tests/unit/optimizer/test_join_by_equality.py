"""Filters of equal columns above a join of everything become its keys."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace import col
from headrace.optimizer import optimize
from headrace.plan.nodes import Join, Output, Where, walk

LEFT = hr.events(
    "le | re | k | i | x\n1 | 9 | a | 1 | 1.0\n2 | 7 | b | 2 | 2.0\n3 | 8 | c |  |\n", "k STRING, i LONG, x DOUBLE"
)
RIGHT = LEFT.shift(1).where(col("i").is_null() | (col("i") < 2))


def joins(stream: hr.Stream) -> list[Join]:
    nodes = walk(*optimize([Output(stream.node, "out")]))
    return [node for node in nodes if isinstance(node, Join)]


@pytest.mark.parametrize("method", ["join", "left_join"])
@pytest.mark.parametrize("equal", [col("i") == col("i_right"), col("i_right") == col("i")])
def test_equal_columns_become_keys(method: str, equal: hr.Expr):
    both = getattr(LEFT, method)(RIGHT).where(equal & (col("k") != "z"))
    (join,) = joins(both)
    assert (join.on, join.kind) == ((("i", "i"),), "inner")
    assert not hr.history_diff(both.cht(), both.history(engine="duckdb").cht())
    assert both.cht()["i_right"].to_pylist() == [1]


def test_other_conditions_stay():
    for condition in (col("x") == col("x_right"), col("i") < col("i_right"), col("i") == 1):
        (join,) = joins(LEFT.left_join(RIGHT).where(condition))
        assert not join.on
    pairs = LEFT.left_join(RIGHT)
    both = pairs.where(col("i") == col("i_right")).union(pairs.where(col("i") > 0))
    assert [join.on for join in joins(both)] == [()], "another reader needs all pairs"
    assert any(isinstance(node, Where) for node in walk(*optimize([Output(both.node, "out")])))
