"""DuckDB SQL: `TRY(...)` turns a row's error into NULL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from typing import ClassVar

from sqlglot import exp

from headrace.expr.literals import DATETIME_STRFTIME
from headrace.expr.nodes import Bound, Literal
from headrace.expr.patterns import re2_regex
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
    whole,
    within_day,
    within_years,
)
from headrace.schema import Type

__all__ = ["DuckDBPrinter"]


def _arithmetic(kind: type[exp.Binary]) -> Build:
    def build(bound: Bound, a: Node, b: Node) -> Node:
        if bound.type.is_decimal:
            return _of_decimals(kind, bound, a, b)
        value = op(kind, a, b)
        return value if bound.type.is_floating else fn("try", value)

    return build


def _of_decimals(kind: type[exp.Binary], bound: Bound, a: Node, b: Node) -> Node:
    """Computed with 38 digits: DuckDB gives a result of two short decimals no more than 18."""
    wide = exp.Cast(this=a, to=exp.DataType.build(f"DECIMAL(38,{bound.args[0].type.scale})"))
    return rounded_decimal(bound, fn("try", op(kind, wide, b)))


def _modulo(bound: Bound, a: Node, b: Node) -> Node:
    # The smallest integer modulo -1 overflows here; modulo 1 has the same result.
    divisor = b if bound.type.is_floating else when(op(exp.EQ, b, number(-1)), number(1), b)
    return op(exp.Mod, a, fn("nullif", divisor, number(0)))


def _negate(bound: Bound, a: Node) -> Node:
    exact = bound.type.is_floating or bound.type.is_decimal
    return exp.Paren(this=exp.Neg(this=a)) if exact else fn("try", op(exp.Sub, number(0), a))


def _abs(bound: Bound, a: Node) -> Node:
    return fn("abs", a) if bound.type.is_floating else fn("try", fn("abs", a))


def _divide(_: Bound, a: Node, b: Node) -> Node:
    return op(exp.Div, a, fn("nullif", b, number(0)))


def _whole(name: str) -> Build:
    def build(bound: Bound, a: Node) -> Node:
        if bound.type.is_decimal:
            return rounded_decimal(bound, fn(name, a))
        return fn(name, a) if bound.type.is_floating else a

    return build


_FIRST = exp.Cast(this=text("1970-01-01"), to=exp.DataType.build("DATE"))


def _shift_months(bound: Bound, a: Node, months: Node) -> Node:
    """Moved as a TIMESTAMP, which any type of date becomes here."""
    if bound.type is Type.DATE:
        start = exp.Cast(this=a, to=exp.DataType.build("TIMESTAMP", dialect="duckdb"))
        moved = within_years(op(exp.Add, start, fn("to_months", months)))
        return exp.Cast(this=moved, to=exp.DataType.build("DATE"))
    return fn("make_timestamptz", fn("epoch_us", within_years(op(exp.Add, _utc(a), fn("to_months", months)))))


def _sign(_: Bound, a: Node) -> Node:
    return when(fn("isnan", a), a, exp.Cast(this=fn("sign", a), to=exp.DataType.build("DOUBLE")))


def _rlike(bound: Bound, a: Node, _: Node) -> Node:
    pattern = bound.args[1].node
    return fn("regexp_matches", a, text(re2_regex(str(pattern.value)) if isinstance(pattern, Literal) else ""))


def _as_int(name: str) -> Build:
    return lambda _, *args: exp.Cast(this=fn(name, *args), to=exp.DataType.build("INT"))


def _utc(time: Node) -> Node:
    """A TIMESTAMPTZ as the TIMESTAMP it is in UTC; years before 1 have no era there."""
    return fn("make_timestamp", fn("epoch_us", time))


def _part(name: str) -> Build:
    return lambda _, a: exp.Cast(this=fn(name, _utc(a)), to=exp.DataType.build("INT"))


def _epoch(_: Bound, a: Node) -> Node:
    """Round down: DuckDB's division truncates, which would round up before 1970."""
    ticks, second = fn("epoch_us", a), whole(1_000_000)
    before = when(op(exp.LT, op(exp.Mod, ticks, second), number(0)), number(1), number(0))
    return op(exp.Sub, op(exp.IntDiv, ticks, second), before)


def _shift_left(bound: Bound, a: Node, places: Node) -> Node:
    """Shift a BIT, which drops bits at its end; a number would overflow."""
    bits = op(exp.BitwiseLeftShift, exp.Cast(this=a, to=exp.DataType.build("BIT")), places)
    return exp.Cast(this=bits, to=exp.DataType.build(bound.type.duckdb, dialect="duckdb"))


def _reverse(_: Bound, a: Node) -> Node:
    """Reverse by character: the engine's own function keeps grapheme clusters together."""
    return fn("array_to_string", fn("list_reverse", fn("regexp_extract_all", a, text("(?s)."))), text(""))


def _date_trunc(_: Bound, a: Node, unit: Node) -> Node:
    # date_trunc returns a DATE for large units.
    start = exp.Cast(this=fn("date_trunc", unit, _utc(a)), to=exp.DataType.build("TIMESTAMP", dialect="duckdb"))
    return fn("make_timestamptz", fn("epoch_us", start))


def _trimmed(name: str) -> Build:
    return lambda _, a: fn(name, a, text(" "))


def _element_at(_: Bound, a: Node, place: Node) -> Node:
    return when(op(exp.GTE, place, number(1)), fn("list_extract", a, place))


