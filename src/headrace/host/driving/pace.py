"""The pace of a query: how much a batch reads.

Batches are bounded, so that a query that has much to catch up keeps answering, and its memory stays bounded. The bound
adapts: it follows from how fast the last batches were, so that a batch takes about `TARGET` seconds. It at most doubles
from one batch to the next, so it starts small and is right after a few batches. A batch that was not full says nothing
about how long a full one would take, and leaves the bound as it is; of files, only if it was not too long itself. While
many batches wait, they may take twice as long: a larger batch takes less time for each row, and nobody gets an answer
of the present yet.

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
    #: Whether what has arrived during a batch is not known at its end: files are listed before a batch.
    blind: bool = False

    @classmethod
    def of_rows(cls, fixed: int | None = None) -> Pace:
        """For rows; `fixed` is a bound of the user's."""
        return cls(65_536, 1_024, 8_388_608) if fixed is None else cls(fixed, fixed, fixed)

    @classmethod
    def of_bytes(cls) -> Pace:
        """For bytes of files."""
        # A batch has a cost that does not depend on its size: if the least were small and that cost large, on a slow
        # store, batches would become ever smaller, and the query would fall behind.
        return cls(268_435_456, 1_048_576, 4_294_967_296, blind=True)

    def note(self, amount: int, seconds: float, waiting: int) -> None:
        """Adapt to a batch that read this much in this time; if nothing waits now, it was not full.

        A batch of files that was not full and took too long shows what fits, too: else each batch would read all that
        has arrived during the one before, and under more input than the query can process, batches would grow.
        """
        if amount <= 0:
            return
        if waiting <= 0:
            if self.blind and seconds > 2 * self.seconds:
                self.bound = min(self.bound, max(self.least, int(amount / seconds * self.seconds)))
            return
        target = 2 * self.seconds if waiting > _MANY * amount else self.seconds
        wanted = int(amount / max(seconds, 1e-3) * target)
        bounded = min(max(wanted, self.bound // 2), 2 * self.bound)
        self.bound = min(max(bounded, self.least), self.most)
