"""Patterns over tuples in their order: shapes, automata, and the conditions of variables (rule 9.4)."""

from headrace.patterns.pattern import Matches, Pattern, Register, Skip, pattern
from headrace.patterns.references import Ref, References, classifier, final, match_number, next, offset, prev, state

__all__ = [
    "Matches", "Pattern", "Ref", "References", "Register", "Skip", "classifier", "final", "match_number", "next",
    "offset", "pattern", "prev", "state",
]  # fmt: skip
