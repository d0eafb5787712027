"""Materialized views: answers that are kept up to date, and can be read at any time.

A view is a query that runs in this process for as long as the view exists, into a log as a table has one
(`io/live_table.py`). Reading it first lets the query take in what is new, so it always has the answer that running the
query now would give. Statements of the tables that it reads have no time because of it: it promises nothing for them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np
import pyarrow as pa

from headrace.api.checks import HasNode, node_of
from headrace.api.running import start_all
from headrace.api.stream import Stream
from headrace.changes import Changes
from headrace.display.html import html_preview
from headrace.display.words import columns_text
from headrace.events import history, to_physical
from headrace.host.driving.query import Query
from headrace.host.live_tables import followed, table_reads
from headrace.io.live_table import ChangingTable, LiveTableRead
from headrace.io.sinks import FunctionSink
from headrace.plan.nodes import Node, sources_of
from headrace.time import INFINITY

__all__ = ["MaterializedView", "materialized"]

_numbers = count(1)


class _MaintainedTable(ChangingTable):
    """The answer of a running query."""

    def __init__(self, name: str, node: Node) -> None:
        super().__init__(name, node.schema)
        self._node = followed(node, promises=False)
        arrivals: list[Changes] = []  # not `self`: a query that refers to its view would keep it for ever
        self._arrivals = arrivals
        self._answer = Changes.empty(node.schema)
        sink = FunctionSink(function=lambda _, changes, progress: arrivals.append(changes))  # noqa: ARG005
        self.query: Query = start_all([(self._node, sink)], host="local", name=name)

    def __str__(self) -> str:
        return f"view {self.name}"

    @property
    def dates(self) -> bool:
        reads = table_reads(self._node)
        others = [s.dates for s in sources_of(self._node) if str(s.origin) not in {str(read) for read in reads}]
        return any(others) or any(read.table.dates for read in reads)

    def refresh(self) -> None:
        """Take in what is new."""
        with self._lock:
            self.query.process_all_available()
            while self._arrivals:
                changes = self._arrivals.pop(0)
                if len(changes):
                    self._answer = Changes.concat([self._answer, changes]).consolidate()
                    self._log.append(to_physical(changes).cast(self.log_schema.arrow))

    @property
    def changes(self) -> int:
        self.refresh()
        return len(self._log)

    @property
    def rows(self) -> pa.Table:
        """The rows that hold now."""
        self.refresh()
        answer = history(self._answer)
        now = np.asarray(answer["re"]) == INFINITY
        return answer.filter(pa.array(now)).drop_columns(["le", "re"])

    def follow(self) -> int:
        return self.changes


@dataclass(frozen=True, eq=False, repr=False)
class MaterializedView(Stream):
    """An answer that is kept up to date. As a stream it is the history of the answer."""

    live: _MaintainedTable
    _end: Callable[[], object]

    def __repr__(self) -> str:
        return f"MaterializedView {self.live.name} of {columns_text(self.live.schema)}"

    def _repr_html_(self) -> str:
        return html_preview(self.rows())

    def rows(self) -> pa.Table:
        """The rows of the answer that hold now."""
        return self.live.rows

    def stop(self) -> None:
        """Stop keeping it up to date; it cannot be read any more."""
        self._end()


def materialized(stream: HasNode, *, name: str | None = None) -> MaterializedView:
    """The answer of a query, kept up to date in this process: `hr.materialized(items.group_by("kind").aggregate(...))`.

    `rows()` gives the rows that hold now. Queries can read it as any stream. It ends with `stop()`, or when nothing
    refers to it any more.
    """
    live = _MaintainedTable(name or f"view_{next(_numbers)}", node_of(stream))
    return MaterializedView(LiveTableRead(live).source, live, weakref.finalize(live, live.query.stop))
