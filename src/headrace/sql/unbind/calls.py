"""Literals and calls of functions in the words of the dialect; see `unbind` for the rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from headrace.expr import Expr
from headrace.expr.in_order import SortedValues
from headrace.expr.signatures import struct_names
from headrace.sql import syntax as s
from headrace.sql.unbind.patterns import NotInSql

__all__ = ["called", "in_an_order", "literal"]

_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "modulo": "%", "eq": "=", "ne": "<>", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=", "and": "AND", "or": "OR", "bit_and": "&", "bit_or": "|", "bit_xor": "^",
    "shift_left": "<<", "shift_right": ">>", "time_diff": "-",
}  # fmt: skip
_PREFIX = {"negate": "-", "not": "NOT", "bit_not": "~"}


def called(function: str, arguments: list[s.Expression]) -> s.Expression:
    """The call of a function of the expression language."""
    if function in _INFIX:
        return s.Binary(_INFIX[function], *arguments)
    if function in _PREFIX:
        return s.Unary(_PREFIX[function], *arguments)
    if function == "isin":
        if len(arguments) == 1:
            raise NotInSql("IN ()")
        return s.In(arguments[0], tuple(arguments[1:]))
    if function in ("is_null", "is_not_null"):
        return s.IsNull(arguments[0], negated=function == "is_not_null")
    if function in ("struct", "field", "element_at"):
        return _nested(function, arguments)
    if function == "is_json":
        return s.IsJson(arguments[0], arguments[1].value)  # type: ignore[attr-defined]
    if function in ("like", "rlike"):
        return s.Like(arguments[0], arguments[1], "LIKE" if function == "like" else "REGEXP")
    if function == "shift_time":
        raise NotInSql(function)
    return s.Call((s.Name("strpos" if function == "position" else function),), tuple(arguments))


def in_an_order(expr: SortedValues, spoken: Callable[[Expr], s.Expression]) -> s.Expression:
    """An aggregate in an order: `string_agg(x, ',' ORDER BY y)`."""
    texts = () if expr.separator is None else (s.Text(expr.separator),)
    order = tuple(s.OrderKey(spoken(key), down) for key, down in expr.order)
    where = None if expr.where is None else spoken(expr.where)
    name = s.Name("string_agg" if texts else "collect")
    return s.Call((name,), (spoken(expr.argument), *texts), distinct=expr.distinct, filter=where, order=order)


def _nested(function: str, arguments: list[s.Expression]) -> s.Expression:
    """An element of a list, a struct, or a field of one; names are the last argument."""
    if function == "element_at":
        return s.Element(*arguments)
    names = arguments[-1]
    assert isinstance(names, s.Text)
    if function == "field":
        return s.Field(arguments[0], s.Name(names.value))
    fields = zip(struct_names(names.value), arguments[:-1], strict=True)
    return s.Call((s.Name("struct_pack"),), named=tuple(s.Named(s.Name(name), value) for name, value in fields))


def literal(value: Any) -> s.Expression:
    """A value that is the same in every row."""
    if value is None or isinstance(value, bool):
        return s.Value(value)
    if isinstance(value, str):
        if "\0" in value:
            raise NotInSql(repr(value))
        return s.Text(value)
    if isinstance(value, datetime):
        return s.DateTime(value.replace(tzinfo=None).isoformat())
    if isinstance(value, (date, time)):
        return s.TypedText("DATE" if isinstance(value, date) else "TIME", str(value))
    if isinstance(value, Decimal):
        return s.TypedText("DECIMAL", f"{value:f}")
    if isinstance(value, float) and not math.isfinite(value):
        return _not_finite(value)
    negative = value < 0 or (isinstance(value, float) and math.copysign(1.0, value) < 0)
    return s.Unary("-", s.Number(-value)) if negative else s.Number(value)


def _not_finite(value: float) -> s.Expression:
    """No literal is infinite, but a text that says too much for a DOUBLE is; less itself, that is no number."""
    infinity = s.Cast(s.Text("-1e999" if value < 0 else "1e999"), s.Name("DOUBLE"))
    return s.Binary("-", infinity, infinity) if math.isnan(value) else infinity
