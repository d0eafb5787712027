"""What a run shows of its operators to a *tap*, if it is given one: every step, with its rows, its time and its state.

`RunCost` is the tap that counts. `tracing/recording.py` is the tap that keeps the changes themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.changes import Changes
from headrace.operators.kernel import Data
from headrace.plan.nodes import Node, Source
from headrace.progress import Progress
from headrace.stages.load import StageLoad

__all__ = ["OperatorCost", "RunCost", "Tap"]


class Tap(Protocol):
    """Sees every step of a run in one thread, in order."""

    def wait(self, source: Source, seconds: float) -> None:
        """The time that a source took to read and decode rows."""

    def read(self, source: Source, rows: int, judged: Sequence[tuple[Changes, Changes]], seconds: float) -> None:
        """Rows of a source that have been judged: as accepted and diverted events."""

    def step(self, node: Node, rows: int, output: Data, progress: Progress | None, seconds: float) -> None:
        """A step of an operator with its number of input rows; the intake does not know the progress."""


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

    def wait(self, source: Source, seconds: float) -> None:
        self.add(source.fingerprint, seconds=seconds)

    def read(self, source: Source, rows: int, judged: Sequence[tuple[Changes, Changes]], seconds: float) -> None:
        accepted = sum(len(accepted) for accepted, _ in judged)
        self.add(source.fingerprint, rows_in=rows, rows_out=accepted, seconds=seconds)

    def step(self, node: Node, rows: int, output: Data, progress: Progress | None, seconds: float) -> None:  # noqa: ARG002
        self.add(node.fingerprint, rows_in=rows, rows_out=len(output), seconds=seconds)

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
