"""The statistics of a loop: its rounds, the changes that circulated, and its promises.

They are the same for all kinds of loops, and part of their stage's statistics; a host adds them up over buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.progress import Progress

__all__ = ["Tally"]


class Tally:
    """Rounds of a loop and the changes that circulated in each: in the latest batch, and since it began."""

    def __init__(self, *, dates: bool) -> None:
        self._dates = dates
        self.circulated: list[int] = []
        self._most_rounds = self._in_all = 0
        self._inputs, self._output = [Progress()], Progress()

    def begin(self) -> None:
        """Start a batch."""
        self.circulated = []

    def round(self, changes: int) -> None:
        """Count a round with this number of changes; a round without changes does not count."""
        if changes:
            self.circulated.append(changes)
        self._in_all += changes
        self._most_rounds = max(self._most_rounds, len(self.circulated))

    def promised(self, inputs: Sequence[Progress], output: Progress) -> None:
        """Note the progress of the inputs and of the loop after the batch."""
        self._inputs, self._output = list(inputs), output

    def state(self) -> dict[str, Any]:
        """The statistics, for users."""
        return {
            "rounds": len(self.circulated),
            "most_rounds": self._most_rounds,
            "circulated": list(self.circulated),
            "circulated_in_all": self._in_all,
            "input_ctis": [p.cti for p in self._inputs],
            "output_cti": self._output.cti,
            "dates": self._dates,
        }

    def scalars(self) -> dict[str, int]:
        """The numbers to save."""
        return {"most_rounds": self._most_rounds, "in_all": self._in_all}

    def restore(self, scalars: Mapping[str, int]) -> None:
        """Restore the saved numbers."""
        self._most_rounds, self._in_all = scalars["most_rounds"], scalars["in_all"]
