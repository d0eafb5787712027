"""The guard against loops that never come to rest (rule 9.3).

What counts is how deep a derivation is, from the seed on: how many times it has been through the body. That follows
from the data alone. How many rounds a batch needs would depend on what other batches brought before.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from headrace.changes import Changes
from headrace.errors import Diverged
from headrace.operators.recurse.tally import Tally
from headrace.plan.recurse import Recurse

__all__ = ["Guard"]

_MOST_ROWS = 50_000_000
#: A payload with more copies goes round in circles, and soon its weight would not fit in 64 bits.
_MOST_COPIES = 2**40
_SHOWN = 5


class LoopBody(Protocol):
    """The operators of a loop."""

    def busiest(self) -> str:
        """The operator with the most changes."""


class Guard:
    """Stops a loop whose changes are too deep or too many."""

    def __init__(self, node: Recurse, tally: Tally) -> None:
        self.node, self.tally = node, tally

    def round(self, changes: Changes, body: LoopBody, depth: int) -> None:
        """Check a round that gets these changes. `body` derived them; `depth` is the greatest number of derivations."""
        self.tally.round(len(changes))
        if depth >= self.node.bound:
            self._stop(f"has not come to rest after {self.node.bound} rounds", body)
        if len(changes) > _MOST_ROWS or int(np.abs(changes.weight).max(initial=0)) > _MOST_COPIES:
            self._stop("grows beyond all bounds", body)

    def _stop(self, what: str, body: LoopBody) -> None:
        growth = " → ".join(f"{n:,}" for n in self.tally.circulated[-_SHOWN:])
        raise Diverged(
            f"the loop {what}: {body.busiest()} keeps giving something new",
            given=f"{self.node.describe()}; changes in its last rounds: {growth}",
            allowed="a body that gives nothing new after some rounds",
            instead=("" if self.node.distinct else "distinct=True, ")
            + "a where(...) in the body that ends it, or a larger max_rounds",
        )
