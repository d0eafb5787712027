"""One value at a time means what columns mean."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import ExpressionError
from headrace.expr import Call, Case, Cast, Expr, col, evaluate, lit
from headrace.schema import Field, Schema, Type
from headrace.sql.aggregates.front.definition import AggregateDefinition, BodyInsert, ColumnOrigin
from headrace.sql.aggregates.python import scalars
from headrace.sql.aggregates.python.compile import compile_aggregate
from headrace.sql.aggregates.python.rows import AGGREGATES, ROWS

QUICK = settings(max_examples=max(10, settings().max_examples * 2 // 5), deadline=None)
_BITS = {Type.BYTE: 8, Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}


def _whole(bits: int) -> st.SearchStrategy[int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.integers(-3, 3) | st.sampled_from([low, low + 1, high - 1, high]) | st.integers(low, high)


VALUES: dict[Type, st.SearchStrategy[Any]] = {
    **{kind: _whole(bits) for kind, bits in _BITS.items()},
    Type.DOUBLE: st.sampled_from([0.0, -0.0, 1.5, -2.0, math.nan, math.inf, -math.inf, 5e-324, 1.7e308]) | st.floats(),
    Type.FLOAT: st.sampled_from([0.0, -0.0, 0.5, math.nan, math.inf, -math.inf]) | st.floats(width=32),
    Type.BOOLEAN: st.booleans(),
    Type.STRING: st.sampled_from(["", "a", "A", "ß", "é", "\U0001f600", "12", " -7 ", "1e3", "true", "x'y\n"]),
    Type.DATETIME: st.integers(-(2**51), 2**52).map(scalars.instant),
}
NUMBERS = (Type.BYTE, Type.SHORT, Type.INT, Type.LONG, Type.FLOAT, Type.DOUBLE)
KINDS = (*NUMBERS, Type.BOOLEAN, Type.STRING, Type.DATETIME)
ARITHMETIC = ("add", "subtract", "multiply", "divide", "modulo")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def scalar(expr: Expr, schema: Schema, row: tuple[Any, ...]) -> Any:
    """The value of an expression in the code of an aggregate that returns it."""
    bound = expr.bind(schema)
    places = {field.name: ColumnOrigin(index) for index, field in enumerate(schema)}
    body = {"initialize": (BodyInsert(1, frozenset(), None, ((bound,),)),)}
    made = AggregateDefinition("f", schema.fields, (Field("f", bound.type),), True, (), body, places)
    return compile_aggregate(made).value([row])


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and bool(a == b)


def assert_same(expr: Expr, types: list[Type], row: tuple[Any, ...]) -> None:
    schema = Schema(tuple(Field("abc"[place], kind) for place, kind in enumerate(types)))
    columns = {f.name: pa.array([value], f.type.arrow) for f, value in zip(schema, row, strict=True)}
    expected = evaluate(expr, pa.table(columns), schema)[0].as_py()
    assert same(scalar(expr, schema, row), expected), (str(expr), types, row, expected)


def maybe(kind: Type) -> st.SearchStrategy[Any]:
    return st.none() | VALUES[kind]


@pytest.mark.parametrize("function", ARITHMETIC)
@QUICK
@given(st.data())
def test_arithmetic(function: str, data: st.DataObject):
    types = [data.draw(st.sampled_from(NUMBERS)) for _ in "ab"]
    assert_same(Call(function, (col("a"), col("b"))), types, tuple(data.draw(maybe(kind)) for kind in types))


@pytest.mark.parametrize("function", ["negate", "abs", "floor", "ceil", "sqrt", "exp", "ln", "sign", "sin"])
@QUICK
@given(st.data())
def test_functions_of_a_number(function: str, data: st.DataObject):
    kind = data.draw(st.sampled_from(NUMBERS))
    assert_same(Call(function, (col("a"),)), [kind], (data.draw(maybe(kind)),))


@pytest.mark.parametrize("function", [*COMPARISONS, "isin", "coalesce", "greatest", "least"])
@QUICK
@given(st.data())
def test_comparison_and_choice(function: str, data: st.DataObject):
    kind = data.draw(st.sampled_from(KINDS))
    other = data.draw(st.sampled_from(NUMBERS)) if kind in NUMBERS else kind
    assert_same(Call(function, (col("a"), col("b"))), [kind, other], (data.draw(maybe(kind)), data.draw(maybe(other))))


TRUTHS = [True, False, None]


@pytest.mark.parametrize("a", TRUTHS)
@pytest.mark.parametrize("b", TRUTHS)
@pytest.mark.parametrize("c", TRUTHS)
def test_logic(a: bool | None, b: bool | None, c: bool | None):
    types = [Type.BOOLEAN] * 3
    for function in ("and", "or"):
        for inner in ("and", "or"):
            nested = Call(function, (Call(inner, (col("a"), col("b"))), col("c")))
            assert_same(nested, types, (a, b, c))
    assert_same(Call("not", (col("a"),)), types, (a, b, c))
    assert_same(Case(((col("a"), lit(1)), (col("b"), lit(2.5))), lit(None)), types, (a, b, c))


@settings(max_examples=3 * settings().max_examples, deadline=None)
@given(st.data())
def test_casts(data: st.DataObject):
    source, target = data.draw(st.sampled_from(KINDS)), data.draw(st.sampled_from(KINDS))
    value = data.draw(maybe(source))
    try:
        Cast(col("a"), target).bind(Schema((Field("a", source),)))
    except ExpressionError:
        return
    if target is Type.DATETIME and source.is_integer and value is not None:
        value = data.draw(st.integers(0, 100))
    assert_same(Cast(col("a"), target), [source], (value,))


@QUICK
@given(_whole(64))
def test_a_whole_number_is_rounded_once(value: int):
    assert scalars.NAMES["long_to_float"](value) == float(np.int64(value).astype(np.float32))
    assert_same(Cast(col("a"), Type.FLOAT), [Type.LONG], (value,))


TEXTS = [
    Call("concat", (col("a"), col("b"))),
    Call("length", (col("a"),)),
    Call("upper", (col("a"),)),
    Call("substring", (col("a"), lit(1), lit(2))),
    Call("like", (col("a"), lit("%a%"))),
    Call("lpad", (col("a"), lit(4), lit("x"))),
]


@pytest.mark.parametrize("expr", TEXTS, ids=str)
@QUICK
@given(maybe(Type.STRING), maybe(Type.STRING))
def test_texts(expr: Expr, a: str | None, b: str | None):
    assert_same(expr, [Type.STRING, Type.STRING], (a, b))


TIMES = [
    Call("time_diff", (col("a"), col("b"))),
    Call("shift_time", (col("a"), lit(86_400_000_000))),
    Call("epoch", (col("a"),)),
    Call("year", (col("a"),)),
    Call("date_trunc", (col("a"), lit("hour"))),
    Call("lt", (col("a"), lit(datetime(2024, 5, 1, tzinfo=UTC)))),
]


@pytest.mark.parametrize("expr", TIMES, ids=str)
@QUICK
@given(maybe(Type.DATETIME), maybe(Type.DATETIME))
def test_times(expr: Expr, a: datetime | None, b: datetime | None):
    assert_same(expr, [Type.DATETIME, Type.DATETIME], (a, b))


@pytest.mark.parametrize("name", sorted({*AGGREGATES} - {"concat"}))
@pytest.mark.parametrize("kind", [Type.LONG, Type.DOUBLE])
@settings(max_examples=max(8, settings().max_examples // 4), deadline=None)
@given(data=st.data())
def test_aggregates_over_a_table_are_the_built_in_ones(name: str, kind: Type, data: st.DataObject):
    values = data.draw(st.lists(maybe(kind), min_size=1, max_size=5))
    if kind is Type.LONG and name == "avg":
        values = [value if value is None or abs(value) < 2**50 else 1 for value in values]
    rows = [{"le": place, "re": 100, "v": value} for place, value in enumerate(values)]
    stream = hr.events(rows, f"v {kind.value}")
    more = (0.3,) if name in ("quantile", "percentile_disc") else ()
    call = getattr(hr, name)("v", *more)
    answers = stream.window(hr.tumbling(1000)).aggregate(a=call).cht().to_pylist()
    mine = ROWS[AGGREGATES[name][0 if kind.is_integer else 1]](values, *more)
    assert same(mine, answers[0]["a"]), (values, answers)
