"""Expressions: the nodes of the expression tree.

An expression is a small immutable tree over columns and literals. It is built by Python operators or by the SQL parser,
given types against a schema, computed on Arrow (`evaluate`) and printed as Spark SQL or DuckDB SQL (`sql`), and means
the same everywhere. One rule holds for all of it: *what cannot be computed is NULL; nothing raises at run time*, but a
function of a user. What can be known before, an unknown column or a text among numbers, raises when the expression is
built or typed.

`==` builds an expression, so two expressions are compared by their canonical text: `str(a) == str(b)` or `a.same(b)`.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import NoReturn

from headrace.errors import ExpressionError, UnknownColumn
from headrace.expr.beside import as_read, as_type, resolved
from headrace.expr.decimals import ON_EXACT, exact_decimal, literal_decimal
from headrace.expr.fluent import Fluent
from headrace.expr.literals import Plain, literal_text, plain_value
from headrace.expr.signatures import castable, common, lookup, no_cast, widens
from headrace.expr.spans import cast_by_ticks, in_ticks
from headrace.schema import Schema, Type
from headrace.time import duration, format_duration

__all__ = [
    "Alias", "Bound", "Call", "Case", "Cast", "Column", "Duration", "Expr", "IntervalValue", "Literal", "Months",
    "Value", "as_expr", "col", "column_or_value", "lit",
]  # fmt: skip

_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "modulo": "%", "and": "AND",
    "or": "OR", "eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
#: Functions of durations that give durations.
_KEEPS_UNIT = frozenset(
    "add subtract multiply modulo negate abs coalesce greatest least floor ceil round".split()  # noqa: SIM905 - in a line
)


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

    def is_distinct_from(self, other: Value) -> Expr:
        """Whether two values differ, where NULL equals NULL."""
        return ~self.is_not_distinct_from(other)

    def is_not_distinct_from(self, other: Value) -> Expr:
        """Whether two values are the same, where NULL equals NULL."""
        return (self == other).coalesce(self.is_null() & as_expr(other).is_null())

    def _case(self, value: Value, otherwise: Value) -> Expr:
        return Case(((self, as_expr(value)),), as_expr(otherwise))

    def _call(self, function: str, *args: Value) -> Expr:
        return Call(function, (self, *map(as_expr, args)))

    def _swapped(self, function: str, other: Value) -> Expr:
        return Call(function, (as_expr(other), self))

    def __repr__(self) -> str:
        return str(self)


#: What an expression may be made of; a `timedelta` is a number of ticks.
Value = Expr | Plain | timedelta


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

    @property
    def is_text(self) -> bool:
        """A text that is the same in every row."""
        return isinstance(self.node, Literal) and isinstance(self.node.value, str)

    @property
    def is_duration(self) -> bool:
        """A number of ticks: a `timedelta`, the difference of two DATETIMEs, or a number computed from one."""
        if not isinstance(self.node, Call):
            parts = self.args[1::2] + self.args[-1:] if isinstance(self.node, Case) else self.args
            return isinstance(self.node, Duration) or any(part.is_duration for part in parts)
        if self.node.function == "floor_divide":
            return self.args[0].is_duration and not self.args[1].is_duration
        passes = self.node.function in _KEEPS_UNIT and any(arg.is_duration for arg in self.args)
        return passes or self.node.function == "time_diff"

    @property
    def is_plain(self) -> bool:
        """A value that is the same in every row."""
        return isinstance(self.node, Literal)

    @property
    def text(self) -> str:
        """The value of a text that is the same in every row."""
        assert isinstance(self.node, Literal)
        return str(self.node.value)

    @property
    def ticks(self) -> int:
        """The length of a duration that is the same in every row."""
        assert isinstance(self.node, (Duration, IntervalValue))
        return self.node.value

    @property
    def exact(self) -> decimal.Decimal | None:
        """The decimal that a plain number is, or that is computed from plain numbers."""
        if isinstance(self.node, Literal):
            return None if isinstance(self.node, (Duration, IntervalValue)) else exact_decimal(self.node.value)
        if not isinstance(self.node, Call) or self.node.function not in ON_EXACT:
            return None
        known = [value for arg in self.args if (value := arg.exact) is not None]
        return ON_EXACT[self.node.function](*known) if len(known) == len(self.args) else None

    @staticmethod
    def of(value: Value) -> Bound:
        """A value that is the same in every row."""
        return as_expr(value).bind(_NO_COLUMNS)

    def negated(self) -> Bound:
        """The number with the other sign."""
        if isinstance(self.node, Duration):
            return Bound(Duration(-self.node.value), Type.LONG)
        return Call("negate", (_Typed(self),)).bind(_NO_COLUMNS)

    def widened(self, type: Type) -> Bound:
        """The same value as `type`."""
        if self.type == type or self.untyped or (self.type.is_text and type.is_text):
            return Bound(self.node, type, self.args)
        fits = not type.is_decimal or widens(self.type, type)
        if isinstance(self.node, Duration) and type is Type.INTERVAL:
            return Bound(IntervalValue(self.node.value), type)
        if isinstance(self.node, Literal) and fits:
            return Bound(Literal(as_type(self.node.value, type)), type)
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


class Named(Column):
    """A column given by its name alone, where someone may have meant a text."""

    def bind(self, schema: Schema) -> Bound:
        if self.column not in schema:
            raise UnknownColumn.of(self.column, schema.names, text=f"hr.lit({self.column!r}) for the text")
        return super().bind(schema)


@dataclass(frozen=True, eq=False, repr=False)
class Literal(Expr):
    """A value that is the same in every row."""

    value: Plain

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", plain_value(self.value))

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
        if isinstance(self.value, decimal.Decimal):
            return literal_decimal(self.value)
        if isinstance(self.value, date):
            return Type.DATETIME if isinstance(self.value, datetime) else Type.DATE
        return Type.TIME if isinstance(self.value, time) else Type.STRING

    def __str__(self) -> str:
        return literal_text(self.value)


@dataclass(frozen=True, eq=False, repr=False)
class Duration(Literal):
    """A length of time: a LONG number of ticks that remembers its unit, so it can move a DATETIME."""

    value: int

    @property
    def literal_type(self) -> Type:
        return Type.LONG

    def __str__(self) -> str:
        return format_duration(self.value)


@dataclass(frozen=True, eq=False, repr=False)
class IntervalValue(Literal):
    """A length of time as an INTERVAL."""

    value: int

    @property
    def literal_type(self) -> Type:
        return Type.INTERVAL

    def __str__(self) -> str:
        return f"INTERVAL '{format_duration(self.value)}'"


@dataclass(frozen=True, eq=False, repr=False)
class Months(Literal):
    """A number of months, which have no fixed length: they can only move a DATE or DATETIME."""

    value: int

    def bind(self, schema: Schema) -> NoReturn:  # noqa: ARG002 - it is taken before
        raise ExpressionError(
            "months and years differ in length, so they have no number of ticks",
            given=str(self),
            allowed="added to, or subtracted from, a DATE or DATETIME",
            instead="INTERVAL '30' DAY",
        )

    def __str__(self) -> str:
        return f"INTERVAL '{self.value}' MONTH"


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
            raise no_cast(self, child.type, self.to)
        by_ticks = cast_by_ticks(_Typed(child), child.type, self.to)
        return Bound(self, self.to, (child,)) if by_ticks is None else by_ticks.bind(schema)

    def __str__(self) -> str:
        return f"CAST({self.child} AS {self.to.value})"


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expr):
    """A function of `signatures.FUNCTIONS` over its arguments."""

    function: str
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        function = lookup(self.function)
        function.check_count(len(self.args))
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
        if self.function in ("add", "subtract") and any(isinstance(arg, Months) for arg in self.args):
            return self._moved_by_months().bind(schema)
        args = [arg.bind(schema) for arg in self.args]
        by_ticks = in_ticks(self.function, args, _Typed)
        if by_ticks is not None:
            return by_ticks.bind(schema)
        node, args = resolved(self, args)
        keeps = node.function == "struct"  # CAST(NULL AS LONG) is a field of LONG
        known = [None if arg.untyped and not keeps else arg.type for arg in args]
        signature = lookup(node.function).rule(node, known)
        return Bound(node, signature.result, tuple(map(Bound.widened, args, signature.operands)))

    def _moved_by_months(self) -> Expr:
        left, right = self.args
        if isinstance(left, Months) and self.function == "add":
            left, right = right, left
        if not isinstance(right, Months):
            return right  # whose binding tells what is wrong
        return Call("shift_months", (left, Literal(right.value if self.function == "add" else -right.value)))

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
        values = as_read([*parts[1::2], parts[-1]])
        parts = [*(part for pair in zip(parts[:-1:2], values[:-1], strict=True) for part in pair), values[-1]]
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


def lit(value: Value) -> Expr:
    """`value` as an expression."""
    return as_expr(value)


def as_expr(value: Value) -> Expr:
    """An expression unchanged, any other value as a literal."""
    if isinstance(value, timedelta):
        return Duration(duration(value))
    return value if isinstance(value, Expr) else Literal(plain_value(value))


def column_or_value(value: Value) -> Expr:
    """A column by name, an expression, or any other value as a literal."""
    return Named(value) if isinstance(value, str) else as_expr(value)


@dataclass(frozen=True, eq=False, repr=False)
class _Typed(Expr):
    """An argument that is bound already."""

    bound: Bound

    def bind(self, schema: Schema) -> Bound:  # noqa: ARG002 - it is bound
        return self.bound

    def columns(self) -> frozenset[str]:
        return self.bound.node.columns()

    def __str__(self) -> str:
        return str(self.bound.node)


_NO_COLUMNS = Schema(())


def _quoted(name: str) -> str:
    return name if _NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _inner(expr: Expr) -> str:
    """`expr` as part of another, in parentheses where needed."""
    apart = isinstance(expr, (Alias, Case)) or (isinstance(expr, Call) and expr.function in _INFIX)
    return f"({expr})" if apart else str(expr)
