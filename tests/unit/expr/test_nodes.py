from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from headrace.errors import ExpressionError, UnknownColumn, UnknownMethod
from headrace.expr import Expr, coalesce, col, concat, count, greatest, if_else, least, lit, when
from headrace.expr import sum as total
from headrace.schema import Schema, Type

TICKS = Schema.of(
    "symbol STRING, ts DATETIME, price DOUBLE, quantity INT, volume LONG, small BYTE, ratio FLOAT, "
    "open BOOLEAN, side CHAR"
)
price, quantity, symbol, ts = col("price"), col("quantity"), col("symbol"), col("ts")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (price * 2 > 100, "(price * 2) > 100"),
        (2 * price - 1, "(2 * price) - 1"),
        (1 / price % 3, "(1 / price) % 3"),
        (-price + (+2), "negate(price) + 2"),
        ((price > 1) & ~(quantity == 2) | col("open"), "((price > 1) AND not(quantity = 2)) OR open"),
        (True & col("open"), "TRUE AND open"),
        (price != None, "price <> NULL"),  # noqa: E711 - builds an expression
        (quantity.between(1, 5), "(quantity >= 1) AND (quantity <= 5)"),
        (symbol.isin("A", "B"), "isin(symbol, 'A', 'B')"),
        (symbol.isin(["A", "B"]), "isin(symbol, 'A', 'B')"),
        (symbol.isin({"B", "A"}), "isin(symbol, 'A', 'B')"),
        (symbol == "it's", "symbol = 'it''s'"),
        (col("odd name") == col('q"'), '"odd name" = "q"""'),
        (price.cast("int"), "CAST(price AS INT)"),
        (price.alias("p") + 1, "(price AS p) + 1"),
        (symbol.nullif(""), "CASE WHEN symbol = '' THEN NULL ELSE symbol END"),
        (if_else(price > 1, "a", "b"), "CASE WHEN price > 1 THEN 'a' ELSE 'b' END"),
        (
            when(price > 1).then(1).when(price > 0).then(2),
            "CASE WHEN price > 1 THEN 1 WHEN price > 0 THEN 2 ELSE NULL END",
        ),
        (coalesce(price, 0), "coalesce(price, 0)"),
        (price.coalesce(0), "coalesce(price, 0)"),
        (greatest(price, 1) + least(price, 1), "greatest(price, 1) + least(price, 1)"),
        (concat(symbol, lit("-")), "concat(symbol, '-')"),
        (ts >= datetime(2024, 5, 1, tzinfo=UTC), "ts >= DATETIME '2024-05-01T00:00:00'"),
        (ts.date_trunc("DAY"), "date_trunc(ts, 'day')"),
        (lit(float("nan")), "DOUBLE 'nan'"),
        (lit(1.0), "1.0"),
        (total(price * quantity) / total("quantity"), "sum(price * quantity) / sum(quantity)"),
    ],
)
def test_the_canonical_text(expr: Expr, text: str):
    assert str(expr) == repr(expr) == text


def test_same_compares_meaning_and_hash_follows():
    assert (price + 1).same(col("price") + 1)
    assert not (price + 1).same(price + 1.0)
    assert not price.same("price")
    assert hash(price + 1) == hash(col("price") + 1)


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (None, Type.STRING),
        (True, Type.BOOLEAN),
        (2**31 - 1, Type.INT),
        (-(2**31), Type.INT),
        (2**31, Type.LONG),
        (-(2**63), Type.LONG),
        (1.5, Type.DOUBLE),
        ("x", Type.STRING),
        (datetime(2024, 1, 1, tzinfo=UTC), Type.DATETIME),
        (np.int64(5), Type.INT),
        (np.float32(0.5), Type.DOUBLE),
    ],
)
def test_the_type_of_a_literal(value: object, type: Type):
    assert lit(value).type(TICKS) == type


def test_datetimes_are_kept_in_utc():
    east = datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    naive = datetime(2024, 1, 1)  # noqa: DTZ001 - naive means UTC
    assert lit(east).same(lit(naive))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, [1], object(), b"x"])
def test_what_is_no_literal(value: object):
    with pytest.raises(ExpressionError):
        lit(value)


