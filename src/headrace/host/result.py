"""The results of a finished run, on any host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.border import LIFETIME, TimeColumns, checked_time_columns, shown
from headrace.changes import Changes
from headrace.columnar import Int64s, factorize, to_numpy
from headrace.display.html import html_preview
from headrace.display.rich import RichDisplay
from headrace.display.timeline import Timeline
from headrace.display.words import columns_text, counted
from headrace.errors import EventError
from headrace.events import history, physical_stream, to_physical
from headrace.plan.functions import functions_of
from headrace.plan.nodes import Output
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.time import NEG_INFINITY, format_ticks

__all__ = ["DIVERTED", "FinishedRun", "Result"]

_MOST_SHOWN = 100_000  # changes of which a notebook shows the history: it takes a fraction of a second

#: The prefix of the outputs of diverted rows; a user may name an output "diverted".
DIVERTED = "(diverted)"


@dataclass
class Result(RichDisplay):
    """The results of one output: changes and progress, batch by batch."""

    schema: Schema
    batches: list[tuple[Changes, Progress]] = field(default_factory=list)
    #: The users' functions that it calls.
    functions: tuple[str, ...] = ()
    #: Whether its times are dates.
    dates: bool = False
    #: The number of its first batch: a run that continues from a checkpoint has only what has changed since.
    began: int = 0
    #: Whether its answers at one instant have come in the order in which the input happened.
    in_order: bool = False

    def changes(self) -> Changes:
        """All changes of all batches."""
        return Changes.concat([Changes.empty(self.schema), *(changes for changes, _ in self.batches)])

    @classmethod
    def of(
        cls,
        output: Output,
        batches: list[tuple[Changes, Progress]] | None = None,
        began: int = 0,
        *,
        in_order: bool = False,
    ) -> Result:
        """The results of an output of a plan."""
        return cls(output.schema, batches or [], functions_of(output), output.dates, began, in_order)

    def cht(self, time_columns: TimeColumns = LIFETIME) -> pa.Table:
        """The history, with times as users see them."""
        return shown(self.history(), dates=self.dates, time_columns=checked_time_columns(time_columns))

    def history(self) -> pa.Table:
        """The history, with times in ticks."""
        try:
            return history(self.changes(), dates=self.dates)
        except EventError as error:
            if self.began:
                raise EventError(
                    f"this run continued a checkpoint with batch {self.began}, and corrects answers from before",
                    instead="a files sink, which keeps all of the history, events(), or a new checkpoint",
                ) from error
            if not self.functions:
                raise
            raise EventError(
                f"{error.message}; the query calls {', '.join(self.functions)}: a function that is not deterministic "
                "retracts another event than it inserted",
                given=error.given,
                allowed="functions of their arguments alone",
                instead=f"hr.udf(verify=True) on {', '.join(self.functions)}, to see which it is",
            ) from error

    def table(self) -> pa.Table:
        """The history as it is printed: by starts; what starts together, in the order it happened, if that is known.

        Otherwise columns decide, as in `cht`.
        """
        found = self.history()
        if not self.in_order or found.num_rows == 0:
            return shown(found, dates=self.dates)
        changes = self.changes()
        given = pa.table({"le": changes.le, "re": changes.re})
        for name, column in zip(found.column_names[2:], changes.payload.columns, strict=True):
            given = given.append_column(name, column)
        order = np.lexsort((_place_given(found, given, changes.weight), to_numpy(found.column("le"))))
        return shown(found.take(pa.array(order)), dates=self.dates)

    def plot(self, by: str | Sequence[str] = (), **look: Any) -> Timeline:
        """A timeline of its events and their corrections; see `Stream.plot`."""
        return Timeline.of(self.schema, self.batches, by, dates=self.dates, **look)

    def __repr__(self) -> str:
        cti = format_ticks(self.cti, dates=self.dates)
        counts = f"{counted(self._size, 'change')} in {len(self.batches)} batches, CTI {cti}"
        return f"Result of {columns_text(self.schema)}\n  {counts}"

    def _repr_html_(self) -> str:
        if self._size <= _MOST_SHOWN:
            return f"<p>{escape(repr(self))}</p>\n{html_preview(self.table())}"
        largest = max((changes for changes, _ in self.batches), key=len)
        some = shown(to_physical(largest.slice(0, 100)), dates=self.dates)
        return f"<p>{escape(repr(self))}; some of its events:</p>\n{html_preview(some)}"

    @property
    def cti(self) -> int:
        """The last promise."""
        return self.batches[-1][1].cti if self.batches else NEG_INFINITY

    @property
    def _size(self) -> int:
        return sum(len(changes) for changes, _ in self.batches)

    def events(self, time_columns: TimeColumns = LIFETIME) -> pa.Table:
        """The physical stream: inserts, retractions and CTIs in their order, with times as users see them."""
        events = pa.concat_tables([to_physical(Changes.empty(self.schema)), *physical_stream(self.batches)])
        return shown(events, dates=self.dates, time_columns=checked_time_columns(time_columns))


def _place_given(found: pa.Table, given: pa.Table, weight: Int64s) -> Int64s:
    """Where each row of a history was given; equal rows stand together, in the place of the last of them."""
    codes, first = factorize(pa.concat_tables([found, given]))
    place = np.flatnonzero(weight > 0)
    last = np.zeros(len(first), np.int64)
    np.maximum.at(last, codes[found.num_rows + place], place)
    return last[codes[: found.num_rows]]


@dataclass
class FinishedRun:
    """A finished run: results by output name, counts by source, the statistics of every batch, and for every source the
    first row that was not used.
    """

    results: dict[str, Result]
    counts: dict[str, dict[str, int]]
    statistics: list[list[dict[str, Any]]]
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)
