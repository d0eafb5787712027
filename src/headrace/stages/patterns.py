"""Patterns, told to people: the automaton, how it runs, and what its output CTI waits for."""

from __future__ import annotations

from headrace.plan.pattern import Match
from headrace.time import format_duration

__all__ = ["automaton_lines", "how_it_runs", "liveliness"]


def automaton_lines(node: Match) -> tuple[str, ...]:
    """The automaton, a line for each state: its moves, the preferred ones first."""
    return tuple(f"│ {line}" for line in node.pattern.automaton.table())


def how_it_runs(node: Match) -> str:
    """Which part is columnar, and what is asked of runs one by one."""
    asked = [name for name, own in zip(node.program.variables, node.program.guards, strict=True) if own[0] < own[1]]
    asked += ["the whole"] if node.program.accept[0] < node.program.accept[1] else []
    how = "native, all groups in one call, each from its first open tuple on"
    how += "; a match is given when no tuple can change it any more" if node.final else ""
    return f"{how}; conditions of {', '.join(asked)} asked of runs" if asked else f"{how}; conditions columnar"


def liveliness(node: Match) -> tuple[str, str, str, tuple[str, ...]]:
    """The output CTI, how far it is behind, what is remembered, and advice."""
    pattern, back = node.pattern, node.references.back
    state = "tuples of each group from its first open one on" + (f", and {back} before" if back else "")
    state += "; how many matches each has had" if node.numbered else ""
    delay = "as long as runs last" if pattern.span is None else f"up to {format_duration(pattern.span)}"
    advice = () if pattern.span is not None else ("within(...) bounds how long a run is open, and so the state",)
    if node.rows == "all":
        return "the first tuple that a match may still begin with", delay, state, advice
    if pattern.matches == "all":
        return "as its input", "none", state, advice
    if pattern.policy.to == "next" and not node.numbered:
        return "the end of the first match that may still grow", delay, state, advice
    return "the end of the first match behind a tuple that a match may still begin with", delay, state, advice
