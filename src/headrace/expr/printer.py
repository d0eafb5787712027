"""Printing: a bound expression as a SQL syntax tree, which sqlglot writes out in an engine's dialect.

Texts and names of users only ever become literals and quoted identifiers of that tree. A printer has one entry per
function; what both engines write alike is here. Parentheses stand around everything with an operator, because the tree
is built and not parsed. An argument may be printed more than once where an engine has no such function.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from functools import reduce
from typing import ClassVar

from sqlglot import exp

from headrace.errors import ExpressionError
from headrace.expr.arrow.dates import DAY, FIRST_DAY, LAST_TICK
from headrace.expr.arrow.numbers import DEGREE, EXACT
from headrace.expr.literals import TRUTHS, UNTRUTHS, text_pattern
from headrace.expr.nodes import Bound, Call, Case, Cast, Column, Literal
from headrace.expr.python import UdfCall
from headrace.expr.signatures import REGISTERED, widens
from headrace.schema import Type
from headrace.time import ticks

__all__ = [
    "SHARED",
    "Build",
    "Node",
    "Printer",
    "double",
    "floor_divide",
    "fn",
    "number",
    "op",
    "plain",
    "power",
    "rounded_decimal",
    "shifted_bits",
    "shifted_date",
    "shifted_time",
    "text",
    "when",
    "whole",
    "within_day",
    "within_years",
]  # fmt: skip

Node = exp.Expression
_SPANS = (Type.TIME, Type.INTERVAL)
Build = Callable[..., Node]  # of the bound call and its printed arguments


def fn(name: str, *args: Node) -> Node:
    """A call of the engine's function `name`."""
    return exp.Anonymous(this=name, expressions=list(args))


def op(kind: type[exp.Binary], a: Node, b: Node) -> Node:
    """A binary operator in parentheses."""
    return exp.Paren(this=kind(this=a, expression=b))


def text(value: str) -> Node:
    """A text literal."""
    return exp.Literal.string(value)


def number(value: int) -> Node:
    """A whole literal of at most 31 bits."""
    return exp.Literal.number(value)


def whole(value: int) -> Node:
    """A LONG literal."""
    return exp.Cast(this=text(str(value)), to=exp.DataType.build("BIGINT"))


def double(value: float) -> Node:
    """A DOUBLE literal, exact to the last bit."""
    name = repr(value) if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity"}.get(str(value), "-Infinity")
    return exp.Cast(this=text(name), to=exp.DataType.build("DOUBLE"))


def when(*parts: Node) -> Node:
    """A CASE of condition, value, condition, value, … and perhaps a default."""
    ifs = [exp.If(this=c, true=v) for c, v in zip(parts[::2], parts[1::2], strict=False)]
    return exp.Case(ifs=ifs, default=parts[-1] if len(parts) % 2 else None)


def plain(name: str) -> Build:
    """The engine's function `name` over the same arguments."""
    return lambda _, *args: fn(name, *args)


def _of_finite(name: str) -> Build:
    return lambda _, a: fn(name, fn("nullif", fn("nullif", a, double(math.inf)), double(-math.inf)))


def _of_domain(name: str, inside: type[exp.Binary]) -> Build:
    """`name` of numbers whose comparison `inside` with zero is true, else NULL."""
    return lambda _, a: fn(name, when(op(inside, a, double(0.0)), a))


def _of_one(name: str) -> Build:
    """`name` of numbers from -1 to 1; NaN stays as it is."""
    return lambda _, a: when(fn("isnan", a), a, op(exp.LTE, fn("abs", a), double(1.0)), fn(name, a))


def shifted_bits(shift: Callable[[Bound, Node, Node], Node]) -> Build:
    """Bits shifted by a valid number of places, else NULL; `shift` is the engine's function, by an INT."""

    def build(bound: Bound, a: Node, places: Node) -> Node:
        inside = op(exp.And, op(exp.GTE, places, number(0)), op(exp.LT, places, number(bound.type.arrow.bit_width)))
        return when(inside, shift(bound, a, exp.Cast(this=places, to=exp.DataType.build("INT"))))

    return build


def shifted_time(moved: Build, from_ticks: Build) -> Build:
    """A DATETIME of the ticks that `moved` gives, NULL outside of the years 1 to 9999."""

    def build(bound: Bound, time: Node, ticks: Node) -> Node:
        count = moved(bound, time, ticks)
        inside = op(exp.And, op(exp.GTE, count, whole(FIRST_DAY)), op(exp.LTE, count, whole(LAST_TICK)))
        return when(inside, from_ticks(bound, count))

    return build


