"""Columns: which ones a stream has, under which names, and how they are computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import headrace as hr
from headrace import col
from headrace.errors import ExpressionError, HeadraceError, PlanError, SchemaError, UnknownColumn

TICKS = hr.events(
    """
    le | re | symbol | price | n
     1 |  9 | A      | 10.0  | 3
     2 |  7 | B      | 20.0  | 4
    """,
    schema="symbol STRING, price DOUBLE, n INT",
)


def rows(stream: hr.Stream) -> list[tuple]:
    return [tuple(row.values())[2:] for row in stream.cht().to_pylist()]


def test_a_text_is_the_name_of_a_column():
    assert rows(TICKS.select(s="symbol", t=hr.lit("symbol"), one=1)) == [("A", "symbol", 1), ("B", "symbol", 1)]
    assert rows(TICKS.with_columns(n="price").select("n")) == [(10.0,), (20.0,)]
    counted = TICKS.group_by(s="symbol").window(hr.tumbling(10)).aggregate(n=hr.count())
    assert rows(counted) == [("A", 1), ("B", 1)]


def test_an_unknown_column_hints_at_lit():
    with pytest.raises(UnknownColumn, match=r"instead: hr\.lit\('dear'\) for the text"):
        TICKS.select(kind="dear")
    with pytest.raises(UnknownColumn, match=r"instead: col\('price'\) or hr\.lit\('prize'\) for the text"):
        TICKS.select(hr.when(col("n") > 3).then("prize"))


def test_a_star_stands_for_all_columns():
    assert TICKS.select("*").schema == TICKS.schema
    assert rows(TICKS.select("*", double=col("n") * 2)) == [("A", 10.0, 3, 6), ("B", 20.0, 4, 8)]
    assert TICKS.select(hr.lit(1).alias("first"), "*").schema.names == ("first", "symbol", "price", "n")


def test_with_columns_replaces_in_place_and_adds_behind():
    changed = TICKS.with_columns(col("price").round(0).alias("whole"), price=col("n") * 2, n=col("price"))
    assert changed.schema.names == ("symbol", "price", "n", "whole")
    assert rows(changed) == [("A", 6, 10.0, 10.0), ("B", 8, 20.0, 20.0)]


def test_drop_and_rename():
    assert TICKS.drop("price").schema.names == ("symbol", "n")
    assert TICKS.rename({"price": "n", "n": "price"}).schema.names == ("symbol", "n", "price")
    assert rows(TICKS.rename({"symbol": "s"}).drop("price", "n")) == [("A",), ("B",)]


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        (lambda: TICKS.select("*", price=1), SchemaError, r"with_columns\(price=...\) replaces"),
        (lambda: TICKS.rename({"n": "price"}), SchemaError, "column 'price' appears twice"),
        (lambda: TICKS.drop("prize"), UnknownColumn, r"col\('price'\)"),
        (TICKS.drop, PlanError, "drop needs names"),
        (lambda: TICKS.drop(["price", "n"]), PlanError, r"drop\(\*\['price', 'n'\]\)"),
        (lambda: TICKS.drop("price", "n", "symbol"), PlanError, "leaves no column"),
        (lambda: TICKS.rename({"prize": "p"}), UnknownColumn, r"col\('price'\)"),
        (lambda: TICKS.rename({}), PlanError, "rename needs names"),
        (lambda: TICKS.rename("price"), PlanError, r"rename\(\{'price': 'cost'\}\)"),
        (TICKS.with_columns, PlanError, "needs a column"),
        (lambda: TICKS.with_columns("price"), ExpressionError, "needs an expression"),
        (lambda: TICKS.with_columns(n=hr.sum("n")), ExpressionError, "one event at a time"),
        (lambda: TICKS.group_by(k=1), ExpressionError, "needs columns"),
    ],
)
def test_errors(wrong: Callable[[], object], kind: type[HeadraceError], text: str):
    with pytest.raises(kind, match=text):
        wrong()


def test_when_is_an_expression_before_otherwise():
    bands = hr.when(col("price") > 15).then(hr.lit("dear")).when(col("n") > 2).then("symbol")
    assert rows(TICKS.select(band=bands)) == [("A",), ("dear",)]
    assert rows(TICKS.select(band=hr.when(col("n") > 3).then(1))) == [(None,), (1,)]
    assert str(bands.otherwise(hr.lit("?"))).endswith("THEN symbol ELSE '?' END")


def test_aggregates_of_some_events():
    windows = TICKS.window(hr.tumbling(10))
    dear = col("price") > 15
    found = windows.aggregate(n=hr.count(where=dear), s=hr.sum("n", where=dear), l=hr.collect("n", where=~dear))
    assert rows(found) == [(1, 4, [3])]
    nothing = windows.aggregate(n=hr.count(where=col("n") > 9), s=hr.max("price", where=col("n") > 9))
    assert rows(nothing) == [(0, None)]
    with pytest.raises(ExpressionError, match="where of an aggregate needs a condition"):
        hr.count(where="price")  # type: ignore[arg-type]
    with pytest.raises(ExpressionError, match="BOOLEAN"):
        windows.aggregate(n=hr.count(where=col("n")))


@pytest.mark.parametrize(("q", "expected"), [(0, "a"), (0.25, "a"), (0.26, "b"), (0.5, "b"), (0.75, "c"), (1, "d")])
def test_percentile_disc_is_one_of_the_values(q: float, expected: str):
    values = hr.events([{"le": 1, "re": 2, "k": k} for k in ("d", "b", None, "a", "c")], "k STRING")
    found = values.window(hr.tumbling(4)).aggregate(p=hr.percentile_disc("k", q))
    assert rows(found) == [(expected,)]
    assert hr.same_history(found.cht(), found.history("duckdb").cht())


def test_each_column_of_an_order_has_a_direction():
    stream = hr.events(
        [{"le": 1, "re": 2, "a": a, "b": b} for a in (1, 2, None) for b in ("x", "y")], "a INT, b STRING"
    )
    assert rows(stream.top(3, by=["a", "b"], descending=[True, False])) == [(1, "x"), (2, "x"), (2, "y")]
    assert rows(stream.top(1, by=["a", "b"], descending=[False, True])) == [(1, "y")]
    assert stream.top(1, by=["a", "b"], descending=[True, True]).node == stream.top(1, by=["a", "b"]).node
    mixed = stream.top(2, by=["b", "a"], descending=(True, False))
    assert "b descending, a ascending" in mixed.explain()
    assert rows(mixed) == [(1, "y"), (2, "y")]
    assert hr.same_history(mixed.cht(), mixed.history("duckdb").cht())
    in_sql = hr.sql("SELECT * FROM s ORDER BY b DESC, a LIMIT 2", s=stream)
    assert in_sql.node == mixed.node
    with pytest.raises(PlanError, match="2 of them in a list"):
        stream.top(1, by=["a", "b"], descending=[True])
    with pytest.raises(PlanError, match="2 of them in a list"):
        stream.top(1, by=["a", "b"], descending=[True, 1])  # type: ignore[list-item]


def test_a_union_takes_columns_by_name():
    one = hr.events("le | re | a | b\n1 | 5 | 1 | x")
    other = hr.events("le | re | b | a\n2 | 6 | y | 2")
    assert [(row["a"], row["b"]) for row in one.union(other).cht().to_pylist()] == [(1, "x"), (2, "y")]


def test_a_loop_takes_columns_by_name():
    edges = hr.events("le | re | src | dst\n0 | 9 | a | b\n0 | 9 | b | c")
    reached = hr.recurse(edges, lambda found: found.join(edges, on={"dst": "src"}).select(dst="dst_right", src="src"))
    assert {(row["src"], row["dst"]) for row in reached.cht().to_pylist()} == {("a", "b"), ("b", "c"), ("a", "c")}
