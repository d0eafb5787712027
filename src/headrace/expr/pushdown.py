"""Push-down: the part of a predicate that a file reader can apply by itself.

A predicate is cut at its ANDs. A part that only compares columns with literals becomes an Arrow dataset filter, which
keeps exactly the rows `evaluate` would; the rest stays an expression. Readers also skip row groups by their minimum and
maximum, which say nothing about NaN, so a comparison of floating numbers always says what it does with NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.expr.nodes import Alias, Bound, Call, Cast, Column, Expr, Literal
from headrace.expr.signatures import widens
from headrace.schema import Schema, Type

__all__ = ["conjuncts", "split_pushdown", "to_arrow_filter"]

Filter = Any  # pc.Expression; pyarrow ships no types
#: A filter is as deep as its list is long; Arrow processes it by recursion, and a long list crashes the process.
_MOST_MEMBERS = 100
_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_COMPARE: dict[str, Callable[[Filter, Filter], Filter]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def conjuncts(expr: Expr) -> list[Expr]:
    """The parts that must all hold."""
    if isinstance(expr, Alias):
        return conjuncts(expr.child)
    if isinstance(expr, Call) and expr.function == "and":
        return [part for child in expr.args for part in conjuncts(child)]
    return [expr]


def split_pushdown(expr: Expr, schema: Schema) -> tuple[Filter | None, Expr | None]:
    """The part that a reader can apply, and the part to evaluate on the remaining rows."""
    pushed: list[Filter] = []
    rest: list[Expr] = []
    for part in conjuncts(expr):
        filter = to_arrow_filter(part, schema)
        if filter is None:
            rest.append(part)
        else:
            pushed.append(filter)
    return _all(pushed), _all(rest)


def to_arrow_filter(expr: Expr, schema: Schema) -> Filter | None:
    """The entire predicate as a dataset filter, or None if a part of it is not plain."""
    bound = expr.bind(schema)
    return _filter(bound) if bound.type == Type.BOOLEAN else None


def _all(parts: Iterable[Any]) -> Any:
    found = list(parts)
    return reduce(lambda a, b: a & b, found) if found else None


def _filter(bound: Bound) -> Filter | None:
    node = bound.node
    if isinstance(node, Literal):
        return pc.scalar(pa.scalar(node.value, pa.bool_()))
    if isinstance(node, Column):
        return pc.field(node.column)
    if not isinstance(node, Call):
        return None
    if node.function in ("and", "or", "not"):
        return _connective(node.function, bound)
    if node.function in _COMPARE:
        return _comparison(node.function, *bound.args)
    if node.function in ("is_null", "is_not_null"):
        return _null_test(node.function, bound.args[0])
    return _isin(*bound.args) if node.function == "isin" else None


def _connective(function: str, bound: Bound) -> Filter | None:
    parts = [part for arg in bound.args if (part := _filter(arg)) is not None]
    if len(parts) < len(bound.args):
        return None
    if function == "not":
        return ~parts[0]
    return parts[0] & parts[1] if function == "and" else parts[0] | parts[1]


def _null_test(function: str, arg: Bound) -> Filter | None:
    if not isinstance(arg.node, Column):
        return None
    field = pc.field(arg.node.column)
    return field.is_null() if function == "is_null" else field.is_valid()


def _comparison(function: str, left: Bound, right: Bound) -> Filter | None:
    if isinstance(left.node, Literal):
        left, right, function = right, left, _MIRRORED[function]
    field = _field(left)
    if field is None or not isinstance(right.node, Literal):
        return None
    value = right.node.value
    # Arrow simplifies comparisons with null, which may change how other parts treat NaN.
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    plain = _COMPARE[function](field, pa.scalar(value, right.type.arrow))
    if not right.type.is_floating:
        return plain
    return plain | pc.is_nan(field) if function in ("gt", "ge", "ne") else plain & ~pc.is_nan(field)


def _isin(value: Bound, *members: Bound) -> Filter | None:
    if not members:
        return pc.scalar(False)
    if len(members) > _MOST_MEMBERS:
        return None
    parts = [part for member in members if (part := _comparison("eq", value, member)) is not None]
    return reduce(lambda a, b: a | b, parts) if len(parts) == len(members) else None


def _field(bound: Bound) -> Filter | None:
    """The column itself, or widened where nothing is lost."""
    if isinstance(bound.node, Column):
        return pc.field(bound.node.column)
    if not isinstance(bound.node, Cast) or not bound.args or not isinstance(bound.args[0].node, Column):
        return None
    if widens(bound.args[0].type, bound.type):
        return pc.field(bound.args[0].node.column).cast(bound.type.arrow)
    return None
