"""Absence at the end of a pattern (rule 9.4), built from ordinary operators.

`A B* !C` within d: the matches of `A B*`, as they are without `!C`, after which no C comes. A C is a tuple of the group
that is after the last tuple of the match, at most d after its first, and fulfils the condition of C.

    tuples ──┬── matches of A B* ── at the instant first + d ──┬── anti join ──> matches
             └── tuples that may be a C, each lasting d ───────┘

- A match is a point event at first + d, when its absence is certain: before the CTI passes it, a C retracts it.
- A tuple from c on lasts d and its last instant, so it meets the matches that began in [c - d, c].
- Tuples that start together with the last one of a match are after it if they arrived later; where arrivals are not
  known, they are not.
- The condition of C may use columns of the tuple and of those beside it, and the match: variables, registers, and
  aggregates, which do not count the tuple itself. Parts that use the tuple alone are evaluated before the join.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from headrace.errors import PlanError
from headrace.expr import AggregateCall, Column, Expr, col, conjuncts, first, lit
from headrace.patterns import Pattern
from headrace.patterns.references import START, Classifier, MatchNumber, Offset, Prev, State, Whole
from headrace.patterns.regex import Symbol
from headrace.plan.base import Node
from headrace.plan.join import Join
from headrace.plan.lifetimes import AlterLifetime
from headrace.plan.ordered import NUMBER
from headrace.plan.pattern import Match
from headrace.plan.span import Select, SetDuration
from headrace.schema import STAMPS
from headrace.time import INFINITY

__all__ = ["unless_followed"]


def unless_followed(match: Match, pattern: Pattern) -> Node:
    """The matches of `match` after which the absent variable of its complete pattern does not come."""
    _check(match, pattern)
    absence = _Absence(match, pattern)
    matches, tuples = absence.matches(), absence.tuples()
    keys = tuple((name, name) for name in match.key_names)
    kept = Join(matches, tuples, keys, absence.follows(), "anti", groups=len(keys))
    return Select(kept, tuple((name, col(name)) for name in match.schema.names))


def _check(match: Match, pattern: Pattern) -> None:
    if match.rows == "all":
        pattern.refuse_absence("all rows of a match are given at their own times, and an absence is known later")
    if match.pattern.partials:
        pattern.refuse_absence("partial matches are given before it is known what follows")
    if match.numbered:
        pattern.refuse_absence("matches with an absence have no numbers: whether one counts is known later")


class _Absence:
    """The sides of the join. Values that its condition needs are columns of the one side or the other."""

    def __init__(self, match: Match, pattern: Pattern) -> None:
        assert pattern.absent is not None
        assert pattern.span is not None
        self.match, self.pattern, self.name, self.span = match, pattern, pattern.absent, pattern.span
        self.of_match: dict[str, Expr] = {}
        self.of_tuple: dict[str, Expr] = {}
        condition = pattern.condition(self.name)
        parts = [] if condition is None else conjuncts(condition)
        self.alone = [part for part in parts if not self._uses_match(part)]
        self.between = [self._over_both(part) for part in parts if self._uses_match(part)]
        self.later = self._later()
        self.begin = self._column(self.of_match, first(START))

    # --- sides --------------------------------------------------------------------------------------------------------

    def matches(self) -> Node:
        """The matches, each at the last instant that it waits for."""
        measured = replace(self.match, measures=(*self.match.measures, *self.of_match.items()))
        return AlterLifetime(measured, start=self.begin + self.span, duration=lit(1))

    def tuples(self) -> Node:
        """The tuples that may follow a match, as long as they may."""
        alone = Pattern(Symbol(self.name)).all_matches().within(0)
        alone = alone.define({self.name: _all(self.alone)}) if self.alone else alone
        found = Match(self.match.input, self.match.keys, alone, tuple(self.of_tuple.items()))
        return SetDuration(found, min(self.span + 1, INFINITY))

    def follows(self) -> Expr:
        """Whether a tuple comes after a match, and is what must be absent."""
        return _all([self.later, *self.between])

    def _later(self) -> Expr:
        order = [name for name in (NUMBER, *STAMPS.names) if name in self.match.input.schema]
        found: Expr | None = None
        for name in reversed([START, *order]):
            last, here = self._column(self.of_match, col(name)), self._column(self.of_tuple, col(name))
            found = here > last if found is None else (here > last) | ((here == last) & found)
        assert found is not None
        return found

    # --- conditions ---------------------------------------------------------------------------------------------------

    def _uses_match(self, part: Expr) -> bool:
        if self._is_value(part):
            return not self._of_tuple(part)
        return any(map(self._uses_match, part.children))

    def _over_both(self, part: Expr) -> Expr:
        """The part over columns of both sides."""
        if self._is_value(part):
            return self._column(self.of_tuple if self._of_tuple(part) else self.of_match, part)
        return part.with_children([self._over_both(child) for child in part.children])

    def _is_value(self, part: Expr) -> bool:
        if isinstance(part, MatchNumber | State | Whole):
            raise PlanError(
                f"the condition of !{self.name} cannot use this",
                given=str(part),
                allowed=f"columns of {self.name} and of the match, registers and aggregates",
            )
        return isinstance(part, AggregateCall | Classifier | Column | Offset | Prev)

    def _of_tuple(self, part: Expr) -> bool:
        """Whether a value is that of the tuple; otherwise it is that of the match."""
        if isinstance(part, Column) and part.column in self.match.references.registers:
            return False
        columns = part.columns()
        of_absent = bool(columns) and all(name == self.name or name.startswith(f"{self.name}.") for name in columns)
        plain = all(name in self.match.references.below for name in columns)
        return of_absent or (plain and isinstance(part, Column | Prev))

    def _column(self, side: dict[str, Expr], value: Expr) -> Expr:
        """A column of one side with this value."""
        for name, known in side.items():
            if known.same(value):
                return col(name)
        name = f"{'match' if side is self.of_match else 'row'}_{len(side)}"
        while name in self.match.schema:
            name += "_"
        side[name] = value
        return col(name)


def _all(conditions: list[Expr]) -> Expr:
    return reduce(lambda a, b: a & b, conditions)
