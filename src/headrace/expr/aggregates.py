"""Aggregate calls: the parts of an expression that reduce a window to one value.

An aggregate call is part of ordinary expressions, as in `sum(col("p") * col("q")) / sum("q")`. No row has its value;
`split_aggregates` extracts the calls, once each, and leaves expressions over the columns that an operator fills.
A text among the arguments is the name of a column; `where` leaves out events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace.errors import ExpressionError, nearest
from headrace.expr.nodes import Bound, Case, Column, Expr, Literal, Value, as_expr
from headrace.schema import Schema, Type
from headrace.types import DIGITS

__all__ = [
    "AGGREGATES",
    "AggregateCall",
    "Aggregation",
    "aggregate_of",
    "approx_distinct",
    "avg",
    "computed",
    "count",
    "distinct_count",
    "filtered",
    "first",
    "geometric_mean",
    "has_aggregates",
    "last",
    "max",
    "median",
    "min",
    "percentile_disc",
    "quantile",
    "split_aggregates",
    "stddev",
    "sum",
    "top_frequent",
    "var",
]

Parameter = float | int | str


@dataclass(frozen=True)
class Aggregation:
    """An aggregate function: its argument types, the result type for each, and the check of each parameter.

    It `adds_up` if sums, which can be added and subtracted, determine its answer.
    """

    takes: str
    fits: Callable[[Type], bool]
    gives: Callable[[Type], Type]
    parameters: tuple[Callable[[Any], Parameter], ...] = ()
    adds_up: bool = False


def _fraction(value: Any) -> float:
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number <= 1:
        raise ExpressionError("a quantile is a fraction of 1", given=value, allowed="0 to 1", instead="0.95")
    return float(number) + 0.0  # -0.0 is 0.0


def _how_many(value: Any) -> int:
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ExpressionError("this is not a number of values", given=value, allowed="1, 2, 3, …", instead="3")
    return number


def _separator(value: Any) -> str:
    if not isinstance(value, str):
        raise ExpressionError("a separator is a plain text", given=value, allowed="a str", instead="', '")
    return value


def _of_any(gives: Callable[[Type], Type], *parameters: Callable[[Any], Parameter]) -> Aggregation:
    return Aggregation("single values, not lists or structs", lambda kind: not kind.is_nested, gives, parameters)


def _of_numbers(gives: Callable[[Type], Type], *parameters: Callable[[Any], Parameter]) -> Aggregation:
    return Aggregation("numbers", lambda kind: kind.is_numeric, gives, parameters)


def _of_sums(gives: Callable[[Type], Type]) -> Aggregation:
    return replace(_of_numbers(gives), adds_up=True)


def _of_exact_sums(gives: Callable[[Type], Type]) -> Aggregation:
    fits = lambda kind: kind.is_numeric or kind is Type.INTERVAL  # noqa: E731
    return Aggregation("numbers and INTERVAL", fits, gives, adds_up=True)


def _itself(type: Type) -> Type:
    return type


def _long(_: Type) -> Type:
    return Type.LONG


def _double(_: Type) -> Type:
    return Type.DOUBLE


def _mean(type: Type) -> Type:
    return type if type is Type.INTERVAL else Type.DOUBLE


def _sum(type: Type) -> Type:
    if type is Type.INTERVAL:
        return type
    if type.is_decimal:
        return Type.DECIMAL(DIGITS, type.scale)
    return Type.LONG if type.is_integer else Type.DOUBLE


def _list(type: Type) -> Type:
    return type.array


AGGREGATES: Mapping[str, Aggregation] = {
    "count": Aggregation("anything", lambda _: True, _long, adds_up=True),
    "sum": _of_exact_sums(_sum),
    "avg": _of_exact_sums(_mean),
    "var": _of_sums(_double),
    "stddev": _of_sums(_double),
    "min": _of_any(_itself),
    "max": _of_any(_itself),
    "first": _of_any(_itself),
    "last": _of_any(_itself),
    "median": _of_numbers(_double),
    "quantile": _of_numbers(_double, _fraction),
    "percentile_disc": _of_any(_itself, _fraction),
    "geometric_mean": _of_sums(_double),
    "collect": _of_any(_list),
    "distinct_count": _of_any(_long),
    "approx_distinct": _of_any(_long),
    "top_frequent": _of_any(_list, _how_many),
    "concat": Aggregation("text", lambda kind: kind.is_text, lambda _: Type.STRING, (_separator,)),
}


#: What is computed of DOUBLE: the answer is one anyway.
_STATISTICS = ("var", "stddev", "median", "quantile", "geometric_mean")


@dataclass(frozen=True, eq=False, repr=False)
class AggregateCall(Expr):
    """One aggregate over one argument; `count` alone may have none and then counts events.

    `parameters` are plain values, the same for every row: which quantile, how many values.
    """

    function: str
    argument: Expr | None = None
    parameters: tuple[Parameter, ...] = ()

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
        checks = AGGREGATES[self.function].parameters
        if len(self.parameters) != len(checks):
            raise ExpressionError(
                f"{self.function} has {len(checks)} parameters beside its argument", given=self.parameters
            )
        checked = tuple(check(value) for check, value in zip(checks, self.parameters, strict=True))
        object.__setattr__(self, "parameters", checked)

    @property
    def children(self) -> tuple[Expr, ...]:
        return () if self.argument is None else (self.argument,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return AggregateCall(self.function, children[0] if children else None, self.parameters)

    def bind(self, schema: Schema) -> Bound:
        args = tuple(child.bind(schema) for child in self.children)
        if not args:
            return Bound(self, Type.LONG)
        function, given = AGGREGATES[self.function], args[0].type
        if not function.fits(given):
            raise ExpressionError(f"{self} cannot take {given.value}", given=given.value, allowed=function.takes)
        return Bound(self, function.gives(given), args)

    def __str__(self) -> str:
        written = ["*" if self.argument is None else str(self.argument), *(str(Literal(p)) for p in self.parameters)]
        return f"{self.function}({', '.join(written)})"


def aggregate_of(function: str, argument: Value, where: Expr | None, *parameters: Parameter) -> AggregateCall:
    """An aggregate of a column by name, or of an expression."""
    value = Column(argument) if isinstance(argument, str) else as_expr(argument)
    return filtered(AggregateCall(function, value, parameters), where)


def filtered(call: AggregateCall, where: Expr | None) -> AggregateCall:
    """An aggregate of the events for which `where` is true: the others count as NULL, which aggregates ignore."""
    if where is None:
        return call
    if not isinstance(where, Expr):
        raise ExpressionError(
            "where of an aggregate needs a condition",
            given=where,
            allowed="a BOOLEAN expression",
            instead=f"hr.{call.function}(..., where=col('a') > 0)",
        )
    argument = Literal(1) if call.argument is None else call.argument
    return AggregateCall(call.function, Case(((where, argument),), Literal(None)), call.parameters)


def count(argument: Value = None, *, where: Expr | None = None) -> AggregateCall:
    """The number of events, or of events whose argument is not NULL."""
    if argument is None:
        return filtered(AggregateCall("count"), where)
    if isinstance(argument, str) and argument == "*":
        raise ExpressionError(
            "all events are counted without an argument",
            given=argument,
            allowed="nothing, a column or an expression",
            instead="hr.count()",
        )
    return aggregate_of("count", argument, where)


def sum(argument: Value, *, where: Expr | None = None) -> AggregateCall:
    """The sum: LONG of whole numbers, DECIMAL(38,s) of DECIMAL(p,s), DOUBLE of others."""
    return aggregate_of("sum", argument, where)


def avg(argument: Value, *, where: Expr | None = None) -> AggregateCall:
    """The arithmetic mean."""
    return aggregate_of("avg", argument, where)


def min(argument: Value, *, where: Expr | None = None) -> AggregateCall:
    """The least value."""
    return aggregate_of("min", argument, where)


def max(argument: Value, *, where: Expr | None = None) -> AggregateCall:
    """The greatest value; NaN is greater than any number."""
    return aggregate_of("max", argument, where)


def var(argument: Value, *, where: Expr | None = None) -> AggregateCall:
    """The sample variance, NULL for fewer than two values."""
    return aggregate_of("var", argument, where)


def stddev(argument: Value, *, where: Expr | None = None) -> AggregateCall:
    """The sample standard deviation, NULL for fewer than two values."""
    return aggregate_of("stddev", argument, where)


def first(argument: Value, *, where: Expr | None = None) -> AggregateCall:
    """The value of the earliest event."""
    return aggregate_of("first", argument, where)


def last(argument: Value, *, where: Expr | None = None) -> AggregateCall:
    """The value of the latest event."""
    return aggregate_of("last", argument, where)


def median(argument: Value, *, where: Expr | None = None) -> AggregateCall:
    """The median: `quantile(argument, 0.5)`."""
    return aggregate_of("median", argument, where)


def quantile(argument: Value, q: float, *, where: Expr | None = None) -> AggregateCall:
    """The value below which the fraction `q` of all values lies, as DOUBLE.

    It is interpolated linearly between the two closest ranks: with n values in order, counted from 0, it is the value
    at rank `q * (n - 1)`. NaN is greater than any number.

    >>> quantile("price", 0.95)
    quantile(price, 0.95)
    """
    return aggregate_of("quantile", argument, where, q)


def percentile_disc(argument: Value, q: float, *, where: Expr | None = None) -> AggregateCall:
    """The least value that the fraction `q` of all values does not exceed: one of the values, of any type.

    With n values in order, counted from 1, it is the value at rank `ceil(q * n)`, and the first for `q = 0`.
    """
    return aggregate_of("percentile_disc", argument, where, q)


def geometric_mean(argument: Value, *, where: Expr | None = None) -> AggregateCall:
    """`exp(avg(ln(argument)))`; NULL if any value is zero or negative."""
    return aggregate_of("geometric_mean", argument, where)


def distinct_count(argument: Value, *, where: Expr | None = None) -> AggregateCall:
    """The exact number of distinct values; NULL does not count."""
    return aggregate_of("distinct_count", argument, where)


def approx_distinct(argument: Value, *, where: Expr | None = None) -> AggregateCall:
    """The approximate number of distinct values, from a sketch of at most 1024 numbers.

    Up to 1023 it is exact, beyond that the standard error is about 3 %. The sketch depends on the values alone, so the
    answer is the same for every order of arrival. It cannot remove values: over a stream with retractions the operator
    keeps all values, and the answer is exact.
    """
    return aggregate_of("approx_distinct", argument, where)


def top_frequent(argument: Value, k: int, *, where: Expr | None = None) -> AggregateCall:
    """The list of the `k` values that occur most often, the most frequent first; ties go to the lesser value.

    Without a value the list is empty.
    """
    return aggregate_of("top_frequent", argument, where, k)


def has_aggregates(expr: Expr) -> bool:
    """Whether an expression contains an aggregate call."""
    return isinstance(expr, AggregateCall) or any(map(has_aggregates, expr.children))


def computed(expr: Expr, schema: Schema) -> Expr:
    """An expression whose sums of INTERVALs are those of their ticks, and statistics of DECIMALs those of DOUBLEs."""

    def lower(part: Expr) -> Expr:
        if type(part) is not AggregateCall or part.argument is None:
            return part
        kind = part.argument.type(schema)
        if kind.is_decimal and part.function in _STATISTICS:
            return AggregateCall(part.function, part.argument.cast(Type.DOUBLE), part.parameters)
        if kind is not Type.INTERVAL or part.function not in ("sum", "avg"):
            return part
        ticks = AggregateCall(part.function, part.argument.cast(Type.LONG))
        return (ticks if part.function == "sum" else ticks.round().cast(Type.LONG)).cast(Type.INTERVAL)

    return expr.transform(lower)


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
