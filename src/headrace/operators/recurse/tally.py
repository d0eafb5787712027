"""What a loop tells of itself: its rounds, the changes that went round, and how far it promises.

All loops tell the same, however they run, as part of their stage's statistics; a host adds them up over buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.progress import Progress

__all__ = ["Tally"]


class Tally:
    """Rounds of a loop and the changes that circulated in each: in the latest batch, and since it began."""

    def __init__(self) -> None:
        self.circulated: list[int] = []
        self._most_rounds = self._in_all = 0
        self._inputs, self._output = [Progress()], Progress()

    def begin(self) -> None:
        """Another batch."""
        self.circulated = []

    def round(self, changes: int) -> None:
        """A round that so many changes are fed to; one without any is none."""
        if changes:
            self.circulated.append(changes)
        self._in_all += changes
        self._most_rounds = max(self._most_rounds, len(self.circulated))

    def promised(self, inputs: Sequence[Progress], output: Progress) -> None:
        """How far the inputs have come after the batch, and how far the loop has."""
        self._inputs, self._output = list(inputs), output

    def state(self) -> dict[str, Any]:
        """What is shown of it."""
        return {
            "rounds": len(self.circulated),
            "most_rounds": self._most_rounds,
            "circulated": list(self.circulated),
            "circulated_in_all": self._in_all,
            "input_ctis": [p.cti for p in self._inputs],
            "output_cti": self._output.cti,
        }

    def scalars(self) -> dict[str, int]:
        """What outlives a restart."""
        return {"most_rounds": self._most_rounds, "in_all": self._in_all}

    def restore(self, scalars: Mapping[str, int]) -> None:
        """Go on counting."""
        self._most_rounds, self._in_all = scalars["most_rounds"], scalars["in_all"]