def _array_contains(_: Bound, a: Node, value: Node) -> Node:
    """The engine's own function knows no NULLs."""
    size, missing = fn("len", a), op(exp.Is, value, exp.null())
    unknown = op(exp.Or, op(exp.And, missing, op(exp.GT, size, number(0))), op(exp.NEQ, size, fn("list_count", a)))
    found = fn("coalesce", fn("list_contains", a, value), exp.false())
    return when(op(exp.Is, a, exp.null()), exp.null(), found, exp.true(), unknown, exp.null(), exp.false())


def _struct(bound: Bound, *parts: Node) -> Node:
    return exp.Cast(this=fn("row", *parts[:-1]), to=exp.DataType.build(bound.type.duckdb, dialect="duckdb"))


class DuckDBPrinter(Printer):
    """Prints DuckDB SQL, for a connection in UTC."""

    dialect = "duckdb"
    functions: ClassVar[Mapping[str, Build]] = {
        **SHARED,
        "add": _arithmetic(exp.Add),
        "subtract": _arithmetic(exp.Sub),
        "multiply": _arithmetic(exp.Mul),
        "divide": _divide,
        "floor_divide": floor_divide(_divide, _whole("floor"), _negate, _modulo),
        "modulo": _modulo,
        "bit_xor": plain("xor"),
        "shift_left": shifted_bits(_shift_left),
        "shift_right": shifted_bits(lambda _, a, places: op(exp.BitwiseRightShift, a, places)),
        "negate": _negate,
        "abs": _abs,
        "floor": _whole("floor"),
        "ceil": _whole("ceil"),
        "sign": _sign,
        "power": power(lambda a, b: op(exp.Mod, a, b)),
        "upper": plain("upper"),
        "lower": plain("lower"),
        "trim": _trimmed("trim"),
        "ltrim": _trimmed("ltrim"),
        "rtrim": _trimmed("rtrim"),
        "length": _as_int("length"),
        "concat": lambda _, *args: reduce(lambda a, b: op(exp.DPipe, a, b), args),
        "position": _as_int("strpos"),
        "reverse": _reverse,
        "code": lambda _, a: fn("unicode", fn("nullif", a, text(""))),
        "starts_with": plain("starts_with"),
        "ends_with": plain("ends_with"),
        "rlike": _rlike,
        "array": plain("list_value"),
        "struct": _struct,
        "field": plain("struct_extract"),
        "cardinality": _as_int("len"),
        "element_at": _element_at,
        "array_contains": _array_contains,
        "date_trunc": _date_trunc,
        "day_of_week": _part("isodow"),
        "day_of_year": _part("dayofyear"),
        "epoch": _epoch,
        "time_diff": lambda _, a, b: fn("try", op(exp.Sub, fn("epoch_us", a), fn("epoch_us", b))),
        "shift_date": shifted_date(
            lambda day: op(exp.Sub, day, _FIRST),
            lambda _, days, count: fn("try", op(exp.Add, days, count)),
            lambda days: op(exp.Add, _FIRST, days),
        ),
        "shift_months": _shift_months,
        "days_between": lambda _, a, b: exp.Cast(this=op(exp.Sub, a, b), to=exp.DataType.build("INT")),
        "shift_time": shifted_time(
            lambda _, a, ticks: fn("try", op(exp.Add, fn("epoch_us", a), ticks)), plain("make_timestamptz")
        ),
        **{name: _part(name) for name in ("year", "month", "day", "hour", "minute", "second")},
    }

    def type_node(self, type: Type) -> Node:
        return exp.DataType.build(type.duckdb, dialect="duckdb")

    def matched(self, value: Node, pattern: str) -> Node:
        return fn("trim", fn("regexp_extract", value, text(pattern)), text(" "))

    def to_integer(self, value: Node, target: Type) -> Node:
        return self.attempted(fn("trunc", value), target)

    def to_float(self, value: Node) -> Node:
        infinite = when(op(exp.GT, value, number(0)), double(math.inf), op(exp.LT, value, number(0)), double(-math.inf))
        return fn("coalesce", self.attempted(value, Type.FLOAT), self.typed(infinite, Type.FLOAT))

    def date_cast(self, value: Node, source: Type, target: Type) -> Node:
        return self.typed(_utc(value) if source is Type.DATETIME else value, target)

    def decimal_cast(self, value: Node, source: Type, target: Type) -> Node:
        if target is Type.DOUBLE:  # through text, which is read to the nearest
            return self.typed(self.typed(value, Type.STRING), target)
        if target.is_text and source.precision == source.scale:  # written without the zero in front of the point
            return fn("regexp_replace", self.typed(value, target), text(r"^(-?)\."), text(r"\1" + "0."))
        if source.is_floating:
            return self.attempted(self.typed(self.typed(value, Type.DOUBLE), Type.STRING), target)
        if target.is_integer:
            return self.attempted(fn("trunc", value), target)
        return super().decimal_cast(value, source, target)

    def span_ticks(self, value: Node, source: Type) -> Node:
        return value if source is Type.INTERVAL else fn("epoch_us", value)

    def from_span_ticks(self, value: Node, target: Type) -> Node:
        if target is Type.INTERVAL:
            return value
        midnight = exp.Cast(this=text("00:00:00"), to=exp.DataType.build("TIME", dialect="duckdb"))
        return within_day(value, op(exp.Add, midnight, fn("to_microseconds", value)))

    def to_ticks(self, value: Node) -> Node:
        return fn("epoch_us", value)

    def from_ticks(self, value: Node) -> Node:
        return fn("make_timestamptz", value)

    def time_text(self, value: Node) -> Node:
        return fn("strftime", _utc(value), text(DATETIME_STRFTIME))
