"""The results of a finished run, on any host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.border import LIFETIME, TimeColumns, checked_time_columns, shown
from headrace.changes import Changes
from headrace.errors import EventError
from headrace.events import history, physical_stream, to_physical
from headrace.plan.functions import functions_of
from headrace.plan.nodes import Output
from headrace.progress import Progress
from headrace.schema import Schema

__all__ = ["FinishedRun", "Result"]


@dataclass
class Result:
    """The results of one output: changes and progress, batch by batch."""

    schema: Schema
    batches: list[tuple[Changes, Progress]] = field(default_factory=list)
    #: The users' functions that it calls.
    functions: tuple[str, ...] = ()
    #: Whether its times are dates.
    dates: bool = False

    def changes(self) -> Changes:
        """All changes of all batches."""
        return Changes.concat([Changes.empty(self.schema), *(changes for changes, _ in self.batches)])

    @classmethod
    def of(cls, output: Output, batches: list[tuple[Changes, Progress]] | None = None) -> Result:
        """The results of an output of a plan."""
        return cls(output.schema, batches or [], functions_of(output), output.dates)

    def cht(self, time_columns: TimeColumns = LIFETIME) -> pa.Table:
        """The history, with times as users see them."""
        return shown(self.history(), dates=self.dates, time_columns=checked_time_columns(time_columns))

    def history(self) -> pa.Table:
        """The history, with times in ticks."""
        try:
            return history(self.changes(), dates=self.dates)
        except EventError as error:
            if not self.functions:
                raise
            raise EventError(
                f"{error.message}; the query calls {', '.join(self.functions)}: a function that is not deterministic "
                "retracts another event than it inserted",
                given=error.given,
                allowed="functions of their arguments alone",
                instead=f"hr.udf(verify=True) on {', '.join(self.functions)}, to see which it is",
            ) from error

    def events(self, time_columns: TimeColumns = LIFETIME) -> pa.Table:
        """The physical stream: inserts, retractions and CTIs in their order, with times as users see them."""
        events = pa.concat_tables([to_physical(Changes.empty(self.schema)), *physical_stream(self.batches)])
        return shown(events, dates=self.dates, time_columns=checked_time_columns(time_columns))


@dataclass
class FinishedRun:
    """A finished run: results by output name, counts by source, the statistics of every batch, and for every source the
    first row that was not used.
    """

    results: dict[str, Result]
    counts: dict[str, dict[str, int]]
    statistics: list[list[dict[str, Any]]]
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)
