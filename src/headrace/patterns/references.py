"""The references that conditions and measures of a pattern may use, and their meaning.

Conditions are ordinary expressions. A condition is evaluated over a *run*, the tuples mapped to variables so far,
including the current tuple:

- `col("price")`: the column of the current tuple; `prev("price", 2)`: of the tuple two before it in its group, inside
  the match or not, NULL if there is none; `next("price")`: of the one after it;
- `col("A.price")`: the column of the last tuple that is mapped to A; `first("A.price")`: of the first one; NULL if
  none is; `offset(first("A.price"), 2)`: two of A's tuples further on, and further back from the last;
- `count("A")`, `sum("A.price")`, `avg`, `min`, `max`: of all tuples that are mapped to A so far; without a variable,
  `count()`, `max("price")`: of all tuples of the run;
- the name of a register: its value, including the current tuple;
- `classifier()`: the variable of the current tuple; `match_number()`: the number of the match in its group; `state()`:
  the state that it is in, where transitions are a stream;
- `col("le")`, `col("A.le")`: when a tuple starts, in ticks. No column of a stream is called so.

Measures may ask for `final(...)`, where each tuple of a match is given: the same of the match as a whole.

`first` and `last` give NULL if that is what stands there; the others pass NULLs over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.errors import ExpressionError, PlanError
from headrace.expr import AggregateCall, Column, Expr, Value, as_expr, col
from headrace.expr.nodes import Bound
from headrace.schema import Field, Schema, Type

__all__ = [
    "START", "Classifier", "MatchNumber", "Prev", "Ref", "References", "classifier", "final", "match_number", "next",
    "offset", "prev", "state",
]  # fmt: skip

#: The name of the start time of a tuple.
START = "le"
_MOST_BACK = 10_000


@dataclass(frozen=True, eq=False, repr=False)
class Prev(Expr):
    """An expression over the tuple `back` places before; after, if that is negative."""

    child: Expr
    back: int

    def __post_init__(self) -> None:
        if type(self.back) is not int or not 1 <= abs(self.back) <= _MOST_BACK:
            raise ExpressionError(
                "prev and next read another tuple",
                given=self.back,
                allowed=f"1 to {_MOST_BACK} places away",
                instead="prev('x')",
            )

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.child,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Prev(children[0], self.back)

    def bind(self, schema: Schema) -> Bound:
        inner = self.child.bind(schema)
        return Bound(self, inner.type, (inner,))

    def __str__(self) -> str:
        return f"{'prev' if self.back > 0 else 'next'}({self.child}, {abs(self.back)})"


@dataclass(frozen=True, eq=False, repr=False)
class Classifier(Expr):
    """The variable of the current tuple."""

    def bind(self, schema: Schema) -> Bound:  # noqa: ARG002 - it needs none
        return Bound(self, Type.STRING)

    def __str__(self) -> str:
        return "classifier()"


@dataclass(frozen=True, eq=False, repr=False)
class MatchNumber(Expr):
    """The number of a match among those of its group."""

    def bind(self, schema: Schema) -> Bound:  # noqa: ARG002 - it needs none
        return Bound(self, Type.LONG)

    def __str__(self) -> str:
        return "match_number()"


@dataclass(frozen=True, eq=False, repr=False)
class State(Expr):
    """The state of a run."""

    def bind(self, schema: Schema) -> Bound:  # noqa: ARG002 - it needs none
        return Bound(self, Type.STRING)

    def __str__(self) -> str:
        return "state()"


@dataclass(frozen=True, eq=False, repr=False)
class Offset(Expr):
    """A tuple at an offset from the first or last of a variable's tuples."""

    child: Expr
    places: int

    def __post_init__(self) -> None:
        placed = isinstance(self.child, AggregateCall) and self.child.function in ("first", "last")
        if not placed or type(self.places) is not int or not 0 <= self.places <= _MOST_BACK:
            raise ExpressionError(
                "offset goes on from the first or the last tuple of a variable",
                given=f"{self.child}, {self.places}",
                allowed=f"first(...) or last(...), 0 to {_MOST_BACK} places",
                instead="offset(last('A.price'), 1)",
            )

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.child,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Offset(children[0], self.places)

    def bind(self, schema: Schema) -> Bound:
        return self.child.bind(schema)

    def __str__(self) -> str:
        return f"offset({self.child}, {self.places})"


@dataclass(frozen=True, eq=False, repr=False)
class Whole(Expr):
    """An expression over the complete match."""

    child: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.child,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Whole(children[0])

    def bind(self, schema: Schema) -> Bound:
        return self.child.bind(schema)

    def __str__(self) -> str:
        return f"final({self.child})"


