"""Patterns whose transitions are a stream (rule 9.4): a loop over runs, built from ordinary operators.

A *transition* is an event with the state it leads from (`source`), the variable that a tuple must be mapped to, the
state it leads to (`target`), and whether a run that takes it is a match (`final`). Runs begin in the state `start`. A
tuple sees the transitions that are alive at its start. Every path through the transitions counts, from every tuple on.

    tuples ── linked ── one for each variable ── join ── steps ──┬── from the start ──> seed ──┬──> runs ──> matches
                                  transitions ────┘              └────── join ─────────────────┘     │
                                                                           └─────────────────────────┘ ↺

- *Linked*: each tuple has its place and the place of the tuple before it in its group, which suffices to find adjacent
  tuples. A place is a start and a number among tuples that start together, 0 for the last of them. So a tuple that
  comes out of order changes the places of few others.
- *Steps* are tuples with a transition that each may take. Conditions on one tuple alone are evaluated before, once.
- A *run* is a row: the place of its last tuple, its state, and its carried values (`patterns/carried.py`). It goes
  round, and meets the steps that continue from its state and its place.
- With `within d` a step lasts d + 1 ticks, and lifetimes intersect along a derivation: a run ends d after its first
  tuple, and is then forgotten. Without it, steps and runs last for ever.

Every round takes another tuple, so the loop terminates. Retracting a transition or a tuple retracts what followed from
it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from headrace.errors import PlanError
from headrace.expr import Case, Column, Expr, coalesce, col, conjuncts, count, if_else, lit
from headrace.patterns import Pattern
from headrace.patterns.carried import BY, STATE, Carried
from headrace.patterns.nfa import BEGIN
from headrace.patterns.pattern import TRANSITION
from headrace.patterns.references import START, Prev, final
from headrace.patterns.regex import Chain, Repeat, Symbol
from headrace.plan.base import Node
from headrace.plan.group_apply import GroupInput, apply_to_groups
from headrace.plan.join import Join
from headrace.plan.pattern import COMPLETE, Match
from headrace.plan.recurse import recursion
from headrace.plan.span import PointAtStart, Select, SetDuration, Union, Where
from headrace.time import INFINITY

__all__ = ["reentrant"]

#: More rounds than any batch needs: the loop always terminates.
_MOST_ROUNDS = 10**9
#: Columns of a run: its place and whether it is a match, as far as transitions say.
_AT, _TIE, _ENDS = "at", "tie", "ends"
#: Columns of a step: its place, the place before it, and the transition.
_TUPLE = _THEN, _THEN_TIE, _AFTER, _AFTER_TIE = "then", "then_tie", "after", "after_tie"
_FROM, _TO, _FINAL = "from", "to", "final"


def reentrant(match: Match, transitions: Node) -> Node:
    """The matches of a stream of transitions, with the definitions and measures of a pattern."""
    _check(match, transitions)
    if not match.keys:
        return _Plan(match, transitions).matches()
    group = GroupInput.of(match.input)
    body = _Plan(replace(match, input=group, keys=()), transitions).matches()
    return apply_to_groups(match.keys, group, body)


def _check(match: Match, transitions: Node) -> None:
    if match.pattern.matches != "all" or match.rows != "one":
        raise PlanError(
            "with a stream of transitions every match counts, and is one event",
            given="rows='all'" if match.rows != "one" else f"skip {match.pattern.policy}",
            allowed="pattern.all_matches(), pattern.partial()",
            instead="match(pattern.all_matches(), transitions=...)",
        )
    schema = transitions.schema
    wrong = [f.name for f in TRANSITION if f.name not in schema or schema[f.name].type is not f.type]
    if wrong:
        raise PlanError(
            f"transitions need a column {wrong[0]!r} of type {TRANSITION[wrong[0]].type.value}",
            given=str(schema),
            allowed=str(TRANSITION),
            instead="hr.events(pattern.transitions())",
        )


class _Plan:
    """The plan for one group."""

    def __init__(self, match: Match, transitions: Node) -> None:
        self.match, self.pattern = match, match.pattern
        self.transitions = transitions
        registers = {register.name: register for register in self.pattern.registers}
        self.carried = Carried(match.references, registers, match.updates)
        # Expressions determine the carried values, so all of them are examined before the plan is built.
        conditions, guard = match.conditions
        parts = {name: conjuncts(condition) for name, condition in conditions.items()}
        self.alone = {name: [part for part in found if not self._of_run(part)] for name, found in parts.items()}
        self.running = {
            name: [self.carried.over(part) for part in found if self._of_run(part)] for name, found in parts.items()
        }
        self.guard = lit(True) if guard is None else self.carried.behind(guard)
        self.measures = tuple((name, self.carried.behind(value)) for name, value in match.values.items())
        self.slots = self.carried.slots

    def _of_run(self, condition: Expr) -> bool:
        return bool(condition.columns() & self.match.references.refs.keys())

    # --- outside the loop ---------------------------------------------------------------------------------------------

    def matches(self) -> Node:
        """The matches, as events."""
        steps = self.steps(self.linked())
        seed = self.advanced(Where(steps, col(_FROM) == BEGIN), begin=True)
        on = ((_AT, _AFTER), (_TIE, _AFTER_TIE), (STATE, _FROM))
        runs = recursion(
            seed, lambda found: self.advanced(Join(found, steps, on)), distinct=False, max_rounds=_MOST_ROUNDS
        )
        ended = coalesce(col(_ENDS) & self.guard, lit(False))
        if self.pattern.partials:
            return Select(PointAtStart(runs), (*self.measures, (COMPLETE, ended)))
        return Select(PointAtStart(Where(runs, ended)), self.measures)

    def linked(self) -> Node:
        """The tuples with their places, under the names of the later columns."""
        below, prevs = self.match.input, self.match.references.prevs
        head, more, at, rank, ties, before = (
            _fresh(name, below) for name in ("head", "more", _AT, "rank", "ties", "before")
        )
        shape = Chain((Symbol(head), Repeat(Symbol(more), 0, None)))
        together = Pattern(shape).define({more: col(START) == Prev(col(START), 1)}).within(0)
        earlier = {name: _fresh(name.strip("_"), below) for name in prevs}
        measures = ((at, col(START)), (rank, count()), (ties, final(count())), (before, Prev(col(START), 1)))
        looked = tuple((earlier[name], Prev(*prev)) for name, prev in prevs.items())
        tuples_with_places = Match(below, (), together, (*measures, *looked), rows="all")
        first = col(rank) == 1
        places = (
            (_THEN, col(at)),
            (_THEN_TIE, if_else(col(rank) == col(ties), lit(0), col(rank))),
            (_AFTER, if_else(first, col(before), col(at))),
            (_AFTER_TIE, if_else(first, lit(0), col(rank) - 1)),
        )
        here = {START: at, **earlier}

        def renamed(part: Expr) -> Expr:
            return col(here.get(part.column, part.column)) if isinstance(part, Column) else part

        tuples = ((new, col(here.get(name, name))) for name, new in self.carried.tuples.items())
        masks = ((f"is_{i}", _all([p.transform(renamed) for p in self.alone.get(name, [])]))
                 for i, name in enumerate(self.pattern.variables))  # fmt: skip
        return Select(tuples_with_places, (*places, *tuples, *masks))

    def steps(self, tuples: Node) -> Node:
        """Each tuple with every transition that it may take."""
        kept = [(name, col(name)) for name in (*_TUPLE, *self.carried.tuples.values())]
        parts = [
            Select(Where(tuples, col(f"is_{i}")), ((BY, lit(name)), *kept))
            for i, name in enumerate(self.pattern.variables)
        ]
        symbols = parts[0] if len(parts) == 1 else Union(tuple(parts))
        named = (("source", _FROM), ("variable", BY), ("target", _TO), ("final", _FINAL))
        moves = Select(self.transitions, tuple((new, col(old)) for old, new in named))
        lasting = INFINITY if self.pattern.span is None else min(self.pattern.span + 1, INFINITY)
        return SetDuration(Join(symbols, moves, ((BY, BY),)), lasting)

    # --- in the loop --------------------------------------------------------------------------------------------------

    def advanced(self, steps: Node, *, begin: bool = False) -> Node:
        """Runs after a step (the first step with `begin`) for which the condition of the step's variable holds."""
        start = {slot.name: slot.start for slot in self.slots} if begin else {}

        def before(part: Expr) -> Expr:
            return start.get(part.column, part) if isinstance(part, Column) else part

        run = [(_AT, col(_THEN)), (_TIE, col(_THEN_TIE)), (STATE, col(_TO)), (_ENDS, col(_FINAL))]
        run += [(slot.name, slot.update.transform(before)) for slot in self.slots]
        plain = tuple((name, col(name)) for name, _ in run)
        conditions = {name: parts for name, parts in self.running.items() if parts}
        if not conditions:
            return Select(steps, tuple(run))
        here = [(name, col(name)) for name in (BY, *self.carried.tuples.values())]
        branches = tuple((col(BY) == name, _all(parts)) for name, parts in conditions.items())
        return Select(Where(Select(steps, (*run, *here)), Case(branches, lit(True))), plain)


def _fresh(name: str, beside: Node) -> str:
    """A name that no column of a node has."""
    while name in beside.schema:
        name += "_"
    return name


def _all(conditions: list[Expr]) -> Expr:
    return reduce(lambda a, b: a & b, conditions) if conditions else lit(True)
