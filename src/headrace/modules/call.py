"""A user's aggregate inside an expression: `MyAverage().of("price") * 2`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.errors import ExpressionError, ModuleError
from headrace.expr import AggregateCall, Expr
from headrace.expr.aggregates import has_aggregates
from headrace.expr.nodes import Bound
from headrace.modules.base import Aggregate
from headrace.schema import Schema

__all__ = ["ModuleCall"]


@dataclass(frozen=True, eq=False, repr=False)
class ModuleCall(AggregateCall):
    """A module with the expressions of its input fields."""

    module: Aggregate = None  # type: ignore[assignment]
    arguments: tuple[Expr, ...] = ()

    @classmethod
    def of(cls, module: Aggregate, mapping: Mapping[str, Expr]) -> ModuleCall:
        return cls(module.name, None, module=module, arguments=tuple(mapping[name] for name in module.fields.names))

    def __post_init__(self) -> None:
        if not isinstance(self.module, Aggregate):
            raise ModuleError("this is not an aggregate", given=self.module, allowed="a subclass of hr.Aggregate")
        if any(has_aggregates(argument) for argument in self.arguments):
            raise ExpressionError(
                "an aggregate cannot stand inside another",
                given=str(self),
                allowed="expressions over columns",
                instead="a second aggregate over the result of the first",
            )

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.arguments

    @property
    def mapping(self) -> dict[str, Expr]:
        """The expression of each input field."""
        return dict(zip(self.module.fields.names, self.arguments, strict=True))

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return ModuleCall(self.function, None, module=self.module, arguments=tuple(children))

    def bind(self, schema: Schema) -> Bound:
        self.module.check_types(self.mapping, schema)
        return Bound(self, self.module.gives, tuple(child.bind(schema) for child in self.arguments))

    def __str__(self) -> str:
        fields = ", ".join(f"{name}: {expr}" for name, expr in self.mapping.items())
        return f"{self.module}[{fields}]"