def prev(value: Value, back: int = 1) -> Expr:
    """The value of the tuple `back` places before, in the order of its group; for conditions of patterns.

    >>> col("price") > prev("price")
    price > prev(price, 1)
    """
    return Prev(Column(value) if isinstance(value, str) else as_expr(value), back)


def next(value: Value, ahead: int = 1) -> Expr:
    """The value of the tuple `ahead` places after, in the order of its group; for patterns.

    The condition is then settled only when that later tuple is settled.
    """
    return Prev(Column(value) if isinstance(value, str) else as_expr(value), -ahead)


def offset(call: Expr, places: int) -> Expr:
    """The value of the variable's tuple at an offset after the first, or before the last; NULL if there are fewer.

    >>> from headrace.expr import last
    >>> offset(last("A.price"), 1)
    offset(last("A.price"), 1)
    """
    return Offset(call, places)


def classifier() -> Expr:
    """The variable of a tuple; for measures of patterns."""
    return Classifier()


def match_number() -> Expr:
    """The number of a match among those of its group, from 1 on, in the order of their first events; for measures."""
    return MatchNumber()


def state() -> Expr:
    """The state of a match; for measures where transitions are a stream."""
    return State()


def final(value: Value) -> Expr:
    """The value over the complete match, at its last tuple; for measures with a row for each tuple of a match."""
    return Whole(Column(value) if isinstance(value, str) else as_expr(value))


@dataclass(frozen=True)
class Ref:
    """A reference to the tuples of a run.

    `function` is `first`, `last`, an aggregate, `register` (then `variable` is its name), `classifier`, `match_number`
    or `state`; `variable` is None for all tuples; the argument is over the columns of one tuple, `References.prevs`
    among them.
    """

    function: str
    variable: str | None
    argument: Expr | None
    type: Type
    parameters: tuple[float | int | str, ...] = ()
    #: Whether it refers to the complete match.
    final: bool = False
    #: The number of tuples after the first, or before the last.
    offset: int = 0

    @property
    def call(self) -> AggregateCall:
        """The aggregate of the reference."""
        return AggregateCall(self.function, self.argument, self.parameters)

    def __str__(self) -> str:
        of = "*" if self.argument is None else str(self.argument)
        return (
            f"{'final ' * self.final}{self.function}+{self.offset}({self.variable or ''}: {of} {self.parameters or ''})"
        )


#: References to a match by name alone.
_OF_MATCHES: dict[type[Expr], Ref] = {
    Classifier: Ref("classifier", None, None, Type.STRING),
    MatchNumber: Ref("match_number", None, None, Type.LONG),
    State: Ref("state", None, None, Type.STRING),
}


