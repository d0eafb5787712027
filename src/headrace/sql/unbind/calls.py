"""Calls of functions in the words of the dialect; see `unbind` for the rest."""

from __future__ import annotations

from collections.abc import Callable

from headrace.expr import Expr
from headrace.expr.in_order import InOrder
from headrace.sql import syntax as s
from headrace.sql.unbind.patterns import NotInSql

__all__ = ["called", "in_an_order"]

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
    if function == "element_at":
        return s.Element(*arguments)
    if function == "is_json":
        return s.IsJson(arguments[0], arguments[1].value)  # type: ignore[attr-defined]
    if function in ("like", "rlike"):
        return s.Like(arguments[0], arguments[1], "LIKE" if function == "like" else "REGEXP")
    if function == "shift_time":
        raise NotInSql(function)
    return s.Call((s.Name("strpos" if function == "position" else function),), tuple(arguments))


def in_an_order(expr: InOrder, spoken: Callable[[Expr], s.Expression]) -> s.Expression:
    """An aggregate in an order: `string_agg(x, ',' ORDER BY y)`."""
    texts = () if expr.separator is None else (s.Text(expr.separator),)
    order = tuple(s.OrderKey(spoken(key), down) for key, down in expr.order)
    where = None if expr.where is None else spoken(expr.where)
    name = s.Name("string_agg" if texts else "collect")
    return s.Call((name,), (spoken(expr.argument), *texts), distinct=expr.distinct, filter=where, order=order)
