"""Functions of an event's place among others in an order: `lag`, `row_number`, `first_value`, ….

They are parts of ordinary expressions, as in `col("price") - lag("price")`, and only `over` computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import ExpressionError
from headrace.expr.aggregates import AggregateCall, has_aggregates
from headrace.expr.nodes import Bound, Column, Expr, Value, as_expr
from headrace.schema import Schema, Type

__all__ = [
    "OrderedCall", "dense_rank", "first_value", "lag", "last_value", "lead", "nth_value", "rank", "row_number",
]  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class OrderedCall(AggregateCall):
    """A function of an order; `number` is how many events away, or which event of the frame."""

    number: int = 1
    default: Expr | None = None

    def __post_init__(self) -> None:
        if any(has_aggregates(child) for child in self.children):
            raise ExpressionError(
                "an aggregate cannot stand inside another",
                given=str(self),
                allowed="an expression over columns",
                instead="over(...) once more, over the result of the first",
            )
        if type(self.number) is not int or self.number < 1:
            raise ExpressionError(f"{self.function} counts events from 1 on", given=self.number, instead="1")

    @property
    def children(self) -> tuple[Expr, ...]:
        return tuple(child for child in (self.argument, self.default) if child is not None)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        argument, default = (*children, None, None)[:2]
        return OrderedCall(self.function, argument, number=self.number, default=default)

    def bind(self, schema: Schema) -> Bound:
        args = tuple(child.bind(schema) for child in self.children)
        return Bound(self, args[0].type if args else Type.LONG, args)

    def __str__(self) -> str:
        if self.argument is None:
            return f"{self.function}()"
        default = [] if self.default is None else [str(self.default)]
        counted = [str(self.number)] if self.number != 1 or default else []
        return f"{self.function}({', '.join([str(self.argument), *counted, *default])})"


def _of(function: str, argument: Value, number: int = 1, default: Value = None) -> OrderedCall:
    value = Column(argument) if isinstance(argument, str) else as_expr(argument)
    return OrderedCall(function, value, number=number, default=None if default is None else as_expr(default))


def row_number() -> OrderedCall:
    """The number of the event in the order, from 1 on; all columns decide between equal events."""
    return OrderedCall("row_number")


def rank() -> OrderedCall:
    """The place of the event, equal for events that the order equates, with gaps after them; see `over(by=...)`."""
    return OrderedCall("rank")


def dense_rank() -> OrderedCall:
    """The place of the event, equal for events that the order equates, without gaps; see `over(by=...)`."""
    return OrderedCall("dense_rank")


def lag(argument: Value, n: int = 1, default: Value = None) -> OrderedCall:
    """The value of the event before, or of the n-th before; without such an event, the default or NULL."""
    return _of("lag", argument, n, default)


def lead(argument: Value, n: int = 1, default: Value = None) -> OrderedCall:
    """The value of the event behind, or of the n-th behind; without such an event, the default or NULL.

    Over a stream of instants it is corrected when that event comes, and final then.
    """
    return _of("lead", argument, n, default)


def first_value(argument: Value) -> OrderedCall:
    """The value of the first event of the frame, which may be NULL; `first` leaves NULL out."""
    return _of("first_value", argument)


def last_value(argument: Value) -> OrderedCall:
    """The value of the last event of the frame, which may be NULL; `last` leaves NULL out."""
    return _of("last_value", argument)


def nth_value(argument: Value, n: int) -> OrderedCall:
    """The value of the n-th event of the frame, which may be NULL; see `over(by=...)`."""
    return _of("nth_value", argument, n)
