"""Built-in aggregates where tuples leave by time alone, as modules that recompute their window (rules 7.4 and 7.5)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from headrace.expr import AggregateCall, Expr, lit
from headrace.modules import Aggregate, ModuleCall
from headrace.schema import Field, Schema, Type
from headrace.sql.aggregates.python.rows import AGGREGATES, ROWS

__all__ = ["BuiltIn", "as_module"]


class BuiltIn(Aggregate):
    """A built-in aggregate of values of a type."""

    input = "value DOUBLE"  # placeholders: an instance has its own
    output = "DOUBLE"

    def __init__(self, function: str, takes: str, result: str, parameters: tuple[Any, ...] = ()) -> None:
        self.function, self.takes, self.result, self.parameters = function, takes, result, parameters

    @cached_property
    def fields(self) -> Schema:
        return Schema((Field("value", Type.parse(self.takes)),))

    @cached_property
    def gives(self) -> Type:
        return Type.parse(self.result)

    @property
    def name(self) -> str:
        return self.function

    def compute(self, items: list[Any]) -> Any:
        """The aggregate of all values."""
        whole, other = AGGREGATES[self.function]
        return ROWS[whole if Type.parse(self.takes).is_integer else other](items, *self.parameters)


def as_module(expr: Expr, schema: Schema) -> Expr:
    """An expression with built-in aggregates replaced by modules, where possible."""

    def replaced(part: Expr) -> Expr:
        if not isinstance(part, AggregateCall) or isinstance(part, ModuleCall) or part.function not in AGGREGATES:
            return part
        argument = lit(1) if part.argument is None else part.argument
        takes, gives = argument.type(schema), part.type(schema)
        return BuiltIn(part.function, takes.value, gives.value, tuple(part.parameters)).of(argument)

    return expr.transform(replaced)