@pytest.mark.parametrize(
    ("expr", "type"),
    [
        (col("small") + col("small"), Type.INT),
        (quantity + col("volume"), Type.LONG),
        (col("volume") * col("ratio"), Type.FLOAT),
        (col("ratio") + 1.5, Type.DOUBLE),
        (quantity / quantity, Type.DOUBLE),
        (-col("small"), Type.INT),
        (col("small").floor(), Type.BYTE),
        (col("ratio").round(2), Type.DOUBLE),
        (quantity.sqrt(), Type.DOUBLE),
        (quantity > 1.5, Type.BOOLEAN),
        (col("side") == symbol, Type.BOOLEAN),
        (col("side").upper(), Type.STRING),
        (col("side"), Type.CHAR),
        (symbol.length(), Type.INT),
        (ts.year(), Type.INT),
        (ts.date_trunc("week"), Type.DATETIME),
        (if_else(col("open"), quantity, price), Type.DOUBLE),
        (if_else(col("open"), None, quantity), Type.INT),
        (coalesce(None, col("volume")), Type.LONG),
        (coalesce(None, None), Type.STRING),
        (lit(None) + 1, Type.INT),
        (price.alias("p"), Type.DOUBLE),
        (lit(None).cast("BYTE"), Type.BYTE),
        (count() + 1, Type.LONG),
    ],
)
def test_the_type_of_an_expression(expr: Expr, type: Type):
    assert expr.type(TICKS) == type


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        (symbol + 1, "symbol \\+ 1 cannot take STRING, INT"),
        (symbol == 1, "cannot take STRING, INT"),
        (symbol.isin(1, "a"), "cannot take"),
        (ts + 1, "no unit"),
        (ts > symbol, "DATE and DATETIME with one another"),
        (price & True, "cannot take DOUBLE, BOOLEAN"),
        (~quantity, "BOOLEAN"),
        (price.upper(), "STRING or CHAR"),
        (symbol.year(), "DATETIME"),
        (symbol.sqrt(), "numbers"),
        (if_else(price, 1, 2), "condition price is DOUBLE"),
        (if_else(col("open"), 1, "a"), "cannot take"),
        (price.cast("STRING"), "DOUBLE into STRING"),
        (ts.cast("INT"), "DATETIME into INT"),
        (col("open").cast("DATETIME"), "BOOLEAN into DATETIME"),
    ],
)
def test_what_cannot_be_typed(expr: Expr, words: str):
    with pytest.raises(ExpressionError, match=words):
        expr.type(TICKS)


def test_an_unknown_column_names_the_nearest():
    with pytest.raises(UnknownColumn, match=r"col\('price'\)"):
        (col("prise") + 1).type(TICKS)


@pytest.mark.parametrize(
    "build",
    [
        lambda: col(""),
        lambda: col(3),  # type: ignore[arg-type]
        lambda: price.round(-1),
        lambda: price.round(1.5),  # type: ignore[arg-type]
        lambda: symbol.substring(0),
        lambda: symbol.substring(1, -1),
        lambda: symbol.replace("", "x"),
        lambda: symbol.contains(symbol),  # type: ignore[arg-type]
        lambda: symbol.like(symbol),
        lambda: symbol.like("a\\b"),
        lambda: symbol.rlike("(?=x)"),
        lambda: ts.date_trunc("dya"),
        lambda: when(1),
        lambda: list(price),  # type: ignore[call-overload]
    ],
)
def test_what_cannot_be_built(build: object):
    with pytest.raises(ExpressionError):
        build()  # type: ignore[operator]


@pytest.mark.parametrize(
    "use", [bool, lambda e: e and True, lambda e: not e, lambda e: e in [price, quantity], lambda e: 1 < e < 2]
)
def test_python_logic_is_refused(use: object):
    with pytest.raises(ExpressionError, match="& for and"):
        use(price > 1)  # type: ignore[operator]


def test_a_typo_names_the_nearest_method():
    with pytest.raises(UnknownMethod, match=r"instead: \.is_null"):
        _ = price.isnull()
    assert not hasattr(price, "isnull")


def test_trees_can_be_read_and_rebuilt():
    expr = if_else(price > 1, symbol.upper(), "x").alias("y")
    assert expr.name == "y"
    assert price.name == "price"
    assert (price + 1).name == "price + 1"
    assert expr.columns() == {"price", "symbol"}
    assert lit(1).columns() == frozenset()
    renamed = expr.transform(lambda e: col("p") if e.same(price) else e)
    assert str(renamed) == str(expr).replace("price", "p")
    assert all(
        e.with_children(e.children).same(e)
        for e in (expr, price, price.cast("INT"), price + 1, count(), expr.children[0])
    )


@pytest.mark.parametrize(
    "expr", [if_else(price > 1, symbol.upper(), None).alias("y"), total(price) / count(), ts.cast("LONG")]
)
def test_expressions_pickle_and_copy(expr: Expr):
    assert pickle.loads(pickle.dumps(expr)).same(expr)  # noqa: S301 - our own bytes
    assert copy.deepcopy(expr).same(expr)


def test_expressions_are_immutable():
    with pytest.raises(AttributeError):
        price.column = "other"
