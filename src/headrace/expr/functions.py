"""Functions that read better as functions than as methods.

A text among the arguments is the name of a column, as in aggregates; `lit` makes a text of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.errors import ExpressionError, nearest
from headrace.expr.nodes import Call, Case, Expr, Value, as_expr, column_or_value, lit

__all__ = [
    "EpochUnit", "When", "array", "call", "coalesce", "concat", "from_epoch", "greatest", "if_else", "least",
    "struct", "when",
]  # fmt: skip

EpochUnit = Literal["s", "ms", "us"]
_TICKS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def call(function: str, *args: Value) -> Expr:
    """Any function of the language by its name, as the SQL parser needs it: texts are texts here.

    >>> from headrace.expr import col
    >>> call("upper", col("symbol"))
    upper(symbol)
    """
    return Call(function, tuple(map(as_expr, args)))


def array(*values: Value) -> Expr:
    """A list of columns or values, which widen to one type."""
    return call("array", *map(column_or_value, values))


def struct(**fields: Value) -> Expr:
    """A struct of columns or values under names of their own.

    >>> struct(street="street", number=5)
    struct(street, 5, '"street", "number"')
    """
    if not fields:
        raise ExpressionError("a struct has fields", instead="hr.struct(a=1)")
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in fields)
    return call("struct", *map(column_or_value, fields.values()), names)


def coalesce(*values: Value) -> Expr:
    """The first value that is not NULL."""
    return call("coalesce", *map(column_or_value, values))


def greatest(*values: Value) -> Expr:
    """The greatest of several columns or values that is not NULL; NaN is greater than any number."""
    return call("greatest", *map(column_or_value, values))


def least(*values: Value) -> Expr:
    """The least of several columns or values that is not NULL; NaN is greater than any number."""
    return call("least", *map(column_or_value, values))


def concat(*values: Value) -> Expr:
    """The texts concatenated; NULL if any is NULL."""
    return call("concat", *map(column_or_value, values))


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
    """`value` where the condition is true, `otherwise` where it is false or NULL; texts are texts."""
    return Case(((as_expr(condition), as_expr(value)),), as_expr(otherwise))


@dataclass(frozen=True)
class When:
    """A condition that waits for its value: `.then(...)`."""

    condition: Expr
    branches: tuple[tuple[Expr, Expr], ...] = ()

    def then(self, value: Value) -> Then:
        """The value where the condition is true; a text is the name of a column."""
        return Then((*self.branches, (self.condition, column_or_value(value))), lit(None))


@dataclass(frozen=True, eq=False, repr=False)
class Then(Case):
    """An expression with more to come: `.when(...)` adds a branch, `.otherwise(...)` the value for all other rows."""

    def when(self, condition: Expr) -> When:
        """Another condition, for rows where those before are not true."""
        return When(_checked(condition), self.branches)

    def otherwise(self, value: Value) -> Expr:
        """The value where no condition is true, which is NULL without this; a text is the name of a column."""
        return Case(self.branches, column_or_value(value))


def when(condition: Expr) -> When:
    """The start of a choice between values: `.then(...)` follows, then `.when(...)` or `.otherwise(...)`.

    >>> from headrace.expr import col, lit
    >>> when(col("price") > 100).then(lit("high")).otherwise(lit("low"))
    CASE WHEN price > 100 THEN 'high' ELSE 'low' END
    """
    return When(_checked(condition))


def _checked(condition: object) -> Expr:
    if isinstance(condition, str | bool):
        return column_or_value(condition)
    if isinstance(condition, Expr):
        return condition
    raise ExpressionError(
        "when needs a condition", given=condition, allowed="a BOOLEAN expression", instead="when(col('a') > 0).then(1)"
    )
