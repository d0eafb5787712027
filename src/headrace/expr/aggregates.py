"""Aggregate calls: the places of an expression where a whole window is folded into one value.

An aggregate call stands inside ordinary expressions, as in `sum(col("p") * col("q")) / sum("q")`. No row has its value;
`split_aggregates` takes the calls out, once each, and leaves expressions over the columns an operator will fill.
A text among the arguments is the name of a column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.errors import ExpressionError, nearest
from headrace.expr.nodes import Bound, Column, Expr, Value, as_expr
from headrace.schema import Schema, Type

__all__ = [
    "AGGREGATES",
    "AggregateCall",
    "avg",
    "count",
    "first",
    "has_aggregates",
    "last",
    "max",
    "min",
    "split_aggregates",
    "stddev",
    "sum",
    "var",
]

# Name -> (takes numbers only, type of the result if it is always the same).
AGGREGATES: Mapping[str, tuple[bool, Type | None]] = {
    "count": (False, Type.LONG),
    "sum": (True, None),
    "avg": (True, Type.DOUBLE),
    "var": (True, Type.DOUBLE),
    "stddev": (True, Type.DOUBLE),
    "min": (False, None),
    "max": (False, None),
    "first": (False, None),
    "last": (False, None),
}


@dataclass(frozen=True, eq=False, repr=False)
class AggregateCall(Expr):
    """One aggregate over one argument; `count` alone may have none and then counts events."""

    function: str
    argument: Expr | None = None

    def __post_init__(self) -> None:
        if self.function not in AGGREGATES:
            close = nearest(self.function, AGGREGATES)
            raise ExpressionError(
                f"there is no aggregate {self.function!r}",
                given=self.function,
                allowed=", ".join(AGGREGATES),
                instead=close or "",
            )
        if self.argument is None and self.function != "count":
            raise ExpressionError(f"{self.function} needs an argument", instead=f"{self.function}('quantity')")
        if self.argument is not None and has_aggregates(self.argument):
            raise ExpressionError(
                "an aggregate cannot stand inside another",
                given=str(self),
                allowed="an expression over columns",
                instead="aggregate once more over the result of the first",
            )

    @property
    def children(self) -> tuple[Expr, ...]:
        return () if self.argument is None else (self.argument,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return AggregateCall(self.function, *children)

    def bind(self, schema: Schema) -> Bound:
        args = tuple(child.bind(schema) for child in self.children)
        numeric, result = AGGREGATES[self.function]
        if numeric and not args[0].type.is_numeric:
            raise ExpressionError(
                f"{self} cannot take {args[0].type.value}", given=args[0].type.value, allowed="numbers"
            )
        if self.function == "sum":
            result = Type.LONG if args[0].type.is_integer else Type.DOUBLE
        return Bound(self, result or args[0].type, args)

    def __str__(self) -> str:
        return f"{self.function}({'*' if self.argument is None else self.argument})"


def _aggregate(function: str, argument: Value) -> AggregateCall:
    return AggregateCall(function, Column(argument) if isinstance(argument, str) else as_expr(argument))


def count(argument: Value = None) -> AggregateCall:
    """How many events there are, or how many have an argument that is not NULL."""
    return AggregateCall("count") if argument is None else _aggregate("count", argument)


def sum(argument: Value) -> AggregateCall:
    """The sum: LONG of whole numbers, DOUBLE of others."""
    return _aggregate("sum", argument)


def avg(argument: Value) -> AggregateCall:
    """The arithmetic mean."""
    return _aggregate("avg", argument)


def min(argument: Value) -> AggregateCall:
    """The least value."""
    return _aggregate("min", argument)


def max(argument: Value) -> AggregateCall:
    """The greatest value; NaN is greater than any number."""
    return _aggregate("max", argument)


def var(argument: Value) -> AggregateCall:
    """The sample variance, NULL for fewer than two values."""
    return _aggregate("var", argument)


def stddev(argument: Value) -> AggregateCall:
    """The sample standard deviation, NULL for fewer than two values."""
    return _aggregate("stddev", argument)


def first(argument: Value) -> AggregateCall:
    """The value of the earliest event."""
    return _aggregate("first", argument)


def last(argument: Value) -> AggregateCall:
    """The value of the latest event."""
    return _aggregate("last", argument)


def has_aggregates(expr: Expr) -> bool:
    """Whether an aggregate call stands anywhere in it."""
    return isinstance(expr, AggregateCall) or any(map(has_aggregates, expr.children))


def split_aggregates(exprs: Mapping[str, Expr]) -> tuple[dict[str, AggregateCall], dict[str, Expr]]:
    """The distinct aggregate calls in `exprs` by internal column name, and `exprs` reading those columns instead.

    >>> calls, rest = split_aggregates({"vwap": sum("value") / sum("quantity"), "n": count()})
    >>> calls
    {'__agg0': sum(value), '__agg1': sum(quantity), '__agg2': count(*)}
    >>> rest
    {'vwap': __agg0 / __agg1, 'n': __agg2}
    """
    calls: dict[str, AggregateCall] = {}
    names: dict[str, str] = {}

    def take(expr: Expr) -> Expr:
        if not isinstance(expr, AggregateCall):
            return expr
        name = names.setdefault(str(expr), f"__agg{len(names)}")
        calls.setdefault(name, expr)
        return Column(name)

    return calls, {name: expr.transform(take) for name, expr in exprs.items()}
