"""What a loop has done in a batch, and the end of one that never would (rule 9.3)."""

from __future__ import annotations

import numpy as np

from headrace.changes import Changes
from headrace.errors import Diverged
from headrace.operators.recurse.body import Body
from headrace.plan.recurse import Recurse

__all__ = ["Guard"]

#: Rounds that no loop should need when its user has named no bound: fewer where payloads may repeat for ever.
_MOST_ROUNDS, _MOST_PLAIN_ROUNDS = 10_000, 1_000
_MOST_ROWS = 50_000_000
#: A payload that is there so many times is one that goes round in circles, and soon would not fit in 64 bits.
_MOST_COPIES = 2**40
_SHOWN = 5


class Guard:
    """Counts the rounds of a batch and the changes that circulate in each."""

    def __init__(self, node: Recurse) -> None:
        self.node = node
        self.circulated: list[int] = []

    def begin(self) -> None:
        """Another batch."""
        self.circulated = []

    def round(self, changes: Changes, body: Body, number: int | None = None) -> None:
        """A round that these changes are fed to; refuse one too many. `body` gave them.

        Where rounds have numbers, from 1 on, these count, and not how many of them a batch needs.
        """
        self.circulated.append(len(changes))
        limit = self.node.max_rounds or (_MOST_ROUNDS if self.node.distinct else _MOST_PLAIN_ROUNDS)
        if (number or len(self.circulated)) > limit:
            self._stop(f"has not come to rest after {limit} rounds", body)
        if len(changes) > _MOST_ROWS or int(np.abs(changes.weight).max(initial=0)) > _MOST_COPIES:
            self._stop("grows beyond all bounds", body)

    def _stop(self, what: str, body: Body) -> None:
        growth = " → ".join(f"{n:,}" for n in self.circulated[-_SHOWN:])
        giving = [node.describe() for node, rows in body.given if rows] or [self.node.describe()]
        raise Diverged(
            f"the loop {what}: {giving[-1]} keeps giving something new",
            given=f"{self.node.describe()}; changes in its last rounds: {growth}",
            allowed="a body that gives nothing new after some rounds",
            instead="distinct=True, a where(...) in the body that ends it, or a larger max_rounds",
        )
