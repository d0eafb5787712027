"""A user's function, and a call of it in an expression."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.errors import ExpressionError
from headrace.expr.nodes import Bound, Column, Expr, as_expr
from headrace.expr.python.mark import code_mark
from headrace.expr.signatures import WIDTH, widens
from headrace.schema import Schema, Type

__all__ = ["Udf", "UdfCall", "fits", "functions_in"]


def fits(found: Type, wanted: Type) -> bool:
    """Whether a value of one type is accepted as another: numbers widen, a CHAR is a STRING."""
    if found.is_decimal or wanted.is_decimal:
        return widens(found, wanted)
    if found.is_numeric and wanted.is_numeric:
        return WIDTH.index(found) <= WIDTH.index(wanted)
    return found is wanted or (found is Type.CHAR and wanted is Type.STRING)


@dataclass(frozen=True, eq=False)
class Udf:
    """A typed function of fields. Called with columns or expressions it returns an expression; `function` is the plain
    function.
    """

    function: Callable[..., Any]
    name: str
    takes: tuple[Type, ...]
    returns: Type
    vectorised: bool = False
    nulls: Literal["skip", "pass"] = "skip"
    on_error: Literal["fail", "null"] = "fail"
    time_limit: float | None = None
    deterministic: bool = True
    verify: bool = False
    #: Changes when the code or a type does; computed where the function is defined, since workers only get a copy.
    mark: str = field(init=False, default="")

    def __post_init__(self) -> None:
        types = [kind.value for kind in (*self.takes, self.returns)]
        mark = code_mark(self.function, *types, str(self.vectorised), self.nulls, self.on_error)
        object.__setattr__(self, "mark", mark)

    @property
    def doc(self) -> str:
        """Its documentation."""
        return inspect.getdoc(self.function) or ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its arguments."""
        try:
            names = list(inspect.signature(self.function).parameters)
        except (TypeError, ValueError):  # some of C's functions do not tell
            names = []
        return tuple(names[i] if i < len(names) else f"argument {i + 1}" for i in range(len(self.takes)))

    @property
    def signature(self) -> str:
        """Its arguments and result, as text."""
        fields = ", ".join(f"{n} {t.value}" for n, t in zip(self.parameters, self.takes, strict=True))
        return f"{self.name}({fields}) -> {self.returns.value}"

    def __call__(self, *args: Any, **named: Any) -> UdfCall:
        """A call of the function with columns, which may be names, or expressions."""
        given = self._in_order(args, named)
        return UdfCall(self, tuple(Column(value) if isinstance(value, str) else as_expr(value) for value in given))

    def _in_order(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        try:
            bound = inspect.signature(self.function).bind(*args, **named)
        except ValueError:
            return args
        except TypeError as error:
            raise self._miscalled(args, named, str(error)) from None
        if bound.kwargs:
            raise self._miscalled(args, named, f"no way to give {next(iter(bound.kwargs))} alone")
        return bound.args

    def _miscalled(self, args: tuple[Any, ...], named: dict[str, Any], why: str) -> ExpressionError:
        return ExpressionError(
            f"{self.name} cannot be called like this: {why}",
            given=", ".join([*map(str, args), *(f"{name}={value}" for name, value in named.items())]) or "nothing",
            allowed=self.signature,
            instead=f"{self.name}({', '.join(map(repr, self.parameters))}); {self.name}.function(...) for plain values",
        )

    def __str__(self) -> str:
        """Its qualified name, and the mark of everything that determines its result."""
        return f"{getattr(self.function, '__qualname__', self.name)}@{self.mark}"


@dataclass(frozen=True, eq=False, repr=False)
class UdfCall(Expr):
    """A user's function over its arguments."""

    udf: Udf
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.args) <= len(self.udf.takes):
            raise ExpressionError(
                f"{self.udf.name} does not take {len(self.args)} arguments",
                given=", ".join(map(str, self.args)) or "nothing",
                allowed=self.udf.signature,
            )

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    @property
    def name(self) -> str:
        return f"{self.udf.name}({', '.join(map(str, self.args))})"

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return UdfCall(self.udf, tuple(children))

    def bind(self, schema: Schema) -> Bound:
        args = [arg.bind(schema) for arg in self.args]
        for arg, wanted, parameter in zip(args, self.udf.takes, self.udf.parameters, strict=False):
            if not arg.untyped and not fits(arg.type, wanted):
                raise ExpressionError(
                    f"{self.udf.name} takes {parameter} as {wanted.value}",
                    given=f"{arg.node} of type {arg.type.value}",
                    allowed=self.udf.signature,
                    instead=f"(...).cast({wanted.value!r})",
                )
        return Bound(self, self.udf.returns, tuple(map(Bound.widened, args, self.udf.takes)))

    def __str__(self) -> str:
        return f"{self.udf}({', '.join(map(str, self.args))})"


def functions_in(expr: Expr) -> tuple[Udf, ...]:
    """The users' functions that an expression calls."""
    below = [function for child in expr.children for function in functions_in(child)]
    return tuple(dict.fromkeys([expr.udf, *below] if isinstance(expr, UdfCall) else below))
