"""The interface between a stateful operator and the stage that runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa

from headrace.changes import Changes
from headrace.expr import Expr
from headrace.plan.nodes import Node
from headrace.progress import Progress
from headrace.time import format_ticks
from headrace.trace import Segment, Trace

__all__ = ["Data", "Kernel", "SavedTraces", "cancelled_rows", "consolidated_rows", "expression_texts"]

Data: TypeAlias = "Changes | pa.Table"
#: Traces by name, as they were saved.
SavedTraces: TypeAlias = "Mapping[str, Mapping[str, Any]]"


class Kernel(ABC):
    """A stateful operator in one bucket: traces hold large state, `scalars` a few numbers; each batch is one step.

    When a query gets another number of buckets, `stages/declared.py` divides the state anew. It routes the rows of a
    trace like the input rows that they come from, so they must have the columns that these are routed by. Scalars are
    the same in all buckets, except those in `merged`.
    """

    #: Whether the state can be divided like this. Only kernels for which tests show it set it.
    divisible: ClassVar[bool] = False
    #: How to merge scalars that differ between buckets: `sum` (one bucket then has it), `min` or `max` (all have it).
    merged: ClassVar[Mapping[str, str]] = {}
    #: Whether the kernel runs only with several buckets; with one bucket, the plan differs.
    spread: ClassVar[bool] = False
    #: The number of the input that the rows of a trace come from, if it is not the first.
    inputs_of: ClassVar[Mapping[str, int]] = {}

    def __init__(self, node: Node) -> None:
        self.node = node
        self.traces: dict[str, Trace] = {}
        self.scalars: dict[str, int] = {}
        #: A second output of the latest step, for operators that have one.
        self.side: Changes | None = None

    def end_batch(self) -> None:  # noqa: B027 - most operators do not distinguish trips from batches
        """End a batch. It has one step for each of its trips; their outputs leave together."""

    @abstractmethod
    def step(self, inputs: Sequence[Data], progress: Sequence[Progress]) -> tuple[Changes, Progress]:
        """Process one batch of each input, with its progress after the batch; the output's changes and progress."""

    def restore(self, scalars: dict[str, int], traces: SavedTraces, held: Mapping[str, Segment]) -> None:
        """Restore the saved state; `held` has the segments."""
        self.scalars = scalars
        for name, trace in self.traces.items():
            trace.restore(traces[name], held)

    def column_names(self) -> dict[str, str]:
        """Texts for users in place of the names of trace columns, where those are internal.

        A name that ends in a dot stands for all columns that begin with it.
        """
        return {}

    def held_by(self) -> str:
        """Why state is kept, as a text for users."""
        return "open events"

    def time_text(self, ticks: int) -> str:
        """A time of its output, as a text for users."""
        return format_ticks(ticks, dates=self.node.dates)

    def state(self) -> dict[str, Any]:
        """The size of the state, and why it is kept."""
        return {
            "rows": sum(t.rows for t in self.traces.values()),
            "bytes": sum(t.nbytes for t in self.traces.values()),
            "segments": sum(len(t.segments) for t in self.traces.values()),
            "held_by": self.held_by(),
        }


def expression_texts(projection: Iterable[tuple[str, Expr]]) -> dict[str, str]:
    """The expressions that columns are computed from, as texts for users, by column."""
    return {name: str(expr) for name, expr in projection if expr.columns()}


def consolidated_rows(table: pa.Table) -> pa.Table:
    """Compact a trace of changes: sum equal rows (their hashes and times are equal too)."""
    return Changes.from_table(table).consolidate().to_table()


def cancelled_rows(table: pa.Table) -> pa.Table:
    """Like `consolidated_rows`, but equal rows may remain separate."""
    changes = Changes.from_table(table)
    return table if bool((changes.weight > 0).all()) else changes.consolidate().to_table()
