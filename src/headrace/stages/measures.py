"""What operators cost in a run: rows in and out, time, and the largest state. Only a run that is asked to measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.stages.load import StageLoad

__all__ = ["OperatorCost", "RunCost"]


@dataclass
class OperatorCost:
    """The cost of one operator, in all its buckets; None is not known."""

    rows_in: int | None = None
    rows_out: int | None = None
    seconds: float | None = None
    #: The most rows and bytes of state after a batch.
    state_rows: int | None = None
    state_bytes: int | None = None


@dataclass
class RunCost:
    """The cost of a run in one thread: of every operator, by fingerprint, and of the whole."""

    operators: dict[str, OperatorCost] = field(default_factory=dict)
    batches: int = 0
    seconds: float = 0.0
    #: Where it ran.
    host: str = "local"
    #: The rows that arrived at the stages with several buckets, of all batches.
    loads: Sequence[StageLoad] = ()

    def add(self, fingerprint: str, *, rows_in: int = 0, rows_out: int = 0, seconds: float = 0.0) -> None:
        """Count a step of an operator."""
        cost = self.operators.setdefault(fingerprint, OperatorCost())
        cost.rows_in = (cost.rows_in or 0) + rows_in
        cost.rows_out = (cost.rows_out or 0) + rows_out
        cost.seconds = (cost.seconds or 0.0) + seconds

    def hold(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Count the state of operators after a batch, by fingerprint."""
        for fingerprint, state in states.items():
            cost = self.operators.setdefault(fingerprint, OperatorCost())
            cost.state_rows = max(cost.state_rows or 0, state["rows"])
            cost.state_bytes = max(cost.state_bytes or 0, state["bytes"])