def shifted_date(days: Callable[[Node], Node], moved: Build, from_days: Callable[[Node], Node]) -> Build:
    """A DATE moved by days, NULL outside of the years 1 to 9999."""

    def build(bound: Bound, day: Node, count: Node) -> Node:
        number_of_day = moved(bound, days(day), count)
        first, last = whole(FIRST_DAY // DAY), whole(LAST_TICK // DAY)
        inside = op(exp.And, op(exp.GTE, number_of_day, first), op(exp.LTE, number_of_day, last))
        return when(inside, from_days(exp.Cast(this=number_of_day, to=exp.DataType.build("INT"))))

    return build


def within_day(ticks: Node, of: Node) -> Node:
    """`of` if these ticks are of one day, else NULL."""
    return when(op(exp.And, op(exp.GTE, ticks, number(0)), op(exp.LT, ticks, whole(DAY))), of)


def within_years(moved: Node) -> Node:
    """A date if its year has four digits, else NULL."""
    year = fn("year", moved)
    return when(op(exp.And, op(exp.GTE, year, number(1)), op(exp.LTE, year, number(9999))), moved)


def floor_divide(divide: Build, floor: Build, negate: Build, modulo: Build) -> Build:
    """A quotient rounded down; engines divide whole numbers toward zero, and fail at the least number by -1."""

    def build(bound: Bound, a: Node, b: Node) -> Node:
        if bound.type.is_floating:
            return floor(bound, divide(bound, a, b))
        zero = number(0)
        divisor = fn("nullif", when(op(exp.EQ, b, number(-1)), number(1), b), zero)
        apart = op(exp.NEQ, op(exp.LT, a, zero), op(exp.LT, b, zero))
        inexact = op(exp.And, op(exp.NEQ, modulo(bound, a, b), zero), apart)
        quotient = op(exp.Sub, exp.IntDiv(this=a, expression=divisor), when(inexact, number(1), zero))
        return when(op(exp.EQ, b, number(-1)), negate(bound, a), exp.Cast(this=quotient, to=_whole_type(bound)))

    return build


def _whole_type(bound: Bound) -> Node:
    return exp.DataType.build("BIGINT" if bound.type == Type.LONG else "INT")


def _operator(kind: type[exp.Binary]) -> Build:
    return lambda _, a, b: op(kind, a, b)


def _isin(_: Bound, value: Node, *members: Node) -> Node:
    return exp.Paren(this=exp.In(this=value, expressions=list(members))) if members else exp.false()


def _variadic(name: str) -> Build:
    return lambda _, *args: fn(name, *args) if len(args) > 1 else args[0]


def _like(_: Bound, value: Node, pattern: Node) -> Node:
    return exp.Paren(this=exp.Escape(this=exp.Like(this=value, expression=pattern), expression=text("\\")))


def rounded_decimal(bound: Bound, value: Node) -> Node:
    """A decimal as the type of the result: a cast rounds halves away from zero."""
    return exp.TryCast(this=value, to=exp.DataType.build(bound.type.value), safe=True)


def _round(bound: Bound, value: Node, _: Node) -> Node:
    """The formula of the Arrow kernel, step by step."""
    if bound.type.is_decimal:
        return rounded_decimal(bound, value)
    if bound.type.is_integer:
        return value
    digits = bound.args[1].node
    scale = double(10.0 ** int(digits.value)) if isinstance(digits, Literal) else double(1.0)  # type: ignore[arg-type]
    scaled = op(exp.Mul, fn("abs", value), scale)
    whole = exp.Cast(this=fn("floor", scaled), to=exp.DataType.build("DOUBLE"))
    up = when(op(exp.GTE, op(exp.Sub, scaled, whole), double(0.5)), double(1.0), double(0.0))
    near = op(exp.Div, op(exp.Add, whole, up), scale)
    signed = when(op(exp.LT, value, double(0.0)), exp.Neg(this=near), near)
    return when(op(exp.LT, scaled, double(EXACT)), signed, value)


def power(rest: Callable[[Node, Node], Node]) -> Build:
    """A power, NULL where it has no real value; `rest` is the engine's modulo function."""

    def build(_: Bound, base: Node, exponent: Node) -> Node:
        zero, one = double(0.0), double(1.0)
        decimals = op(exp.NEQ, rest(exponent, one), zero)
        fraction = op(exp.And, op(exp.LT, fn("abs", exponent), double(EXACT)), decimals)
        endless = op(exp.EQ, fn("abs", exponent), double(math.inf))
        impossible = (
            op(exp.And, op(exp.EQ, base, zero), op(exp.LT, exponent, zero)),
            op(exp.And, op(exp.LT, base, zero), fraction),
            op(exp.And, op(exp.EQ, fn("abs", base), one), endless),
        )
        nan = op(exp.Or, fn("isnan", base), fn("isnan", exponent))
        return when(
            nan, op(exp.Add, base, exponent),
            reduce(lambda a, b: op(exp.Or, a, b), impossible), exp.null(),
            fn("power", op(exp.Add, base, zero), exponent),
        )  # fmt: skip

    return build


SHARED: Mapping[str, Build] = {
    "eq": _operator(exp.EQ),
    "ne": _operator(exp.NEQ),
    "lt": _operator(exp.LT),
    "le": _operator(exp.LTE),
    "gt": _operator(exp.GT),
    "ge": _operator(exp.GTE),
    "and": _operator(exp.And),
    "or": _operator(exp.Or),
    "not": lambda _, a: exp.Paren(this=exp.Not(this=a)),
    "is_null": lambda _, a: op(exp.Is, a, exp.null()),
    "is_not_null": lambda _, a: exp.Paren(this=exp.Not(this=op(exp.Is, a, exp.null()))),
    "isin": _isin,
    "coalesce": _variadic("coalesce"),
    "greatest": _variadic("greatest"),
    "least": _variadic("least"),
    "round": _round,
    "exp": plain("exp"),
    "sin": _of_finite("sin"),
    "cos": _of_finite("cos"),
    "tan": _of_finite("tan"),
    "asin": _of_one("asin"),
    "acos": _of_one("acos"),
    "atan": plain("atan"),
    "radians": lambda _, a: op(exp.Mul, a, double(DEGREE)),
    "degrees": lambda _, a: op(exp.Mul, a, double(1 / DEGREE)),
    "bit_and": _operator(exp.BitwiseAnd),
    "bit_or": _operator(exp.BitwiseOr),
    "bit_not": lambda _, a: exp.Paren(this=exp.BitwiseNot(this=a)),
    "sqrt": _of_domain("sqrt", exp.GTE),
    "ln": _of_domain("ln", exp.GT),
    "log10": _of_domain("log10", exp.GT),
    "substring": plain("substring"),
    "replace": plain("replace"),
    "split_part": plain("split_part"),
    "contains": plain("contains"),
    "repeat": plain("repeat"),
    "left": plain("left"),
    "right": plain("right"),
    "lpad": plain("lpad"),
    "rpad": plain("rpad"),
    "like": _like,
}


class Printer:
    """Turns bound expressions into SQL; a subclass for each engine adds its differences."""

    dialect: ClassVar[str]
    functions: ClassVar[Mapping[str, Build]]

    def sql(self, bound: Bound) -> str:
        """The expression as text."""
        return self.tree(bound).sql(dialect=self.dialect)

    def tree(self, bound: Bound) -> Node:
        """The expression as a syntax tree."""
        node = bound.node
        if isinstance(node, Column):
            return exp.column(node.column, quoted=True)
        if isinstance(node, Literal):
            return self.literal(node.value, bound.type)
        args = [self.tree(arg) for arg in bound.args]
        if isinstance(node, Call) and node.function in REGISTERED:
            return self.registered(bound, args)
        if isinstance(node, Call):
            return self.functions[node.function](bound, *args)
        if isinstance(node, Case):
            return when(*args)
        if isinstance(node, Cast):
            return self.cast(args[0], bound.args[0].type, bound.type)
        if isinstance(node, UdfCall):
            return self.udf(bound, args)
        raise ExpressionError(f"{node} cannot be printed as SQL", given=type(node).__name__)

    def registered(self, bound: Bound, args: list[Node]) -> Node:  # noqa: ARG002 - for engines where it is registered
        """A function that the engine computes in another way, if at all."""
        node = bound.node
        raise ExpressionError(
            f"{node} is computed in other ways by other engines",
            given=str(node),
            allowed="the functions that mean the same on every engine",
            instead="the query's history, which registers its functions",
        )

    def udf(self, bound: Bound, args: list[Node]) -> Node:  # noqa: ARG002 - for engines where it is registered
        """A user's function of arguments."""
        node = bound.node
        assert isinstance(node, UdfCall)
        raise ExpressionError(
            f"{node.name} cannot be printed as SQL: {node.udf.name} is a Python function, which no SQL engine has",
            given=str(node),
            allowed="the functions of the expression language",
            instead="the query itself: it runs such functions on every host",
        )

    def literal(self, value: object, type: Type) -> Node:
        """A literal of exactly that type."""
        if value is None:
            return self.typed(exp.null(), type)
        if isinstance(value, bool):
            return exp.true() if value else exp.false()
        if isinstance(value, datetime):
            return self.from_ticks(self.literal(ticks(value), Type.LONG))
        if isinstance(value, (date, decimal.Decimal)):
            return self.typed(text(str(value) if isinstance(value, date) else f"{value:f}"), type)
        if isinstance(value, time) or type is Type.INTERVAL:
            return self.span(value, type)
        if isinstance(value, int):
            if abs(value) < 2**31:
                return number(value) if type == Type.INT else self.typed(number(value), type)
            return self.typed(text(str(value)), type)
        if isinstance(value, float):
            return double(value) if type == Type.DOUBLE else self.typed(double(value), type)
        return text(str(value))

    def span(self, value: object, type: Type) -> Node:
        """A plain TIME or INTERVAL."""
        count = value if isinstance(value, int) else ticks(datetime.combine(date(1970, 1, 1), value, UTC))  # type: ignore[arg-type]
        return self.from_span_ticks(self.literal(count, Type.LONG), type)

    def cast(self, value: Node, source: Type, target: Type) -> Node:
        """`value` of `source` as `target`, NULL where there is no counterpart."""
        if source.is_text:
            return self.from_text(value, target)
        if target in _SPANS:
            return self.from_span_ticks(value, target)
        if source in _SPANS:
            return self.span_ticks(value, source)
        if Type.DATE in (source, target):
            return self.date_cast(value, source, target)
        if Type.DATETIME in (source, target):
            return self.time_cast(value, source, target)
        if source.is_decimal or target.is_decimal:
            return self.decimal_cast(value, source, target)
        if target == Type.BOOLEAN:
            return op(exp.NEQ, value, number(0))
        if source.is_floating and target.is_integer:
            return self.to_integer(value, target)
        if source.is_floating and target == Type.FLOAT:
            return self.to_float(value)
        safe = source == Type.BOOLEAN or target.is_floating or widens(source, target)
        return self.typed(value, target) if safe else self.attempted(value, target)

    def from_text(self, value: Node, target: Type) -> Node:
        """A text that fits the pattern of the type, read by the engine."""
        fitting = self.matched(value, text_pattern(target))
        if target is Type.BOOLEAN:
            word = fn("lower", fn("trim", fitting))
            known = (exp.In(this=word, expressions=[text(one) for one in words]) for words in (TRUTHS, UNTRUTHS))
            return when(next(known), exp.true(), next(known), exp.false())
        if target == Type.FLOAT:
            return self.to_float(self.attempted(fitting, Type.DOUBLE))
        return self.attempted(fitting, target)

    def date_cast(self, value: Node, source: Type, target: Type) -> Node:  # noqa: ARG002 - engines differ in it
        """Between DATE and DATETIME, in a session of UTC, or DATE as text."""
        return self.typed(value, target)

    def decimal_cast(self, value: Node, source: Type, target: Type) -> Node:
        """Between DECIMAL and other types but text."""
        if target is Type.BOOLEAN:
            return op(exp.NEQ, value, number(0))
        if target is Type.FLOAT:
            return self.to_float(self.decimal_cast(value, source, Type.DOUBLE))
        if target.is_text:
            return self.typed(value, target)
        if source is Type.BOOLEAN:
            return self.attempted(self.typed(value, Type.INT), target)
        return self.attempted(value, target)

    def time_cast(self, value: Node, source: Type, target: Type) -> Node:
        """Between ticks and DATETIME, or DATETIME as text, within the years 1 to 9999."""
        if target == Type.LONG:
            return self.to_ticks(value)
        count = self.typed(value, Type.LONG) if target == Type.DATETIME else self.to_ticks(value)
        first, last = (self.literal(limit, Type.LONG) for limit in (FIRST_DAY, LAST_TICK))
        inside = op(exp.And, op(exp.GTE, count, first), op(exp.LTE, count, last))
        return when(inside, self.from_ticks(count) if source != Type.DATETIME else self.time_text(value))

    def span_ticks(self, value: Node, source: Type) -> Node:
        """The ticks of a TIME or INTERVAL."""
        raise NotImplementedError

    def from_span_ticks(self, value: Node, target: Type) -> Node:
        """Ticks as a TIME, NULL beyond the end of a day, or as an INTERVAL."""
        raise NotImplementedError

    def typed(self, value: Node, type: Type) -> Node:
        """A cast that cannot fail."""
        return exp.Cast(this=value, to=self.type_node(type))

    def attempted(self, value: Node, type: Type) -> Node:
        """A cast that returns NULL where it fails."""
        return exp.TryCast(this=value, to=self.type_node(type), safe=True)

    def type_node(self, type: Type) -> Node:
        raise NotImplementedError

    def matched(self, value: Node, pattern: str) -> Node:
        """`value` if it matches the pattern, else a text that no cast accepts."""
        raise NotImplementedError

    def to_integer(self, value: Node, target: Type) -> Node:
        raise NotImplementedError

    def to_float(self, value: Node) -> Node:
        raise NotImplementedError

    def to_ticks(self, value: Node) -> Node:
        raise NotImplementedError

    def from_ticks(self, value: Node) -> Node:
        raise NotImplementedError

    def time_text(self, value: Node) -> Node:
        raise NotImplementedError
