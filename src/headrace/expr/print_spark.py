"""Spark SQL: ANSI mode raises errors, so the printer uses the `try_` functions.

Spark maps one letter to several capitals (ß to SS) and knows a final sigma; the other engines map letter by letter.
Here Spark is held to letter by letter too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from headrace.expr.nodes import Bound, Literal
from headrace.expr.patterns import java_regex
from headrace.expr.printer import (
    SHARED,
    Build,
    Node,
    Printer,
    double,
    floor_divide,
    fn,
    number,
    op,
    plain,
    power,
    rounded_decimal,
    shifted_bits,
    shifted_date,
    shifted_time,
    text,
    when,
    within_day,
    within_years,
)
from headrace.schema import Type

__all__ = ["SparkPrinter"]

_PATTERN = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"
_EXACT = double(2.0**52)
_BLOCKS = (
    (0xDF, 0xE0),
    (0x149, 0x14A),
    (0x1F0, 0x1F1),
    (0x390, 0x3B1),
    (0x587, 0x588),
    (0x1E96, 0x1FFD),
    (0xFB00, 0xFB18),
)
_SPECIAL = [char for start, stop in _BLOCKS for char in map(chr, range(start, stop)) if len(char.upper()) > 1]
_CAPITALS = pc.utf8_upper(pa.array(_SPECIAL)).to_pylist()


def _zero(bound: Bound) -> Node:
    return exp.Cast(this=number(0), to=exp.DataType.build(bound.type.spark, dialect="spark"))


def _negate(bound: Bound, a: Node) -> Node:
    if bound.type.is_floating:
        return exp.Paren(this=exp.Neg(this=a))
    value = fn("try_subtract", _zero(bound), a)  # a minus sign rounds decimals to 34 digits
    return rounded_decimal(bound, value) if bound.type.is_decimal else value


def _arithmetic(name: str) -> Build:
    def build(bound: Bound, a: Node, b: Node) -> Node:
        value = fn(name, a, b)
        return rounded_decimal(bound, value) if bound.type.is_decimal else value

    return build


def _shift_months(bound: Bound, a: Node, months: Node) -> Node:
    if bound.type is Type.DATE:
        return within_years(fn("add_months", a, months))
    return within_years(fn("timestampadd", exp.Var(this="MONTH"), months, a))


def _abs(bound: Bound, a: Node) -> Node:
    if bound.type.is_floating:
        return fn("abs", a)
    return when(op(exp.LT, a, _zero(bound)), _negate(bound, a), a)


def _whole(name: str) -> Build:
    """`floor` and `ceil` return BIGINT; a number too large for decimals stays unchanged."""

    def build(bound: Bound, a: Node) -> Node:
        if bound.type.is_decimal:
            return rounded_decimal(bound, fn(name, a))
        if bound.type.is_integer:
            return a
        whole = exp.Cast(this=fn(name, a), to=exp.DataType.build("DOUBLE"))
        return when(op(exp.LT, fn("abs", a), _EXACT), whole, a)

    return build


def _upper(_: Bound, a: Node) -> Node:
    """Upper case letter by letter; a letter with several capitals gets the one of the other engines."""
    letter = exp.column("c", quoted=True)
    single = op(exp.EQ, fn("length", fn("upper", letter)), number(1))
    special = fn("translate", letter, text("".join(_SPECIAL)), text("".join(_CAPITALS)))
    capital = when(single, fn("upper", letter), special)
    each = exp.Lambda(this=capital, expressions=[exp.to_identifier("c", quoted=True)])
    return fn("array_join", fn("transform", fn("split", a, text("")), each), text(""))


def _lower(_: Bound, a: Node) -> Node:
    return fn("lower", fn("translate", a, text("İΣ"), text("iσ")))


def _rlike(bound: Bound, a: Node, _: Node) -> Node:
    pattern = bound.args[1].node
    return fn("regexp_like", a, text(java_regex(str(pattern.value)) if isinstance(pattern, Literal) else ""))


def _element_at(_: Bound, a: Node, place: Node) -> Node:
    """Count from 0, and by INT."""
    inside = op(exp.And, op(exp.GTE, place, number(1)), op(exp.LTE, place, fn("size", a)))
    return when(inside, fn("get", a, exp.Cast(this=op(exp.Sub, place, number(1)), to=exp.DataType.build("INT"))))


def _cardinality(_: Bound, a: Node) -> Node:
    return when(exp.Not(this=op(exp.Is, a, exp.null())), fn("size", a))


def _array_contains(_: Bound, a: Node, value: Node) -> Node:
    return when(op(exp.EQ, fn("size", a), number(0)), exp.false(), fn("array_contains", a, value))


def _struct(bound: Bound, *parts: Node) -> Node:
    names = (name for name, _ in bound.type.fields)
    return fn(
        "named_struct", *(one for name, part in zip(names, parts[:-1], strict=True) for one in (text(name), part))
    )


def _field_name(bound: Bound) -> Node:
    return exp.to_identifier(bound.args[1].text, quoted=True)


class SparkPrinter(Printer):
    """Prints Spark SQL, for a session in UTC."""

    dialect = "spark"
    functions: ClassVar[Mapping[str, Build]] = {
        **SHARED,
        "add": _arithmetic("try_add"),
        "subtract": _arithmetic("try_subtract"),
        "multiply": _arithmetic("try_multiply"),
        "divide": plain("try_divide"),
        "floor_divide": floor_divide(plain("try_divide"), _whole("floor"), _negate, plain("try_mod")),
        "modulo": plain("try_mod"),
        "bit_xor": lambda _, a, b: op(exp.BitwiseXor, a, b),
        "shift_left": shifted_bits(lambda _, a, places: fn("shiftleft", a, places)),
        "shift_right": shifted_bits(lambda _, a, places: fn("shiftright", a, places)),
        "negate": _negate,
        "abs": _abs,
        "floor": _whole("floor"),
        "ceil": _whole("ceil"),
        "sign": plain("signum"),
        "power": power(lambda a, b: fn("try_mod", a, b)),
        "upper": _upper,
        "lower": _lower,
        "trim": plain("trim"),
        "ltrim": plain("ltrim"),
        "rtrim": plain("rtrim"),
        "length": plain("length"),
        "concat": plain("concat"),
        "position": lambda _, a, part: fn("locate", part, a),
        "reverse": plain("reverse"),
        "code": lambda _, a: fn("ascii", fn("nullif", a, text(""))),
        "starts_with": plain("startswith"),
        "ends_with": plain("endswith"),
        "rlike": _rlike,
        "array": plain("array"),
        "struct": _struct,
        "field": lambda bound, a, _: exp.Dot(this=exp.Paren(this=a), expression=_field_name(bound)),
        "cardinality": _cardinality,
        "element_at": _element_at,
        "array_contains": _array_contains,
        "date_trunc": lambda _, time, unit: fn("date_trunc", unit, time),
        "day_of_year": plain("dayofyear"),
        "epoch": plain("unix_seconds"),
        "time_diff": lambda _, a, b: fn("try_subtract", fn("unix_micros", a), fn("unix_micros", b)),
        "shift_date": shifted_date(
            lambda day: fn("unix_date", day),
            lambda _, days, count: fn("try_add", days, count),
            lambda days: fn("date_from_unix_date", days),
        ),
        "shift_months": _shift_months,
        "days_between": plain("datediff"),
        "shift_time": shifted_time(
            lambda _, a, ticks: fn("try_add", fn("unix_micros", a), ticks), plain("timestamp_micros")
        ),
        "day_of_week": lambda _, a: op(exp.Add, fn("weekday", a), number(1)),
        **{name: plain(name) for name in ("year", "month", "day", "hour", "minute", "second")},
    }

    def type_node(self, type: Type) -> Node:
        return exp.DataType.build(type.spark, dialect="spark")

    def matched(self, value: Node, pattern: str) -> Node:
        return fn("regexp_extract", value, text(pattern), number(0))

    def to_integer(self, value: Node, target: Type) -> Node:
        wide = self.typed(value, Type.DOUBLE)
        if target != Type.LONG:
            return self.attempted(wide, target)
        return when(op(exp.LT, wide, double(2.0**63)), self.attempted(wide, target))

    def to_float(self, value: Node) -> Node:
        return self.typed(value, Type.FLOAT)

    def span_ticks(self, value: Node, source: Type) -> Node:
        if source is Type.TIME:
            return value
        return fn("unix_micros", op(exp.Add, fn("timestamp_micros", number(0)), value))

    def from_span_ticks(self, value: Node, target: Type) -> Node:
        if target is Type.TIME:
            return within_day(value, value)
        return op(exp.Sub, fn("timestamp_micros", value), fn("timestamp_micros", number(0)))

    def to_ticks(self, value: Node) -> Node:
        return fn("unix_micros", value)

    def from_ticks(self, value: Node) -> Node:
        return fn("timestamp_micros", value)

    def time_text(self, value: Node) -> Node:
        return fn("date_format", value, text(_PATTERN))
