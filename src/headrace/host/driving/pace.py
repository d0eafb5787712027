"""The pace of a query: how much a batch reads.

Batches are bounded, so that a query that has much to catch up keeps answering, and its memory stays bounded. The bound
adapts: it follows from how fast the last batches were, so that a batch takes about `TARGET` seconds. It at most doubles
from one batch to the next, so it starts small and is right after a few batches. A batch that was not full says nothing
about how long a full one would take, and leaves the bound as it is. While many batches wait, they may take twice as
long: a larger batch takes less time for each row, and nobody gets an answer of the present yet.

The unit is rows for sources that an adapter reads, and bytes for files, which are read whole: a batch of files has at
least one.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TARGET", "Pace"]

#: How long a full batch should take, in seconds.
TARGET = 1.0
#: With more than so many batches waiting, a query catches up.
_MANY = 3


@dataclass
class Pace:
    """The most units that a batch reads."""

    bound: int
    least: int
    most: int
    seconds: float = TARGET

    @classmethod
    def of_rows(cls, fixed: int | None = None) -> Pace:
        """For rows; `fixed` is a bound of the user's."""
        return cls(65_536, 1_024, 8_388_608) if fixed is None else cls(fixed, fixed, fixed)

    @classmethod
    def of_bytes(cls) -> Pace:
        """For bytes of files."""
        return cls(268_435_456, 1_048_576, 4_294_967_296)

    def note(self, amount: int, seconds: float, waiting: int) -> None:
        """Adapt to a batch that read this much in this time; if nothing waits now, it was not full."""
        if waiting <= 0 or amount <= 0:
            return
        target = 2 * self.seconds if waiting > _MANY * amount else self.seconds
        wanted = int(amount / max(seconds, 1e-3) * target)
        bounded = min(max(wanted, self.bound // 2), 2 * self.bound)
        self.bound = min(max(bounded, self.least), self.most)
