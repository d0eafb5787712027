"""What a finished run gives, whichever host ran it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.changes import Changes
from headrace.errors import EventError
from headrace.events import history, physical_stream, to_physical
from headrace.progress import Progress
from headrace.schema import Schema

__all__ = ["Finished", "Result"]


@dataclass
class Result:
    """What left one output: changes and progress, batch by batch."""

    schema: Schema
    batches: list[tuple[Changes, Progress]] = field(default_factory=list)
    #: The users' functions behind it.
    functions: tuple[str, ...] = ()

    def changes(self) -> Changes:
        """Everything that left, as one bag."""
        return Changes.concat([Changes.empty(self.schema), *(changes for changes, _ in self.batches)])

    def cht(self) -> pa.Table:
        """The history."""
        try:
            return history(self.changes())
        except EventError as error:
            if not self.functions:
                raise
            raise EventError(
                f"{error.message}; the query calls {', '.join(self.functions)}: a function that is not deterministic "
                "takes back another event than it gave",
                given=error.given,
                allowed="functions of their arguments alone",
                instead=f"hr.udf(verify=True) on {', '.join(self.functions)}, to see which it is",
            ) from error

    def events(self) -> pa.Table:
        """The physical stream: inserts, retractions and CTIs in the order they left."""
        return pa.concat_tables([to_physical(Changes.empty(self.schema)), *physical_stream(self.batches)])


@dataclass
class Finished:
    """A finished run: results by output name, counts by source, the state at the end of every batch, and of every
    source the first row that was not used.
    """

    results: dict[str, Result]
    counts: dict[str, dict[str, int]]
    statistics: list[list[dict[str, Any]]]
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)
