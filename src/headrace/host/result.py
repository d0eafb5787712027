"""The results of a finished run, on any host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import pyarrow as pa

from headrace.changes import Changes
from headrace.display.axis import shows_dates
from headrace.display.html import html_preview
from headrace.display.timeline import Timeline
from headrace.display.words import columns_text, counted, time_text
from headrace.errors import EventError
from headrace.events import history, physical_stream, to_physical
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.time import NEG_INFINITY

__all__ = ["FinishedRun", "Result"]

_MOST_SHOWN = 100_000  # changes of which a notebook shows the history: it takes a fraction of a second


@dataclass
class Result:
    """The results of one output: changes and progress, batch by batch."""

    schema: Schema
    batches: list[tuple[Changes, Progress]] = field(default_factory=list)
    #: The users' functions that it calls.
    functions: tuple[str, ...] = ()

    def changes(self) -> Changes:
        """All changes of all batches."""
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
                "retracts another event than it inserted",
                given=error.given,
                allowed="functions of their arguments alone",
                instead=f"hr.udf(verify=True) on {', '.join(self.functions)}, to see which it is",
            ) from error

    def plot(self, by: str | Sequence[str] = (), **look: Any) -> Timeline:
        """A timeline of its events and their corrections; see `Stream.plot`."""
        return Timeline.of(self.schema, self.batches, by, **look)

    def __repr__(self) -> str:
        cti = time_text(self.cti, dates=shows_dates([self.cti]))
        counts = f"{counted(self._size, 'change')} in {len(self.batches)} batches, CTI {cti}"
        return f"Result of {columns_text(self.schema)}\n  {counts}"

    def _repr_html_(self) -> str:
        if self._size <= _MOST_SHOWN:
            return f"<p>{escape(repr(self))}</p>\n{html_preview(self.cht())}"
        largest = max((changes for changes, _ in self.batches), key=len)
        return f"<p>{escape(repr(self))}; some of its events:</p>\n{html_preview(to_physical(largest.slice(0, 100)))}"

    @property
    def cti(self) -> int:
        """The last promise."""
        return self.batches[-1][1].cti if self.batches else NEG_INFINITY

    @property
    def _size(self) -> int:
        return sum(len(changes) for changes, _ in self.batches)

    def events(self) -> pa.Table:
        """The physical stream: inserts, retractions and CTIs in their order."""
        return pa.concat_tables([to_physical(Changes.empty(self.schema)), *physical_stream(self.batches)])


@dataclass
class FinishedRun:
    """A finished run: results by output name, counts by source, the statistics of every batch, and for every source the
    first row that was not used.
    """

    results: dict[str, Result]
    counts: dict[str, dict[str, int]]
    statistics: list[list[dict[str, Any]]]
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)
