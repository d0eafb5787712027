"""Whole numbers as rows of bits: what the functions give, and what they refuse."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ExpressionError
from headrace.expr import Expr, col, evaluate, lit
from headrace.schema import Schema, Type

SCHEMA = Schema.of("b BYTE, h SHORT, i INT, l LONG, d DOUBLE, p BOOLEAN, s STRING")
b, h, i, m, d, p, s = map(col, ("b", "h", "i", "l", "d", "p", "s"))


def of(expr: Expr, *rows: tuple[int | None, int | None], type: pa.DataType) -> list[object]:
    """The value in each row of two columns `x` and `y`."""
    x, y = zip(*rows, strict=True)
    return evaluate(expr, pa.table({"x": pa.array(x, type), "y": pa.array(y, type)})).to_pylist()


def signed(value: int, width: int) -> int:
    """The lowest bits of a number, read with their sign."""
    low = value % 2**width
    return low - 2**width if low >= 2 ** (width - 1) else low


WIDTHS = {32: pa.int32(), 64: pa.int64()}
X, Y = col("x"), col("y")


@given(st.sampled_from(sorted(WIDTHS)), st.data())
def test_oracle_python_s_own_bits(width: int, data: st.DataObject):
    numbers = st.integers(-(2 ** (width - 1)), 2 ** (width - 1) - 1)
    x, y = data.draw(numbers), data.draw(st.one_of(numbers, st.integers(-2, width + 1)))
    inside = 0 <= y < width
    places = y if inside else 0
    expected = {
        X.bit_and(Y): x & y,
        X.bit_or(Y): x | y,
        X.bit_xor(Y): x ^ y,
        X.bit_not(): ~x,
        X.shift_left(Y): signed(x << places, width) if inside else None,
        X.shift_right(Y): x >> places if inside else None,
    }
    for expr, value in expected.items():
        assert of(expr, (x, y), type=WIDTHS[width]) == [value], str(expr)


def test_null_in_null_out():
    rows = [(None, 1), (1, None), (6, 1)]
    assert of(X.bit_xor(Y), *rows, type=pa.int32()) == [None, None, 7]
    assert of(X.shift_left(Y), *rows, type=pa.int32()) == [None, None, 12]
    assert of(X.shift_right(None), *rows, type=pa.int32()) == [None] * 3
    assert of(X.bit_not(), *rows, type=pa.int64()) == [None, -2, -7]


@pytest.mark.parametrize(
    ("expr", "type"),
    [
        (b.bit_and(h), Type.INT),
        (b.bit_not(), Type.INT),
        (i.bit_or(m), Type.LONG),
        (i.shift_left(b), Type.INT),
        (i.shift_left(m), Type.LONG),
        (i.bit_xor(2**40), Type.LONG),
        (lit(None).bit_and(lit(None)), Type.INT),
    ],
)
def test_types_widen_as_in_arithmetic(expr: Expr, type: Type):
    assert expr.type(SCHEMA) is type


@pytest.mark.parametrize("expr", [d.bit_and(1), i.bit_or(1.5), p.bit_not(), s.shift_left(1), i.shift_right(p)])
def test_only_whole_numbers_have_bits(expr: Expr):
    with pytest.raises(ExpressionError, match="BYTE, SHORT, INT, LONG"):
        expr.type(SCHEMA)


def test_the_operators_of_python_stay_logic():
    assert (p & p | ~p).same((p & p) | (~p))
    with pytest.raises(ExpressionError, match="BOOLEAN"):
        (i & 1).type(SCHEMA)


def test_how_they_are_written():
    assert str(i.bit_and(3).shift_left(m)) == "shift_left(bit_and(i, 3), l)"
