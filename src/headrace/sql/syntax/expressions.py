"""Names, literals and expressions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headrace.sql.syntax.parts import Part

__all__ = [
    "Between", "Binary", "Call", "Case", "Cast", "Column", "DateTime", "Duration", "Element", "Expression", "Field",
    "FrameBound", "In", "IsDistinct", "IsJson", "IsNull", "Like", "Name", "Named", "NamedWindow", "Number", "OrderKey",
    "Over", "Row", "Star", "Text", "TypedText", "Unary", "Value",
]  # fmt: skip


@dataclass(frozen=True)
class Name(Part):
    """An identifier as it was written, without its quotes."""

    text: str
    quoted: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Expression(Part):
    """Anything that has a value."""


@dataclass(frozen=True)
class Number(Expression):
    """A number: int, or float where there is a point or an exponent."""

    value: int | float


@dataclass(frozen=True)
class Text(Expression):
    """A text in single quotes."""

    value: str


@dataclass(frozen=True)
class Value(Expression):
    """TRUE, FALSE or NULL."""

    value: bool | None


@dataclass(frozen=True)
class DateTime(Expression):
    """`DATETIME '2024-05-01 12:00:00'`."""

    text: str


@dataclass(frozen=True)
class TypedText(Expression):
    """`DATE '2024-05-01'`, `DECIMAL '1.25'`, `TIME '12:30:00'`."""

    kind: Literal["DATE", "DECIMAL", "TIME"]
    text: str


@dataclass(frozen=True)
class Duration(Expression):
    """`10 s`, `1 h 30 min`: amounts and units as they were written; `FOREVER` and `UNBOUNDED` have no parts.

    `interval`: a value that was written `INTERVAL '10' SECOND`, which is an INTERVAL and not a number of ticks.
    """

    amounts: tuple[tuple[int | float, str], ...]
    interval: bool = False


@dataclass(frozen=True)
class Column(Expression):
    """`price`, `s.price`; inside a DELTA window also `first.price` and `this.price`."""

    name: Name
    stream: Name | None = None


@dataclass(frozen=True)
class Star(Expression):
    """`*`, `s.*`; as the argument of `count(*)` too."""

    stream: Name | None = None


@dataclass(frozen=True)
class Unary(Expression):
    """`-x`, `+x`, `NOT x`, `~x`; the operator in upper case."""

    operator: str
    value: Expression


@dataclass(frozen=True)
class Binary(Expression):
    """`a + b`: the operators `+ - * / % || = <> < <= > >= AND OR & | ^ << >> -> ->>`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Between(Expression):
    """`x [NOT] BETWEEN a AND b`."""

    value: Expression
    low: Expression
    high: Expression
    negated: bool = False


@dataclass(frozen=True)
class Row(Expression):
    """`(a, b)` beside IN: several values that are compared together."""

    values: tuple[Expression, ...]


@dataclass(frozen=True)
class In(Expression):
    """`x [NOT] IN (a, b, …)`, `(x, y) [NOT] IN ((a, b), …)`."""

    value: Expression
    options: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True)
class IsNull(Expression):
    """`x IS [NOT] NULL`, `x IS [NOT] TRUE`, FALSE or UNKNOWN."""

    value: Expression
    negated: bool = False
    what: Literal["NULL", "TRUE", "FALSE", "UNKNOWN"] = "NULL"


@dataclass(frozen=True)
class IsDistinct(Expression):
    """`a IS [NOT] DISTINCT FROM b`: a comparison that holds NULL to be equal to NULL."""

    left: Expression
    right: Expression
    negated: bool = False


@dataclass(frozen=True)
class IsJson(Expression):
    """`x IS [NOT] JSON [VALUE | OBJECT | ARRAY | SCALAR]`."""

    value: Expression
    kind: Literal["value", "object", "array", "scalar"] = "value"
    negated: bool = False


@dataclass(frozen=True)
class Element(Expression):
    """`list[1]`."""

    value: Expression
    place: Expression


@dataclass(frozen=True)
class Field(Expression):
    """`(s).a`, `t.s.a`: a field of a struct. `s.a` is a `Column`, until it is known that `s` is a column."""

    value: Expression
    name: Name


@dataclass(frozen=True)
class Like(Expression):
    """`x [NOT] LIKE 'a%'`, `x [NOT] ILIKE 'A%'`, `x [NOT] REGEXP '^a'` (also written RLIKE)."""

    value: Expression
    pattern: Expression
    operator: Literal["LIKE", "ILIKE", "REGEXP"] = "LIKE"
    negated: bool = False


@dataclass(frozen=True)
class Case(Expression):
    """`CASE [subject] WHEN … THEN … [ELSE …] END`."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression | None = None
    subject: Expression | None = None


@dataclass(frozen=True)
class Cast(Expression):
    """`CAST(x AS TYPE)`, also written `TRY_CAST`: what cannot be cast is NULL."""

    value: Expression
    type: Name


@dataclass(frozen=True)
class Named(Part):
    """A parameter given by name: `alpha => 0.2`."""

    name: Name
    value: Expression


@dataclass(frozen=True)
class OrderKey(Part):
    """An entry of ORDER BY; NULL is last, unless `nulls` says otherwise."""

    value: Expression
    descending: bool = False
    nulls: Literal["first", "last"] | None = None


@dataclass(frozen=True)
class FrameBound(Part):
    """Where a frame begins or ends, from the current row; without a size, all rows before or behind it."""

    kind: Literal["preceding", "current", "following"]
    size: Expression | None = None


@dataclass(frozen=True)
class Over(Part):
    """`OVER (PARTITION BY k ROWS n PRECEDING …)`: the tuples for each tuple's result (rule 7.5).

    `frame` is `rows` with a Number, `range` with a Duration or a Number, or `unbounded`; or `rows` or `range` with
    `between`. `slide` is a Number or a Duration. `base` is a window of the clause WINDOW: `OVER w`, or
    one that this completes. An ORDER BY without a frame has that of standard SQL, which the builder fills in. `whole`:
    nothing says which rows, so over rows that last it is all of them, and over a stream those up to each row.
    """

    partition: tuple[Expression, ...] = ()
    frame: Literal["rows", "range", "unbounded"] = "unbounded"
    size: Expression | None = None
    slide: Expression | None = None
    active: bool = False
    order: tuple[OrderKey, ...] = ()
    between: tuple[FrameBound, ...] = ()
    base: Name | None = None
    whole: bool = False


@dataclass(frozen=True)
class NamedWindow(Part):
    """`WINDOW name AS (…)`."""

    name: Name
    over: Over


@dataclass(frozen=True)
class Call(Expression):
    """A function, an aggregate or a module by its name (which may have dots); aggregates may have DISTINCT, ORDER BY
    among their arguments, FILTER and OVER.
    """

    name: tuple[Name, ...]
    arguments: tuple[Expression, ...] = ()
    named: tuple[Named, ...] = ()
    distinct: bool = False
    over: Over | None = None
    filter: Expression | None = None
    order: tuple[OrderKey, ...] = ()
