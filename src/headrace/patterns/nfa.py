"""The automaton of a shape: states without silent moves, the moves of each in order of preference.

A state is an occurrence of a variable in the shape; state 0 is the start. `moves[q]` are the states that may follow
state q, the preferred ones first, with `ACCEPT` among them where the shape may end. Moves after `ACCEPT` are tried only
if the match is refused there. This order alone makes a quantifier greedy or reluctant.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import PlanError
from headrace.patterns.regex import Chain, Choice, Permute, Repeat, Shape, Symbol

__all__ = ["ACCEPT", "BEGIN", "Automaton", "automaton", "of_words"]

ACCEPT = -1
#: The name of the start state.
BEGIN = "start"
_MOST_STATES = 10_000


@dataclass(frozen=True)
class Automaton:
    """The variable of each state but the first, and the moves of each state."""

    variables: tuple[str, ...]
    moves: tuple[tuple[int, ...], ...]

    @property
    def names(self) -> list[str]:
        """The names of the states."""
        return [BEGIN, *(f"{i}:{name}" for i, name in enumerate(self.variables, 1))]

    def table(self) -> list[str]:
        """The automaton as text, a text line for each state."""
        names = self.names
        wide = max(map(len, names))
        return [
            f"{name:<{wide}} → {', '.join('match' if q == ACCEPT else names[q] for q in moves)}"
            for name, moves in zip(names, self.moves, strict=True)
        ]


#: A silent move to several steps in order, or a variable and its target.
_Step = tuple[str | None, list[int]]


def automaton(shape: Shape) -> Automaton:
    """The automaton of a shape."""
    steps: list[_Step] = []
    begin = _add_steps(shape, steps, _add(steps, None, []))
    number: dict[int, int] = {}  # of the steps that are states, in the order of discovery
    moves = [_closure(steps, begin, number)]
    for step in (found := list(number)):
        moves.append(_closure(steps, steps[step][1][0], number))
        found += list(number)[len(found) :]
    return Automaton(tuple(str(steps[step][0]) for step in number), tuple(moves))


def _add(steps: list[_Step], name: str | None, to: list[int]) -> int:
    if len(steps) > _MOST_STATES:
        raise PlanError(
            "the pattern has too many states",
            given=f"more than {_MOST_STATES}",
            allowed="fewer: {n,m} and PERMUTE make copies of their parts",
            instead="A+ where count(A) says how many",
        )
    steps.append((name, to))
    return len(steps) - 1


def _add_steps(shape: Shape, steps: list[_Step], end: int) -> int:
    """Add the steps of a shape that leads to `end`; return its first step. Step 0 is the final one."""
    if isinstance(shape, Symbol):
        return _add(steps, shape.name, [end])
    if isinstance(shape, Chain):
        for part in reversed(shape.items):
            end = _add_steps(part, steps, end)
        return end
    if isinstance(shape, Choice):
        return _add(steps, None, [_add_steps(part, steps, end) for part in shape.items])
    if isinstance(shape, Permute):
        return _add_steps(shape.choice, steps, end)
    assert isinstance(shape, Repeat)
    return _repeated(shape, steps, end)


def _repeated(shape: Repeat, steps: list[_Step], end: int) -> int:
    begin, copies = end, shape.least
    if shape.most is None:
        to: list[int] = []
        again = _add(steps, None, to)
        inner = _add_steps(shape.part, steps, again)
        to += [inner, end] if shape.greedy else [end, inner]
        # A required part is its own last copy: the loop is entered at the part.
        begin, copies = (inner, shape.least - 1) if shape.least else (again, 0)
    else:
        for _ in range(shape.most - shape.least):
            inner = _add_steps(shape.part, steps, begin)
            begin = _add(steps, None, [inner, end] if shape.greedy else [end, inner])
    for _ in range(copies):
        begin = _add_steps(shape.part, steps, begin)
    return begin


def _closure(steps: list[_Step], begin: int, number: dict[int, int]) -> tuple[int, ...]:
    """The states that silent moves lead to, in order, each once."""
    found: list[int] = []
    seen: set[int] = set()
    waiting = [begin]
    while waiting:
        step = waiting.pop()
        if step in seen:
            continue
        seen.add(step)
        if step == 0:
            found.append(ACCEPT)
        elif steps[step][0] is not None:
            found.append(number.setdefault(step, len(number) + 1))
        else:
            waiting += reversed(steps[step][1])
    return tuple(found)


def of_words(nfa: Automaton) -> Automaton:
    """An automaton with one way for each word of variables, so that each match counts once."""
    names = ["", *nfa.variables]
    sets: list[frozenset[int]] = [frozenset([0])]
    variables: list[str] = []
    moves: list[tuple[int, ...]] = []
    at = 0
    while at < len(sets):
        reached = dict.fromkeys(q for p in sorted(sets[at]) for q in nfa.moves[p])
        own_moves = [ACCEPT] if ACCEPT in reached else []
        for name in dict.fromkeys(names[q] for q in reached if q != ACCEPT):
            found = frozenset(q for q in reached if q != ACCEPT and names[q] == name)
            if found not in sets:
                sets.append(found)
                variables.append(name)
                _check_size(sets)
            own_moves.append(sets.index(found))
        moves.append(tuple(own_moves))
        at += 1
    return Automaton(tuple(variables), tuple(moves))


def _check_size(sets: list[frozenset[int]]) -> None:
    if len(sets) > _MOST_STATES // 10:
        raise PlanError(
            "the pattern has too many states for all matches",
            given=f"more than {_MOST_STATES // 10}",
            allowed="a shape in which less is ambiguous",
            instead="matches='one'",
        )
