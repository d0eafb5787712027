"""What a stateful operator is to the stage that runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa

from headrace.changes import Changes
from headrace.expr import Expr
from headrace.plan.nodes import Node
from headrace.progress import Progress
from headrace.trace import Segment, Trace

__all__ = ["Data", "Kernel", "SavedTraces", "cancelled_rows", "consolidated_rows", "names_of"]

Data: TypeAlias = "Changes | pa.Table"
#: Traces by name, as they were saved.
SavedTraces: TypeAlias = "Mapping[str, Mapping[str, Any]]"


class Kernel(ABC):
    """A stateful operator in one bucket: traces for what is large, `scalars` for a few numbers, and one step a
    batch.

    Other code divides its state anew when a query gets another number of buckets (`stages/declared.py`). Rows of a
    trace go where rows of the input go that they come from, so they must carry the columns these are routed by. Numbers
    are the same in all buckets, but for those that `merged` names.
    """

    #: Whether its state can be divided so: said of kernels for which tests have shown it.
    divisible: ClassVar[bool] = False
    #: How numbers of `scalars` that are not the same in all buckets become one: `sum` (which one bucket has then), or
    #: `min` or `max` (which all have).
    merged: ClassVar[Mapping[str, str]] = {}
    #: Whether it exists only where there are several buckets: with one, the plan is another.
    spread: ClassVar[bool] = False
    #: Which input the rows of a trace come from, where it is not the first.
    inputs_of: ClassVar[Mapping[str, int]] = {}

    def __init__(self, node: Node) -> None:
        self.node = node
        self.traces: dict[str, Trace] = {}
        self.scalars: dict[str, int] = {}
        #: A second output of the latest step, for operators that have one.
        self.side: Changes | None = None

    def end_batch(self) -> None:  # noqa: B027 - most operators do not tell trips from batches
        """A batch has ended. It had a step for each of its trips; what they gave leaves together."""

    @abstractmethod
    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        """Take one batch of each input, with its progress after the batch; give the output's changes and progress."""

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        """Become what was saved; `held` has the segments."""
        self.scalars = scalars
        for name, trace in self.traces.items():
            trace.restore(traces[name], held)

    def column_names(self) -> dict[str, str]:
        """What columns of its traces are to users, where their own names do not say it.

        A name that ends in a dot stands for all columns that begin with it.
        """
        return {}

    def held_by(self) -> str:
        """What keeps the state that is there, for people."""
        return "open events"

    def state(self) -> dict[str, Any]:
        """How much is remembered, and why."""
        return {
            "rows": sum(t.rows for t in self.traces.values()),
            "bytes": sum(t.nbytes for t in self.traces.values()),
            "segments": sum(len(t.segments) for t in self.traces.values()),
            "held_by": self.held_by(),
        }


def names_of(projection: Iterable[tuple[str, Expr]]) -> dict[str, str]:
    """What columns that are made from expressions are to users."""
    return {name: str(expr) for name, expr in projection if expr.columns()}


def consolidated_rows(table: pa.Table) -> pa.Table:
    """How a trace of changes compacts: equal rows are summed (their hashes and times are equal too)."""
    return Changes.from_table(table).consolidate().to_table()


def cancelled_rows(table: pa.Table) -> pa.Table:
    """As `consolidated_rows`, where equal rows may stay apart."""
    changes = Changes.from_table(table)
    return table if bool((changes.weight > 0).all()) else changes.consolidate().to_table()
