"""Patterns over the tuples of a group in their order (rule 9.4): the matches of an automaton, as a stream.

The tuples of a group have the order of windows of tuples (`plan/ordered.py`); their ends do not matter. A *match* is a
run of adjacent tuples, each mapped to a variable, such that

- the variables, in order, are a word of the pattern's shape;
- each tuple fulfils the condition of its variable, evaluated on the run up to and including that tuple;
- the LE of the last tuple is at most `within` after that of the first;
- the condition of the match (`where`) holds.

*One match*: of all matches with the same first tuple, the preferred one counts (`patterns/regex.py` has the order). The
search begins at the first tuple. After a match it continues according to the policy: after the last tuple of the match,
at its second tuple, or at the first or last tuple of a variable, but always after the first tuple; if the match has no
tuple of that variable, at the second. Without a match it continues at the next tuple. *All matches*: every match
counts, from every tuple on. *Partial* matches: also every run that a match may begin with.

A match is a point event at its last tuple, [LE, LE + h), with measures of the run. With `rows="all"` there is an event
for each of its tuples, at that tuple, with all its columns and measures of the run up to it, or of the complete match
where they are `final`. Matches are numbered from 1 in each group, in the order of their first tuples. Floating sums are
exact in measures; in conditions they are added up in the order of tuples.

**Early answers** are the matches among the tuples so far. A match that may still grow is given, and retracted when it
has grown; tuples out of order and retractions correct matches in the same way.

**The output CTI.** Tuples before the input's CTI c are settled. A tuple is *open* if a run that begins with it has
reached c and may continue: it needs another tuple, `within` has not passed, and it is preferred to the best match among
settled tuples. The runs of an open tuple may retract its best match and, where matches exclude each other, change all
matches from later first tuples. So the CTI waits

- with `rows="all"` at the first open tuple;
- for all matches nowhere: every match stays;
- otherwise at the least LE of the last tuple of a best match, among settled tuples, of an open tuple; or, unless the
  policy is `to next row` and no measure uses numbers, of any tuple from the first open one on.

Where conditions look n tuples ahead, the last n settled tuples count as not settled here, and the CTI waits at the
first of them.

The state holds the tuples from the first open one on, and those before it that conditions refer to.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.patterns import Pattern, References
from headrace.patterns.pattern import of_this_tuple
from headrace.patterns.program import Program, Slot, carried, compiled
from headrace.plan.base import Node, Properties, Reach, refuse_reserved
from headrace.plan.keyed import Keyed
from headrace.plan.liveliness import AS_INPUT, Liveliness
from headrace.schema import Field, Schema, Type
from headrace.time import format_duration

__all__ = ["COMPLETE", "Match", "Rows"]

Rows = Literal["one", "all"]
#: The column that distinguishes matches from partial matches.
COMPLETE = "complete"


@dataclass(frozen=True)
class _Resolved:
    """The expressions of a match over the columns of `references`."""

    references: References
    conditions: dict[str, Expr]
    guard: Expr | None
    updates: dict[tuple[str, str], Expr]
    values: dict[str, Expr]


@dataclass(frozen=True, eq=False)
class Match(Keyed):
    """The matches of a pattern in each group, with measures."""

    reach: ClassVar[Reach] = "streams"
    instants: ClassVar[bool] = True
    pattern: Pattern
    measures: tuple[tuple[str, Expr], ...]
    rows: Rows = field(default="one", kw_only=True)
    #: Whether each match is given once, when it is final (rule 3.5).
    final: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self.pattern.check()
        if self.rows not in ("one", "all"):
            raise PlanError("unknown rows of a match", given=self.rows, allowed="one, all", instead="rows='all'")
        self._check_conditions()
        self._check_numbers()
        self._check_keys()
        if not self.schema.names:
            raise PlanError(
                "a match needs at least one measure", given="none", allowed="measures", instead="match(p, n=count())"
            )
        refuse_reserved(self.schema, self.input.schema)
        _ = self.program, self.carried  # conditions that cannot be compiled are refused here

    def _check_conditions(self) -> None:
        guard = () if self.conditions[1] is None else (self.conditions[1],)
        for condition in (*self.conditions[0].values(), *guard):
            kind = condition.type(self.references.schema)
            if kind is not Type.BOOLEAN:
                raise PlanError(
                    f"a condition is {kind.value}, not BOOLEAN", given=str(self.pattern), allowed="conditions"
                )
        used = set().union(*(e.columns() for e in (*self.conditions[0].values(), *guard, *self.updates.values())))
        if any(self.references.refs[name].function == "match_number" for name in used & self.references.refs.keys()):
            raise PlanError(
                "a match has no number while it is being searched for",
                given="match_number() in a condition",
                allowed="match_number() in measures",
                instead="match(..., n=match_number()).where(col('n') == 1)",
            )
        if any(self.references.refs[name].final for name in used if name in self.references.refs):
            raise PlanError(
                "a condition is evaluated before the match is complete, so it cannot use final(...)",
                given=str(self.pattern),
                allowed="final(...) in measures",
                instead="where(...), which is evaluated at the end",
            )

    def _check_numbers(self) -> None:
        if self.numbered and self.pattern.matches == "all":
            raise PlanError(
                "all matches have no order, so they have no numbers",
                given="match_number()",
                allowed="one match for a first tuple",
                instead="skip('to next row'), or first('le') in place of the number",
            )

    def _check_keys(self) -> None:
        taken = [name for name in self.key_names if name in (*self.pattern.variables, *self.references.registers)]
        if taken:
            raise PlanError(
                f"{taken[0]!r} is both a key and a name of the pattern",
                given=self.describe(),
                allowed="other names for variables and registers",
                instead=f"{taken[0]}_",
            )

    # --- expressions --------------------------------------------------------------------------------------------------

    @cached_property
    def _resolved(self) -> _Resolved:
        pattern, references = self.pattern, self.pattern.references(self.input.schema)
        conditions = {name: references.resolve(condition) for name, condition in pattern.conditions}
        guard = None if pattern.guard is None else references.resolve(pattern.guard)
        updates = {
            (register.name, variable): references.resolve(of_this_tuple(expr, variable)).cast(register.type)
            for register in pattern.registers
            for variable, expr in register.updates
        }
        values = {name: references.resolve(expr) for name, expr in self.measures}
        return _Resolved(references, conditions, guard, updates, values)

    @property
    def references(self) -> References:
        """The references of the resolved expressions."""
        return self._resolved.references

    @property
    def conditions(self) -> tuple[dict[str, Expr], Expr | None]:
        """The conditions of variables and of the match, resolved."""
        return self._resolved.conditions, self._resolved.guard

    @property
    def updates(self) -> dict[tuple[str, str], Expr]:
        """The updates of registers by tuples of a variable, resolved and in the register's type."""
        return self._resolved.updates

    @property
    def values(self) -> dict[str, Expr]:
        """The measures, resolved."""
        return self._resolved.values

    @cached_property
    def program(self) -> Program:
        """The conditions, compiled for the native operator."""
        conditions, guard = self.conditions
        return compiled(self.pattern.variables, self.references, conditions, guard, self._registers)

    @cached_property
    def carried(self) -> Program:
        """The registers that only measures use, apart from the others: they do not distinguish runs."""
        used = set().union(*(expr.columns() for expr in self.values.values()))
        refs = [ref for name, ref in self.references.refs.items() if name in used and ref.function == "register"]
        names = list(dict.fromkeys(str(ref.variable) for ref in refs))
        return carried(self.pattern.variables, self.references, self._registers, names)

    @property
    def _registers(self) -> dict[str, tuple[Slot, dict[str, Expr]]]:
        return {
            register.name: (register.slot, {v: self.updates[register.name, v] for v, _ in register.updates})
            for register in self.pattern.registers
        }

    # --- output -------------------------------------------------------------------------------------------------------

    @cached_property
    def schema(self) -> Schema:
        measured = [Field(name, expr.type(self.references.schema)) for name, expr in self.values.items()]
        complete = [Field(COMPLETE, Type.BOOLEAN)] if self.pattern.partials else []
        before = self.with_keys.fields if self.rows == "all" else self.key_fields
        return Schema((*before, *measured, *complete))

    @cached_property
    def properties(self) -> Properties:
        return self.by_group(settled=True, insert_only=self.final)

    @property
    def numbered(self) -> bool:
        """Whether a measure uses the number of a match, which depends on the matches before it."""
        return any(ref.function == "match_number" for ref in self.references.refs.values())

    @property
    def alone(self) -> bool:
        """Whether a match does not depend on matches before it."""
        return self.pattern.policy.to == "next" and not self.numbered

    @property
    def waits(self) -> bool:
        """Whether the output CTI depends on the state."""
        return self.rows == "all" or self.pattern.matches == "one"

    @property
    def liveliness(self) -> Liveliness:
        span = self.pattern.span
        delay = "as long as runs last" if span is None else f"up to {format_duration(span)}"
        texts = Liveliness(self._cti, delay if self.waits else "none", self._remembered)
        if span is None:
            texts = texts.advising("within(...) bounds how long a run is open, and so the state")
        return texts.by_answer() if self.final else texts

    @property
    def _cti(self) -> str:
        if self.rows == "all":
            return "the first tuple that a match may still begin with"
        if self.pattern.matches == "all":
            return AS_INPUT.cti
        if self.alone:
            return "the end of the first match that may still grow"
        return "the end of the first match behind a tuple that a match may still begin with"

    @property
    def _remembered(self) -> str:
        back = self.references.back
        state = "tuples of each group from its first open one on" + (f", and {back} before" if back else "")
        return state + ("; how many matches each has had" if self.numbered else "")

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - all of them
        return self.all_of(side)

    @property
    def passes_on(self) -> bool:
        return self.rows == "all"

    def by_answer(self) -> Node | None:
        return replace(self, final=True) if self.waits else None

    def describe(self) -> str:
        measures = ", ".join(f"{name} = {expr}" for name, expr in self.measures)
        rows = "all rows" if self.rows == "all" else "one row"
        final = ", final answers only" if self.final else ""
        return f"Match {self.pattern}, {rows}: {measures or 'nothing'}{self.per}{final}"
