"""The optimizer: rewrites plans into equal plans. Each rule is one function in one file; `RULES` has their order.

A rule takes the outputs of a query and returns outputs that compute the same histories. `explain` shows the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.optimizer.combine_before_shuffle import combine_before_shuffle
from headrace.optimizer.combine_modules import combine_modules
from headrace.optimizer.compute_keys import compute_keys
from headrace.optimizer.filter_before_windows import filter_before_windows
from headrace.optimizer.final_by_answer import final_by_answer
from headrace.optimizer.group_where_joined import group_where_joined
from headrace.optimizer.join_by_equality import join_by_equality
from headrace.optimizer.place_admission import place_admission
from headrace.optimizer.prune_columns import prune_columns
from headrace.optimizer.push_filters import push_filters
from headrace.optimizer.rank_no_more import rank_no_more
from headrace.optimizer.read_tables import read_tables
from headrace.optimizer.select_columns import select_columns
from headrace.optimizer.share_windows import share_windows
from headrace.optimizer.slide_over_panes import slide_over_panes
from headrace.plan.nodes import Output

__all__ = ["ALONE", "RULES", "SHARED_RULES", "Rule", "optimize"]


class Rule(Protocol):
    """A rule of the optimizer."""

    __name__: str

    def __call__(self, outputs: tuple[Output, ...]) -> tuple[Output, ...]: ...


#: Tables are read first, to be part of the query. Filters move down before they go into readers.
#: `share_windows` comes before the rules that give each reader an input of its own.
#: `combine_before_shuffle` comes late, because it replaces aggregates by nodes that other rules need not know.
#: `final_by_answer` comes last, because it applies to the windows that are left then.
RULES: tuple[Rule, ...] = (
    read_tables,
    rank_no_more,
    join_by_equality,
    filter_before_windows,
    share_windows,
    push_filters,
    compute_keys,
    prune_columns,
    place_admission,
    slide_over_panes,
    combine_modules,
    combine_before_shuffle,
    group_where_joined,
    final_by_answer,
)

#: Rules that make one query cheaper and different from others: what it reads, and what its windows contain.
ALONE: tuple[Rule, ...] = (filter_before_windows, push_filters, prune_columns)
#: The rules for queries that share work with others, each rewritten apart: sources stay as they are, and filters stay
#: above windows, so that what two queries have in common stays equal, whichever other queries there are.
SHARED_RULES: tuple[Rule, ...] = tuple(
    select_columns if rule is prune_columns else rule for rule in RULES if rule not in ALONE or rule is prune_columns
)


def optimize(outputs: Sequence[Output], rules: Sequence[Rule] = RULES) -> tuple[Output, ...]:
    """Apply the rules in order."""
    result = tuple(outputs)
    for rule in rules:
        result = rule(result)
    return result
