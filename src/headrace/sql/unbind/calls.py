"""Calls of functions in the words of the dialect; see `unbind` for the rest."""

from __future__ import annotations

from headrace.expr.signatures import struct_names
from headrace.sql import syntax as s
from headrace.sql.unbind.patterns import NotInSql

__all__ = ["called"]

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
