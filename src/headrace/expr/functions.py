"""Functions that read better as functions than as methods.

Texts among the arguments are literals, as in the methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.errors import ExpressionError, nearest
from headrace.expr.nodes import Call, Case, Expr, Value, as_expr, lit

__all__ = [
    "CaseBuilder", "EpochUnit", "call", "case", "coalesce", "concat", "from_epoch", "greatest", "if_else", "least",
]  # fmt: skip

EpochUnit = Literal["s", "ms", "us"]
_TICKS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def call(function: str, *args: Value) -> Expr:
    """Any function of the language by its name, as the SQL parser needs it.

    >>> from headrace.expr import col
    >>> call("upper", col("symbol"))
    upper(symbol)
    """
    return Call(function, tuple(map(as_expr, args)))


def coalesce(*values: Value) -> Expr:
    """The first value that is not NULL."""
    return call("coalesce", *values)


def greatest(*values: Value) -> Expr:
    """The greatest value that is not NULL; NaN is greater than any number."""
    return call("greatest", *values)


def least(*values: Value) -> Expr:
    """The least value that is not NULL; NaN is greater than any number."""
    return call("least", *values)


def concat(*values: Value) -> Expr:
    """The texts concatenated; NULL if any is NULL."""
    return call("concat", *values)


def from_epoch(value: Expr, unit: EpochUnit) -> Expr:
    """A number of seconds, milliseconds or microseconds since 1970 as a time, to the nearest microsecond."""
    if unit not in _TICKS:
        raise ExpressionError(
            "unknown unit of a time",
            given=unit,
            allowed=", ".join(_TICKS),
            instead=repr(nearest(str(unit), _TICKS) or "ms"),
        )
    ticks = value * lit(_TICKS[unit]).cast("LONG")  # exact, because the product of any whole numbers is a LONG
    return ticks.round().cast("LONG").cast("DATETIME")


def if_else(condition: Value, value: Value, otherwise: Value = None) -> Expr:
    """`value` where the condition is true, `otherwise` where it is false or NULL."""
    return Case(((as_expr(condition), as_expr(value)),), as_expr(otherwise))


@dataclass(frozen=True)
class CaseBuilder:
    """A CASE under construction: `.when(...)` adds a branch, `.otherwise(...)` or `.end()` builds the expression."""

    branches: tuple[tuple[Expr, Expr], ...] = ()

    def when(self, condition: Value, value: Value) -> CaseBuilder:
        return CaseBuilder((*self.branches, (as_expr(condition), as_expr(value))))

    def otherwise(self, value: Value) -> Expr:
        if not self.branches:
            raise ExpressionError("a case needs a branch", instead="case().when(col('a') > 0, 1).otherwise(0)")
        return Case(self.branches, as_expr(value))

    def end(self) -> Expr:
        """The expression, NULL where no condition is true."""
        return self.otherwise(lit(None))


def case() -> CaseBuilder:
    """The start of a CASE.

    >>> from headrace.expr import col
    >>> case().when(col("price") > 100, "high").otherwise("low")
    CASE WHEN price > 100 THEN 'high' ELSE 'low' END
    """
    return CaseBuilder()
