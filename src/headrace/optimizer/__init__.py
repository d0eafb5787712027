"""The optimizer: plans in, equal plans out. One rule, one file, one function; their order is `RULES`.

A rule gets the outputs of a query and gives outputs that compute the same histories. What a rule did shows in
`explain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.optimizer.combine_before_shuffle import combine_before_shuffle
from headrace.optimizer.place_admission import place_admission
from headrace.optimizer.prune_columns import prune_columns
from headrace.optimizer.push_filters import push_filters
from headrace.plan.nodes import Output

__all__ = ["RULES", "Rule", "optimize"]


class Rule(Protocol):
    """What a rule is."""

    __name__: str

    def __call__(self, outputs: tuple[Output, ...]) -> tuple[Output, ...]: ...


#: `combine_before_shuffle` comes last: it replaces aggregates by halves that the other rules need not know.
RULES: tuple[Rule, ...] = (push_filters, prune_columns, place_admission, combine_before_shuffle)


def optimize(outputs: Sequence[Output], rules: Sequence[Rule] = RULES) -> tuple[Output, ...]:
    """Apply the rules in order."""
    result = tuple(outputs)
    for rule in rules:
        result = rule(result)
    return result