class References:
    """The references in the expressions of one pattern, each under a name of its own.

    `resolve` returns an expression over columns: those of the current tuple, `prevs` and `refs`.
    """

    def __init__(
        self,
        schema: Schema,
        variables: Sequence[str],
        registers: Mapping[str, Type],
        subsets: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.below = Schema((*schema.fields, Field(START, Type.LONG)))
        #: For each variable and each subset, its variables.
        self.members = {name: (name,) for name in variables} | {k: tuple(v) for k, v in (subsets or {}).items()}
        self.variables, self.registers = tuple(self.members), registers
        self.refs: dict[str, Ref] = {}
        self.prevs: dict[str, tuple[Expr, int]] = {}
        self._names: dict[str, str] = {}
        for name in (*self.variables, *registers):
            if name in self.below or (name in registers and name in self.members):
                raise PlanError(
                    f"{name!r} is a column and something of the pattern",
                    given=name,
                    allowed=f"names but {', '.join(schema.names)}, for variables and registers",
                    instead=f"{name}_",
                )

    @property
    def of_tuples(self) -> Schema:
        """The columns of a tuple, and of those before it."""
        fields = [Field(name, expr.type(self.below)) for name, (expr, _) in self.prevs.items()]
        return Schema((*self.below.fields, *fields))

    @property
    def schema(self) -> Schema:
        """The columns that resolved expressions may use."""
        refs = [Field(name, ref.type) for name, ref in self.refs.items()]
        return Schema((*self.of_tuples.fields, *refs))

    @property
    def back(self) -> int:
        """The number of tuples before the current one that expressions use."""
        return max([0, *(back for _, back in self.prevs.values())])

    @property
    def ahead(self) -> int:
        """The number of tuples after the current one that expressions use."""
        return max([0, *(-back for _, back in self.prevs.values())])

    def of(self, ref: Ref, variable: str) -> bool:
        """Whether an expression refers to the tuples of a variable."""
        return ref.variable is None or variable in self.members[ref.variable]

    def resolve(self, expr: Expr, *, final: bool = False) -> Expr:
        """The expression over columns; over the complete match if it is `final`."""
        if isinstance(expr, Whole):
            return self.resolve(expr.child, final=True)
        if isinstance(expr, AggregateCall):
            return self._ref(self._aggregate(expr), final=final)
        if isinstance(expr, Offset):
            assert isinstance(expr.child, AggregateCall)
            placed = self._aggregate(expr.child)
            if placed.function == "register":
                self._column(Column(str(placed.variable)))  # refuses it: a register has one value
            return self._ref(replace(placed, offset=expr.places), final=final)
        if isinstance(expr, (Classifier, MatchNumber, State)):
            return self._ref(_OF_MATCHES[type(expr)], final=final and not isinstance(expr, MatchNumber))
        if isinstance(expr, (Column, Prev)):
            if isinstance(expr, Column) and expr.column in self.registers:
                return self._ref(Ref("register", expr.column, None, self.registers[expr.column]), final=final)
            variable, inner = self._variable(expr), self._of_tuple(expr)
            if variable is None and not final:
                return inner
            return self._ref(Ref("last", variable, inner, inner.type(self.of_tuples)), final=final)
        return expr.with_children([self.resolve(child, final=final) for child in expr.children])

    def _aggregate(self, call: AggregateCall) -> Ref:
        if type(call) is not AggregateCall:
            raise PlanError(
                "a pattern may use built-in aggregates, not modules",
                given=str(call),
                allowed="count, sum, avg, min, max, first, last, collect, …",
                instead="collect, and the module over what is found",
            )
        argument = call.argument
        if call.function == "last" and isinstance(argument, Column) and argument.column in self.registers:
            return Ref("register", argument.column, None, self.registers[argument.column])  # as FINAL in SQL
        if call.function == "count" and isinstance(argument, Column) and argument.column in self.variables:
            return Ref("count", argument.column, None, Type.LONG)
        if argument is None:
            return Ref("count", None, None, Type.LONG)
        variable, inner = self._variable(argument), self._of_tuple(argument)
        kind = AggregateCall(call.function, inner, call.parameters).type(self.of_tuples)
        return Ref(call.function, variable, inner, kind, call.parameters)

    def _ref(self, ref: Ref, *, final: bool) -> Expr:
        ref = replace(ref, final=final)
        name = self._names.setdefault(str(ref), f"__ref{len(self.refs)}")
        self.refs[name] = ref
        return col(name)

    def _qualified(self, name: str) -> tuple[str | None, str]:
        variable, dot, column = name.partition(".")
        if name not in self.below and dot and variable in self.variables and column in self.below:
            return variable, column
        return None, name

    def _variable(self, expr: Expr) -> str | None:
        """The variable whose tuples an expression is over; None for the current tuple."""
        found = {self._qualified(name)[0] for name in expr.columns()}
        if len(found) > 1:
            raise PlanError(
                "what is asked of the tuples of one variable cannot look at those of another",
                given=str(expr),
                allowed="columns of one variable",
                instead="sum(col('A.price') * col('A.quantity'))",
            )
        return found.pop() if found else None

    def _of_tuple(self, expr: Expr) -> Expr:
        """The expression over the columns of one tuple."""

        def change(part: Expr) -> Expr:
            if isinstance(part, Column):
                return self._column(part)
            if isinstance(part, Prev):
                if any(name in self.prevs for name in part.child.columns()):
                    raise PlanError("prev and next cannot stand in each other", given=str(part), instead="prev('x', 2)")
                key = f"prev {part}"
                name = self._names.setdefault(key, f"__prev{len(self.prevs)}")
                self.prevs[name] = (part.child, part.back)
                return col(name)
            if isinstance(part, (AggregateCall, Classifier, MatchNumber, Offset, State, Whole)):
                raise PlanError(
                    "what is asked of a match cannot stand where single tuples are looked at",
                    given=f"{part} in {expr}",
                    allowed="columns of tuples",
                    instead="first(prev('x')) in place of prev(first('x'))",
                )
            return part

        return expr.transform(change)

    def _column(self, column: Column) -> Expr:
        name = self._qualified(column.column)[1]
        if name in self.registers:
            raise PlanError(
                f"{name!r} is a register: it has one value, and not one for each tuple",
                given=name,
                allowed="a register by itself, and columns in aggregates, prev and next",
            )
        if name not in self.below and name not in self.prevs:
            variables = ", ".join(f"{v}.{self.below.names[0]}" for v in self.variables[:2])
            raise PlanError(
                f"there is nothing called {column.column!r} in this pattern",
                given=column.column,
                allowed=f"columns ({', '.join(self.below.names)}), those of variables ({variables}, …)"
                + (f", registers ({', '.join(self.registers)})" if self.registers else ""),
                instead=f"col({self.below.names[0]!r})",
            )
        return col(name)
