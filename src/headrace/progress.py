"""Progress: the CTI of a stream, and the latest time received (rules 3.1 and 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.time import NEG_INFINITY

__all__ = ["Progress"]


@dataclass(frozen=True)
class Progress:
    """The progress of a stream.

    `cti` is the promise: no later change has a sync time before it (rule 3.1). `high` is the greatest finite CTI or LE
    received: speculative answers are given up to it (rule 5.3). Events that the skew guard rejects do not move `high`.
    """

    cti: int = NEG_INFINITY
    high: int = NEG_INFINITY
    #: Of an input with progress by key: the keys that are not idle, as text, and their highest times.
    keys: tuple[tuple[str, int], ...] = ()

    @property
    def seen(self) -> int:
        """`m` of rule 5.3."""
        return max(self.cti, self.high)

    def advanced_to(self, other: Progress) -> Progress:
        """The greater of two values of the same stream; progress never decreases."""
        return Progress(max(self.cti, other.cti), max(self.high, other.high))

    @staticmethod
    def together(parts: Sequence[Progress]) -> Progress:
        """The progress of several streams or channels taken as one (rule 3.4)."""
        return Progress(min(p.cti for p in parts), max(p.high for p in parts))
