"""Patterns: a shape, the conditions of its variables, registers, and policies.

A pattern is a value: every method returns a new pattern. `plan/pattern.py` applies it to a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from headrace.errors import PlanError
from headrace.expr import Alias, Call, Case, Cast, Column, Expr, count
from headrace.expr import Literal as Constant
from headrace.patterns.nfa import ACCEPT, Automaton, automaton, of_words
from headrace.patterns.program import Slot
from headrace.patterns.references import START, References, prev
from headrace.patterns.regex import Absent, Chain, Choice, Shape, Symbol, chained, parse, repeated
from headrace.schema import Field, Schema, Type
from headrace.time import INFINITY, DurationLike, TimeLike, duration, format_duration, ticks

__all__ = ["TRANSITION", "Matches", "Pattern", "Register", "Skip", "absence_elsewhere", "of_this_tuple", "pattern"]

Matches = Literal["one", "all"]
#: The columns of a transition, where these are a stream.
TRANSITION = Schema((
    Field("source", Type.STRING), Field("variable", Type.STRING), Field("target", Type.STRING),
    Field("final", Type.BOOLEAN),
))  # fmt: skip
#: No event may start earlier (`events.py`).
_EARLIEST = 1 - 2**60
_MOST_VARIABLES = 60  # a bit for each variable that has had a tuple
_POLICIES = "past last row, to next row, to first VARIABLE, to last VARIABLE"


@dataclass(frozen=True)
class Skip:
    """Where the search continues after a match."""

    to: Literal["past", "next", "first", "last"] = "past"
    variable: str | None = None

    @classmethod
    def parse(cls, text: Any) -> Skip:
        """Parse a policy: `past last row`, `to next row`, `to first A`, `to last A`, `to A`."""
        words = str(text).split()
        low = [word.lower() for word in words]
        if low == ["past", "last", "row"]:
            return cls("past")
        if low == ["to", "next", "row"]:
            return cls("next")
        if len(words) == 3 and low[0] == "to" and low[1] in ("first", "last"):
            return cls("first" if low[1] == "first" else "last", words[2])
        if len(words) == 2 and low[0] == "to":
            return cls("last", words[1])
        raise PlanError(
            "this is not a place to continue after a match",
            given=text,
            allowed=_POLICIES,
            instead="skip('to next row')",
        )

    def __str__(self) -> str:
        plain = {"past": "past last row", "next": "to next row"}
        return plain.get(self.to, f"to {self.to} {self.variable}")


@dataclass(frozen=True)
class Register:
    """A value that a run keeps: its initial value, and its updates by variable."""

    name: str
    start: Constant
    updates: tuple[tuple[str, Expr], ...]

    @property
    def type(self) -> Type:
        kind = self.start.literal_type
        return Type.LONG if kind.is_integer else kind

    @property
    def slot(self) -> Slot:
        """The slot of the register."""
        value = self.start.value
        start: Any = ticks(value) if isinstance(value, datetime) else value
        return Slot(self.type.is_floating, start, self.type.is_text)

    def __str__(self) -> str:
        return f"{self.name} = {self.start}" + "".join(f", {v}: {expr}" for v, expr in self.updates)


@dataclass(frozen=True, eq=False)
class Pattern:
    """A shape over variables, with conditions and policies."""

    shape: Shape | None = None
    conditions: tuple[tuple[str, Expr], ...] = ()
    registers: tuple[Register, ...] = ()
    guard: Expr | None = None
    span: int | None = None
    policy: Skip = Skip()
    matches: Matches = "one"
    partials: bool = False
    #: Names for several variables.
    subsets: tuple[tuple[str, tuple[str, ...]], ...] = ()

    # --- saying it ----------------------------------------------------------------------------------------------------

    def then(self, variable: str, condition: Expr | None = None, repeat: str = "") -> Pattern:
        """Append tuples of a variable: one, or as many as the quantifier allows (`+`, `*`, `?`, `{2,3}`, `+?`).

        Only tuples that satisfy the condition match it. Default: any tuple.
        """
        shape = repeated(_symbol(variable), repeat)
        found = replace(self, shape=chained(self.shape, shape))
        return found if condition is None else found.define({variable: condition})

    def then_not(self, variable: str, condition: Expr | None = None) -> Pattern:
        """End with an absence: no tuple of the variable comes after the match, `within` after its first tuple.

        The condition may use columns of the match: `then_not("Paid", col("order") == col("Order.order"))`.
        """
        found = replace(self, shape=chained(self.shape, Absent(_symbol(variable).name)))
        return found if condition is None else found.define({variable: condition})

    def then_shape(self, text: str, **conditions: Expr) -> Pattern:
        """Append a part in text form: `then_shape("(A | B)+")`."""
        return replace(self, shape=chained(self.shape, parse(text))).define(conditions)

    def define(self, conditions: Mapping[str, Expr] | None = None, **named: Expr) -> Pattern:
        """Set the conditions of variables."""
        known = dict(self.conditions)
        for name, condition in {**(conditions or {}), **named}.items():
            _checked(condition, f"define({name}=...)")
            if name in known and not known[name].same(condition):
                raise PlanError(
                    f"the variable {name!r} has two conditions",
                    given=f"{known[name]}, and {condition}",
                    allowed="one; a variable may stand in several places",
                    instead=f"then({name!r}) without a condition, or a variable of its own",
                )
            known[name] = condition
        return replace(self, conditions=tuple(known.items()))

    def register(self, name: str, start: Any = 0, updates: Mapping[str, Expr] | None = None, **named: Expr) -> Pattern:
        """Add a value that every run keeps: `register("m", 0, D=col("m") + 1, U=col("m") - 1)`.

        An update sees the registers before its tuple; conditions see the updated ones.
        """
        both = {**(updates or {}), **named}
        for variable, expr in both.items():
            _checked(expr, f"register({name!r}, ..., {variable}=...)")
        made = Register(name, Constant(start), tuple(both.items()))
        if any(register.name == name for register in self.registers):
            raise PlanError(f"there is a register {name!r} already", given=str(made), allowed="names of their own")
        return replace(self, registers=(*self.registers, made))

    def subset(self, name: str, *variables: str) -> Pattern:
        """Add a name for the tuples of several variables: after `subset("Move", "Up", "Down")`, `count("Move")`."""
        if not variables or _symbol(name).name in dict(self.subsets):
            raise PlanError(
                "a subset has a name of its own, and variables",
                given=f"{name} = ({', '.join(variables)})",
                allowed="one or more variables",
                instead="subset('Move', 'Up', 'Down')",
            )
        return replace(self, subsets=(*self.subsets, (name, variables)))

    def anchored(self) -> Pattern:
        """A match begins only with the first tuple of its group, as `^` in SQL."""
        if self.shape is None:
            raise PlanError("an anchored pattern needs a shape", given="no shape", instead="pattern('A B').anchored()")
        present = self.present.shape
        if present is None or _has_absence(present):
            raise absence_elsewhere(str(self.shape))
        nfa, known = automaton(present), dict(self.conditions)
        first = (count() > 1) | prev(START).is_null()
        for name in dict.fromkeys(nfa.variables[state - 1] for state in nfa.moves[0] if state != ACCEPT):
            known[name] = known[name] & first if name in known else first
        return replace(self, conditions=tuple(known.items()))

    def where(self, condition: Expr) -> Pattern:
        """A condition on the complete match; if it is false, the search tries other ways to match."""
        _checked(condition, "where(...)")
        return replace(self, guard=condition if self.guard is None else self.guard & condition)

    def within(self, span: DurationLike) -> Pattern:
        """Limit the time from the first tuple of a match to the last."""
        ticks = duration(span)
        if ticks < 0:
            raise PlanError("a match cannot have a negative duration", given=span, instead="within('30 s')")
        return replace(self, span=ticks)

    def skip(self, to: str) -> Pattern:
        """Where the search continues after a match: `past last row`, `to next row`, `to first A`, `to last A`."""
        return replace(self, policy=Skip.parse(to))

    def all_matches(self) -> Pattern:
        """Find every match from every start, instead of the preferred one; no tuple is skipped."""
        return replace(self, matches="all", policy=Skip("next"))

    def partial(self) -> Pattern:
        """Find all matches and partial matches: a row for every run and tuple, `complete` if it is a match."""
        return replace(self.all_matches(), partials=True)

    # --- what it is ---------------------------------------------------------------------------------------------------

    @cached_property
    def variables(self) -> tuple[str, ...]:
        return () if self.shape is None else self.shape.variables()

    @property
    def absent(self) -> str | None:
        """The variable that must be absent after a match."""
        last = self.shape.items[-1] if isinstance(self.shape, Chain) and self.shape.items else None
        return last.name if isinstance(last, Absent) else None

    @cached_property
    def present(self) -> Pattern:
        """The pattern without its absence."""
        if self.absent is None:
            return self
        assert isinstance(self.shape, Chain)
        conditions = tuple((name, condition) for name, condition in self.conditions if name != self.absent)
        return replace(self, shape=chained(*self.shape.items[:-1]), conditions=conditions)

    @cached_property
    def automaton(self) -> Automaton:
        """The automaton of the shape; for all matches, with one way for each match."""
        assert self.shape is not None
        found = automaton(self.shape)
        return of_words(found) if self.matches == "all" else found

    def transitions(self, since: TimeLike = _EARLIEST, until: TimeLike = INFINITY) -> list[dict[str, Any]]:
        """The automaton as rows, one for each move, for use as a stream: `hr.events(pattern.transitions())`.

        With `match(pattern.all_matches(), transitions=...)` they give the same matches as the pattern, and they may
        change while the query runs. Each has a lifetime; states have the names of `explain`.

        >>> [(t["source"], t["variable"], t["target"], t["final"]) for t in pattern("A B*").transitions()]
        [('start', 'A', '1:A', True), ('1:A', 'B', '2:B', True), ('2:B', 'B', '2:B', True)]
        """
        self.check()
        self.refuse_absence("the transitions of a pattern say what follows, not what is absent")
        assert self.shape is not None
        found = of_words(automaton(self.shape))
        names, alive = found.names, {"le": ticks(since), "re": ticks(until)}
        return [
            alive | dict(zip(TRANSITION.names, (names[q], found.variables[to - 1], names[to], final), strict=True))
            for q, moves in enumerate(found.moves)
            for to, final in ((to, ACCEPT in found.moves[to]) for to in moves if to != ACCEPT)
        ]

    def defining(self) -> Pattern:
        """The pattern with its definitions alone, for use with transitions."""
        named = [*dict(self.conditions), *(v for register in self.registers for v, _ in register.updates)]
        named += [name for _, members in self.subsets for name in members]
        symbols = tuple(map(Symbol, dict.fromkeys((*self.variables, *named))))
        return replace(self, shape=Choice(symbols)) if symbols else self

    def condition(self, variable: str) -> Expr | None:
        return dict(self.conditions).get(variable)

    def references(self, schema: Schema) -> References:
        """The references that its conditions may use over a stream of this schema."""
        registers = {register.name: register.type for register in self.registers}
        return References(schema, self.variables, registers, dict(self.subsets))

    def check(self) -> None:
        """Refuse patterns that no stream can have."""
        if self.absent is not None:
            self._check_absence(self.absent)
            self.present.check()
            return
        if self.shape is not None and _has_absence(self.shape):
            raise absence_elsewhere(str(self.shape))
        if self.shape is None or self.shape.nullable:
            raise PlanError(
                "a pattern must match at least one tuple",
                given=str(self.shape or "nothing"),
                allowed="a shape that cannot be empty",
                instead="pattern('A B*')",
            )
        if len(self.variables) > _MOST_VARIABLES:
            raise PlanError(
                "the pattern has too many variables", given=len(self.variables), allowed=f"up to {_MOST_VARIABLES}"
            )
        named = [*dict(self.conditions), *(v for r in self.registers for v, _ in r.updates), self.policy.variable]
        named += [name for _, members in self.subsets for name in members]
        unknown = [name for name in named if name is not None and name not in self.variables]
        if unknown:
            raise PlanError(
                f"the pattern has no variable {unknown[0]!r}",
                given=str(self.shape),
                allowed=", ".join(self.variables),
                instead=self.variables[0],
            )
        taken = [name for name, _ in self.subsets if name in self.variables]
        if taken:
            raise PlanError(
                f"{taken[0]!r} is a variable and a subset", given=str(self), allowed="names of their own for subsets"
            )
        if self.matches == "all" and self.policy.to != "next":
            raise PlanError(
                "a query for all matches skips nothing",
                given=str(self.policy),
                allowed="all_matches(), or a policy",
                instead="skip('to next row')",
            )

    def _check_absence(self, name: str) -> None:
        present = self.present.shape
        if present is None or name in present.variables() or _has_absence(present):
            raise absence_elsewhere(str(self.shape))
        if self.span is None or self.span >= INFINITY:
            raise PlanError(
                f"!{name} needs a time: without it, the absence is never certain",
                given=str(self.shape),
                allowed="a pattern with within(...)",
                instead="pattern('A B* !C', within='10 s')",
            )

    def refuse_absence(self, what: str) -> None:
        """Refuse the pattern if it ends with an absence."""
        if self.absent is not None:
            raise PlanError(
                what,
                given=str(self.shape),
                allowed=f"a pattern without !{self.absent}",
                instead=str(self.present.shape),
            )

    def __str__(self) -> str:
        parts = [f"({self.shape})"]
        parts += [f"define {name} as {condition}" for name, condition in self.conditions]
        parts += [f"register {register}" for register in self.registers]
        parts += [f"subset {name} = ({', '.join(members)})" for name, members in self.subsets]
        parts += [f"where {self.guard}"] if self.guard is not None else []
        parts += [f"within {format_duration(self.span)}"] if self.span is not None else []
        kind = "partial and all matches" if self.partials else "all matches"
        parts.append(kind if self.matches == "all" else f"skip {self.policy}")
        return ", ".join(parts)


def pattern(
    shape: str = "",
    *,
    define: Mapping[str, Expr] | None = None,
    where: Expr | None = None,
    within: DurationLike | None = None,
    skip: str = "past last row",
) -> Pattern:
    """Create a pattern of tuples for `match`: from its shape, or step by step with `then`.

    >>> from headrace.expr import col
    >>> print(pattern("A B+", define={"B": col("price") > col("A.price")}))
    (A B+), define B as price > "A.price", skip past last row
    >>> print(pattern().then("A").then("B", col("price") > col("A.price"), "+"))
    (A B+), define B as price > "A.price", skip past last row
    """
    made = Pattern(parse(shape) if shape else None).define(define).skip(skip)
    made = made if where is None else made.where(where)
    return made if within is None else made.within(within)


def _has_absence(shape: Shape) -> bool:
    return isinstance(shape, Absent) or any(map(_has_absence, shape.parts))


def absence_elsewhere(given: str) -> PlanError:
    """The error of an absence that is not the end of a pattern."""
    return PlanError(
        "an absence is the end of a pattern, after what it follows",
        given=given,
        allowed="A B* !C: one variable, once, after everything else, without a quantifier",
        instead="elsewhere, a variable whose condition is the opposite: A N* B, where N is a row that is not a C",
    )


def _symbol(variable: Any) -> Symbol:
    if not isinstance(variable, str) or not variable.isidentifier():
        raise PlanError("a variable is a name", given=variable, allowed="a name", instead="then('A', ...)")
    return Symbol(variable)


def _checked(condition: Any, where: str) -> None:
    if not isinstance(condition, Expr):
        raise PlanError(
            "a pattern's condition is an expression", given=condition, allowed="an expression", instead=f"{where}"
        )


def of_this_tuple(update: Expr, variable: str) -> Expr:
    """An update of a register by tuples of a variable, in which `B.price` of that variable is the tuple's own price.

    Inside aggregates and `prev`, a variable's columns are those of its tuples up to the one before.
    """
    if isinstance(update, Column) and update.column.startswith(f"{variable}."):
        return Column(update.column.removeprefix(f"{variable}."))
    if isinstance(update, (Alias, Call, Case, Cast)):
        return update.with_children([of_this_tuple(child, variable) for child in update.children])
    return update
