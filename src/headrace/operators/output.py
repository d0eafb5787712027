"""The way out: changes that cancel within a batch are dropped before they leave (rule 2.2)."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.changes import Changes
from headrace.operators.kernel import Data, Kernel
from headrace.progress import Progress

__all__ = ["OutputKernel"]


class OutputKernel(Kernel):
    """Consolidates the changes that leave."""

    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        (changes,), (now,) = inputs, progress
        assert isinstance(changes, Changes)
        return changes.consolidate(), now

    def held_by(self) -> str:
        return "nothing"
