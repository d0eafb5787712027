"""Expressions: the nodes of the expression tree.

An expression is a small immutable tree over columns and literals. It is built by Python operators or by the SQL parser,
given types against a schema, computed on Arrow (`evaluate`) and printed as Spark SQL or DuckDB SQL (`sql`), and means
the same everywhere. One rule holds for all of it: *what cannot be computed is NULL; nothing raises at run time*, but a
function of a user. What can be known before, an unknown column or a text among numbers, raises when the expression is
built or typed.

`==` builds an expression, so two expressions are compared by their canonical text: `str(a) == str(b)` or `a.same(b)`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from headrace.errors import ExpressionError
from headrace.expr.fluent import Fluent
from headrace.expr.signatures import castable, common, lookup
from headrace.schema import Schema, Type

__all__ = ["Alias", "Bound", "Call", "Case", "Cast", "Column", "Expr", "Literal", "Value", "as_expr", "col", "lit"]

Plain = None | bool | int | float | str | datetime
_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "modulo": "%", "and": "AND", "or": "OR",
    "eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


class Expr(Fluent):
    """Any expression."""

    @property
    def children(self) -> tuple[Expr, ...]:
        """The expressions it is made of."""
        return ()

    @property
    def name(self) -> str:
        """The name of its output column: its alias, its column, or its own text."""
        return str(self)

    def with_children(self, children: Sequence[Expr]) -> Expr:  # noqa: ARG002 - a leaf has none to take
        """The same node over other children."""
        return self

    def bind(self, schema: Schema) -> Bound:
        """The tree with a type on every node and widenings made explicit."""
        raise NotImplementedError

    def type(self, schema: Schema) -> Type:
        """The type of its values over columns of `schema`."""
        return self.bind(schema).type

    def transform(self, change: Callable[[Expr], Expr]) -> Expr:
        """The tree rebuilt from the leaves up, each node passed through `change`."""
        return change(self.with_children([child.transform(change) for child in self.children]))

    def columns(self) -> frozenset[str]:
        """The names of the columns it reads."""
        return frozenset().union(*(child.columns() for child in self.children))

    def same(self, other: object) -> bool:
        """Whether both are the same expression."""
        return isinstance(other, Expr) and str(self) == str(other)

    def cast(self, type: Type | str) -> Expr:
        """As another type; NULL where the value has no counterpart."""
        return Cast(self, type if isinstance(type, Type) else Type.parse(type))

    def alias(self, name: str) -> Expr:
        """Under another name."""
        return Alias(self, name)

    def nullif(self, other: Value) -> Expr:
        """NULL where this equals `other`."""
        return Case(((self == other, Literal(None)),), self)

    def _call(self, function: str, *args: Value) -> Expr:
        return Call(function, (self, *map(as_expr, args)))

    def _swapped(self, function: str, other: Value) -> Expr:
        return Call(function, (as_expr(other), self))

    def __repr__(self) -> str:
        return str(self)


Value = Expr | Plain


@dataclass(frozen=True, eq=False, repr=False)
class Bound:
    """A node with its type; `args` are its bound children, already widened to its argument types."""

    node: Expr
    type: Type
    args: tuple[Bound, ...] = ()

    @property
    def untyped(self) -> bool:
        """A bare NULL, which fits any type."""
        return isinstance(self.node, Literal) and self.node.value is None

    def widened(self, type: Type) -> Bound:
        """The same value as `type`."""
        if self.type == type or self.untyped or (self.type.is_text and type.is_text):
            return Bound(self.node, type, self.args)
        if isinstance(self.node, Literal):
            value = float(self.node.value) if type.is_floating else self.node.value  # type: ignore[arg-type]
            return Bound(Literal(value), type)
        return Bound(Cast(self.node, type), type, (self,))


@dataclass(frozen=True, eq=False, repr=False)
class Column(Expr):
    """A column of the row."""

    column: str

    @property
    def name(self) -> str:
        return self.column

    def columns(self) -> frozenset[str]:
        return frozenset((self.column,))

    def bind(self, schema: Schema) -> Bound:
        return Bound(self, schema[self.column].type)

    def __str__(self) -> str:
        return _quoted(self.column)


@dataclass(frozen=True, eq=False, repr=False)
class Literal(Expr):
    """A value that is the same in every row."""

    value: Plain

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _plain(self.value))

    def bind(self, schema: Schema) -> Bound:  # noqa: ARG002 - a literal needs none
        return Bound(self, self.literal_type)

    @property
    def literal_type(self) -> Type:
        """INT if a whole number fits in 32 bits, else LONG; STRING for a bare NULL."""
        if isinstance(self.value, bool):
            return Type.BOOLEAN
        if isinstance(self.value, int):
            return Type.INT if -(2**31) <= self.value < 2**31 else Type.LONG
        if isinstance(self.value, float):
            return Type.DOUBLE
        return Type.DATETIME if isinstance(self.value, datetime) else Type.STRING

    def __str__(self) -> str:
        value = self.value
        if value is None or isinstance(value, bool):
            return "NULL" if value is None else str(value).upper()
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        if isinstance(value, datetime):
            return f"DATETIME '{value.replace(tzinfo=None).isoformat()}'"
        return repr(value) if not isinstance(value, float) or math.isfinite(value) else f"DOUBLE '{value}'"


@dataclass(frozen=True, eq=False, repr=False)
class Alias(Expr):
    """An expression under another name."""

    child: Expr
    label: str

    @property
    def name(self) -> str:
        return self.label

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.child,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Alias(children[0], self.label)

    def bind(self, schema: Schema) -> Bound:
        return self.child.bind(schema)

    def __str__(self) -> str:
        return f"{_inner(self.child)} AS {_quoted(self.label)}"


@dataclass(frozen=True, eq=False, repr=False)
class Cast(Expr):
    """A value as another type, NULL where there is no counterpart."""

    child: Expr
    to: Type

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.child,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Cast(children[0], self.to)

    def bind(self, schema: Schema) -> Bound:
        child = self.child.bind(schema)
        if child.untyped or child.type == self.to or (child.type.is_text and self.to.is_text):
            return child.widened(self.to)
        if not castable(child.type, self.to):
            raise ExpressionError(
                f"{self} turns {child.type.value} into {self.to.value}, which has no one meaning on every engine",
                given=f"{child.type.value} to {self.to.value}",
                allowed="numbers, BOOLEAN and text into one another, LONG into DATETIME and back, DATETIME into text; "
                "not FLOAT or DOUBLE into text, whose digits differ from engine to engine",
                instead=f"{self.child}.cast('LONG').cast('{self.to.value}')",
            )
        return Bound(self, self.to, (child,))

    def __str__(self) -> str:
        return f"CAST({self.child} AS {self.to.value})"


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expr):
    """A function of `signatures.FUNCTIONS` over its arguments."""

    function: str
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        function = lookup(self.function)
        count = len(self.args)
        if count < function.least or (function.most is not None and count > function.most):
            most = "or more" if function.most is None else f"to {function.most}"
            raise ExpressionError(
                f"{self.function} does not take {count} arguments", given=count, allowed=f"{function.least} {most}"
            )
        for position, check in function.constants.items():
            argument = self.args[position]
            if not isinstance(argument, Literal):
                raise ExpressionError(
                    f"argument {position + 1} of {self.function} must be a plain value, the same for every row",
                    given=str(argument),
                    allowed="a plain value",
                )
            check(argument.value)

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Call(self.function, tuple(children))

    def bind(self, schema: Schema) -> Bound:
        args = [arg.bind(schema) for arg in self.args]
        signature = lookup(self.function).rule(self, [None if arg.untyped else arg.type for arg in args])
        return Bound(self, signature.result, tuple(map(Bound.widened, args, signature.operands)))

    def __str__(self) -> str:
        if self.function in _INFIX:
            return f"{_inner(self.args[0])} {_INFIX[self.function]} {_inner(self.args[1])}"
        return f"{self.function}({', '.join(map(str, self.args))})"


@dataclass(frozen=True, eq=False, repr=False)
class Case(Expr):
    """The value of the first branch whose condition is true, else the default."""

    branches: tuple[tuple[Expr, Expr], ...]
    default: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (*(part for branch in self.branches for part in branch), self.default)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        pairs = tuple(zip(children[:-1:2], children[1::2], strict=True))
        return Case(pairs, children[-1])

    def bind(self, schema: Schema) -> Bound:
        parts = [child.bind(schema) for child in self.children]
        for condition in parts[:-1:2]:
            if not condition.untyped and condition.type != Type.BOOLEAN:
                raise ExpressionError(
                    f"the condition {condition.node} is {condition.type.value}", given=str(self), allowed="BOOLEAN"
                )
        values = [*parts[1::2], parts[-1]]
        wide = common(self, [None if value.untyped else value.type for value in values]) or Type.STRING
        last = len(parts) - 1
        return Bound(
            self, wide, tuple(p.widened(Type.BOOLEAN if i % 2 == 0 and i < last else wide) for i, p in enumerate(parts))
        )

    def __str__(self) -> str:
        whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in self.branches)
        return f"CASE {whens} ELSE {self.default} END"


def col(name: str) -> Expr:
    """The column of that name."""
    if not isinstance(name, str) or not name:  # type: ignore[redundant-expr]
        raise ExpressionError("the name of a column is a text", given=name, allowed="a str", instead="col('price')")
    return Column(name)


def lit(value: Plain) -> Expr:
    """`value` as an expression."""
    return Literal(value)


def as_expr(value: Value) -> Expr:
    """An expression unchanged, any other value as a literal."""
    return value if isinstance(value, Expr) else Literal(value)


def _plain(value: Any) -> Plain:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        raise ExpressionError("this number does not fit in 64 bits", given=value, allowed=f"{-(2**63)} to {2**63 - 1}")
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ExpressionError(
        "this is not a value of a column", given=value, allowed="None, bool, int, float, str, datetime"
    )


def _quoted(name: str) -> str:
    return name if _NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _inner(expr: Expr) -> str:
    """`expr` as part of another, in parentheses where needed."""
    apart = isinstance(expr, (Alias, Case)) or (isinstance(expr, Call) and expr.function in _INFIX)
    return f"({expr})" if apart else str(expr)
